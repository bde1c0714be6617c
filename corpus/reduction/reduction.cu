// Sums, minima and maxima of whole blocks: shuffles inside a warp, shared memory between warps, one partial
// result a block, and a second launch over the partial results.
#include "../support.cuh"

struct Sum {
    template <typename T> static __host__ __device__ T of(T a, T b) { return a + b; }
};
struct Maximum {
    template <typename T> static __host__ __device__ T of(T a, T b) { return a > b ? a : b; }
};

template <typename Operation, typename T> __device__ T reduce_warp(T value)
{
    for (int offset = 16; offset > 0; offset /= 2)
        value = Operation::of(value, __shfl_down_sync(0xffffffffu, value, offset));
    return value;
}

template <typename Operation, typename T>
__global__ void reduce(const T *in, T *out, int n, T neutral)
{
    __shared__ T partial[32];
    T value = neutral;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value = Operation::of(value, in[i]);
    value = reduce_warp<Operation>(value);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < warps ? partial[lane] : neutral;
        value = reduce_warp<Operation>(value);
        if (lane == 0)
            out[blockIdx.x] = value;
    }
}

// Inclusive sums inside each warp, and a ballot of the positive lanes.
__global__ void warp_scan(const int *in, int *sums, unsigned int *positive, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    int value = i < n ? in[i] : 0;
    unsigned int ballot = __ballot_sync(0xffffffffu, value > 0);
    for (int offset = 1; offset < 32; offset *= 2) {
        int other = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset)
            value += other;
    }
    if (i < n)
        sums[i] = value;
    if (lane == 0 && i < n)
        positive[i / 32] = ballot;
}

template <typename Operation, typename T>
T reduced(const T *device_in, T *device_partial, int n, T neutral, unsigned blocks, unsigned threads)
{
    poison(device_partial, blocks + 1);
    reduce<Operation, T><<<blocks, threads>>>(device_in, device_partial, n, neutral);
    reduce<Operation, T><<<1, 64>>>(device_partial, device_partial + blocks, int(blocks), neutral);
    CHECK(cudaGetLastError());
    return to_host(device_partial + blocks, 1)[0];
}

int main(int argc, char **argv)
{
    const int n = 20011;
    Report report(argc, argv);
    std::vector<float> reals = real_values(n, 7, -8.0f, 16.0f);
    std::vector<int> integers(n);
    for (int i = 0; i < n; i++)
        integers[i] = int(hash(i) % 2001u) - 1000;
    float *device_reals = to_device(reals), *partial_reals = poisoned<float>(64);
    int *device_integers = to_device(integers), *partial_integers = poisoned<int>(64);

    float sum = reduced<Sum, float>(device_reals, partial_reals, n, 0.0f, 17, 224);
    float largest = reduced<Maximum, float>(device_reals, partial_reals, n, -INFINITY, 9, 128);
    int total = reduced<Sum, int>(device_integers, partial_integers, n, 0, 13, 96);

    const int words = (n + 31) / 32;
    int *sums = poisoned<int>(n);
    unsigned int *ballots = poisoned<unsigned int>(words);
    warp_scan<<<blocks_for(n, 160), 160>>>(device_integers, sums, ballots, n);
    CHECK(cudaDeviceSynchronize());
    std::vector<int> scanned = to_host(sums, n);
    std::vector<unsigned int> positive = to_host(ballots, words);

    double expected_sum = 0.0, expected_largest = -INFINITY;
    int expected_total = 0, running = 0;
    for (int i = 0; i < n; i++) {
        expected_sum += reals[i];
        expected_largest = std::fmax(expected_largest, reals[i]);
        expected_total += integers[i];
        running = i % 32 ? running + integers[i] : integers[i];
        report.expect("scan", i, scanned[i], running);
        report.expect("ballot", i, positive[i / 32] >> (i % 32) & 1u, integers[i] > 0);
    }
    report.expect("sum", 0, sum, expected_sum, 0.05);
    report.expect("largest", 0, largest, expected_largest);
    report.expect("total", 0, total, expected_total);
    report.keep(std::vector<float>{sum, largest});
    report.keep(std::vector<int>{total});
    report.keep(scanned);
    report.keep(positive);
    for (void *pointer : {(void *)device_reals, (void *)device_integers, (void *)partial_reals, (void *)partial_integers,
                          (void *)sums, (void *)ballots})
        CHECK(cudaFree(pointer));
    return report.finish("reduction");
}
