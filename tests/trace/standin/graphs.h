/* CUDA graphs of the stand-in driver, and streams that are captured into them. An executable graph is a copy. */

enum { KERNEL_NODE, COPY_NODE, FILL_NODE, HOST_NODE, GRAPH_NODE, EMPTY_NODE, ALLOCATE_NODE = 10, FREE_NODE, CONDITIONAL_NODE = 13 };
struct kernel_node { struct kernel * function; unsigned gx, gy, gz, bx, by, bz, shared; void ** parameters, ** extra; void * kern, * context; };
struct fill_node { uint64_t to, pitch; unsigned value, unit; size_t width, height; };
struct host_node { void (* function) (void *); void * data; };

struct graph;
struct node
{
  int type, disabled, ran;
  struct node * original;
  struct node ** dependencies;
  size_t dependency_count;
  struct kernel_node kernel;
  void * parameter[4];
  char values[64];
  unsigned attribute[16][16];
  struct copy_3d copy;
  struct fill_node fill;
  struct host_node host;
  struct graph * child, ** bodies;
  unsigned condition_type, body_count;
  uint64_t condition, address, size;
};
struct graph { struct node ** nodes; size_t count; };

static struct graph * captured;
static void * captured_stream;
static struct node * last_captured;
static uint64_t captures;
static int spoilt, captured_in_mode;
static pthread_t capturing_thread;
static __thread int capture_mode;

static struct node *
new_node (struct graph * graph, int type, struct node ** dependencies, size_t count)
{
  struct node * node = calloc (1, sizeof *node);

  node->type = type;
  node->dependencies = malloc (count * sizeof *dependencies + 1);
  memcpy (node->dependencies, dependencies, count * sizeof *dependencies);
  node->dependency_count = count;
  graph->nodes = realloc (graph->nodes, (graph->count + 1) * sizeof *graph->nodes);
  graph->nodes[graph->count++] = node;
  return node;
}

/* The node keeps the parameters' values, not the caller's pointers. */
static void
set_kernel (struct node * node, const struct kernel_node * asked)
{
  const struct built_in * code = (asked->function ? asked->function : (struct kernel *) asked->kern)->code;

  node->kernel = *asked;
  if (!asked->function)
    node->kernel.function = asked->kern;
  for (unsigned i = 0; i < code->count; i++)
  {
    node->parameter[i] = node->values + offset_of (code, i);
    memcpy (node->parameter[i], asked->parameters ? asked->parameters[i] : (char *) asked->extra[1] + offset_of (code, i),
            code->size[i]);
  }
  node->kernel.parameters = node->parameter;
  node->kernel.extra = NULL;
}

static struct node *
captured_node (int type)
{
  last_captured = new_node (captured, type, &last_captured, last_captured != NULL);
  return last_captured;
}

static int
captures_stream (void * stream)
{
  return captured != NULL && stream == captured_stream;
}

/* What may not be called while a stream is captured (cuThreadExchangeStreamCaptureMode): by any thread where the capture
 * is global (0), by the capturing one where it is local to it (1), unless either says that it knows what it does (2). */
static CUresult
unsafe (void)
{
  if (captured == NULL || capture_mode == 2 || captured_in_mode == 2)
    return OK;
  if (!pthread_equal (capturing_thread, pthread_self ()) && (captured_in_mode == 1 || capture_mode == 1))
    return OK;
  spoilt = 1;
  return 900;
}

static struct graph *
copy_graph (const struct graph * from)
{
  struct graph * to = calloc (1, sizeof *to);

  for (size_t i = 0; i < from->count; i++)
  {
    struct node * old = from->nodes[i], * node = new_node (to, old->type, old->dependencies, old->dependency_count);
    struct node ** dependencies = node->dependencies;

    *node = *old;
    node->dependencies = dependencies;
    node->original = old;
    if (old->type == KERNEL_NODE)
      set_kernel (node, &old->kernel);
    if (old->type == GRAPH_NODE)
      node->child = copy_graph (old->child);
    node->bodies = calloc (old->body_count + 1, sizeof *node->bodies);
    for (unsigned body = 0; body != old->body_count; body++)
      node->bodies[body] = copy_graph (old->bodies[body]);
  }
  for (size_t i = 0; i < from->count; i++)
    for (size_t d = 0; d < from->nodes[i]->dependency_count; d++)
      for (size_t j = 0; j < from->count; j++)
        if (from->nodes[j] == from->nodes[i]->dependencies[d])
          to->nodes[i]->dependencies[d] = to->nodes[j];
  return to;
}

static struct node *
node_of (struct graph * exec, struct node * original)
{
  for (size_t i = 0; i < exec->count; i++)
  {
    struct node * node = exec->nodes[i];

    if (node->original == original)
      return node;
    if (node->type == GRAPH_NODE && (node = node_of (node->child, original)) != NULL)
      return node;
  }
  return NULL;
}

static void run_graph (struct graph * graph);
static void run_conditional (struct node * node);

static void
run_node (struct node * node)
{
  if (node->ran)
    return;
  node->ran = 1;
  for (size_t d = 0; d < node->dependency_count; d++)
    run_node (node->dependencies[d]);
  if (node->disabled)
    return;
  switch (node->type)
  {
    case KERNEL_NODE:
      launch (node->kernel.function, node->kernel.gx * node->kernel.bx, node->parameter, NULL);
      break;
    case COPY_NODE: copy_box (&node->copy); break;
    case FILL_NODE:
      for (size_t row = 0; row < (node->fill.height ? node->fill.height : 1); row++)
        for (size_t i = 0; i < node->fill.width; i++)
          memcpy ((char *) node->fill.to + row * node->fill.pitch + i * node->fill.unit, &node->fill.value, node->fill.unit);
      break;
    case HOST_NODE: node->host.function (node->host.data); break;
    case GRAPH_NODE: run_graph (node->child); break;
    case CONDITIONAL_NODE: run_conditional (node); break;
  }
}

static void
run_graph (struct graph * graph)
{
  for (size_t i = 0; i < graph->count; i++)
    graph->nodes[i]->ran = 0;
  for (size_t i = graph->count; i-- > 0;)
    run_node (graph->nodes[i]);
}

/* 0: if, else; 1: while; 2: switch */
static void
run_conditional (struct node * node)
{
  unsigned value, chosen;

  do
  {
    value = conditions[node->condition].value;
    chosen = node->condition_type == 2 ? value : value ? 0 : 1;
    if (chosen < node->body_count)
      run_graph (node->bodies[chosen]);
  }
  while (node->condition_type == 1 && value);
}

static void
assign_defaults (void)
{
  for (unsigned i = 1; i <= condition_count; i++)
    if (conditions[i].flags & 1)
      conditions[i].value = conditions[i].initial;
}

/* --- building ------------------------------------------------------------------------------------------- */

#define ADD(name, node_type, PARAMETERS, fill_in) \
  API name (struct node ** node, struct graph * graph, struct node ** dependencies, size_t n, PARAMETERS) \
  { *node = new_node (graph, node_type, dependencies, n); fill_in; return OK; }
#define WITH_CONTEXT(type) type, void * context

API cuGraphCreate (struct graph ** graph, unsigned flags) { *graph = calloc (1, sizeof **graph); return OK; }
API cuGraphDestroy (struct graph * graph) { return OK; }
ADD (cuGraphAddKernelNode_v2, KERNEL_NODE, const struct kernel_node * asked, set_kernel (*node, asked))
ADD (cuGraphAddMemcpyNode, COPY_NODE, WITH_CONTEXT (const struct copy_3d * copy), (*node)->copy = *copy)
ADD (cuGraphAddMemsetNode, FILL_NODE, WITH_CONTEXT (const struct fill_node * fill), (*node)->fill = *fill)
ADD (cuGraphAddHostNode, HOST_NODE, const struct host_node * host, (*node)->host = *host)
ADD (cuGraphAddChildGraphNode, GRAPH_NODE, struct graph * child, (*node)->child = copy_graph (child))
API cuGraphAddEmptyNode (struct node ** node, struct graph * graph, struct node ** dependencies, size_t n)
{
  *node = new_node (graph, EMPTY_NODE, dependencies, n);
  return OK;
}
API cuGraphAddDependencies (struct graph * graph, struct node ** from, struct node ** to, size_t n)
{
  for (size_t i = 0; i < n; i++)
  {
    to[i]->dependencies = realloc (to[i]->dependencies, (to[i]->dependency_count + 1) * sizeof *to);
    to[i]->dependencies[to[i]->dependency_count++] = from[i];
  }
  return OK;
}
/* Of nodes of the general kind, only those with a condition. */
API cuGraphAddNode_v2 (struct node ** node, struct graph * graph, struct node ** dependencies, void * edges, size_t n,
                       uint64_t * parameters)
{
  if (*(int *) parameters != CONDITIONAL_NODE)
    return INVALID_VALUE;
  *node = new_node (graph, CONDITIONAL_NODE, dependencies, n);
  (*node)->condition = parameters[2];
  (*node)->condition_type = parameters[3];
  (*node)->body_count = parameters[3] >> 32;
  (*node)->bodies = calloc ((*node)->body_count, sizeof (struct graph *));
  for (unsigned body = 0; body != (*node)->body_count; body++)
    (*node)->bodies[body] = calloc (1, sizeof (struct graph));
  parameters[4] = (uint64_t) (*node)->bodies;
  return OK;
}
API cuGraphConditionalHandleCreate (uint64_t * handle, struct graph * graph, void * context, unsigned initial, unsigned flags)
{
  *handle = ++condition_count;
  conditions[condition_count].initial = initial;
  conditions[condition_count].flags = flags;
  return OK;
}
API cuGraphKernelNodeSetAttribute (struct node * node, int attribute, const unsigned * value)
{
  memcpy (node->attribute[attribute], value, 64);
  return OK;
}

/* --- asking ---------------------------------------------------------------------------------------------- */

API cuGraphGetNodes (struct graph * graph, struct node ** nodes, size_t * count)
{
  if (nodes != NULL)
    memcpy (nodes, graph->nodes, graph->count * sizeof *nodes);
  *count = graph->count;
  return OK;
}
API cuGraphGetEdges (struct graph * graph, struct node ** from, struct node ** to, size_t * count)
{
  *count = 0;
  for (size_t i = 0; i < graph->count; i++)
    for (size_t d = 0; d < graph->nodes[i]->dependency_count; d++, ++*count)
      if (from != NULL)
        from[*count] = graph->nodes[i]->dependencies[d], to[*count] = graph->nodes[i];
  return OK;
}
API cuGraphNodeGetType (struct node * node, int * type) { *type = node->type; return OK; }
API cuGraphKernelNodeGetParams_v2 (struct node * node, struct kernel_node * to) { *to = node->kernel; return OK; }
API cuGraphMemcpyNodeGetParams (struct node * node, struct copy_3d * to) { *to = node->copy; return OK; }
API cuGraphMemsetNodeGetParams (struct node * node, struct fill_node * to) { *to = node->fill; return OK; }
API cuGraphHostNodeGetParams (struct node * node, struct host_node * to) { *to = node->host; return OK; }
API cuGraphChildGraphNodeGetGraph (struct node * node, struct graph ** child) { *child = node->child; return OK; }
API cuGraphKernelNodeGetAttribute (struct node * node, int attribute, unsigned * value)
{
  memcpy (value, node->attribute[attribute], 64);
  return OK;
}

/* --- executable graphs ------------------------------------------------------------------------------------- */

API cuGraphInstantiateWithFlags (struct graph ** exec, struct graph * graph, unsigned long long flags)
{
  *exec = copy_graph (graph);
  return OK;
}
API cuGraphExecDestroy (struct graph * exec) { return OK; }
API cuGraphLaunch (struct graph * exec, void * stream)
{
  if (exec->count == 0)
    return INVALID_VALUE;
  if (captures_stream (stream))
    captured_node (GRAPH_NODE)->child = exec;
  else
  {
    assign_defaults ();
    run_graph (exec);
  }
  return OK;
}
API cuGraphExecUpdate_v2 (struct graph * exec, struct graph * graph, void * result)
{
  struct graph * copy = copy_graph (graph);

  for (size_t i = 0; i < exec->count; i++)
    copy->nodes[i]->original = exec->nodes[i]->original;
  *exec = *copy;
  return OK;
}
API cuGraphExecKernelNodeSetParams_v2 (struct graph * exec, struct node * node, const struct kernel_node * asked)
{
  set_kernel (node_of (exec, node), asked);
  return OK;
}
API cuGraphExecMemcpyNodeSetParams (struct graph * exec, struct node * node, const struct copy_3d * copy, void * context)
{
  node_of (exec, node)->copy = *copy;
  return OK;
}
API cuGraphExecMemsetNodeSetParams (struct graph * exec, struct node * node, const struct fill_node * fill, void * context)
{
  node_of (exec, node)->fill = *fill;
  return OK;
}
API cuGraphExecChildGraphNodeSetParams (struct graph * exec, struct node * node, struct graph * child)
{
  node = node_of (exec, node);
  for (size_t i = 0; i < node->child->count; i++)
    set_kernel (node->child->nodes[i], &child->nodes[i]->kernel);
  return OK;
}
API cuGraphNodeSetEnabled (struct graph * exec, struct node * node, unsigned enabled)
{
  node_of (exec, node)->disabled = !enabled;
  return OK;
}

/* --- capture of streams --------------------------------------------------------------------------------------- */

API cuThreadExchangeStreamCaptureMode (int * mode)
{
  int old = capture_mode;

  capture_mode = *mode;
  *mode = old;
  return OK;
}
API cuStreamIsCapturing (void * stream, int * status) { *status = captures_stream (stream); return OK; }
API cuStreamGetCaptureInfo (void * stream, int * status, uint64_t * id)
{
  *status = captures_stream (stream);
  *id = captures;
  return OK;
}
API cuStreamBeginCapture_v2 (void * stream, int mode)
{
  captured = calloc (1, sizeof *captured);
  captured_stream = stream;
  last_captured = NULL;
  spoilt = 0;
  captured_in_mode = mode;
  capturing_thread = pthread_self ();
  captures++;
  return OK;
}
API cuStreamEndCapture (void * stream, struct graph ** graph)
{
  *graph = spoilt ? NULL : captured;
  captured = NULL;
  return spoilt ? 901 : OK;
}

/* A copy or fill of one range as a node, where its stream is captured. */
static int
capture_copy (void * stream, int from_type, uint64_t from, int to_type, uint64_t to, size_t size)
{
  struct copy_3d copy = { { 0, 0, 0, 0, from_type, (char *) from, (char *) from }, { 0, 0, 0, 0, to_type, (char *) to, (char *) to } };

  if (!captures_stream (stream))
    return 0;
  copy.width = size, copy.height = copy.depth = 1;
  captured_node (COPY_NODE)->copy = copy;
  return 1;
}
static int
capture_fill (void * stream, uint64_t to, unsigned value, unsigned unit, size_t count)
{
  struct fill_node fill = { to, 0, value, unit, count, 1 };

  if (!captures_stream (stream))
    return 0;
  captured_node (FILL_NODE)->fill = fill;
  return 1;
}
static int
capture_kernel (void * stream, struct kernel * kernel, unsigned grid, unsigned block, void ** parameters, void ** extra)
{
  struct kernel_node asked = { kernel, grid, 1, 1, block, 1, 1, 0, parameters, extra };

  if (!captures_stream (stream))
    return 0;
  set_kernel (captured_node (KERNEL_NODE), &asked);
  return 1;
}

API cuMemcpyHtoDAsync_v2 (CUdeviceptr to, const void * from, size_t n, void * s)
{
  return capture_copy (s, 1, (uint64_t) from, 2, to, n) ? OK : move (to, (uint64_t) from, n);
}
API cuMemcpyDtoHAsync_v2 (void * to, CUdeviceptr from, size_t n, void * s)
{
  return capture_copy (s, 2, from, 1, (uint64_t) to, n) ? OK : unsafe () ? 900 : move ((uint64_t) to, from, n);
}
API cuMemcpyDtoDAsync_v2 (CUdeviceptr to, CUdeviceptr from, size_t n, void * s)
{
  return capture_copy (s, 2, from, 2, to, n) ? OK : move (to, from, n);
}
API cuMemsetD8Async (CUdeviceptr to, unsigned char value, size_t n, void * s)
{
  return capture_fill (s, to, value, 1, n) ? OK : cuMemsetD8_v2 (to, value, n);
}
API cuMemsetD32Async (CUdeviceptr to, unsigned value, size_t n, void * s)
{
  return capture_fill (s, to, value, 4, n) ? OK : cuMemsetD32_v2 (to, value, n);
}
API cuLaunchHostFunc (void * stream, void (* function) (void *), void * data)
{
  struct host_node host = { function, data };

  if (captures_stream (stream))
    captured_node (HOST_NODE)->host = host;
  else
    function (data);
  return OK;
}
API cuStreamSynchronize (void * stream) { return unsafe (); }
API cuLaunchKernel (void * f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                    unsigned shared, void * stream, void ** parameters, void ** extra)
{
  if (gx == 0 || bx == 0)
    return INVALID_VALUE;
  if (capture_kernel (stream, f, gx, bx, parameters, extra))
    return OK;
  return launch (f, gx * gy * gz * bx * by * bz, parameters, extra);
}
API cuLaunchCooperativeKernel (void * f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                               unsigned shared, void * stream, void ** parameters)
{
  return launch (f, gx * gy * gz * bx * by * bz, parameters, NULL);
}
API cuLaunchKernel_ptsz (void * f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                         unsigned shared, void * stream, void ** parameters, void ** extra)
{
  return launch (f, gx * gy * gz * bx * by * bz, parameters, extra);
}
struct config { unsigned gx, gy, gz, bx, by, bz, shared; void * stream; void * attributes; unsigned count; };
API cuLaunchKernelEx (const struct config * c, void * f, void ** parameters, void ** extra)
{
  if (capture_kernel (c->stream, f, c->gx, c->bx, parameters, extra))
    return OK;
  return launch (f, c->gx * c->gy * c->gz * c->bx * c->by * c->bz, parameters, extra);
}
