// Histogram of bytes with one histogram a block in shared memory, a scan of the bins, and the equalised picture.
#include "../support.cuh"

const int BINS = 256;

__global__ void count(const unsigned char *pixels, int n, unsigned int *histogram)
{
    __shared__ unsigned int bins[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        bins[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[pixels[i]], 1u);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        if (bins[bin] != 0)
            atomicAdd(&histogram[bin], bins[bin]);
}

// Largest and smallest pixel, and the exclusive-or of all indices of dark ones.
__global__ void extremes(const unsigned char *pixels, int n, int *smallest_largest, unsigned int *dark)
{
    __shared__ int low, high;
    __shared__ unsigned int mixed;
    if (threadIdx.x == 0) {
        low = 255;
        high = 0;
        mixed = 0;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int value = pixels[i];
        atomicMin(&low, value);
        atomicMax(&high, value);
        if (value < 32)
            atomicXor(&mixed, unsigned(i) * 2654435761u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicMin(&smallest_largest[0], low);
        atomicMax(&smallest_largest[1], high);
        atomicXor(dark, mixed);
    }
}

// One block: inclusive sums of the bins, as a table of equalised values.
__global__ void equalisation(const unsigned int *histogram, unsigned char *table, int n)
{
    __shared__ unsigned int sums[2][BINS];
    int bin = threadIdx.x, from = 0;
    sums[0][bin] = histogram[bin];
    __syncthreads();
    for (int offset = 1; offset < BINS; offset *= 2) {
        unsigned int value = sums[from][bin];
        if (bin >= offset)
            value += sums[from][bin - offset];
        from ^= 1;
        sums[from][bin] = value;
        __syncthreads();
    }
    table[bin] = (unsigned char)((unsigned long long)sums[from][bin] * 255u / (unsigned int)n);
}

__global__ void apply(const unsigned char *table, unsigned char *pixels, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        pixels[i] = table[pixels[i]];
}

int main(int argc, char **argv)
{
    const int n = 60013;
    Report report(argc, argv);
    std::vector<unsigned char> pixels(n);
    for (int i = 0; i < n; i++)  // a dark picture: the smaller of two
        pixels[i] = (unsigned char)std::min(hash(i) % 251u, 4u + hash(i + n) % 100u);
    unsigned char *device_pixels = to_device(pixels), *device_table = poisoned<unsigned char>(BINS);
    unsigned int *device_histogram = nullptr, *device_dark = nullptr;
    int *device_extremes = to_device(std::vector<int>{255, 0});
    CHECK(cudaMalloc(&device_histogram, BINS * sizeof(unsigned int)));
    CHECK(cudaMalloc(&device_dark, sizeof(unsigned int)));
    CHECK(cudaMemset(device_histogram, 0, BINS * sizeof(unsigned int)));
    CHECK(cudaMemset(device_dark, 0, sizeof(unsigned int)));

    count<<<7, 192>>>(device_pixels, n, device_histogram);
    extremes<<<blocks_for(n, 224), 224>>>(device_pixels, n, device_extremes, device_dark);
    equalisation<<<1, BINS>>>(device_histogram, device_table, n);
    apply<<<blocks_for(n, 256), 256>>>(device_table, device_pixels, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    std::vector<unsigned int> histogram = to_host(device_histogram, BINS), dark = to_host(device_dark, 1);
    std::vector<int> limits = to_host(device_extremes, 2);
    std::vector<unsigned char> table = to_host(device_table, BINS), equalised = to_host(device_pixels, n);
    std::vector<unsigned int> expected(BINS, 0);
    unsigned int mixed = 0, sum = 0;
    int low = 255, high = 0;
    for (int i = 0; i < n; i++) {
        expected[pixels[i]]++;
        low = std::min(low, int(pixels[i]));
        high = std::max(high, int(pixels[i]));
        if (pixels[i] < 32)
            mixed ^= unsigned(i) * 2654435761u;
    }
    for (int bin = 0; bin < BINS; bin++) {
        sum += expected[bin];
        report.expect("histogram", bin, histogram[bin], expected[bin]);
        report.expect("table", bin, table[bin], (unsigned long long)sum * 255u / n);
    }
    for (int i = 0; i < n; i++)
        report.expect("equalised", i, equalised[i], table[pixels[i]]);
    report.expect("smallest", 0, limits[0], low);
    report.expect("largest", 0, limits[1], high);
    report.expect("dark", 0, dark[0], mixed);
    report.keep(histogram);
    report.keep(dark);
    report.keep(limits);
    report.keep(table);
    report.keep(equalised);
    for (void *pointer : {(void *)device_pixels, (void *)device_table, (void *)device_histogram, (void *)device_dark,
                          (void *)device_extremes})
        CHECK(cudaFree(pointer));
    return report.finish("histogram");
}
