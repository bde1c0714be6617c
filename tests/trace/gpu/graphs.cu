// CUDA graphs, launch attributes, callbacks and processes on a GPU: `graphs SCENE` prints what memory holds.
// Recorded, each prints the same; the record replays `identical` on cuda:0.
#include <cooperative_groups.h>
#include <cuda_runtime.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#define CHECK(call) do { cudaError_t r_ = (call); if (r_ != cudaSuccess) { \
  std::printf ("%s: %s\n", #call, cudaGetErrorString (r_)); std::exit (1); } } while (0)

constexpr int N = 1 << 16;
static unsigned * numbers, * other;
static float * x, * y;
static unsigned host[N], * result;
static cudaStream_t stream;

__device__ unsigned launches;

__global__ void triple (unsigned * p, int n)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i] = 3 * p[i] + 1;
  if (i == 0) atomicAdd (&launches, 1);
}

__global__ void saxpy (int n, float a, const float * from, float * to)
{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = __fadd_rn (to[i], __fmul_rn (a, from[i]));
}

__global__ void fold (unsigned * p, int n)
{
  cooperative_groups::grid_group grid = cooperative_groups::this_grid ();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int step = n / 2; step > 0; step /= 2) { if (i < step) p[i] += p[i + step]; grid.sync (); }
}

__global__ void __cluster_dims__ (2, 1, 1) ranks (unsigned * p)
{
  p[blockIdx.x] = cooperative_groups::this_cluster ().block_rank () + 10 * blockIdx.x;
}

__global__ void ask (cudaGraphConditionalHandle handle, unsigned * p)
{
  cudaGraphSetConditional (handle, ++p[0] < 5);
}

static void setup ()
{
  for (int i = 0; i < N; i++) host[i] = i;
  CHECK (cudaMallocHost (&result, sizeof host));
  CHECK (cudaMalloc (&numbers, sizeof host));
  CHECK (cudaMalloc (&other, sizeof host));
  CHECK (cudaMalloc (&x, sizeof host));
  CHECK (cudaMalloc (&y, sizeof host));
  CHECK (cudaMemset (x, 0x3f, sizeof host));
  CHECK (cudaMemset (y, 0, sizeof host));
  CHECK (cudaMemset (other, 0, sizeof host));
  CHECK (cudaMemcpy (numbers, host, sizeof host, cudaMemcpyHostToDevice));
  CHECK (cudaStreamCreateWithFlags (&stream, cudaStreamNonBlocking));
}

static void finish ()
{
  static unsigned all[4][N];
  unsigned long long sum = 0;
  void * from[] = { numbers, other, x, y };
  CHECK (cudaDeviceSynchronize ());
  for (int k = 0; k < 4; k++)
  {
    CHECK (cudaMemcpy (all[k], from[k], sizeof all[k], cudaMemcpyDeviceToHost));
    for (int i = 0; i < N; i++) sum = sum * 31 + all[k][i];
  }
  for (int i = 0; i < N; i++) sum = sum * 31 + result[i];
  unsigned counted;
  CHECK (cudaMemcpyFromSymbol (&counted, launches, sizeof counted));
  std::printf ("%llx %u\n", sum, counted);
}

static void CUDART_CB add_one (void *) { for (int i = 0; i < N; i++) result[i]++; }

static cudaGraph_t capture (float a)
{
  cudaGraph_t graph;
  CHECK (cudaStreamBeginCapture (stream, cudaStreamCaptureModeGlobal));
  CHECK (cudaMemcpyAsync (numbers, host, sizeof host, cudaMemcpyHostToDevice, stream));
  triple<<<N / 256, 256, 0, stream>>> (numbers, N);
  CHECK (cudaMemsetAsync (numbers, 9, 64, stream));
  CHECK (cudaMemcpyAsync (result, numbers, sizeof host, cudaMemcpyDeviceToHost, stream));
  std::thread bystander ([] { triple<<<N / 256, 256>>> (other, N); });
  bystander.join ();
  CHECK (cudaLaunchHostFunc (stream, add_one, nullptr));
  CHECK (cudaMemcpyAsync (numbers, result, sizeof host, cudaMemcpyHostToDevice, stream));
  cudaEvent_t fork, join;
  cudaStream_t side;
  CHECK (cudaEventCreate (&fork));
  CHECK (cudaEventCreate (&join));
  CHECK (cudaStreamCreateWithFlags (&side, cudaStreamNonBlocking));
  CHECK (cudaEventRecord (fork, stream));
  CHECK (cudaStreamWaitEvent (side, fork, 0));
  saxpy<<<N / 256, 256, 0, side>>> (N, a, x, y);
  triple<<<N / 512, 256, 0, stream>>> (numbers, N / 2);
  CHECK (cudaEventRecord (join, side));
  CHECK (cudaStreamWaitEvent (stream, join, 0));
  CHECK (cudaStreamEndCapture (stream, &graph));
  return graph;
}

static void captured ()
{
  cudaGraphExec_t exec;
  cudaGraphExecUpdateResultInfo info;
  CHECK (cudaGraphInstantiate (&exec, capture (2), 0));
  for (int i = 0; i < 3; i++) CHECK (cudaGraphLaunch (exec, stream));
  CHECK (cudaStreamSynchronize (stream));
  CHECK (cudaGraphExecUpdate (exec, capture (3), &info));
  CHECK (cudaGraphLaunch (exec, stream));
}

static cudaKernelNodeParams kernel_node (void * function, void ** parameters)
{
  cudaKernelNodeParams node = {};
  node.func = function, node.gridDim = N / 256, node.blockDim = 256, node.kernelParams = parameters;
  return node;
}

static void built ()
{
  cudaGraph_t graph, child;
  cudaGraphExec_t exec;
  cudaGraphNode_t first, fill, inner, node, out;
  int n = N;
  float a = 2;
  void * integers[] = { &numbers, &n }, * floats[] = { &n, &a, &x, &y };
  cudaKernelNodeParams kernel = kernel_node ((void *) triple, integers), of_child = kernel_node ((void *) saxpy, floats);
  cudaMemsetParams zero = {};
  zero.dst = numbers, zero.elementSize = 4, zero.width = 64, zero.height = 1, zero.value = 7;
  CHECK (cudaGraphCreate (&child, 0));
  CHECK (cudaGraphAddKernelNode (&inner, child, nullptr, 0, &of_child));
  CHECK (cudaGraphCreate (&graph, 0));
  CHECK (cudaGraphAddKernelNode (&first, graph, nullptr, 0, &kernel));
  CHECK (cudaGraphAddMemsetNode (&fill, graph, &first, 1, &zero));
  CHECK (cudaGraphAddChildGraphNode (&node, graph, &fill, 1, child));
  CHECK (cudaGraphAddMemcpyNode1D (&out, graph, &node, 1, result, numbers, sizeof host, cudaMemcpyDeviceToHost));
  n = 5;
  CHECK (cudaGraphInstantiate (&exec, graph, 0));
  CHECK (cudaGraphLaunch (exec, stream));
  n = N / 2;
  CHECK (cudaGraphExecKernelNodeSetParams (exec, first, &kernel));
  zero.width = 32, zero.value = 5;
  CHECK (cudaGraphExecMemsetNodeSetParams (exec, fill, &zero));
  CHECK (cudaGraphLaunch (exec, stream));
  CHECK (cudaGraphNodeSetEnabled (exec, fill, 0));
  CHECK (cudaGraphLaunch (exec, stream));
}

static void memory ()
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t take, fill, first, copy, give;
  cudaMemAllocNodeParams taken = {};
  int n = N;
  taken.poolProps.allocType = cudaMemAllocationTypePinned;
  taken.poolProps.location.type = cudaMemLocationTypeDevice;
  taken.bytesize = sizeof host;
  CHECK (cudaGraphCreate (&graph, 0));
  CHECK (cudaGraphAddMemAllocNode (&take, graph, nullptr, 0, &taken));
  void * integers[] = { &taken.dptr, &n };
  cudaKernelNodeParams kernel = kernel_node ((void *) triple, integers);
  cudaMemsetParams ones = {};
  ones.dst = taken.dptr, ones.elementSize = 4, ones.width = N, ones.height = 1, ones.value = 1;
  CHECK (cudaGraphAddMemsetNode (&fill, graph, &take, 1, &ones));
  CHECK (cudaGraphAddKernelNode (&first, graph, &fill, 1, &kernel));
  CHECK (cudaGraphAddMemcpyNode1D (&copy, graph, &first, 1, other, taken.dptr, sizeof host, cudaMemcpyDeviceToDevice));
  CHECK (cudaGraphAddMemFreeNode (&give, graph, &copy, 1, taken.dptr));
  CHECK (cudaGraphInstantiate (&exec, graph, 0));
  CHECK (cudaGraphLaunch (exec, stream));
  CHECK (cudaGraphLaunch (exec, stream));
}

static void conditional ()
{
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaGraphNode_t node, inner, decide;
  cudaGraphConditionalHandle handle;
  int n = N;
  CHECK (cudaGraphCreate (&graph, 0));
  CHECK (cudaGraphConditionalHandleCreate (&handle, graph, 1, cudaGraphCondAssignDefault));
  cudaGraphNodeParams params = { cudaGraphNodeTypeConditional };
  params.conditional.handle = handle, params.conditional.type = cudaGraphCondTypeWhile, params.conditional.size = 1;
#if CUDART_VERSION >= 13000
  CHECK (cudaGraphAddNode (&node, graph, nullptr, nullptr, 0, &params));
#else
  CHECK (cudaGraphAddNode (&node, graph, nullptr, 0, &params));
#endif
  cudaGraph_t body = params.conditional.phGraph_out[0];
  void * integers[] = { &numbers, &n }, * asks[] = { &handle, &other };
  cudaKernelNodeParams kernel = kernel_node ((void *) triple, integers), condition = kernel_node ((void *) ask, asks);
  condition.gridDim = condition.blockDim = 1;
  CHECK (cudaGraphAddKernelNode (&inner, body, nullptr, 0, &kernel));
  CHECK (cudaGraphAddKernelNode (&decide, body, &inner, 1, &condition));
  CHECK (cudaGraphInstantiate (&exec, graph, 0));
  CHECK (cudaGraphLaunch (exec, stream));
}

static void forms ()
{
  int n = N, most = 1 << 12;
  void * integers[] = { &numbers, &n }, * folded[] = { &other, &most };
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization, attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributePriority, attributes[1].val.priority = 0;
  config.gridDim = N / 256, config.blockDim = 256, config.stream = stream, config.attrs = attributes, config.numAttrs = 2;
  CHECK (cudaLaunchKernelExC (&config, (void *) triple, integers));
  CHECK (cudaLaunchKernelExC (&config, (void *) triple, integers));
  ranks<<<8, 32, 0, stream>>> (numbers);
  triple<<<N / 256, 256, 0, cudaStreamPerThread>>> (other, N);
  CHECK (cudaStreamSynchronize (cudaStreamPerThread));
  CHECK (cudaLaunchCooperativeKernel ((void *) fold, dim3 (16), dim3 (256), folded, 0, stream));
  CHECK (cudaLaunchHostFunc (stream, add_one, nullptr));
}

/* Waits for a line on its input between the setup, a launch and the end: to be attached to. */
static void waiting ()
{
  std::puts ("ready");
  std::fflush (stdout);
  std::getchar ();
  triple<<<N / 256, 256, 0, stream>>> (numbers, N);
  CHECK (cudaStreamSynchronize (stream));
}

static void children (const char * self)
{
  for (const char * scene : { "built", "forms" })
  {
    if (fork () == 0)
      execl (self, self, scene, (char *) nullptr);
    wait (nullptr);
  }
}

int main (int argc, char ** argv)
{
  std::string scene = argc > 1 ? argv[1] : "";
  if (scene == "children") children (argv[0]);
  setup ();
  if (scene == "captured") captured ();
  else if (scene == "built") built ();
  else if (scene == "memory") memory ();
  else if (scene == "conditional") conditional ();
  else if (scene == "forms") forms ();
  else if (scene == "waiting") waiting ();
  finish ();
}
