// n-body on two streams of two threads until it is killed, for scripts/record_kills.py: `killed ACCOUNT`. ACCOUNT is a file
// of words in which it says how many launches, allocations and frees had returned, a moment after each has.
//
// nvcc -O2 -gencode arch=compute_90,code=compute_90 -o killed killed.cu -lpthread
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

const int BODIES = 4096, BLOCK = 256, WORDS = 3;

static void check(cudaError_t error) {
    if (error != cudaSuccess) {
        std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
        std::exit(1);
    }
}

__global__ void step(const float4 *from, float4 *to, float4 *velocity) {
    __shared__ float4 tile[BLOCK];
    int i = blockIdx.x * BLOCK + threadIdx.x;
    float4 own = from[i], v = velocity[i];
    float ax = 0, ay = 0, az = 0;
    for (int start = 0; start < BODIES; start += BLOCK) {
        tile[threadIdx.x] = from[start + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < BLOCK; j++) {
            float dx = tile[j].x - own.x, dy = tile[j].y - own.y, dz = tile[j].z - own.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float force = tile[j].w * inverse * inverse * inverse;
            ax += dx * force, ay += dy * force, az += dz * force;
        }
        __syncthreads();
    }
    v.x += 1e-4f * ax, v.y += 1e-4f * ay, v.z += 1e-4f * az;
    velocity[i] = v;
    to[i] = make_float4(own.x + 1e-4f * v.x, own.y + 1e-4f * v.y, own.z + 1e-4f * v.z, own.w);
}

enum { LAUNCHES, ALLOCATIONS, FREES };
static std::atomic<unsigned long long> *account;

static float4 *allocate(size_t bytes) {
    float4 *made;
    check(cudaMalloc(&made, bytes));
    account[ALLOCATIONS]++;
    return made;
}

static void compute() {
    const size_t bytes = BODIES * sizeof(float4);
    std::vector<float4> bodies(BODIES);
    for (int i = 0; i < BODIES; i++)
        bodies[i] = make_float4(i % 97 * 0.01f, i % 89 * 0.01f, i % 83 * 0.01f, 1.0f / BODIES);
    float4 *position[2] = {allocate(bytes), allocate(bytes)}, *velocity = allocate(bytes);
    cudaStream_t stream;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check(cudaMemcpyAsync(position[0], bodies.data(), bytes, cudaMemcpyHostToDevice, stream));
    check(cudaMemsetAsync(velocity, 0, bytes, stream));
    for (int n = 0;; n++) {
        step<<<BODIES / BLOCK, BLOCK, 0, stream>>>(position[n % 2], position[1 - n % 2], velocity);
        check(cudaGetLastError());
        account[LAUNCHES]++;
        float4 *other = allocate(1 << 16);
        check(cudaStreamSynchronize(stream));
        check(cudaFree(other));
        account[FREES]++;
    }
}

int main(int, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, WORDS * sizeof *account) != 0) {
        std::perror(argv[1]);
        return 1;
    }
    void *words = mmap(nullptr, WORDS * sizeof *account, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    account = static_cast<std::atomic<unsigned long long> *>(words);
    std::thread other(compute);
    compute();
}
