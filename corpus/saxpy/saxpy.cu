// y = a x + y, then a scaling from constant memory that counts what it clipped in a device variable.
#include "../support.cuh"

__constant__ float scales[4];
__device__ unsigned int clipped;

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

__global__ void scale(int n, float limit, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float value = y[i] * scales[i & 3];
    if (value > limit) {
        value = limit;
        atomicAdd(&clipped, 1u);
    }
    y[i] = value;
}

int main(int argc, char **argv)
{
    const int n = 10007;
    const unsigned threads = 192;
    const float factors[4] = {0.5f, 1.0f, 1.25f, -2.0f}, limit = 100.0f;
    Report report(argc, argv);
    std::vector<float> x = real_values(n, 1, -50.0f, 100.0f), y = real_values(n, 90001, -20.0f, 40.0f);
    float *device_x = to_device(x), *device_y = to_device(y);
    CHECK(cudaMemcpyToSymbol(scales, factors, sizeof factors));

    for (float a : {2.0f, -0.75f}) {
        saxpy<<<blocks_for(n, threads), threads>>>(n, a, device_x, device_y);
        CHECK(cudaGetLastError());
    }
    // one more over part of the data, from the middle of both allocations
    saxpy<<<blocks_for(n / 3, 64), 64>>>(n / 3, 1.5f, device_x + n / 2, device_y + n / 2);
    scale<<<blocks_for(n, threads), threads>>>(n, limit, device_y);
    CHECK(cudaDeviceSynchronize());

    unsigned int count = 0, expected_count = 0;
    CHECK(cudaMemcpyFromSymbol(&count, clipped, sizeof count));
    std::vector<float> result = to_host(device_y, n);
    for (int i = 0; i < n; i++) {
        float value = std::fmaf(2.0f, x[i], y[i]);
        value = std::fmaf(-0.75f, x[i], value);
        if (i >= n / 2 && i < n / 2 + n / 3)
            value = std::fmaf(1.5f, x[i], value);
        value *= factors[i & 3];
        expected_count += value > limit;
        report.expect("y", i, result[i], value > limit ? limit : value);
    }
    report.expect("clipped", 0, count, expected_count);
    report.keep(result);
    report.keep(std::vector<unsigned int>{count});
    CHECK(cudaFree(device_x));
    CHECK(cudaFree(device_y));
    return report.finish("saxpy");
}
