// A graph with conditional nodes, to be recorded on an NVIDIA GPU: its loop runs while a counter is below a limit, in it an `if` with an
// `else`, after it a `switch`; its body is captured from a stream. It prints what memory holds at the end.
//
// nvcc -O2 -gencode arch=compute_90,code=compute_90 -o conditional conditional.cu
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

__global__ void advance(unsigned *count, unsigned limit, cudaGraphConditionalHandle again, cudaGraphConditionalHandle odd) {
    unsigned now = ++*count;
    cudaGraphSetConditional(again, now < limit);
    cudaGraphSetConditional(odd, now % 2);
}

__global__ void choose(unsigned *launches, cudaGraphConditionalHandle which) { cudaGraphSetConditional(which, ++*launches % 3); }

__global__ void triple(unsigned *numbers, unsigned n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) numbers[i] = 3 * numbers[i] + 1;
}

__global__ void add(unsigned *numbers, unsigned n, unsigned what) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) numbers[i] += what;
}

static cudaGraph_t *conditional(cudaGraphNode_t *node, cudaGraph_t graph, cudaGraphNode_t *after, cudaGraphConditionalHandle handle,
                                cudaGraphConditionalNodeType type, unsigned size) {
    cudaGraphNodeParams asked = {cudaGraphNodeTypeConditional};
    asked.conditional.handle = handle;
    asked.conditional.type = type;
    asked.conditional.size = size;
    check(cudaGraphAddNode(node, graph, after, nullptr, after != nullptr, &asked));
    return asked.conditional.phGraph_out;
}

static void kernel(cudaGraphNode_t *node, cudaGraph_t graph, cudaGraphNode_t *after, void *function, unsigned blocks, void **parameters) {
    cudaKernelNodeParams asked = {function, dim3(blocks), dim3(blocks == 1 ? 1 : 128), 0, parameters, nullptr};
    check(cudaGraphAddKernelNode(node, graph, after, after != nullptr, &asked));
}

int main() {
    constexpr unsigned n = 1024;
    static unsigned host[n];
    unsigned *numbers, *rounds, *launches, limit = 5, count = n, five = 5, six = 6;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    cudaGraphNode_t first, loop, inner, next;
    cudaGraphConditionalHandle again, odd, which;
    cudaStream_t stream;

    check(cudaStreamCreate(&stream));
    check(cudaMalloc(&numbers, sizeof host));
    check(cudaMalloc(&rounds, sizeof *rounds));
    check(cudaMalloc(&launches, sizeof *launches));
    for (unsigned i = 0; i < n; i++) host[i] = i;
    check(cudaMemcpy(numbers, host, sizeof host, cudaMemcpyHostToDevice));
    check(cudaMemset(launches, 0, sizeof *launches));
    check(cudaGraphCreate(&graph, 0));
    check(cudaGraphConditionalHandleCreate(&again, graph, 1, cudaGraphCondAssignDefault));
    check(cudaGraphConditionalHandleCreate(&odd, graph, 0, cudaGraphCondAssignDefault));
    check(cudaGraphConditionalHandleCreate(&which, graph, 0, 0));
    cudaMemsetParams zero = {rounds, 0, 0, 4, 1, 1};
    check(cudaGraphAddMemsetNode(&first, graph, nullptr, 0, &zero));
    cudaGraph_t body = conditional(&loop, graph, &first, again, cudaGraphCondTypeWhile, 1)[0];
    check(cudaStreamBeginCaptureToGraph(stream, body, nullptr, nullptr, 0, cudaStreamCaptureModeGlobal));
    advance<<<1, 1, 0, stream>>>(rounds, limit, again, odd);
    triple<<<n / 128, 128, 0, stream>>>(numbers, n);
    check(cudaStreamEndCapture(stream, nullptr));
    size_t nodes = 2;
    cudaGraphNode_t captured[2];
    check(cudaGraphGetNodes(body, captured, &nodes));
    cudaGraph_t *branches = conditional(&inner, body, &captured[1], odd, cudaGraphCondTypeIf, 2);
    void *with_five[] = {&numbers, &count, &five}, *with_six[] = {&numbers, &count, &six}, *all[] = {&numbers, &count};
    kernel(&next, branches[0], nullptr, (void *)add, n / 128, with_five);
    kernel(&next, branches[1], nullptr, (void *)add, n / 128, with_six);
    void *choosing[] = {&launches, &which};
    kernel(&next, graph, &loop, (void *)choose, 1, choosing);
    cudaGraph_t *cases = conditional(&inner, graph, &next, which, cudaGraphCondTypeSwitch, 2);
    kernel(&next, cases[0], nullptr, (void *)triple, n / 128, all);
    kernel(&next, cases[1], nullptr, (void *)add, n / 128, with_six);
    check(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 0; launch < 3; launch++) check(cudaGraphLaunch(exec, stream));
    check(cudaStreamSynchronize(stream));
    check(cudaMemcpy(host, numbers, sizeof host, cudaMemcpyDeviceToHost));
    unsigned sum = 0;
    for (unsigned i = 0; i < n; i++) sum += host[i];
    std::printf("%u\n", sum);
    return 0;
}
