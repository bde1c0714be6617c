// Every way to hold memory on a real GPU, one scene each: `memory_kinds SCENE`. Prints sums that do not depend on time.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>

#define RUN(call) do { cudaError_t e_ = (call); if (e_) { printf ("%s: %s\n", #call, cudaGetErrorString (e_)); exit (1); } } while (0)
#define DRV(call) do { CUresult e_ = (call); if (e_) { printf ("%s: %d\n", #call, e_); exit (1); } } while (0)

constexpr int N = 1 << 16;
constexpr size_t BYTES = 4 * N;

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = __fadd_rn(y[i], __fmul_rn(a, x[i]));
}

__managed__ float shared_variable[256];

__global__ void from_variable(float *y)
{
    y[threadIdx.x] = shared_variable[threadIdx.x] + 1;
}

static float *x, *y;
static float host[2 * N];

static void launch(const float *from, float *to, int n = N)
{
    saxpy<<<(n + 255) / 256, 256>>>(n, 2, from, to);
    RUN(cudaDeviceSynchronize());
}

static void say(const char *what, const float *device, int n = N)
{
    double sum = 0;
    RUN(cudaMemcpy(host, device, 4 * n, cudaMemcpyDefault));
    for (int i = 0; i < n; i++)
        sum += host[i] * (i % 7 + 1);
    printf("%s %.6g\n", what, sum);
}

static void written_by_host(const char *what, float *memory)
{
    for (int i = 0; i < N; i++)
        memory[i] = i % 100;
    launch(memory, y);
    memory[7] = 5;
    launch(memory, y);
    launch(x, memory);
    memory[3] += 1;
    launch(memory, y);
    say(what, y);
}

static void managed()
{
    float *memory;
    RUN(cudaMallocManaged(&memory, BYTES));
    written_by_host("managed", memory);
    cudaMemLocation device = {cudaMemLocationTypeDevice, 0};
    RUN(cudaMemPrefetchAsync(memory, BYTES, device, 0, 0));
    launch(memory, y);
    say("prefetched", y);
    for (int i = 0; i < 256; i++)
        shared_variable[i] = i;
    from_variable<<<1, 256>>>(y);
    RUN(cudaDeviceSynchronize());
    shared_variable[3] = 10;
    from_variable<<<1, 256>>>(y + 256);
    RUN(cudaDeviceSynchronize());
    say("managed variable", y);
    RUN(cudaFree(memory));
}

static void pinned()
{
    float *memory, *seen, *own;
    RUN(cudaHostAlloc(&memory, BYTES, cudaHostAllocMapped));
    RUN(cudaHostGetDevicePointer(&seen, memory, 0));
    printf("same address: %d\n", seen == memory);
    written_by_host("pinned", seen);
    RUN(cudaFreeHost(memory));
    own = (float *)malloc(BYTES + 100);
    RUN(cudaHostRegister(own, BYTES, cudaHostRegisterMapped));
    RUN(cudaHostGetDevicePointer(&seen, own, 0));
    written_by_host("registered", seen);
    RUN(cudaHostUnregister(own));
    free(own);
}

static void pools()
{
    cudaStream_t stream;
    cudaMemPool_t pool;
    cudaMemPoolProps properties = {};
    float *first, *second;
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location = {cudaMemLocationTypeDevice, 0};
    RUN(cudaStreamCreate(&stream));
    RUN(cudaMemPoolCreate(&pool, &properties));
    for (int round = 0; round < 3; round++)
    {
        RUN(cudaMallocAsync(&first, BYTES, stream));
        RUN(cudaMallocFromPoolAsync(&second, BYTES, pool, stream));
        RUN(cudaMemcpyAsync(first, x, BYTES, cudaMemcpyDeviceToDevice, stream));
        RUN(cudaMemsetAsync(second, 0, BYTES, stream));
        saxpy<<<N / 256, 256, 0, stream>>>(N, 3, first, second);
        RUN(cudaFreeAsync(first, stream));
        RUN(cudaStreamSynchronize(stream));
        say("pool", second);
        RUN(cudaFreeAsync(second, stream));
    }
    RUN(cudaStreamSynchronize(stream));
    RUN(cudaMemPoolDestroy(pool));
}

static void mapped()
{
    CUmemAllocationProp properties = {};
    CUmemAccessDesc access = {};
    CUmemGenericAllocationHandle handle[3];
    CUdeviceptr range;
    size_t piece;
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
    access.location = properties.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    DRV(cuMemGetAllocationGranularity(&piece, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    DRV(cuMemAddressReserve(&range, 4 * piece, 0, 0, 0));
    for (int i = 0; i < 3; i++)
    {
        CUdeviceptr at = range + (i == 2 ? 3 : i) * piece;
        DRV(cuMemCreate(&handle[i], piece, &properties, 0));
        DRV(cuMemMap(at, piece, 0, handle[i], 0));
        DRV(cuMemSetAccess(at, piece, &access, 1));
    }
    float *seam = (float *)(range + piece - BYTES / 2), *far = (float *)(range + 3 * piece);
    for (int i = 0; i < N; i++)
        host[i] = i % 50;
    RUN(cudaMemcpy(seam, host, BYTES, cudaMemcpyHostToDevice));
    DRV(cuMemsetD32((CUdeviceptr)(seam + N / 2 - 100), 0, 200));
    launch(x, seam);
    RUN(cudaMemcpy(far, seam, BYTES, cudaMemcpyDeviceToDevice));
    launch(far, y);
    say("over the seam", seam);
    say("mapped", y);
    DRV(cuMemUnmap(range, 2 * piece));
    DRV(cuMemUnmap(range + 3 * piece, piece));
    DRV(cuMemMap(range + 2 * piece, piece, 0, handle[2], 0));
    DRV(cuMemSetAccess(range + 2 * piece, piece, &access, 1));
    launch((float *)(range + 2 * piece), y);
    say("mapped elsewhere", y);
    DRV(cuMemUnmap(range + 2 * piece, piece));
    for (int i = 0; i < 3; i++)
        DRV(cuMemRelease(handle[i]));
    DRV(cuMemAddressFree(range, 4 * piece));
}

// 256 MiB of which each launch writes 256 KiB.
static void large()
{
    float *memory;
    const size_t size = (256 << 20) + 1000;
    RUN(cudaMalloc(&memory, size));
    RUN(cudaMemset(memory, 0, size));
    for (int i = 0; i < 20; i++)
        launch(x, memory + (size_t)i * 3000000);
    say("large", memory + 3 * 3000000);
    float *pitched;
    size_t pitch;
    RUN(cudaMallocPitch(&pitched, &pitch, 1000, 300));
    RUN(cudaMemset2D(pitched, pitch, 0, 1000, 300));
    RUN(cudaMemcpy2D(pitched, pitch, host, 1000, 1000, 200, cudaMemcpyHostToDevice));
    launch(pitched, y, 1000);
    say("pitched", y);
}

int main(int argc, char **argv)
{
    const struct { const char *name; void (*run)(); } scenes[] = {
        {"managed", managed}, {"pinned", pinned}, {"pools", pools}, {"mapped", mapped}, {"large", large}};
    RUN(cudaMalloc(&x, BYTES));
    RUN(cudaMalloc(&y, BYTES));
    for (int i = 0; i < N; i++)
        host[i] = i % 1000;
    RUN(cudaMemcpy(x, host, BYTES, cudaMemcpyHostToDevice));
    RUN(cudaMemset(y, 0, BYTES));
    for (const auto &scene : scenes)
        if (argc > 1 && !strcmp(argv[1], scene.name))
            scene.run();
    return 0;
}
