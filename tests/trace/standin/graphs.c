/* Programs that use CUDA graphs: `graphs SCENE`. What they print is what memory holds at the end. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "cuda_api.h"

#include "kernels.h"

#define N 256
static float x[N], y[N];
static unsigned numbers[N], pageable[N], * result = pageable;
static void * context, * module, * stream, * saxpy, * triple;
static CUdeviceptr dx, dy, dn;

/* Calls 0 to 13. */
static void
setup (void)
{
  int device;

  for (int i = 0; i < N; i++)
    x[i] = i, y[i] = 1, numbers[i] = i;
  CHECK (cuInit (0));
  CHECK (cuDeviceGet (&device, 0));
  CHECK (cuCtxCreate_v2 (&context, 0, device));
  CHECK (cuModuleLoadData (&module, ptx));
  CHECK (cuModuleGetFunction (&saxpy, module, "saxpy"));
  CHECK (cuModuleGetFunction (&triple, module, "triple"));
  CHECK (cuMemAlloc_v2 (&dx, sizeof x));
  CHECK (cuMemAlloc_v2 (&dy, sizeof y));
  CHECK (cuMemAlloc_v2 (&dn, sizeof numbers));
  CHECK (cuStreamCreate (&stream, 1));
  CHECK (cuMemcpyHtoD_v2 (dx, x, sizeof x));
  CHECK (cuMemcpyHtoD_v2 (dy, y, sizeof y));
  CHECK (cuMemcpyHtoD_v2 (dn, numbers, sizeof numbers));
}

static void
finish (void)
{
  double sum = 0;

  CHECK (cuMemcpyDtoH_v2 (y, dy, sizeof y));
  CHECK (cuMemcpyDtoH_v2 (numbers, dn, sizeof numbers));
  for (int i = 0; i < N; i++)
    sum += y[i] + numbers[i] % 1000 + result[i] % 1000;
  printf ("%.1f\n", sum);
}

static struct kernel_node
node_of (void * function, void ** parameters)
{
  struct kernel_node node = { function, 2, 1, 1, N / 2, 1, 1, 0, parameters };

  return node;
}

static void
add_kernel (void ** node, void * graph, void ** after, void * function, void ** parameters)
{
  struct kernel_node asked = node_of (function, parameters);

  CHECK (cuGraphAddKernelNode_v2 (node, graph, after, after != NULL, &asked));
}

/* In an order that is not that of the edges: a copy in, a kernel, a fill over half of it, two more kernels, a copy
 * out, and an empty node. The parameters' places are used again before the graph runs. */
static void
built (void)
{
  static unsigned host[N];
  void * graph, * exec, * in, * first, * fill, * second, * out, * third, * empty;
  struct copy_3d copy = { { 0, 0, 0, 0, 1, host }, { 0, 0, 0, 0, 2, NULL, dn }, sizeof host, 1, 1 };
  struct copy_3d back = { { 0, 0, 0, 0, 2, NULL, dn }, { 0, 0, 0, 0, 1, result }, sizeof pageable, 1, 1 };
  struct fill_node half = { dn, 0, 7, 4, N / 2, 1 };
  unsigned n = N, cluster[16] = { 2, 1, 1 };
  float a = 2;
  void * integers[] = { &dn, &n }, * floats[] = { &n, &a, &dx, &dy };

  copy.to.device = back.from.device = half.to = dn;
  for (int i = 0; i < N; i++)
    host[i] = 1000 + i;
  CHECK (cuGraphCreate (&graph, 0));
  add_kernel (&second, graph, NULL, triple, integers);
  CHECK (cuGraphAddMemsetNode (&fill, graph, NULL, 0, &half, context));
  add_kernel (&first, graph, NULL, triple, integers);
  CHECK (cuGraphAddMemcpyNode (&in, graph, NULL, 0, &copy, context));
  CHECK (cuGraphAddMemcpyNode (&out, graph, &second, 1, &back, context));
  add_kernel (&third, graph, NULL, saxpy, floats);
  CHECK (cuGraphKernelNodeSetAttribute (third, 4, cluster));
  CHECK (cuGraphAddEmptyNode (&empty, graph, &third, 1));
  CHECK (cuGraphAddDependencies (graph, &in, &first, 1));
  CHECK (cuGraphAddDependencies (graph, &first, &fill, 1));
  CHECK (cuGraphAddDependencies (graph, &fill, &second, 1));
  n = 0, a = 0;
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphDestroy (graph));
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuStreamSynchronize (stream));
  host[3] = 5;
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuStreamSynchronize (stream));
  CHECK (cuGraphExecDestroy (exec));
}

static void
add_one (void * data)
{
  for (int i = 0; i < N; i++)
    ((unsigned *) data)[i]++;
}

/* Another thread goes on while this one captures. */
static void *
bystander (void * data)
{
  unsigned n = N;
  void * integers[] = { &dn, &n };

  CHECK (cuCtxSetCurrent (context));
  CHECK (cuLaunchKernel (triple, 2, 1, 1, N / 2, 1, 1, 0, NULL, integers, NULL));
  return NULL;
}

/* A stream captured: copies, fills, kernels, a callback between a copy out and a copy in. */
static void *
captured_graph (float a)
{
  unsigned n = N;
  void * graph, * integers[] = { &dn, &n }, * floats[] = { &n, &a, &dx, &dy };
  struct config config = { 2, 1, 1, N / 2, 1, 1, 0, stream };
  pthread_t thread;

  CHECK (cuStreamBeginCapture_v2 (stream, 0));
  CHECK (cuMemcpyHtoDAsync_v2 (dn, numbers, sizeof numbers, stream));
  CHECK (cuLaunchKernel (triple, 2, 1, 1, N / 2, 1, 1, 0, stream, integers, NULL));
  CHECK (cuMemsetD32Async (dn, 9, 16, stream));
  CHECK (cuMemcpyDtoHAsync_v2 (result, dn, sizeof pageable, stream));
  pthread_create (&thread, NULL, bystander, NULL);
  pthread_join (thread, NULL);
  CHECK (cuLaunchHostFunc (stream, add_one, result));
  CHECK (cuMemcpyHtoDAsync_v2 (dn, result, sizeof pageable, stream));
  CHECK (cuLaunchKernelEx (&config, saxpy, floats, NULL));
  CHECK (cuStreamEndCapture (stream, &graph));
  a = n = 0;
  return graph;
}

static void
captured (void)
{
  void * exec;

  CHECK (cuMemHostAlloc ((void **) &result, sizeof pageable, 0));
  CHECK (cuGraphInstantiateWithFlags (&exec, captured_graph (2), 0));
  for (int i = 0; i < 3; i++)
    CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuGraphExecUpdate_v2 (exec, captured_graph (3), NULL));
  CHECK (cuGraphLaunch (exec, stream));
}

/* Every form of a launch, and a callback. */
static void
forms (void)
{
  struct { unsigned id, pad; unsigned value[16]; } attributes[] = { { 6, 0, { 1 } }, { 8, 0, { -1 } }, { 2, 0, { 1 } } };
  struct config config = { 2, 1, 1, N / 2, 1, 1, 0, stream, attributes, 3 };
  unsigned n = N;
  void * integers[] = { &dn, &n };

  config.stream = stream;
  CHECK (cuLaunchKernel_ptsz (triple, 2, 1, 1, N / 2, 1, 1, 0, NULL, integers, NULL));
  CHECK (cuLaunchCooperativeKernel (triple, 2, 1, 1, N / 2, 1, 1, 0, stream, integers));
  CHECK (cuLaunchKernelEx (&config, triple, integers, NULL));
  CHECK (cuLaunchHostFunc (stream, add_one, result));
}

/* A child graph, and everything that changes an executable graph. */
static void
updated (void)
{
  void * child, * graph, * exec, * inner, * node, * fill, * first, * other, * ignored;
  struct fill_node zero = { dn, 0, 0, 1, 64, 1 }, flat = { dn, 16, 5, 2, 4, 8 };
  unsigned n = N;
  float a = 2;
  void * integers[] = { &dn, &n }, * floats[] = { &n, &a, &dx, &dy };
  struct kernel_node asked;

  zero.to = flat.to = dn;
  CHECK (cuGraphCreate (&child, 0));
  add_kernel (&inner, child, NULL, saxpy, floats);
  CHECK (cuGraphCreate (&graph, 0));
  add_kernel (&first, graph, NULL, triple, integers);
  CHECK (cuGraphAddMemsetNode (&fill, graph, &first, 1, &zero, context));
  CHECK (cuGraphAddChildGraphNode (&node, graph, &fill, 1, child));
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
  n = 100;
  asked = node_of (triple, integers);
  CHECK (cuGraphExecKernelNodeSetParams_v2 (exec, first, &asked));
  CHECK (cuGraphExecMemsetNodeSetParams (exec, fill, &flat, context));
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuGraphNodeSetEnabled (exec, fill, 0));
  a = 5;
  CHECK (cuGraphCreate (&other, 0));
  add_kernel (&ignored, other, NULL, saxpy, floats);
  CHECK (cuGraphExecChildGraphNodeSetParams (exec, node, other));
  CHECK (cuGraphLaunch (exec, stream));
  forms ();
}

/* Kernels that do not compute what their PTX says: three in one graph, the first of which is right. */
static void
wrong (void)
{
  void * graph, * exec, * first, * second, * third;
  unsigned n = N, half = N / 2;
  float a = 2;
  void * integers[] = { &dn, &n }, * fewer[] = { &dn, &half }, * floats[] = { &n, &a, &dx, &dy };

  CHECK (cuGraphCreate (&graph, 0));
  add_kernel (&first, graph, NULL, saxpy, floats);
  add_kernel (&second, graph, &first, triple, integers);
  add_kernel (&third, graph, &second, triple, fewer);
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
}

/* A callback between copies out of and into pageable memory: what goes in is not known. */
static void
through_pageable (void)
{
  void * exec;

  CHECK (cuGraphInstantiateWithFlags (&exec, captured_graph (2), 0));
  CHECK (cuGraphLaunch (exec, stream));
}

/* *p += 1; the condition becomes *p < limit, or, where there is no limit, *p. */
static char advancing[] =
  ".version 8.0\n.target sm_90\n.address_size 64\n"
  ".extern .func cudaGraphSetConditional(.param .b64 h, .param .b32 v);\n"
  ".visible .entry advance(.param .u64 p, .param .u32 limit, .param .u64 condition)\n{\n"
  "\t.reg .pred %q; .reg .b32 %c, %l, %v; .reg .b64 %p, %h;\n"
  "\tld.param.u64 %p, [p];\n\tld.param.u32 %l, [limit];\n\tld.param.u64 %h, [condition];\n"
  "\tld.global.u32 %c, [%p];\n\tadd.u32 %c, %c, 1;\n\tst.global.u32 [%p], %c;\n"
  "\tsetp.lt.u32 %q, %c, %l;\n\tselp.u32 %v, 1, 0, %q;\n"
  "\tsetp.eq.u32 %q, %l, 0;\n\t@%q mov.u32 %v, %c;\n"
  "\t{\n\t.param .b64 a;\n\tst.param.b64 [a], %h;\n\t.param .b32 b;\n\tst.param.b32 [b], %v;\n"
  "\tcall.uni cudaGraphSetConditional, (a, b);\n\t}\n\tret;\n}\n";

enum { IF, WHILE, SWITCH };

/* A conditional node; the graphs inside it. */
static void **
add_conditional (void ** node, void * graph, void ** after, uint64_t condition, uint64_t type, uint64_t bodies)
{
  uint64_t parameters[32] = { 13, 0, condition, type | bodies << 32 };

  CHECK (cuGraphAddNode_v2 (node, graph, after, NULL, 1, parameters));
  return (void **) parameters[4];
}

static void
add_advance (void ** node, void * graph, void ** after, void * advance, CUdeviceptr count, unsigned limit, uint64_t condition)
{
  void * parameters[] = { &count, &limit, &condition };
  struct kernel_node asked = { advance, 1, 1, 1, 1, 1, 1, 0, parameters };

  CHECK (cuGraphAddKernelNode_v2 (node, graph, after, after != NULL, &asked));
}

/* while (advance (&rounds, 3)) { triple; if (0) saxpy; else triple a few }; switch (launches += 1) { ...; saxpy; triple }: three
 * rounds and saxpy when it is launched first, then one round and triple. */
static void
looping (void)
{
  void * graph, * exec, * loaded, * advance, * first, * node, * inner, * next, ** bodies, ** inside;
  uint64_t again, never, which;
  unsigned n = N, few = 16;
  float a = 2;
  CUdeviceptr rounds, launches;
  void * integers[] = { &dn, &n }, * some[] = { &dn, &few }, * floats[] = { &n, &a, &dx, &dy };

  CHECK (cuModuleLoadData (&loaded, advancing));
  CHECK (cuModuleGetFunction (&advance, loaded, "advance"));
  CHECK (cuMemAlloc_v2 (&rounds, 4));
  CHECK (cuMemAlloc_v2 (&launches, 4));
  CHECK (cuMemsetD32_v2 (rounds, 0, 1));
  CHECK (cuMemsetD32_v2 (launches, 0, 1));
  CHECK (cuGraphCreate (&graph, 0));
  CHECK (cuGraphConditionalHandleCreate (&again, graph, context, 1, 1));
  CHECK (cuGraphConditionalHandleCreate (&never, graph, context, 0, 1));
  CHECK (cuGraphConditionalHandleCreate (&which, graph, context, 0, 0));
  add_kernel (&first, graph, NULL, triple, integers);
  bodies = add_conditional (&node, graph, &first, again, WHILE, 1);
  add_advance (&inner, bodies[0], NULL, advance, rounds, 3, again);
  add_kernel (&next, bodies[0], &inner, triple, integers);
  inside = add_conditional (&inner, bodies[0], &next, never, IF, 2);
  add_kernel (&next, inside[0], NULL, saxpy, floats);
  add_kernel (&next, inside[1], NULL, triple, some);
  add_advance (&next, graph, &node, advance, launches, 0, which);
  bodies = add_conditional (&node, graph, &next, which, SWITCH, 3);
  add_kernel (&next, bodies[1], NULL, saxpy, floats);
  add_kernel (&next, bodies[2], NULL, triple, integers);
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuGraphLaunch (exec, stream));
}

/* A node whose condition nobody made; and a launch that fails. */
static void
conditional (void)
{
  void * graph, * exec, * first, * node;
  uint64_t parameters[32] = { 13, 0, 1, 1UL << 32 };
  unsigned n = N;
  void * integers[] = { &dn, &n };

  CHECK (cuGraphCreate (&graph, 0));
  add_kernel (&first, graph, NULL, triple, integers);
  CHECK (cuGraphAddNode_v2 (&node, graph, &first, NULL, 1, parameters));
  add_kernel (&node, *(void **) parameters[4], NULL, triple, integers);
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
  CHECK (cuGraphCreate (&graph, 0));
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  if (cuGraphLaunch (exec, stream) == 0)
    exit (1);
}

static void
end_here (void * data)
{
  _exit (3);
}

static void
dying (void)
{
  struct host_node host = { end_here, NULL };
  void * graph, * exec, * first, * last;
  unsigned n = N;
  void * integers[] = { &dn, &n };

  CHECK (cuGraphCreate (&graph, 0));
  add_kernel (&first, graph, NULL, triple, integers);
  CHECK (cuGraphAddHostNode (&last, graph, &first, 1, &host));
  CHECK (cuGraphInstantiateWithFlags (&exec, graph, 0));
  CHECK (cuGraphLaunch (exec, stream));
}

/* To be attached to: what it uses was made before. A thread that used the driver ends after the recording. */
static void *
until_told (void * data)
{
  unsigned n = N;
  void * integers[] = { &dn, &n }, * loaded, * again;

  CHECK (cuCtxSetCurrent (context));
  puts ("ready");
  fflush (stdout);
  getchar ();
  CHECK (cuLaunchKernel (triple, 2, 1, 1, N / 2, 1, 1, 0, stream, integers, NULL));
  CHECK (cuModuleLoadData (&loaded, ptx));
  CHECK (cuModuleGetFunction (&again, loaded, "triple"));
  CHECK (cuLaunchKernel (again, 2, 1, 1, N / 2, 1, 1, 0, stream, integers, NULL));
  puts ("launched");
  fflush (stdout);
  getchar ();
  return NULL;
}

static void
waiting (void)
{
  pthread_t thread;

  pthread_create (&thread, NULL, until_told, NULL);
  pthread_join (thread, NULL);
}

int
main (int argc, char ** argv)
{
  static const struct { const char * name; void (* run) (void); } scenes[] = {
    { "built", built }, { "captured", captured }, { "updated", updated }, { "conditional", conditional },
    { "looping", looping }, { "wrong", wrong }, { "pageable", through_pageable }, { "dying", dying }, { "waiting", waiting },
  };

  if (argc > 1 && !strcmp (argv[1], "wrong"))
    memcpy (strstr (ptx, "%d, 3, 1"), "%d, 3, 2", 8);
  setup ();
  for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
    if (argc > 1 && !strcmp (argv[1], scenes[i].name))
    {
      scenes[i].run ();
      finish ();
      return 0;
    }
  return 64;
}
