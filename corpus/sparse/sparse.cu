// Sparse linear algebra and its neighbours: products with a matrix in compressed rows (a thread a row, a warp a row),
// conjugate gradients whose scalars stay on the device, a stencil, softmax of rows, a transposition.
#include "../support.cuh"

constexpr int SIDE = 20, ROWS = SIDE * SIDE, THREADS = 128;

__global__ void product_by_threads(const int *starts, const int *columns, const float *values, const float *x, float *y)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= ROWS)
        return;
    float sum = 0;
    for (int k = starts[row]; k < starts[row + 1]; k++)
        sum = fmaf(values[k], __ldg(&x[columns[k]]), sum);
    y[row] = sum;
}

__global__ void product_by_warps(const int *starts, const int *columns, const float *values, const float *x, float *y)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= ROWS)
        return;
    float sum = 0;
    for (int k = starts[row] + lane; k < starts[row + 1]; k += 32)
        sum = fmaf(values[k], x[columns[k]], sum);
    for (int reach = 16; reach > 0; reach /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, reach);
    if (lane == 0)
        y[row] = sum;
}

// One block, so that the sum has one order.
__global__ void dot(const float *x, const float *y, float *out)
{
    __shared__ float sums[THREADS / 32];
    float sum = 0;
    for (int i = threadIdx.x; i < ROWS; i += THREADS)
        sum = fmaf(x[i], y[i], sum);
    for (int reach = 16; reach > 0; reach /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, reach);
    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        *out = (sums[0] + sums[1]) + (sums[2] + sums[3]);
}

// x += sign * (a / b) * y, or x = y + (a / b) * x where `beta` is set.
__global__ void update(float *x, const float *y, const float *a, const float *b, float sign, bool beta)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= ROWS)
        return;
    float ratio = sign * (*a / *b);
    x[i] = beta ? fmaf(ratio, x[i], y[i]) : fmaf(ratio, y[i], x[i]);
}

__global__ void stencil(const float *in, float *out, int width, int height)
{
    __shared__ float tile[10][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 8 + threadIdx.y;
    for (int j = threadIdx.y; j < 10; j += 8)
        for (int i = threadIdx.x; i < 34; i += 32) {
            int u = blockIdx.x * 32 + i - 1, v = blockIdx.y * 8 + j - 1;
            tile[j][i] = u >= 0 && v >= 0 && u < width && v < height ? in[v * width + u] : 0.0f;
        }
    __syncthreads();
    int i = threadIdx.x + 1, j = threadIdx.y + 1;
    if (x < width && y < height)
        out[y * width + x] = 0.2f * (tile[j][i] + tile[j - 1][i] + tile[j + 1][i] + tile[j][i - 1] + tile[j][i + 1]);
}

__global__ void softmax(const float *in, float *out, int width)
{
    const float *row = in + blockIdx.x * width;
    float largest = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < width; i += 32)
        largest = fmaxf(largest, row[i]);
    for (int reach = 16; reach > 0; reach /= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, reach));
    for (int i = threadIdx.x; i < width; i += 32)
        sum += expf(row[i] - largest);
    for (int reach = 16; reach > 0; reach /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, reach);
    for (int i = threadIdx.x; i < width; i += 32)
        out[blockIdx.x * width + i] = expf(row[i] - largest) / sum;
}

__global__ void transpose(const float *in, float *out, int width, int height)
{
    __shared__ float tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8)
        if (x < width && blockIdx.y * 32 + j < height)
            tile[j][threadIdx.x] = in[(blockIdx.y * 32 + j) * width + x];
    __syncthreads();
    int y = blockIdx.y * 32 + threadIdx.x;
    for (int j = threadIdx.y; j < 32; j += 8)
        if (y < height && blockIdx.x * 32 + j < width)
            out[(blockIdx.x * 32 + j) * height + y] = tile[threadIdx.x][j];
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<int> starts{0}, columns;
    std::vector<float> values, b = real_values(ROWS, 31, -1.0f, 2.0f);
    for (int row = 0; row < ROWS; row++) {  // a grid's Laplacian, and one row with all
        int x = row % SIDE, y = row / SIDE;
        auto entry = [&](int column, float value) { columns.push_back(column), values.push_back(value); };
        if (y > 0) entry(row - SIDE, -1);
        if (x > 0) entry(row - 1, -1);
        entry(row, 4.5f);
        if (x < SIDE - 1) entry(row + 1, -1);
        if (y < SIDE - 1) entry(row + SIDE, -1);
        starts.push_back(int(columns.size()));
    }
    int *s = to_device(starts), *c = to_device(columns);
    float *v = to_device(values), *r = to_device(b), *p = to_device(b), *q = poisoned<float>(ROWS), *w = poisoned<float>(ROWS),
          *x = to_device(std::vector<float>(ROWS)), *rr = poisoned<float>(1), *pq = poisoned<float>(1), *next = poisoned<float>(1);
    const unsigned blocks = blocks_for(ROWS, THREADS);
    product_by_warps<<<ROWS * 32 / THREADS, THREADS>>>(s, c, v, p, w);
    std::vector<float> once = to_host(w, ROWS);
    dot<<<1, THREADS>>>(r, r, rr);
    for (int round = 0; round < 25; round++) {
        product_by_threads<<<blocks, THREADS>>>(s, c, v, p, q);
        dot<<<1, THREADS>>>(p, q, pq);
        update<<<blocks, THREADS>>>(x, p, rr, pq, 1.0f, false);
        update<<<blocks, THREADS>>>(r, q, rr, pq, -1.0f, false);
        dot<<<1, THREADS>>>(r, r, next);
        update<<<blocks, THREADS>>>(p, r, next, rr, 1.0f, true);
        std::swap(rr, next);
    }
    const int width = 75, height = 43;
    std::vector<float> image = real_values(width * height, 51, -4.0f, 8.0f);
    float *in = to_device(image), *smooth = poisoned<float>(width * height), *soft = poisoned<float>(width * height),
          *turned = poisoned<float>(width * height);
    stencil<<<dim3(3, 6), dim3(32, 8)>>>(in, smooth, width, height);
    softmax<<<height, 32>>>(in, soft, width);
    transpose<<<dim3(3, 2), dim3(32, 8)>>>(in, turned, width, height);
    CHECK(cudaDeviceSynchronize());

    std::vector<float> solution = to_host(x, ROWS), blurred = to_host(smooth, width * height),
                       shares = to_host(soft, width * height), flipped = to_host(turned, width * height);
    for (int row = 0; row < ROWS; row++) {
        double with_b = 0, with_x = 0;
        for (int k = starts[row]; k < starts[row + 1]; k++) {
            with_b += double(values[k]) * b[columns[k]];
            with_x += double(values[k]) * solution[columns[k]];
        }
        report.expect("product", row, once[row], with_b, 1e-5);
        report.expect("solution", row, with_x, b[row], 1e-3);
    }
    for (int i = 0; i < width * height; i++) {
        int u = i % width, t = i / width;
        auto at = [&](int a, int d) { return a >= 0 && d >= 0 && a < width && d < height ? image[d * width + a] : 0.0f; };
        report.expect("stencil", i, blurred[i], 0.2 * (double(at(u, t)) + at(u, t - 1) + at(u, t + 1) + at(u - 1, t) + at(u + 1, t)), 1e-5);
        report.expect("turned", i, flipped[u * height + t], image[i]);
        double sum = 0;
        for (int k = 0; k < width; k++)
            sum += std::exp(double(image[t * width + k]));
        report.expect("softmax", i, shares[i], std::exp(double(image[i])) / sum, 1e-6);
    }
    report.keep(once);
    report.keep(solution);
    report.keep(blurred);
    report.keep(shares);
    return report.finish("sparse");
}
