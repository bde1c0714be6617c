// A launch-bound loop: `record_overhead COUNT` launches an empty kernel COUNT times and prints the seconds it took.
//
// nvcc -O2 -gencode arch=compute_90,code=compute_90 -o record_overhead record_overhead.cu
#include <chrono>
#include <cstdio>
#include <cstdlib>

__global__ void empty(float *, int) {}

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

int main(int argc, char **argv) {
    long count = argc > 1 ? std::atol(argv[1]) : 1000000;
    float *buffer;
    check(cudaMalloc(&buffer, 4096));
    empty<<<1, 32>>>(buffer, 0);  // loads the module
    check(cudaDeviceSynchronize());
    auto start = std::chrono::steady_clock::now();
    for (long i = 0; i < count; i++)
        empty<<<1, 32>>>(buffer, static_cast<int>(i));
    check(cudaDeviceSynchronize());
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::printf("%.6f\n", seconds.count());
}
