// Variables of every kind, as machine code names them.
#include <cstdio>

__device__ int table[64];
__device__ int counter = 7;
static __device__ int hidden[4];
__constant__ float factors[8] = {1, 2, 3};
__managed__ int managed = 3;

__global__ void update(const int *in)
{
    __shared__ int shared[32];
    shared[threadIdx.x % 32] = in[threadIdx.x];
    __syncthreads();
    table[threadIdx.x % 64] += shared[(threadIdx.x + 1) % 32] * int(factors[threadIdx.x % 8]);
    hidden[threadIdx.x % 4] = atomicAdd(&counter, 1);
    managed += 2;
    printf("%d\n", in[0]);
}
