/* What the nodes of a graph do, asked of the driver: each as the driver entry that does the same on a stream.
 *
 * So graphs built node by node and graphs captured from streams are one thing. The driver keeps copies of kernels'
 * parameters from the moment a node is added; they are packed here, since its pointers are this process's own.
 */

/* CUgraphNodeType */
enum
{
  NODE_KERNEL, NODE_COPY, NODE_FILL, NODE_HOST, NODE_GRAPH, NODE_EMPTY, NODE_WAIT_EVENT, NODE_RECORD_EVENT,
  NODE_SIGNAL_SEMAPHORES, NODE_WAIT_SEMAPHORES, NODE_ALLOCATE, NODE_FREE, NODE_BATCH, NODE_CONDITIONAL
};

/* What stands around the nodes of a conditional node's graphs, beside them. */
enum { MARK_BODY = 0x100, MARK_END };

/* CUlaunchAttributeID */
enum { COOPERATIVE = 2, CLUSTER_DIMENSION = 4, CLUSTER_SCHEDULING = 5, PRIORITY = 8, SHARED_MEMORY_CARVEOUT = 14 };

/* CUDA_KERNEL_NODE_PARAMS, CUDA_MEMSET_NODE_PARAMS, CUDA_MEM_ALLOC_NODE_PARAMS */
#define KERNEL_GRID 8
#define KERNEL_SHAPE_BYTES 28          /* grid, block, shared bytes, as CUlaunchConfig begins */
#define KERNEL_PARAMETERS 40
#define KERNEL_EXTRA 48
#define KERNEL_KERN 56
#define ALLOCATION_BYTES 104
#define ALLOCATION_ADDRESS 112
#define NODE_BODY_BYTES 200            /* the longest of what a first argument points to: CUDA_MEMCPY3D */

struct fill
{
  u64 address, pitch;
  u32 value, unit;
  u64 width, height;
};

struct node
{
  u64 handle;                          /* CUgraphNode, by which updates name it */
  u64 within;                          /* the child graph's node that holds it; 0: none */
  u32 type, disabled;
  u32 inside;                          /* in a conditional node's body: how often it runs is not known */
  const struct function * function;    /* what does the same on a stream; NULL: nothing does, or there is no need */
  u64 word[MAX_PARAMETERS];
  struct layout * layout;
  u8 * packed, * attributes;
  u32 packed_size, attributes_size;
  u8 body[NODE_BODY_BYTES];            /* what the first word points to, where it points */
};

/* An executable graph; its nodes in an order in which they may run one after the other. */
struct graph
{
  u64 handle;
  struct node * node;
  u32 count, room;
  const char * unknown;                /* why not all that it does is known; NULL: it is */
};

/* A graph inside a conditional node, with the handle of the node's condition and its CUgraphConditionalNodeType. */
struct body
{
  u64 node, graph, condition;
  u32 type;
};

typedef u64 (* entry5) (u64, u64, u64, u64, u64);

static u32
ask (entry call, u64 a, u64 b, u64 c, u64 d)
{
  return (u32) call (a, b, c, d);
}

/* --- one node ------------------------------------------------------------------------------------------ */

/* The handle under which the record knows a function that a node names: the driver may name a CUkernel's function,
 * which the program never asked for. */
static u64
known_handle (u64 function)
{
  struct layout * own = NULL, ** place;
  const char * name = NULL, * other;
  u64 of_kernel;
  u32 index;

  lock ();
  place = layout_place (function);
  own = place != NULL ? *place : NULL;
  unlock ();
  if (own != NULL && (own->kernel != 0 || own->owner != 0))
    return own->kernel != 0 ? own->kernel : function;
  if (ask (state.driver.cuFuncGetName, (u64) &name, function, 0, 0) || name == NULL)
    return function;
  for (index = 0; index != LAYOUT_PLACES; index++)
  {
    struct layout * kernel = state.layouts[index];

    if (kernel == NULL || kernel->kind != HANDLE_KERNEL || kernel->owner == 0)
      continue;
    other = kernel_name (kernel);
    of_kernel = 0;
    if (strcmp (name, other) != 0 || ask (state.driver.cuKernelGetFunction, (u64) &of_kernel, kernel->handle, 0, 0)
        || of_kernel != function)
      continue;
    note_handle (function, HANDLE_FUNCTION, kernel->owner, 0);
    lock ();
    if ((place = layout_place (function)) != NULL && *place != NULL)
      (*place)->kernel = kernel->handle;
    unlock ();
    return kernel->handle;
  }
  return function;
}

/* Pack a kernel's parameters: CUDA_KERNEL_NODE_PARAMS of any version. */
static void
describe_kernel (struct call * call, struct node * node, const u8 * asked, int has_kernel)
{
  u64 function = *(const u64 *) asked;
  struct call packing;

  if (function == 0 && has_kernel)
    function = *(const u64 *) (asked + KERNEL_KERN);
  node->function = state.stands_for.cuLaunchKernelEx;
  node->word[1] = known_handle (function);
  memset (node->body, 0, NODE_BODY_BYTES);
  memcpy (node->body, asked + KERNEL_GRID, KERNEL_SHAPE_BYTES);
  packing = *call;
  packing.packed = NULL;
  packing.packed_size = packing.flags = 0;
  packing.layout = node->layout = layout_of (call, node->word[1]);
  pack_parameters (&packing, *(void ***) (asked + KERNEL_PARAMETERS), *(void ***) (asked + KERNEL_EXTRA));
  g_free (node->packed);
  node->packed = NULL;
  node->packed_size = packing.packed_size;
  if (packing.packed_size == 0)
    return;
  node->packed = g_malloc (packing.packed_size);
  memcpy (node->packed, packing.packed, packing.packed_size);
  if (packing.flags & CALL_OWNS_PACKED)
    g_free ((void *) packing.packed);
}

/* The attributes that change what a kernel computes or where its blocks run, those that are set. */
static void
ask_attributes (struct node * node)
{
  static const u32 asked[] = { COOPERATIVE, CLUSTER_DIMENSION, CLUSTER_SCHEDULING, PRIORITY, SHARED_MEMORY_CARVEOUT };
  u8 value[ATTRIBUTE_BYTES];
  u32 index, byte;

  node->attributes = g_malloc0 (sizeof (asked) / 4 * ATTRIBUTE_BYTES);
  for (index = 0; index != sizeof (asked) / 4; index++)
  {
    memset (value, 0, sizeof (value));
    *(u32 *) value = asked[index];
    if (ask (state.driver.cuGraphKernelNodeGetAttribute, node->handle, asked[index], (u64) (value + 8), 0))
      continue;
    for (byte = 8; byte != ATTRIBUTE_BYTES && value[byte] == 0; byte++)
      ;
    if (byte == ATTRIBUTE_BYTES)
      continue;
    memcpy (node->attributes + node->attributes_size, value, ATTRIBUTE_BYTES);
    node->attributes_size += ATTRIBUTE_BYTES;
  }
}

static void
describe_copy (struct node * node, const void * box)
{
  node->function = state.stands_for.cuMemcpy3DAsync_v2;
  memcpy (node->body, box, sizeof (struct box_copy));
}

static void
describe_fill (struct node * node, const struct fill * fill)
{
  int flat = fill->height > 1;

  node->function = fill->unit == 1 ? (flat ? state.stands_for.cuMemsetD2D8Async : state.stands_for.cuMemsetD8Async)
      : fill->unit == 2 ? (flat ? state.stands_for.cuMemsetD2D16Async : state.stands_for.cuMemsetD16Async)
      : (flat ? state.stands_for.cuMemsetD2D32Async : state.stands_for.cuMemsetD32Async);
  memcpy (node->body, fill, sizeof (struct fill));
  node->word[0] = fill->address;
  node->word[1] = flat ? fill->pitch : fill->value;
  node->word[2] = flat ? fill->value : fill->width;
  node->word[3] = flat ? fill->width : 0;
  node->word[4] = flat ? fill->height : 0;
}

static void
describe_host (struct node * node, const u64 * host)
{
  node->function = state.stands_for.cuLaunchHostFunc;
  node->word[1] = host[0];
  node->word[2] = host[1];
}

static void
describe_event (struct node * node, u64 event)
{
  int wait = node->type == NODE_WAIT_EVENT;

  node->function = wait ? state.stands_for.cuStreamWaitEvent : state.stands_for.cuEventRecord;
  node->word[wait ? 1 : 0] = event;
}

/* Ask the driver what a node does. 0 where it does not tell. */
static int
describe (struct call * call, struct node * node)
{
  u8 asked[256];
  u64 event = 0;
  u32 failed;

  memset (asked, 0, sizeof (asked));
  switch (node->type)
  {
    case NODE_KERNEL:
      failed = ask (state.driver.cuGraphKernelNodeGetParams_v2, node->handle, (u64) asked, 0, 0);
      if (failed == CUDA_ERROR_NOT_FOUND)
        failed = ask (state.driver.cuGraphKernelNodeGetParams, node->handle, (u64) asked, 0, 0);
      if (failed)
        return 0;
      describe_kernel (call, node, asked, 1);
      ask_attributes (node);
      return 1;
    case NODE_COPY:
      if (ask (state.driver.cuGraphMemcpyNodeGetParams, node->handle, (u64) asked, 0, 0))
        return 0;
      describe_copy (node, asked);
      return 1;
    case NODE_FILL:
      if (ask (state.driver.cuGraphMemsetNodeGetParams, node->handle, (u64) asked, 0, 0))
        return 0;
      describe_fill (node, (struct fill *) asked);
      return 1;
    case NODE_HOST:
      if (ask (state.driver.cuGraphHostNodeGetParams, node->handle, (u64) asked, 0, 0))
        return 0;
      describe_host (node, (u64 *) asked);
      return 1;
    case NODE_WAIT_EVENT:
    case NODE_RECORD_EVENT:
      if (ask (node->type == NODE_WAIT_EVENT ? state.driver.cuGraphEventWaitNodeGetEvent
                                                : state.driver.cuGraphEventRecordNodeGetEvent,
                  node->handle, (u64) &event, 0, 0))
        return 0;
      describe_event (node, event);
      return 1;
    case NODE_ALLOCATE:
      if (ask (state.driver.cuGraphMemAllocNodeGetParams, node->handle, (u64) asked, 0, 0))
        return 0;
      node->function = state.stands_for.cuMemAllocAsync;
      node->word[1] = *(u64 *) (asked + ALLOCATION_BYTES);
      *(u64 *) node->body = *(u64 *) (asked + ALLOCATION_ADDRESS);
      return 1;
    case NODE_FREE:
      if (ask (state.driver.cuGraphMemFreeNodeGetParams, node->handle, (u64) &event, 0, 0))
        return 0;
      node->function = state.stands_for.cuMemFreeAsync;
      node->word[0] = event;
      return 1;
    default:
      return node->type == NODE_EMPTY;
  }
}

/* --- all nodes, in order -------------------------------------------------------------------------------- */

static struct node *
add_node (struct graph * graph)
{
  struct node * node;

  if (graph->count == graph->room)
  {
    graph->room = graph->room * 2 + 8;
    graph->node = g_realloc (graph->node, (u64) graph->room * sizeof (struct node));
  }
  node = &graph->node[graph->count++];
  memset (node, 0, sizeof (struct node));
  return node;
}

/* Where `handle` stands among `nodes`, by a table of `size` places, each an index + 1. */
static u32 *
index_place (u32 * table, u32 size, const u64 * nodes, u64 handle)
{
  u32 at = (u32) ((handle >> 4) * 0x9E3779B97F4A7C15ULL >> 40) % size;

  while (table[at] != 0 && nodes[table[at] - 1] != handle)
    at = (at + 1) % size;
  return &table[at];
}

/* The edges of a graph, `from` and `to` side by side, in one block that the caller frees; NULL where it has none. */
static u64 *
edges_of (u64 graph, u64 * count)
{
  u64 * edges, room;
  u32 failed;

  *count = 0;
  failed = ask (state.driver.cuGraphGetEdges, graph, 0, 0, (u64) count);
  if (failed)
    failed = (u32) ((entry5) state.driver.cuGraphGetEdges_v2) (graph, 0, 0, 0, (u64) count);
  if (failed || *count == 0)
    return NULL;
  room = *count;
  edges = g_malloc0 (24 * room); /* the third part: what makes an edge programmatic, which orders all the same */
  failed = ask (state.driver.cuGraphGetEdges, graph, (u64) edges, (u64) (edges + room), (u64) count);
  if (failed)
    failed = (u32) ((entry5) state.driver.cuGraphGetEdges_v2) (graph, (u64) edges, (u64) (edges + room),
                                                              (u64) (edges + 2 * room), (u64) count);
  if (failed || *count != room)
  {
    g_free (edges);
    *count = 0;
    return NULL;
  }
  return edges;
}

/* Put `nodes` in an order that the edges allow, the same for graphs that are built alike. */
static void
sort_nodes (u64 graph, u64 * nodes, u32 count)
{
  u64 edge_count, * edges = edges_of (graph, &edge_count), * sorted;
  u32 size = 2 * count + 1, * table, * waits, * first, * next, done, ready, edge, index;

  if (edges == NULL)
    return;
  sorted = g_malloc (8ULL * count);
  table = g_malloc0 (4ULL * size);
  waits = g_malloc0 (4ULL * count);
  first = g_malloc0 (4ULL * count);
  next = g_malloc0 (4ULL * edge_count);
  for (index = 0; index != count; index++)
    *index_place (table, size, nodes, nodes[index]) = index + 1;
  for (edge = (u32) edge_count; edge-- != 0;)
  {
    u32 from = *index_place (table, size, nodes, edges[edge]), to = *index_place (table, size, nodes,
                                                                                 edges[edge_count + edge]);

    if (from == 0 || to == 0)
      continue;
    waits[to - 1]++;
    next[edge] = first[from - 1];
    first[from - 1] = edge + 1;
  }
  for (ready = index = 0; index != count; index++)
    if (waits[index] == 0)
      sorted[ready++] = nodes[index];
  for (done = 0; done != ready; done++)
    for (edge = first[*index_place (table, size, nodes, sorted[done]) - 1]; edge != 0; edge = next[edge - 1])
    {
      u32 to = *index_place (table, size, nodes, edges[edge_count + edge - 1]) - 1;

      if (--waits[to] == 0)
        sorted[ready++] = nodes[to];
    }
  if (ready == count)
    memcpy (nodes, sorted, 8ULL * count);
  g_free (edges);
  g_free (sorted);
  g_free (table);
  g_free (waits);
  g_free (first);
  g_free (next);
}

static void add_nodes (struct call * call, struct graph * graph, u64 handle, u64 within, u32 inside, u32 depth);

#define MAX_DEPTH 16
#define MAX_BODIES 64

static struct node *
add_mark (struct graph * graph, u32 type, const struct function * function, u32 inside)
{
  struct node * node = add_node (graph);

  node->type = type;
  node->function = function;
  node->inside = inside;
  return node;
}

/* A conditional node, with the nodes of its graphs: how often they run, the replay has to find out. */
static void
add_conditional (struct call * call, struct graph * graph, u64 handle, u32 inside, u32 depth)
{
  struct body bodies[MAX_BODIES];
  struct node * mark;
  u32 index, count = 0;

  lock ();
  for (index = 0; index != state.body_count && count != MAX_BODIES; index++)
    if (state.bodies[index].node == handle)
      bodies[count++] = state.bodies[index];
  unlock ();
  if (count == 0)
  {
    graph->unknown = "it has a conditional node whose graphs are not known";
    return;
  }
  mark = add_mark (graph, NODE_CONDITIONAL, state.stands_for.zluda_conditional, inside);
  mark->handle = handle;
  mark->word[0] = bodies[0].condition;
  mark->word[1] = bodies[0].type;
  mark->word[2] = count;
  for (index = 0; index != count; index++)
  {
    add_mark (graph, MARK_BODY, state.stands_for.zluda_body, inside)->word[0] = index;
    add_nodes (call, graph, bodies[index].graph, handle, 1, depth + 1);
  }
  add_mark (graph, MARK_END, state.stands_for.zluda_conditional_end, inside);
}

/* One node of the driver's graph, or all nodes of the graph that it stands for. */
static void
add_described (struct call * call, struct graph * graph, u64 handle, u64 within, u32 inside, u32 depth)
{
  u64 child = 0;
  u32 type = ~0U;
  struct node * node;

  ask (state.driver.cuGraphNodeGetType, handle, (u64) &type, 0, 0);
  if (type == NODE_GRAPH)
  {
    if (ask (state.driver.cuGraphChildGraphNodeGetGraph, handle, (u64) &child, 0, 0))
      graph->unknown = "the driver does not tell one of its child graphs";
    else
      add_nodes (call, graph, child, within != 0 ? within : handle, inside, depth + 1);
    return;
  }
  if (type == NODE_CONDITIONAL)
  {
    add_conditional (call, graph, handle, inside, depth);
    return;
  }
  node = add_node (graph);
  node->handle = handle;
  node->within = within;
  node->type = type;
  node->inside = inside;
  if (!describe (call, node))
    graph->unknown = "it has a node that no call on a stream stands for";
}

static void
add_nodes (struct call * call, struct graph * graph, u64 handle, u64 within, u32 inside, u32 depth)
{
  u64 count = 0, * nodes, index;

  if (depth == MAX_DEPTH || ask (state.driver.cuGraphGetNodes, handle, 0, (u64) &count, 0))
  {
    graph->unknown = "the driver does not tell its nodes";
    return;
  }
  nodes = g_malloc0 (8 * count + 8);
  if (ask (state.driver.cuGraphGetNodes, handle, (u64) nodes, (u64) &count, 0))
    graph->unknown = "the driver does not tell its nodes";
  else
  {
    sort_nodes (handle, nodes, (u32) count);
    for (index = 0; index != count; index++)
      add_described (call, graph, nodes[index], within, inside, depth);
  }
  g_free (nodes);
}

static void
free_nodes (struct graph * graph)
{
  u32 index;

  for (index = 0; index != graph->count; index++)
  {
    g_free (graph->node[index].packed);
    g_free (graph->node[index].attributes);
  }
  g_free (graph->node);
}
