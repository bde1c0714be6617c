// Tiled matrix products with sizes that no tile divides: C = A B in f32 with two tile sizes, and alpha A B + beta C in f64.
#include "../support.cuh"

template <int TILE> __global__ void multiply(const float *a, const float *b, float *c, int rows, int inner, int columns)
{
    __shared__ float tile_a[TILE][TILE], tile_b[TILE][TILE + 1];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < inner; start += TILE) {
        int k = start + threadIdx.x;
        tile_a[threadIdx.y][threadIdx.x] = row < rows && k < inner ? a[row * inner + k] : 0.0f;
        k = start + threadIdx.y;
        tile_b[threadIdx.y][threadIdx.x] = k < inner && column < columns ? b[k * columns + column] : 0.0f;
        __syncthreads();
        for (int j = 0; j < TILE; j++)
            sum = fmaf(tile_a[threadIdx.y][j], tile_b[j][threadIdx.x], sum);
        __syncthreads();
    }
    if (row < rows && column < columns)
        c[row * columns + column] = sum;
}

// The tile lies in dynamic shared memory; every thread keeps a column of four results in registers.
__global__ void update(double alpha, const double *a, const double *b, double beta, double *c, int rows, int inner, int columns)
{
    extern __shared__ double tile[];  // blockDim.x × 4 values of A
    int column = blockIdx.x * blockDim.x + threadIdx.x, first = blockIdx.y * 4;
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (int start = 0; start < inner; start += blockDim.x) {
        for (int r = 0; r < 4; r++) {
            int k = start + threadIdx.x;
            tile[r * blockDim.x + threadIdx.x] = first + r < rows && k < inner ? a[(first + r) * inner + k] : 0.0;
        }
        __syncthreads();
        int depth = min(int(blockDim.x), inner - start);
        if (column < columns)
            for (int k = 0; k < depth; k++) {
                double value = b[(start + k) * columns + column];
                for (int r = 0; r < 4; r++)
                    sum[r] = fma(tile[r * blockDim.x + k], value, sum[r]);
            }
        __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        if (first + r < rows && column < columns) {
            double *result = &c[(first + r) * columns + column];
            *result = fma(alpha, sum[r], __dmul_rn(beta, *result));
        }
}

template <typename T>
void verify(Report &report, const char *name, const std::vector<T> &a, const std::vector<T> &b, const std::vector<T> &before,
            double alpha, double beta, const std::vector<T> &result, int rows, int inner, int columns, double tolerance)
{
    for (int row = 0; row < rows; row++)
        for (int column = 0; column < columns; column++) {
            double sum = 0.0;
            for (int k = 0; k < inner; k++)
                sum += double(a[row * inner + k]) * double(b[k * columns + column]);
            size_t index = size_t(row) * columns + column;
            double old = before.empty() ? 0.0 : double(before[index]);
            report.expect(name, index, double(result[index]), alpha * sum + beta * old, tolerance);
        }
    report.keep(result);
}

int main(int argc, char **argv)
{
    const int rows = 75, inner = 93, columns = 61;
    Report report(argc, argv);
    std::vector<float> a = real_values(rows * inner, 11, -1.0f, 2.0f), b = real_values(inner * columns, 12, -1.0f, 2.0f);
    float *device_a = to_device(a), *device_b = to_device(b), *device_c = poisoned<float>(rows * columns);

    multiply<16><<<dim3(blocks_for(columns, 16), blocks_for(rows, 16)), dim3(16, 16)>>>(device_a, device_b, device_c, rows,
                                                                                     inner, columns);
    CHECK(cudaGetLastError());
    verify(report, "c", a, b, {}, 1.0, 0.0, to_host(device_c, rows * columns), rows, inner, columns, 1e-4);
    // small tiles over all but the last ten rows: the rest keeps its values
    poison(device_c, (rows - 10) * columns);
    multiply<8><<<dim3(blocks_for(columns, 8), blocks_for(rows - 10, 8)), dim3(8, 8)>>>(device_a, device_b, device_c,
                                                                                     rows - 10, inner, columns);
    CHECK(cudaGetLastError());
    verify(report, "c8", a, b, {}, 1.0, 0.0, to_host(device_c, rows * columns), rows, inner, columns, 1e-4);

    std::vector<double> wide_a(a.begin(), a.end()), wide_b(b.begin(), b.end()), wide_c(rows * columns);
    for (int i = 0; i < rows * columns; i++)
        wide_c[i] = double(hash(i + 5) % 1000u) / 7.0;
    double *double_a = to_device(wide_a), *double_b = to_device(wide_b), *double_c = to_device(wide_c);
    const unsigned threads = 48;
    update<<<dim3(blocks_for(columns, threads), blocks_for(rows, 4)), threads, threads * 4 * sizeof(double)>>>(
        0.3, double_a, double_b, -1.7, double_c, rows, inner, columns);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    verify(report, "update", wide_a, wide_b, wide_c, 0.3, -1.7, to_host(double_c, rows * columns), rows, inner, columns, 1e-9);

    for (void *pointer : {(void *)device_a, (void *)device_b, (void *)device_c, (void *)double_a, (void *)double_b,
                          (void *)double_c})
        CHECK(cudaFree(pointer));
    return report.finish("matmul");
}
