// Programs whose results vary from run to run, and one whose do not: what `zluda trace` is to find out about each.
//
//   varying sums     adds floats into bins with atomicAdd, most bins from many blocks
//   varying scatter  adds floats at random places, three to each on average
//   varying scalar   adds all of an array into one float
//   varying append   appends pairs that pass a test at places that atomicAdd gives out
//   varying clock    stores the clock
//   varying plain    y = a x + y
//
// A second argument is the number of elements, 1048576 by default.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t error = (call);                                                    \
        if (error != cudaSuccess) {                                                    \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));             \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

constexpr int BINS = 4096, LAUNCHES = 4;

__device__ unsigned mixed(unsigned x) {
    x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu;
    return x ^ x >> 16;
}

__device__ int bins_of(int n) { return n < 8 * BINS ? n / 8 : BINS; }

__global__ void sums(float *bins, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[mixed(i) % bins_of(n)], x[i]);
}

__global__ void scatter(float *out, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&out[mixed(i) % (n / 3)], x[i]);
}

__global__ void scalar(float *total, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = i < n ? x[i] : 0;
    for (int step = 16; step; step /= 2) v += __shfl_down_sync(~0u, v, step);
    if (threadIdx.x % 32 == 0) atomicAdd(total, v);
}

__global__ void append(int2 *list, unsigned *count, const float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && x[i] > 0.5f) list[atomicAdd(count, 1)] = make_int2(i, __float_as_int(x[i]));
}

__global__ void ticks(long long *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = clock64();
}

__global__ void plain(float *y, const float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "";
    const int N = argc > 2 ? atoi(argv[2]) / 256 * 256 : 1 << 20;
    std::vector<float> x(N);
    srand(7);
    for (float &v : x) v = rand() / float(RAND_MAX);
    float *in, *out;
    unsigned *count;
    CHECK(cudaMalloc(&in, N * 4));
    CHECK(cudaMalloc(&out, N * 8));
    CHECK(cudaMalloc(&count, 4));
    CHECK(cudaMemcpy(in, x.data(), N * 4, cudaMemcpyHostToDevice));
    CHECK(cudaMemset(out, 0, N * 8));
    for (int launch = 0; launch < LAUNCHES; launch++) {
        CHECK(cudaMemset(count, 0, 4));
        int blocks = N / 256;
        if (!strcmp(what, "sums")) sums<<<blocks, 256>>>(out, in, N);
        else if (!strcmp(what, "scatter")) scatter<<<blocks, 256>>>(out, in, N);
        else if (!strcmp(what, "scalar")) scalar<<<blocks, 256>>>(out, in, N);
        else if (!strcmp(what, "append")) append<<<blocks, 256>>>((int2 *)out, count, in, N);
        else if (!strcmp(what, "clock")) ticks<<<4, 256>>>((long long *)out, 1024);
        else if (!strcmp(what, "plain")) plain<<<blocks, 256>>>(out, in, 1.5f, N);
        else return 2;
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    std::vector<float> result(N);
    CHECK(cudaMemcpy(result.data(), out, N * 4, cudaMemcpyDeviceToHost));
    printf("%s: %g\n", what, result[0]);
}
