/* CUDA graphs: what an executable graph does is known when it is instantiated, kept up to date, and put on record
 * whenever it is launched.
 *
 * A launch of a graph is, on record, a call with calls inside it: one for each node, in an order in which they may
 * run, as the entry that does the same on a stream; and at the end a cuStreamQuery, CUDA_SUCCESS where the graph was
 * waited for and the memory it reaches was looked at. They are entered together with the launch, and have the
 * numbers that follow it. Between nodes memory cannot be read, so the pages that a graph changed belong to its end.
 *
 * What is put on a stream that is being captured is not carried out; on record it is inside the call that began the
 * capture.
 */

/* --- captures of streams ------------------------------------------------------------------------------- */

static u64
capture_id (u64 stream)
{
  u64 id = 0;
  u32 status = 0;

  if (ask (state.driver.cuStreamGetCaptureInfo, stream, (u64) &status, (u64) &id, 0))
    return 0;
  return id;
}

static void
capture_begun (struct call * call)
{
  u64 id = capture_id (call->stream);

  lock ();
  state.begun[state.next_begun % BEGUN_KEPT].id = id;
  state.begun[state.next_begun++ % BEGUN_KEPT].sequence = call->sequence;
  unlock ();
}

/* The call that began the capture that a stream is part of, its number + 1; the latest where that is not known. */
static u64
capture_of (u64 stream)
{
  u64 id = capture_id (stream), sequence = 0;
  u32 index;

  lock ();
  if (state.next_begun != 0)
    sequence = state.begun[(state.next_begun - 1) % BEGUN_KEPT].sequence + 1;
  for (index = 0; index != BEGUN_KEPT && index != state.next_begun; index++)
    if (state.begun[index].id == id)
      sequence = state.begun[index].sequence + 1;
  unlock ();
  return sequence;
}

/* --- the table of executable graphs ------------------------------------------------------------------------ */

static struct graph *
find_graph (u64 handle)
{
  struct graph * found = NULL;
  u32 index;

  lock ();
  for (index = 0; index != state.graph_count; index++)
    if (state.graphs[index]->handle == handle)
      found = state.graphs[index];
  unlock ();
  return found;
}

/* Programs do not destroy or update a graph while another thread launches it, so nothing is counted here. */
static void
forget_graph (u64 handle)
{
  struct graph * gone = NULL;
  u32 index;

  lock ();
  for (index = 0; index != state.graph_count && gone == NULL; index++)
    if (state.graphs[index]->handle == handle)
    {
      gone = state.graphs[index];
      state.graphs[index] = state.graphs[--state.graph_count];
    }
  unlock ();
  if (gone == NULL)
    return;
  free_nodes (gone);
  g_free (gone);
}

static void
keep_graph (struct graph * graph)
{
  forget_graph (graph->handle);
  lock ();
  if (state.graph_count == state.graph_room)
  {
    state.graph_room = state.graph_room * 2 + 64;
    state.graphs = g_realloc (state.graphs, 8ULL * state.graph_room);
  }
  state.graphs[state.graph_count++] = graph;
  unlock ();
}

/* cuGraphInstantiate in its forms: (CUgraphExec *, CUgraph, …). */
static void
leave_instantiate (struct call * call)
{
  const struct function * function = call->function;
  struct graph * graph;
  u64 flags = 0;

  if (call->word[0] == 0)
    return;
  if (function->parameters == 3 && function->parameter[2].rule == RULE_NONE)
    flags = call->word[2];
  else if (function->parameters == 3 && call->word[2] != 0) /* CUDA_GRAPH_INSTANTIATE_PARAMS */
    flags = *(u64 *) call->word[2];
  if (flags & CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH)
    write_gap (call, call->end, "graph", "launches of it by the device are no calls, and not on record");
  graph = g_malloc0 (sizeof (struct graph));
  graph->handle = *(u64 *) call->word[0];
  add_nodes (call, graph, call->word[1], 0, 0, 0);
  keep_graph (graph);
}

/* --- updates of executable graphs --------------------------------------------------------------------------- */

static struct node *
find_node (struct graph * graph, u64 handle)
{
  u32 index;

  for (index = 0; index != graph->count; index++)
    if (graph->node[index].handle == handle)
      return &graph->node[index];
  return NULL;
}

/* Nodes [first, first + count) do what all nodes of another graph do, node by node: it is built alike. */
static void
take_over (struct call * call, struct graph * graph, u32 first, u32 count, u64 source)
{
  struct graph from;
  u32 index;

  memset (&from, 0, sizeof (from));
  add_nodes (call, &from, source, 0, 0, 0);
  if (from.count != count)
    graph->unknown = "it was updated from a graph that is not like it";
  for (index = 0; index != count && from.count == count; index++)
  {
    struct node old = graph->node[first + index];

    graph->node[first + index] = from.node[index];
    graph->node[first + index].handle = old.handle;
    graph->node[first + index].within = old.within;
    graph->node[first + index].disabled = old.disabled;
    from.node[index].packed = old.packed;
    from.node[index].attributes = old.attributes;
  }
  if (from.unknown != NULL)
    graph->unknown = from.unknown;
  free_nodes (&from);
}

/* cuGraphExecUpdate (CUgraphExec, CUgraph, …) */
static void
leave_graph_update (struct call * call)
{
  struct graph * graph = find_graph (call->word[0]);

  if (graph == NULL)
    return;
  graph->unknown = NULL;
  take_over (call, graph, 0, graph->count, call->word[1]);
}

/* cuGraphExecChildGraphNodeSetParams: the nodes of that child, which stand side by side. */
static void
set_child (struct call * call, struct graph * graph, u64 handle, u64 child)
{
  u32 first, count;

  for (first = 0; first != graph->count && graph->node[first].within != handle; first++)
    ;
  for (count = 0; first + count != graph->count && graph->node[first + count].within == handle; count++)
    ;
  take_over (call, graph, first, count, child);
}

/* Where a CUgraphNodeParams has what the node's own setter takes. */
#define GENERIC 16
#define GENERIC_COPY 32

/* cuGraphExec…NodeSetParams (CUgraphExec, CUgraphNode, parameters, …) */
static void
leave_set_node (struct call * call)
{
  struct graph * graph = find_graph (call->word[0]);
  struct node * node;
  const u8 * asked = (const u8 *) call->word[2];
  u32 size = call->function->parameter[2].size;
  int generic = size == 256;

  if (graph == NULL || call->word[2] == 0)
    return;
  node = find_node (graph, call->word[1]);
  if (node == NULL)
  {
    set_child (call, graph, call->word[1], generic ? *(u64 *) (asked + GENERIC) : call->word[2]);
    return;
  }
  if (node->type == NODE_WAIT_EVENT || node->type == NODE_RECORD_EVENT)
    describe_event (node, generic ? *(u64 *) (asked + GENERIC) : call->word[2]);
  else if (node->type == NODE_COPY)
    describe_copy (node, asked + (generic ? GENERIC_COPY : 0));
  else if (node->type == NODE_KERNEL)
    describe_kernel (call, node, asked + (generic ? GENERIC : 0), generic || size > KERNEL_KERN);
  else if (node->type == NODE_FILL)
    describe_fill (node, (const struct fill *) (asked + (generic ? GENERIC : 0)));
  else if (node->type == NODE_HOST)
    describe_host (node, (const u64 *) (asked + (generic ? GENERIC : 0)));
}

/* cuGraphNodeSetEnabled (CUgraphExec, CUgraphNode, unsigned int) */
static void
leave_set_enabled (struct call * call)
{
  struct graph * graph = find_graph (call->word[0]);
  struct node * node = graph != NULL ? find_node (graph, call->word[1]) : NULL;

  if (node != NULL)
    node->disabled = call->word[2] == 0;
}

/* CUDA_CONDITIONAL_NODE_PARAMS in a CUgraphNodeParams */
#define CONDITION GENERIC
#define CONDITION_TYPE 24
#define CONDITION_SIZE 28
#define CONDITION_GRAPHS 32

/* cuGraphAddNode: a conditional node's graphs are told here only. The parameters come last. */
static void
leave_add_node (struct call * call)
{
  const u8 * asked = (const u8 *) call->word[call->function->parameters - 1];
  struct body * body;
  u64 ** graphs;
  u32 index, count;

  if (asked == NULL || call->word[0] == 0 || *(const u32 *) asked != NODE_CONDITIONAL)
    return;
  count = *(const u32 *) (asked + CONDITION_SIZE);
  graphs = (u64 **) (asked + CONDITION_GRAPHS);
  for (index = 0; index != count && *graphs != NULL; index++)
  {
    lock ();
    if (state.body_count == state.body_room)
    {
      state.body_room = state.body_room * 2 + 16;
      state.bodies = g_realloc (state.bodies, (u64) state.body_room * sizeof (struct body));
    }
    body = &state.bodies[state.body_count++];
    body->node = *(u64 *) call->word[0];
    body->graph = (*graphs)[index];
    body->condition = *(const u64 *) (asked + CONDITION);
    body->type = *(const u32 *) (asked + CONDITION_TYPE);
    unlock ();
  }
}

/* --- launches --------------------------------------------------------------------------------------------- */

static int
is_expanded (const struct node * node)
{
  return node->function != NULL && !node->disabled;
}

/* How many numbers the launch of a graph takes beside its own: one a node that runs, and one for its end. */
static u64
calls_of_graph (struct call * call)
{
  u64 count = 1;
  u32 index;

  if (call->function->special != SPECIAL_GRAPH_LAUNCH || call->flags & LEAVE_DEFERRED)
    return 0;
  call->graph = find_graph (call->word[0]);
  if (call->graph == NULL)
    return 0;
  for (index = 0; index != call->graph->count; index++)
    count += is_expanded (&call->graph->node[index]);
  return count;
}

/* The call, inside the launch of a graph, that has the number `sequence`. */
static void
make_call (struct call * made, const struct call * launch, const struct function * function, u64 sequence)
{
  memset (made, 0, sizeof (struct call) - sizeof (made->packed_room));
  made->function = function;
  made->thread = launch->thread;
  made->sequence = sequence;
  made->parent = launch->sequence + 1;
  made->start = launch->start;
  made->end = launch->end;
  made->stream = launch->stream;
}

static void
make_node_call (struct call * made, const struct call * launch, struct node * node, u64 sequence)
{
  make_call (made, launch, node->function, sequence);
  memcpy (made->word, node->word, sizeof (made->word));
  made->layout = node->layout;
  made->packed = node->packed;
  made->packed_size = node->packed_size;
  if (node->function->stream != 0xff)
    made->word[node->function->stream] = launch->stream;
  if (node->type == NODE_KERNEL)
  {
    *(u64 *) (node->body + CONFIG_STREAM) = launch->stream;
    *(u8 **) (node->body + CONFIG_ATTRIBUTES) = node->attributes_size != 0 ? node->attributes : NULL;
    *(u32 *) (node->body + CONFIG_ATTRIBUTE_COUNT) = node->attributes_size / ATTRIBUTE_BYTES;
  }
  if (node->type == NODE_KERNEL || node->type == NODE_COPY || node->type == NODE_ALLOCATE)
    made->word[0] = (u64) node->body;
}

static void write_enter (struct call * call);
static void write_leave (struct call * call, u64 result);

/* The ends of a copy node. 0 where it copies nothing. */
static int
ends_of (struct node * node, struct box_copy * box, struct end * from, struct end * to)
{
  memcpy (box, node->body, sizeof (struct box_copy));
  if (box->width == 0 || box->height == 0 || box->depth == 0)
    return 0;
  find_end (from, &box->from, box);
  find_end (to, &box->to, box);
  return 1;
}

static u64
host_bytes (const struct end * end, const struct box_copy * box)
{
  return (box->depth - 1) * end->slice + (box->height - 1) * end->pitch + box->width;
}

/* Whether one of the nodes [first, last) may change `size` bytes of host memory: by a callback, or by a copy out. */
static int
changes_host (struct graph * graph, u32 first, u32 last, u64 address, u64 size)
{
  struct box_copy box;
  struct end from, to;
  u32 index;

  for (index = first; index < last; index++)
  {
    struct node * node = &graph->node[index];
    int changes = 0;

    if (!is_expanded (node))
      continue;
    if (node->type == NODE_HOST)
      return 1;
    if (node->type != NODE_COPY || !ends_of (node, &box, &from, &to))
      continue;
    changes = to.host != 0 && to.host < address + size && address < to.host + host_bytes (&to, &box);
    release_end (&from);
    release_end (&to);
    if (changes)
      return 1;
  }
  return 0;
}

enum { BEFORE_GRAPH, AFTER_GRAPH };

static int
is_pinned (u64 address)
{
  u32 type = 0;

  return ask (state.driver.cuPointerGetAttribute, (u64) &type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address, 0) == 0
      && type == CU_MEMORYTYPE_HOST;
}

/* What a copy between host and device moved, where host memory still tells: before the graph runs, what it copies
 * in and no node before it changes; after that, what no node after it changes. Of pageable memory that a node before
 * changes, the driver may read an earlier state than nodes' order says (seen with a callback on an H200).
 *
 * In a conditional node's body, any node may run before any other, and what it copies out may never have been copied. */
static void
write_moved (struct call * made, u64 time, struct graph * graph, u32 index, u32 when)
{
  struct box_copy box;
  struct end from, to;
  u32 inside = graph->node[index].inside;

  if (graph->node[index].type != NODE_COPY || !ends_of (&graph->node[index], &box, &from, &to))
    return;
  if (from.host != 0 && to.host == 0)
  {
    u64 size = host_bytes (&from, &box);
    int early = !changes_host (graph, 0, inside ? graph->count : index, from.host, size);

    if (when == BEFORE_GRAPH ? early : !early && !inside && is_pinned (from.host)
                                && !changes_host (graph, index + 1, graph->count, from.host, size))
      write_rows (made, time, 0, DIRECTION_IN, &from, &box);
  }
  else if (to.host != 0 && from.host == 0 && when == AFTER_GRAPH && state.outputs && !inside
           && !changes_host (graph, index + 1, graph->count, to.host, host_bytes (&to, &box)))
    write_rows (made, time, 0, DIRECTION_OUT, &to, &box);
  release_end (&from);
  release_end (&to);
}

/* After ENTER of the launch: its nodes are entered too, so that a launch that crashes is on record with them. */
static void
enter_graph_launch (struct call * call)
{
  struct graph * graph = call->graph;
  u64 sequence = call->sequence;
  struct call made;
  u32 index;

  if (call->flags & LEAVE_DEFERRED)
    return;
  if (graph == NULL)
  {
    write_gap (call, call->start, "graph", "its instantiation is not on record, so its nodes are not known");
    return;
  }
  for (index = 0; index != graph->count; index++)
  {
    struct node * node = &graph->node[index];

    if (!is_expanded (node))
      continue;
    make_node_call (&made, call, node, ++sequence);
    if (node->type == NODE_FREE) /* of memory that is there once the node that takes it has returned */
      continue;
    write_enter (&made);
    if (node->type == NODE_KERNEL)
      write_attributes (&made);
    if (!(call->flags & LEFT_OUT)) /* else nobody replays it */
      write_moved (&made, call->start, graph, index, BEFORE_GRAPH);
  }
  if (graph->unknown != NULL)
    write_gap (call, call->start, "graph", graph->unknown);
  if (state.outputs && !(call->flags & LEFT_OUT))
    capture_before_launch (call);
}

/* Whether one of the graph's kernels is chosen: its memory is looked at as a whole. */
static int
is_graph_chosen (struct call * call)
{
  struct graph * graph = call->graph;
  u32 index, chosen = 0;

  for (index = 0; graph != NULL && index != graph->count; index++)
    if (graph->node[index].type == NODE_KERNEL && is_expanded (&graph->node[index]))
      chosen |= (u32) is_chosen (graph->node[index].layout, (const u32 *) graph->node[index].body);
  return chosen != 0;
}

/* Memory that a graph takes and gives back, from now on. */
static void
leave_memory_node (struct call * made, struct node * node)
{
  struct allocation * freed;
  u64 context = 0;

  if (node->type == NODE_ALLOCATE)
  {
    state.driver.cuCtxGetCurrent ((u64) &context, 0, 0, 0);
    add_allocation (*(u64 *) node->body, node->word[1], MEMORY_DEVICE, context);
  }
  else if (node->type == NODE_FREE && (freed = take_allocation (node->word[0])) != NULL)
    release (freed);
}

/* The pages that a fill wrote have to be put on record anew: later nodes may have written over it. */
static void
note_filled (const struct node * node)
{
  const struct fill * fill = (const struct fill *) node->body;
  u64 row = fill->width * fill->unit;

  note_written (fill->address, fill->height > 1 ? (fill->height - 1) * fill->pitch + row : row, NULL);
}

/* The nodes' calls return, with the result of the launch. */
static void
leave_nodes (struct call * call, u64 result)
{
  struct graph * graph = call->graph;
  u64 sequence = call->sequence;
  struct call made;
  u32 index;

  if (graph == NULL)
    return;
  for (index = 0; index != graph->count; index++)
  {
    struct node * node = &graph->node[index];

    if (!is_expanded (node))
      continue;
    make_node_call (&made, call, node, ++sequence);
    if (node->type == NODE_FREE)
    {
      made.start = call->end;
      write_enter (&made);
    }
    made.flags |= call->flags & LEFT_OUT;
    if (result == 0)
    {
      if (!(call->flags & LEFT_OUT)) /* else it was not waited for */
        write_moved (&made, call->end, graph, index, AFTER_GRAPH);
      leave_memory_node (&made, node);
      if (node->type == NODE_FILL && state.outputs)
        note_filled (node);
    }
    write_leave (&made, result);
  }
}

/* The graph's end: waited for where memory is captured, which is looked at then. */
static void
leave_graph_launch (struct call * call)
{
  int done;
  struct call end;
  u64 sequence;

  if (call->graph == NULL)
  {
    if (state.outputs)
      leave_unknown_write (call);
    return;
  }
  done = state.outputs && !(call->flags & LEFT_OUT) && wait_for_stream (call, call->end, call->stream);
  leave_nodes (call, 0);
  sequence = call->sequence + calls_of_graph (call);
  make_call (&end, call, state.stands_for.cuStreamQuery, sequence);
  end.word[0] = call->stream;
  end.graph = call->graph;
  end.start = call->end;
  write_enter (&end);
  if (done)
    done = capture_after_launch (&end, call->end);
  if (!done)
    leaves_unseen ();
  write_leave (&end, done ? 0 : CUDA_ERROR_NOT_READY);
}

/* Every allocation that nodes reach of themselves, those of conditional nodes' bodies too. */
static void
reach_nodes (struct call * call)
{
  struct graph * graph = call->graph;
  struct thread * self = call->thread;
  struct allocation * found;
  struct box_copy box;
  struct end from, to;
  u32 index;

  for (index = 0; index != graph->count; index++)
  {
    struct node * node = &graph->node[index];

    if (node->disabled)
      continue;
    if (node->type == NODE_KERNEL)
      reach_directly (call, node->packed, node->packed_size, node->layout);
    else if (node->type == NODE_FILL && (found = find_allocation (node->word[0])) != NULL)
      reach (self, found);
    else if (node->type == NODE_COPY && ends_of (node, &box, &from, &to))
    {
      if (from.allocation != NULL && from.host == 0)
        reach (self, from.allocation);
      if (to.allocation != NULL && to.host == 0)
        reach (self, to.allocation);
    }
  }
}
