// Stockham's fast Fourier transform, radix 4: rows through shared memory, columns after a transposition, and a
// circular convolution by them.
#include "../support.cuh"

constexpr int SIZE = 64, QUARTER = SIZE / 4;
constexpr double PI = 3.14159265358979323846;
__constant__ float2 roots[SIZE];

__device__ float2 times(float2 a, float2 b)
{
    return make_float2(fmaf(a.x, b.x, -a.y * b.y), fmaf(a.x, b.y, a.y * b.x));
}

__device__ float2 sum(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ float2 difference(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }

// One row a block of SIZE / 4 threads. `sign` is -1 forward, 1 backward (unscaled).
__global__ void transform_rows(const float2 *in, float2 *out, int sign)
{
    __shared__ float2 row[2][SIZE];
    int i = threadIdx.x, now = 0;
    for (int k = 0; k < 4; k++)
        row[0][i + k * QUARTER] = in[blockIdx.x * SIZE + i + k * QUARTER];
    __syncthreads();
    for (int span = 1; span < SIZE; span *= 4, now ^= 1) {
        int inside = i % span, step = SIZE / (span * 4) * inside;
        float2 a[4];
        for (int k = 0; k < 4; k++) {
            float2 root = roots[k * step % SIZE];
            a[k] = times(row[now][i + k * QUARTER], make_float2(root.x, -sign * root.y));
        }
        float2 s = sum(a[0], a[2]), d = difference(a[0], a[2]), t = sum(a[1], a[3]), u = difference(a[1], a[3]);
        float2 turned = make_float2(-sign * u.y, sign * u.x);
        int to = (i - inside) * 4 + inside;
        row[now ^ 1][to] = sum(s, t);
        row[now ^ 1][to + span] = sum(d, turned);
        row[now ^ 1][to + 2 * span] = difference(s, t);
        row[now ^ 1][to + 3 * span] = difference(d, turned);
        __syncthreads();
    }
    for (int k = 0; k < 4; k++)
        out[blockIdx.x * SIZE + i + k * QUARTER] = row[now][i + k * QUARTER];
}

__global__ void transpose(const float2 *in, float2 *out)
{
    __shared__ float2 tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * SIZE + x];
    __syncthreads();
    out[(blockIdx.x * 16 + threadIdx.y) * SIZE + blockIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

__global__ void multiply(const float2 *a, const float2 *b, float2 *out, float scale)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float2 product = times(a[i], b[i]);
    out[i] = make_float2(product.x * scale, product.y * scale);
}

static void transform(const float2 *in, float2 *out, float2 *scratch, int sign)
{
    dim3 tiles(SIZE / 16, SIZE / 16), threads(16, 16);
    transform_rows<<<SIZE, QUARTER>>>(in, out, sign);
    transpose<<<tiles, threads>>>(out, scratch);
    transform_rows<<<SIZE, QUARTER>>>(scratch, out, sign);
    transpose<<<tiles, threads>>>(out, scratch);
    CHECK(cudaMemcpyAsync(out, scratch, SIZE * SIZE * sizeof *out, cudaMemcpyDeviceToDevice));
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int count = SIZE * SIZE;
    std::vector<float> real = real_values(2 * count, 3, -1.0f, 2.0f);
    std::vector<float2> image(count), kernel(count), table(SIZE);
    for (int i = 0; i < count; i++)
        image[i] = make_float2(real[i], 0);
    const float taps[3][3] = {{1, 2, 1}, {2, 4, 2}, {1, 2, 1}};
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++)
            kernel[(j + SIZE - 1) % SIZE * SIZE + (i + SIZE - 1) % SIZE].x = taps[j][i] / 16;
    for (int i = 0; i < SIZE; i++)
        table[i] = make_float2(float(std::cos(2 * PI * i / SIZE)), float(-std::sin(2 * PI * i / SIZE)));
    CHECK(cudaMemcpyToSymbol(roots, table.data(), SIZE * sizeof(float2)));
    float2 *a = to_device(image), *b = to_device(kernel), *fa = poisoned<float2>(count), *fb = poisoned<float2>(count),
           *scratch = poisoned<float2>(count), *out = poisoned<float2>(count);
    transform(a, fa, scratch, -1);
    transform(b, fb, scratch, -1);
    std::vector<float2> spectrum = to_host(fa, count);
    multiply<<<count / 256, 256>>>(fa, fb, fa, 1.0f / count);
    transform(fa, out, scratch, 1);
    CHECK(cudaDeviceSynchronize());

    for (int i = 0; i < count; i += 67) {  // some of the spectrum, by its definition
        double re = 0, im = 0;
        for (int j = 0; j < count; j++) {
            int turns = ((i / SIZE) * (j / SIZE) + (i % SIZE) * (j % SIZE)) % SIZE;
            re += image[j].x * std::cos(2 * PI * turns / SIZE);
            im -= image[j].x * std::sin(2 * PI * turns / SIZE);
        }
        report.expect("real", i, spectrum[i].x, re, 2e-3);
        report.expect("imaginary", i, spectrum[i].y, im, 2e-3);
    }
    std::vector<float2> blurred = to_host(out, count);
    for (int i = 0; i < count; i++) {
        double expected = 0;
        for (int k = 0; k < 9; k++) {
            int y = (i / SIZE + k / 3 - 1 + SIZE) % SIZE, x = (i % SIZE + k % 3 - 1 + SIZE) % SIZE;
            expected += taps[k / 3][k % 3] / 16 * image[y * SIZE + x].x;
        }
        report.expect("convolved", i, blurred[i].x, expected, 1e-5);
    }
    report.keep(spectrum);
    report.keep(blurred);
    return report.finish("fft");
}
