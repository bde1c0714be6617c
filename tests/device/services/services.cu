// Programs over the device services: nvcc -ptx -arch=compute_80 services.cu made services.ptx, and
// `nvcc -o services services.cu && ./services` printed services.txt: first on the host, then, after a line of
// dashes, on a GPU.
#include <cassert>
#include <cstdio>
#include <cstdlib>

extern "C" {

__host__ __device__ int formats(const char *text, void *pointer)
{
    int n = 0;
    n += printf("nothing to convert\n");
    n += printf("%d %i %u %o %x %X|\n", -5, 123456789, 4000000000u, 8, 255, 48879);
    n += printf("%5d|%-5d|%05d|%+d|% d|%#x|%#o|%.3d|\n", 42, 42, 42, 42, 42, 255, 8, 7);
    n += printf("%ld %lld %lu %llx %hd\n", -1l, -9000000000ll, 18446744073709551615ul, 1ull << 40, 70000);
    n += printf("%f %.2f %10.3f|%-10.1f|%+e %E %g %G %a\n", 1.5, 2.345, -3.14159, 2.5, 12345.678, 0.00012, 1e20, 1e-7, 0.5);
    n += printf("%f %f %f\n", 1.0 / 0.0, -1.0 / 0.0, 1e308 * 10);
    n += printf("%c%c%c [%3c] [%-3c]\n", 'a', 'b', 'c', 'd', 'e');
    n += printf("%s|%10s|%-10s|%.3s|%s\n", text, text, text, text, "");
    n += printf("%p\n", pointer);
    n += printf("100%% %d%%\n", 7);
    n += printf("%*d|%-*d\n", 6, 1, 6, 2);
    n += printf("%d %f %d %s %lld %d\n", 1, 2.0, 3, text, 5ll, 6);  // alignment of the buffer
    return n;
}

__global__ void print_formats(const char *text, int *count) { *count = formats(text, (void *)0x12345678abcdull); }

// The text lies in the thread's own memory, and so does a format.
__global__ void print_local(int *count)
{
    char text[8] = "local 0", format[12] = "%s and %d\n";
    text[6] = char('0' + threadIdx.x);
    count[threadIdx.x] = printf(format, text, int(threadIdx.x));
}

__global__ void print_many(int *count)
{
    count[0] = printf("%d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d %d\n", 1, 2, 3, 4, 5,
                      6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34);
    count[1] = printf("%y %q %.*f %hhd %\n");
    count[2] = printf((const char *)nullptr);
}

// Each thread that may, in its own words.
__global__ void print_threads(int divisor)
{
    if (threadIdx.x % divisor == 0)
        printf("block %d thread %d\n", blockIdx.x, threadIdx.x);
}

// Allocations of many sizes at once: written whole, read back, freed out of order, by other threads.
__global__ void allocate(unsigned char **pointers, int *bytes, int most)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, size = 1 + i * 37 % most;
    if (i % 5 == 0)
        free(malloc(size));
    unsigned char *p = (unsigned char *)malloc(size);
    if (p != nullptr)
        for (int j = 0; j < size; j++)
            p[j] = (unsigned char)(i + j);
    pointers[i] = p;
    bytes[i] = p == nullptr ? 0 : size;
}

__global__ void verify_and_free(unsigned char **pointers, const int *bytes, int *wrong, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, other = (i * 13 + 5) % n, bad = 0;
    for (int j = 0; j < bytes[other]; j++)
        bad += pointers[other][j] != (unsigned char)(other + j);
    wrong[i] = bad;
    free(pointers[other]);
}

__global__ void allocate_one(unsigned long long *pointers, unsigned long long size, int times)
{
    for (int i = 0; i < times; i++)
        pointers[i] = (unsigned long long)malloc(size);
}

__global__ void free_one(unsigned long long address) { free((void *)address); }

// Freed at once, more often than the heap could hold: what was freed is used again.
__global__ void allocate_and_free(int *failures, int size, int rounds)
{
    int failed = 0;
    for (int i = 0; i < rounds; i++) {
        int *p = (int *)malloc(size);
        failed += p == nullptr;
        if (p != nullptr)
            p[0] = p[size / 4 - 1] = i;
        free(p);
    }
    failures[blockIdx.x * blockDim.x + threadIdx.x] = failed;
}

__global__ void asserts(const int *values, int *seen)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(values[i] >= 0 && "values are not negative");
    seen[i] = 1;
}

}  // extern "C"

#ifndef __CUDACC_RTC__
#define CHECK(call) do { cudaError_t e = (call); if (e != cudaSuccess) { printf("%s: %s\n", #call, cudaGetErrorString(e)); exit(1); } } while (0)

int main()
{
    (void)formats("device", (void *)0x12345678abcdull);
    printf("----\n");
    fflush(stdout);
    char *text;
    int *count;
    if (cudaMallocManaged(&text, 16) != cudaSuccess)
        return 0;  // no GPU
    CHECK(cudaMallocManaged(&count, 64));
    for (int i = 0; i < 7; i++)
        text[i] = "device"[i];
    print_formats<<<1, 1>>>(text, count);
    CHECK(cudaDeviceSynchronize());
    printf("returned %d\n", count[0]);
    fflush(stdout);
    print_local<<<1, 4>>>(count);
    CHECK(cudaDeviceSynchronize());
    printf("returned %d %d %d %d\n", count[0], count[1], count[2], count[3]);
    fflush(stdout);
    print_many<<<1, 1>>>(count);
    CHECK(cudaDeviceSynchronize());
    printf("returned %d %d %d\n", count[0], count[1], count[2]);
    fflush(stdout);
    print_threads<<<1, 32>>>(7);
    CHECK(cudaDeviceSynchronize());
    unsigned long long *pointers;
    CHECK(cudaMallocManaged(&pointers, 1024));
    allocate_one<<<1, 1>>>(pointers, 0, 1);
    CHECK(cudaDeviceSynchronize());
    printf("malloc(0) is %s\n", pointers[0] ? "not null" : "null");
    allocate_one<<<1, 1>>>(pointers, 1ull << 40, 1);
    CHECK(cudaDeviceSynchronize());
    printf("malloc(2^40) is %s\n", pointers[0] ? "not null" : "null");
    allocate_one<<<1, 1>>>(pointers, 1 << 20, 10);
    CHECK(cudaDeviceSynchronize());
    int got = 0;
    for (int i = 0; i < 10; i++)
        got += pointers[i] != 0;
    printf("of ten times 1 MiB: %d\n", got);
    for (int i = 0; i < 10; i++)
        if (pointers[i])
            free_one<<<1, 1>>>(pointers[i]);
    CHECK(cudaDeviceSynchronize());
    printf("limit after use: %s\n", cudaGetErrorName(cudaDeviceSetLimit(cudaLimitPrintfFifoSize, 1 << 16)));
    (void)cudaGetLastError();
    fflush(stdout);
    unsigned char **many;
    int *wrong;
    CHECK(cudaMallocManaged(&many, 4096 * 8));
    CHECK(cudaMallocManaged(&wrong, 4096 * 4));
    CHECK(cudaMallocManaged(&count, 4096 * 4));
    allocate<<<8, 128>>>(many, count, 1000);
    verify_and_free<<<8, 128>>>(many, count, wrong, 1024);
    CHECK(cudaDeviceSynchronize());
    int total = 0, null = 0;
    for (int i = 0; i < 1024; i++)
        total += wrong[i], null += many[i] == nullptr;
    printf("wrong %d, null %d\n", total, null);
    for (int i = 0; i < 64; i++)
        count[i] = i == 37 ? -1 : i;
    fflush(stdout);
    asserts<<<1, 64>>>(count, wrong);
    cudaError_t failed = cudaDeviceSynchronize();
    printf("assert: %s\n", cudaGetErrorName(failed));
    fflush(stdout);
}
#endif
