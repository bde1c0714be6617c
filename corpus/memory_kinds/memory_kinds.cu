// Every way to have memory: a pool in the order of a stream, mapped virtual memory, managed, pinned and registered
// memory, rows with a pitch, a device variable, peers of one allocation.
#include "../support.cuh"

#include <cuda.h>

// A function of the driver, asked of the runtime, so that the program links without the driver's library.
static void *driver(const char *name)
{
    void *function = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found));
    if (function == nullptr) {
        std::fprintf(stderr, "the driver has no %s\n", name);
        std::exit(1);
    }
    return function;
}

#define DRIVER(function, ...)                                                                              \
    do {                                                                                                   \
        CUresult status_ = reinterpret_cast<decltype(&function)>(driver(#function))(__VA_ARGS__);          \
        if (status_ != CUDA_SUCCESS) {                                                                     \
            std::fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #function, int(status_));          \
            std::exit(1);                                                                                  \
        }                                                                                                  \
    } while (0)

constexpr int COUNT = 2048;
__device__ int bias = 5;

__global__ void step(const int *in, int *out, int factor, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count)
        out[i] = in[i] * factor + bias;
}

__global__ void step_rows(const int *in, size_t in_pitch, int *out, size_t out_pitch, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < width) {
        const int *row = reinterpret_cast<const int *>(reinterpret_cast<const char *>(in) + y * in_pitch);
        reinterpret_cast<int *>(reinterpret_cast<char *>(out) + y * out_pitch)[x] = row[x] ^ (x + y);
    }
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int blocks = COUNT / 128;
    std::vector<int> values(COUNT), now(COUNT);
    for (int i = 0; i < COUNT; i++)
        values[i] = int(hash(i) >> 12);
    cudaStream_t stream;
    CHECK(cudaStreamCreate(&stream));

    int *one = nullptr, *two = nullptr;  // a pool: freed and taken again in the stream's order
    CHECK(cudaMallocAsync(&one, COUNT * sizeof(int), stream));
    CHECK(cudaMemcpyAsync(one, values.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice, stream));
    CHECK(cudaMallocAsync(&two, COUNT * sizeof(int), stream));
    step<<<blocks, 128, 0, stream>>>(one, two, 3, COUNT);
    CHECK(cudaFreeAsync(one, stream));
    CHECK(cudaMallocAsync(&one, COUNT * sizeof(int), stream));
    step<<<blocks, 128, 0, stream>>>(two, one, -2, COUNT);
    CHECK(cudaMemcpyAsync(now.data(), one, COUNT * sizeof(int), cudaMemcpyDeviceToHost, stream));
    CHECK(cudaFreeAsync(one, stream));
    CHECK(cudaFreeAsync(two, stream));
    CHECK(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        report.expect("pool", i, now[i], (values[i] * 3 + 5) * -2 + 5);
    report.keep(now);

    CUmemAllocationProp property = {};  // virtual memory: two pieces side by side, the second taken away again
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    size_t unit = 0;
    DRIVER(cuMemGetAllocationGranularity, &unit, &property, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    CUdeviceptr range = 0;
    DRIVER(cuMemAddressReserve, &range, 2 * unit, 0, 0, 0);
    CUmemGenericAllocationHandle pieces[2];
    CUmemAccessDesc access = {property.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    for (int i = 0; i < 2; i++) {
        DRIVER(cuMemCreate, &pieces[i], unit, &property, 0);
        DRIVER(cuMemMap, range + i * unit, unit, 0, pieces[i], 0);
    }
    DRIVER(cuMemSetAccess, range, 2 * unit, &access, 1);
    int *across = reinterpret_cast<int *>(range + unit) - COUNT / 2;  // over the seam
    CHECK(cudaMemcpy(across, values.data(), COUNT * sizeof(int), cudaMemcpyHostToDevice));
    step<<<blocks, 128>>>(across, across, 7, COUNT);
    CHECK(cudaMemcpy(now.data(), across, COUNT * sizeof(int), cudaMemcpyDeviceToHost));
    for (int i = 0; i < COUNT; i++)
        report.expect("mapped", i, now[i], values[i] * 7 + 5);
    DRIVER(cuMemUnmap, range + unit, unit);
    step<<<blocks / 2, 128>>>(across, across, 1, COUNT / 2);
    CHECK(cudaMemcpy(now.data(), across, COUNT / 2 * sizeof(int), cudaMemcpyDeviceToHost));
    report.expect("half mapped", 9, now[9], values[9] * 7 + 10);
    report.keep(now);
    DRIVER(cuMemUnmap, range, unit);
    for (CUmemGenericAllocationHandle piece : pieces)
        DRIVER(cuMemRelease, piece);
    DRIVER(cuMemAddressFree, range, 2 * unit);

    int *managed = nullptr;  // written by host and device by turns
    CHECK(cudaMallocManaged(&managed, COUNT * sizeof(int)));
    std::copy(values.begin(), values.end(), managed);
    step<<<blocks, 128>>>(managed, managed, 2, COUNT);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i += 2)
        managed[i] += 1;
    step<<<blocks, 128>>>(managed, managed, 1, COUNT);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++)
        report.expect("managed", i, managed[i], values[i] * 2 + 10 + (i % 2 == 0));
    report.keep(std::vector<int>(managed, managed + COUNT));
    CHECK(cudaFree(managed));

    int *pinned = nullptr, *seen = nullptr, *out = poisoned<int>(COUNT);  // read by kernels where they lie
    CHECK(cudaHostAlloc(&pinned, COUNT * sizeof(int), cudaHostAllocMapped));
    std::copy(values.begin(), values.end(), pinned);
    CHECK(cudaHostGetDevicePointer(&seen, pinned, 0));
    step<<<blocks, 128>>>(seen, out, 4, COUNT);
    CHECK(cudaDeviceSynchronize());
    std::reverse(pinned, pinned + COUNT);
    step<<<blocks, 128>>>(seen, out, 4, COUNT);
    now = to_host(out, COUNT);
    for (int i = 0; i < COUNT; i++)
        report.expect("pinned", i, now[i], values[COUNT - 1 - i] * 4 + 5);
    report.keep(now);
    CHECK(cudaFreeHost(pinned));
    std::vector<int> own(values);
    CHECK(cudaHostRegister(own.data(), COUNT * sizeof(int), cudaHostRegisterMapped));
    CHECK(cudaHostGetDevicePointer(&seen, own.data(), 0));
    step<<<blocks, 128>>>(seen, seen, 6, COUNT);
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < COUNT; i++)
        report.expect("registered", i, own[i], values[i] * 6 + 5);
    CHECK(cudaHostUnregister(own.data()));
    report.keep(own);

    const int width = 50, height = 20, six = 6;  // rows with a pitch; a variable of the device
    CHECK(cudaMemcpyToSymbol(bias, &six, sizeof six));
    int *rows = nullptr, *turned = nullptr;
    size_t pitch = 0, other = 0;
    CHECK(cudaMallocPitch(&rows, &pitch, width * sizeof(int), height));
    CHECK(cudaMallocPitch(&turned, &other, width * sizeof(int), height));
    CHECK(cudaMemset2D(turned, other, 0, width * sizeof(int), height));
    CHECK(cudaMemcpy2D(rows, pitch, values.data(), width * sizeof(int), width * sizeof(int), height, cudaMemcpyHostToDevice));
    step_rows<<<dim3(1, height), 64>>>(rows, pitch, turned, other, width);
    std::vector<int> flat(width * height);
    CHECK(cudaMemcpy2D(flat.data(), width * sizeof(int), turned, other, width * sizeof(int), height, cudaMemcpyDeviceToHost));
    for (int i = 0; i < width * height; i++)
        report.expect("pitched", i, flat[i], values[i] ^ (i % width + i / width));
    report.keep(flat);
    step<<<blocks, 128>>>(out, out, 1, COUNT);
    now = to_host(out, COUNT);
    report.expect("variable", 0, now[0], values[COUNT - 1] * 4 + 11);
    return report.finish("memory_kinds");
}
