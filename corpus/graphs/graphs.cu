// A graph made node by node, one captured from two streams, the first as a child of a third; launches between which
// parameters change; a host function inside.
#include "../support.cuh"

constexpr int COUNT = 3000;

__global__ void affine(const float *in, float *out, float a, float b)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        out[i] = fmaf(a, in[i], b);
}

__global__ void mix(const float *x, const float *y, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < COUNT)
        out[i] = 0.5f * x[i] - y[i];
}

static void CUDART_CB count_call(void *calls) { ++*static_cast<int *>(calls); }

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<float> values = real_values(COUNT, 11, -3.0f, 6.0f);
    float *in = to_device(values), *a = poisoned<float>(COUNT), *b = poisoned<float>(COUNT), *out = poisoned<float>(COUNT);
    int calls = 0;
    const dim3 blocks(blocks_for(COUNT, 128)), threads(128);

    cudaGraph_t built;  // fill → affine → host function
    CHECK(cudaGraphCreate(&built, 0));
    cudaMemsetParams fill = {};
    fill.dst = a, fill.value = 0, fill.elementSize = 4, fill.width = COUNT, fill.height = 1;
    cudaGraphNode_t filled, scaled, called;
    CHECK(cudaGraphAddMemsetNode(&filled, built, nullptr, 0, &fill));
    float factor = 1.5f, offset = -0.25f;
    void *arguments[] = {&in, &a, &factor, &offset};
    cudaKernelNodeParams kernel = {};
    kernel.func = reinterpret_cast<void *>(affine), kernel.gridDim = blocks, kernel.blockDim = threads;
    kernel.kernelParams = arguments;
    CHECK(cudaGraphAddKernelNode(&scaled, built, &filled, 1, &kernel));
    cudaHostNodeParams host = {count_call, &calls};
    CHECK(cudaGraphAddHostNode(&called, built, &scaled, 1, &host));
    cudaGraphExec_t first;
    CHECK(cudaGraphInstantiate(&first, built, 0));

    cudaStream_t stream, beside;  // captured: two branches that meet
    cudaEvent_t forked, joined;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaStreamCreateWithFlags(&beside, cudaStreamNonBlocking));
    CHECK(cudaEventCreateWithFlags(&forked, cudaEventDisableTiming));
    CHECK(cudaEventCreateWithFlags(&joined, cudaEventDisableTiming));
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    CHECK(cudaEventRecord(forked, stream));
    CHECK(cudaStreamWaitEvent(beside, forked, 0));
    affine<<<blocks, threads, 0, stream>>>(in, a, 2.0f, 1.0f);
    affine<<<blocks, threads, 0, beside>>>(in, b, -1.0f, 0.5f);
    CHECK(cudaEventRecord(joined, beside));
    CHECK(cudaStreamWaitEvent(stream, joined, 0));
    mix<<<blocks, threads, 0, stream>>>(a, b, out);
    cudaGraph_t captured;
    CHECK(cudaStreamEndCapture(stream, &captured));
    cudaGraphExec_t second;
    CHECK(cudaGraphInstantiate(&second, captured, 0));

    std::vector<float> found(COUNT), first_result;
    CHECK(cudaGraphLaunch(first, stream));
    CHECK(cudaStreamSynchronize(stream));
    first_result = to_host(a, COUNT);
    factor = -0.75f;  // the graph keeps what it was made with until it is told otherwise
    CHECK(cudaGraphLaunch(first, stream));
    CHECK(cudaGraphExecKernelNodeSetParams(first, scaled, &kernel));
    CHECK(cudaGraphLaunch(first, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> changed = to_host(a, COUNT);
    CHECK(cudaGraphLaunch(second, stream));
    CHECK(cudaStreamSynchronize(stream));
    found = to_host(out, COUNT);

    cudaGraph_t parent, clone;  // the captured one as a child, then a kernel of the parent's own
    CHECK(cudaGraphCreate(&parent, 0));
    cudaGraphNode_t child, last;
    CHECK(cudaGraphAddChildGraphNode(&child, parent, nullptr, 0, captured));
    float again = 3.0f, zero = 0.0f;
    void *more[] = {&out, &b, &again, &zero};
    kernel.kernelParams = more;
    CHECK(cudaGraphAddKernelNode(&last, parent, &child, 1, &kernel));
    CHECK(cudaGraphClone(&clone, parent));
    cudaGraphExec_t third;
    CHECK(cudaGraphInstantiate(&third, clone, 0));
    CHECK(cudaGraphLaunch(third, stream));
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> tripled = to_host(b, COUNT);
    for (int i = 0; i < COUNT; i++) {
        float mixed = 0.5f * std::fmaf(2.0f, values[i], 1.0f) - std::fmaf(-1.0f, values[i], 0.5f);
        report.expect("first", i, first_result[i], std::fmaf(1.5f, values[i], -0.25f));
        report.expect("changed", i, changed[i], std::fmaf(-0.75f, values[i], -0.25f));
        report.expect("captured", i, found[i], mixed, 1e-6);
        report.expect("child", i, tripled[i], 3.0f * found[i]);
    }
    report.expect("calls", 0, calls, 3);
    report.keep(first_result);
    report.keep(changed);
    report.keep(tripled);
    return report.finish("graphs");
}
