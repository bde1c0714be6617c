// As CUDA-Z does: what the device says of itself, copies each way, and chains of one kind of arithmetic. Times go to
// the terminal's reader, results to the file.
#include "../support.cuh"

#include <cuda_fp16.h>

constexpr int THREADS = 256, BLOCKS = 4, ROUNDS = 64;

struct Add { __device__ static unsigned int step(unsigned int x, unsigned int y) { return x + y * 0x9e3779b9u; } };
struct Mad24 { __device__ static unsigned int step(unsigned int x, unsigned int y) { return __umul24(x, y) + x; } };
struct Shift { __device__ static unsigned int step(unsigned int x, unsigned int y) { return __funnelshift_l(x, y, x & 31) ^ y; } };
struct Fma { __device__ static float step(float x, float y) { return fmaf(x, y, 0.25f); } };
struct Special { __device__ static float step(float x, float y) { return __sinf(x) + y; } };
struct Fma64 { __device__ static double step(double x, double y) { return fma(x, y, 0.25); } };
struct Half2 { __device__ static __half2 step(__half2 x, __half2 y) { return __hfma2(x, y, __floats2half2_rn(0.25f, 0.5f)); } };

template <typename T, typename Operation> __global__ void rate(const T *in, T *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T x = in[i], y = in[i ^ 1];
#pragma unroll 16
    for (int round = 0; round < ROUNDS; round++)
        x = Operation::step(x, y);
    out[i] = x;
}

template <typename T, typename Operation> void measure(const char *name, const std::vector<T> &values, Report &report)
{
    T *in = to_device(values), *out = poisoned<T>(values.size());
    cudaEvent_t start, end;
    CHECK(cudaEventCreate(&start));
    CHECK(cudaEventCreate(&end));
    CHECK(cudaEventRecord(start));
    rate<T, Operation><<<BLOCKS, THREADS>>>(in, out);
    CHECK(cudaEventRecord(end));
    CHECK(cudaEventSynchronize(end));
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, start, end));
    report.expect(name, 0, milliseconds > 0, 1);
    report.keep(to_host(out, values.size()));
    CHECK(cudaEventDestroy(start));
    CHECK(cudaEventDestroy(end));
    CHECK(cudaFree(in));
    CHECK(cudaFree(out));
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    int devices = 0, clock = 0, driver = 0;
    cudaDeviceProp about;
    CHECK(cudaGetDeviceCount(&devices));
    CHECK(cudaGetDeviceProperties(&about, 0));
    CHECK(cudaDeviceGetAttribute(&clock, cudaDevAttrClockRate, 0));
    CHECK(cudaDriverGetVersion(&driver));
    size_t unused = 0, total = 0;
    CHECK(cudaMemGetInfo(&unused, &total));
    report.expect("devices", 0, devices > 0 && clock > 0 && driver >= 12000 && total >= unused, 1);
    report.expect("warp", 0, about.warpSize, 32);

    const int count = BLOCKS * THREADS;
    std::vector<unsigned int> words(count);
    std::vector<double> wide(count);
    std::vector<__half2> halves(count);
    std::vector<float> single = real_values(count, 5, -0.9f, 1.8f);
    for (int i = 0; i < count; i++) {
        words[i] = hash(i);
        wide[i] = single[i];
        halves[i] = __floats2half2_rn(single[i], 0.5f * single[i]);
    }
    measure<unsigned int, Add>("add", words, report);
    measure<unsigned int, Mad24>("mad24", words, report);
    measure<unsigned int, Shift>("shift", words, report);
    measure<float, Fma>("fma", single, report);
    measure<float, Special>("sin", single, report);
    measure<double, Fma64>("fma64", wide, report);
    measure<__half2, Half2>("half2", halves, report);

    unsigned int *pinned = nullptr, *there = nullptr, *beside = nullptr;  // copies: pinned → device → device → pinned
    CHECK(cudaMallocHost(&pinned, 2 * count * sizeof *pinned));
    CHECK(cudaMalloc(&there, count * sizeof *there));
    CHECK(cudaMalloc(&beside, count * sizeof *beside));
    std::copy(words.begin(), words.end(), pinned);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));
    CHECK(cudaMemcpyAsync(there, pinned, count * sizeof *there, cudaMemcpyHostToDevice, stream));
    CHECK(cudaMemcpyAsync(beside, there, count * sizeof *there, cudaMemcpyDeviceToDevice, stream));
    CHECK(cudaMemsetAsync(beside, 0x3c, 64 * sizeof *there, stream));
    CHECK(cudaMemcpyAsync(pinned + count, beside, count * sizeof *there, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < count; i++)
        report.expect("copied", i, pinned[count + i], i < 64 ? 0x3c3c3c3cu : words[i]);
    CHECK(cudaFreeHost(pinned));
    return report.finish("device_rates");
}
