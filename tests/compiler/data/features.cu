// Kernels whose PTX exercises control flow, memory spaces, warps and calls. Compiled by:
//   nvcc -arch=compute_90 -ptx features.cu -o features.ptx
#include <cstdint>

extern "C" __global__ void collatz(const uint32_t *in, uint32_t *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint32_t x = in[i], steps = 0;
    while (x > 1) {
        x = x % 2 ? 3 * x + 1 : x / 2;
        if (++steps == 100)
            break;
    }
    out[i] = steps;
}

extern "C" __global__ void nested(const int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, v = in[i], sum = 0;
    for (int a = 0; a < v % 7; a++) {
        if (a == v % 5)
            continue;
        for (int b = 0; b < 10; b++) {
            if (b * a > v % 23)
                break;
            sum += a * 100 + b;
            if (sum > 5000) {
                out[i] = -sum;
                return;
            }
        }
        sum ^= a;
    }
    out[i] = sum;
}

extern "C" __global__ void choose(const int *in, int *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, r;
    switch (in[i]) {
    case 0: r = i * 3; break;
    case 1: r = i - 100; break;
    case 2: r = i ^ 0x55; // falls through
    case 3: r = r * 0 + i + 7; break;
    case 4: r = i << 3; break;
    case 5: r = -i; break;
    case 6: r = i * i; break;
    case 7: r = i / 3; break;
    default: r = 12345;
    }
    out[i] = r;
}

extern "C" __global__ void prefix(const int *in, int *out)
{
    __shared__ int buffer[2][256];
    int t = threadIdx.x, from = 0;
    buffer[0][t] = in[blockIdx.x * 256 + t];
    for (int step = 1; step < 256; step *= 2) {
        __syncthreads();
        int to = 1 - from;
        buffer[to][t] = buffer[from][t] + (t >= step ? buffer[from][t - step] : 0);
        from = to;
    }
    out[blockIdx.x * 256 + t] = buffer[from][t];
}

// Each warp reaches the barrier by its own path.
extern "C" __global__ void paths(int *out)
{
    __shared__ int seen[8];
    int warp = threadIdx.x / 32;
    if (warp % 2) {
        if (threadIdx.x % 32 == 0)
            seen[warp] = warp * 10;
        asm volatile("bar.sync 1;" ::: "memory");
    } else {
        if (threadIdx.x % 32 == 0)
            seen[warp] = warp * 100;
        asm volatile("bar.sync 1;" ::: "memory");
    }
    out[threadIdx.x] = seen[(warp + 1) % 8];
}

extern "C" __global__ void tally(const int *in, int *out)
{
    int p = in[threadIdx.x];
    int count = __syncthreads_count(p), all = __syncthreads_and(p), any = __syncthreads_or(p);
    out[threadIdx.x] = count * 4 + (all ? 2 : 0) + (any ? 1 : 0);
}

// A producer and a consumer half on two named barriers with thread counts (bar.arrive).
extern "C" __global__ void pipeline(int *out)
{
    __shared__ int item;
    for (int round = 0; round < 4; round++) {
        if (threadIdx.x < 64) {
            asm volatile("bar.sync 2, 128;" ::: "memory");
            if (threadIdx.x == 0)
                item = round * 11 + 1;
            asm volatile("bar.arrive 3, 128;" ::: "memory");
        } else {
            asm volatile("bar.arrive 2, 128;" ::: "memory");
            asm volatile("bar.sync 3, 128;" ::: "memory");
            out[round * 64 + threadIdx.x - 64] = item;
        }
    }
}

// One warp waits for a flag that another sets.
extern "C" __global__ void spin(int *out)
{
    __shared__ volatile int flag;
    if (threadIdx.x == 0)
        flag = 0;
    __syncthreads();
    if (threadIdx.x < 32) {
        while (flag == 0)
            ;
        out[threadIdx.x] = flag;
    } else if (threadIdx.x == 40) {
        flag = 77;
    }
}

__noinline__ __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

extern "C" __global__ void recursion(int *out) { out[threadIdx.x] = fibonacci(threadIdx.x % 13); }

struct Triple { double a; float b; int16_t c; uint8_t d; };

__noinline__ __device__ Triple twist(Triple t, int k)
{
    Triple r = {t.a * k, t.b + k, (int16_t)(t.c - k), (uint8_t)(t.d ^ k)};
    return r;
}

extern "C" __global__ void structures(double *out)
{
    Triple t = {1.5, 2.5f, 30, 40};
    if (threadIdx.x % 3)
        t = twist(t, threadIdx.x);
    out[threadIdx.x] = t.a + t.b + t.c + t.d;
}

typedef int (*Function)(int);
__noinline__ __device__ int twice(int x) { return 2 * x; }
__noinline__ __device__ int square(int x) { return x * x; }
__noinline__ __device__ int negate(int x) { return -x; }
__device__ Function table[3] = {twice, square, negate};

extern "C" __global__ void indirect(int *out) { out[threadIdx.x] = table[threadIdx.x % 3](threadIdx.x); }

struct Shape { __device__ virtual int area(int x) const = 0; };
struct Line : Shape { __device__ int area(int x) const override { return x; } };
struct Square : Shape { __device__ int area(int x) const override { return x * x; } };

extern "C" __global__ void methods(int *out)
{
    Line line;
    Square square;
    const Shape *shape = threadIdx.x & 1 ? (const Shape *)&line : &square;
    out[threadIdx.x] = shape->area(threadIdx.x);
}

__noinline__ __device__ void leave(int i)
{
    if (i % 4 == 1)
        asm volatile("exit;");
}

extern "C" __global__ void exits(int *out)
{
    out[threadIdx.x] = 1;
    leave(threadIdx.x);
    out[threadIdx.x] = 2;
    if (threadIdx.x % 8 == 2)
        asm volatile("exit;");
    __syncthreads();
    out[threadIdx.x] = 3;
}

extern "C" __global__ void local_array(const int *in, int *out)
{
    int stack[16];
    for (int k = 0; k < 16; k++)
        stack[k] = k * threadIdx.x;
    int at = in[threadIdx.x] & 15;
    stack[at] += 1000;
    int sum = 0;
    for (int k = 0; k < 16; k++)
        sum += stack[(k + at) & 15] * (k + 1);
    out[threadIdx.x] = sum;
}

__noinline__ __device__ int read_through(const int *p) { return *p; }
__constant__ int fixed[32] = {5, 4, 3, 2, 1};
__device__ int variable = 321;
__device__ int *pointer = &variable;

extern "C" __global__ void generic_pointers(const int *in, int *out)
{
    __shared__ int shared[32];
    int local[4] = {(int)threadIdx.x, 2, 3, 4};
    shared[threadIdx.x] = threadIdx.x * 7;
    __syncthreads();
    const int *p = in + threadIdx.x;
    if (threadIdx.x % 5 == 1)
        p = &shared[31 - threadIdx.x];
    if (threadIdx.x % 5 == 2)
        p = &local[in[threadIdx.x] & 3];
    if (threadIdx.x % 5 == 3)
        p = &fixed[threadIdx.x % 8];
    if (threadIdx.x % 5 == 4)
        p = pointer;
    int spaces = __isGlobal(p) + 2 * __isShared(p) + 4 * __isLocal(p) + 8 * __isConstant(p);
    out[threadIdx.x] = read_through(p) * 16 + spaces;
}

extern "C" __global__ void contention(unsigned *counters, float *sums, double *total, unsigned long long *most, int *order)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&counters[i % 3], i);
    atomicInc(&counters[4], 1000);
    atomicDec(&counters[5], 1000);
    atomicXor(&counters[6], i * 2654435761u);
    atomicMin((int *)&counters[7], (int)i - 500);
    atomicMax(&counters[8], i * 7 % 1013);
    atomicAdd(&sums[i % 2], 1.0f);
    atomicAdd(total, 0.5);
    atomicMax(most, (unsigned long long)i << 33);
    while (atomicCAS(&counters[9], i, i + 1) != i && atomicAdd(&counters[10], 0) == 12345)
        ;
    order[i] = atomicAdd(&counters[11], 1);
}

extern "C" __global__ void warp_operations(const unsigned *in, unsigned *out)
{
    unsigned t = threadIdx.x, v = in[t], *o = out + t * 16;
    o[0] = __shfl_sync(~0u, v, t * 5);
    o[1] = __shfl_up_sync(~0u, v, t % 7 + 1, 8);
    o[2] = __shfl_down_sync(~0u, v, 3);
    o[3] = __shfl_xor_sync(~0u, v, v & 31);
    o[4] = __ballot_sync(~0u, v & 1);
    o[5] = __all_sync(0xff, v < 200) * (t < 8);
    o[6] = __any_sync(~0u, v == in[3]);
    o[7] = __match_any_sync(~0u, v % 5);
    int same;
    o[8] = __match_all_sync(~0u, v - v, &same) + same;
    o[9] = __reduce_add_sync(~0u, v);
    o[10] = __reduce_min_sync(~0u, (int)v - 100);
    o[11] = __reduce_xor_sync(~0u, v);
    o[12] = t % 3 ? __activemask() : 0;
    o[13] = t < 13 ? __reduce_max_sync(0x1fff, v) : 0;
    o[14] = __shfl_sync(~0u, v, 5, 16);
    o[15] = __shfl_down_sync(~0u, v, 2, 4);
}

extern "C" __global__ void widths(const int8_t *bytes, const uint16_t *halves, const short2 *pairs, const float4 *quads,
                                  const double2 *doubles, int64_t *out, float4 *quads_out, uint8_t *bytes_out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 q = quads[i];
    double2 d = doubles[i ^ 1];
    short2 s = pairs[i];
    out[i] = bytes[i] + halves[i] * 3ll + s.x * 5ll - s.y + (int64_t)d.x + (int64_t)(q.x + q.w) + bytes[255 - i];
    quads_out[i] = make_float4(q.w, q.z, q.y, q.x);
    bytes_out[2 * i] = (uint8_t)i;
    bytes_out[2 * i + 1] = (uint8_t)(bytes[i] >> 1);
}

extern "C" __global__ void indices(uint32_t *out)
{
    uint32_t block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    uint32_t thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    uint32_t *o = out + (block * blockDim.x * blockDim.y * blockDim.z + thread) * 8;
    uint32_t lane, warp, below;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    o[0] = threadIdx.x, o[1] = threadIdx.y, o[2] = threadIdx.z;
    o[3] = blockIdx.x, o[4] = blockIdx.y, o[5] = blockIdx.z;
    o[6] = lane + 100 * warp;
    o[7] = below;
}

extern "C" __global__ void dynamic_shared(int *out, int n)
{
    extern __shared__ int dynamic[];
    __shared__ int fixed_part[3];
    if (threadIdx.x < 3)
        fixed_part[threadIdx.x] = 1000 * threadIdx.x;
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        dynamic[k] = k * k;
    __syncthreads();
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        out[k] = dynamic[n - 1 - k] + fixed_part[k % 3];
}

extern "C" __global__ void stops(int *p, int what)
{
    if (what == 1 && threadIdx.x == 37)
        asm volatile("trap;");
    if (what == 2)
        *(volatile int *)((char *)p + (threadIdx.x == 5 && blockIdx.x == 1 ? 2 : 0)) = 1;
    if (what == 3 && threadIdx.x < 32)
        __syncthreads();
    if (what == 3 && threadIdx.x >= 32)
        asm volatile("bar.sync 5;");
}

// A lock that lanes of one warp take from each other, and a second one with the loop around it.
extern "C" __global__ void locks(int *lock, int *counter, int *order, int *out)
{
    while (atomicCAS(lock, 0, 1) != 0)
        ;
    int seen = *(volatile int *)counter;
    *(volatile int *)counter = seen + 1;
    __threadfence();
    atomicExch(lock, 0);
    order[blockIdx.x * blockDim.x + threadIdx.x] = seen;
    __syncthreads();
    bool done = false;
    while (!done) {
        if (atomicCAS(lock + 1, 0, 1) == 0) {
            *(volatile int *)(counter + 1) = *(volatile int *)(counter + 1) + 3;
            __threadfence();
            atomicExch(lock + 1, 0);
            done = true;
        }
    }
    int all = __shfl_down_sync(~0u, seen, 1) + __popc(__ballot_sync(~0u, done));
    out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

// Lanes of a warp pass a token on, each waiting for the one before.
extern "C" __global__ void token(volatile int *turn, int *out)
{
    while (*turn != threadIdx.x)
        ;
    out[threadIdx.x] = *turn * 2;
    __threadfence();
    *turn = threadIdx.x + 1;
}
