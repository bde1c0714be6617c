// Double precision throughout: a Cholesky factor in shared memory, eigenvalues by Jacobi's rotations, an escape-time
// fractal, sums with compensation, and functions of CUDA's math library.
#include "../support.cuh"

constexpr int N = 24;

__global__ void cholesky(const double *in, double *out)
{
    __shared__ double a[N][N + 1];
    const double *matrix = in + blockIdx.x * N * N;
    int i = threadIdx.x;
    for (int j = 0; j < N; j++)
        a[i][j] = matrix[i * N + j];
    __syncthreads();
    for (int k = 0; k < N; k++) {
        if (i == k)
            a[k][k] = sqrt(a[k][k]);
        __syncthreads();
        if (i > k)
            a[i][k] /= a[k][k];
        __syncthreads();
        for (int j = k + 1; j <= i; j++)
            a[i][j] -= a[i][k] * a[j][k];
        __syncthreads();
    }
    for (int j = 0; j < N; j++)
        out[blockIdx.x * N * N + i * N + j] = j <= i ? a[i][j] : 0.0;
}

__global__ void jacobi(const double *in, double *values, int count)
{
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= count)
        return;
    double a[4][4];
    for (int i = 0; i < 16; i++)
        a[i / 4][i % 4] = in[at * 16 + i];
    for (int sweep = 0; sweep < 6; sweep++)
        for (int p = 0; p < 3; p++)
            for (int q = p + 1; q < 4; q++) {
                if (fabs(a[p][q]) < 1e-14)
                    continue;
                double theta = 0.5 * (a[q][q] - a[p][p]) / a[p][q];
                double t = copysign(1.0, theta) / (fabs(theta) + sqrt(theta * theta + 1.0));
                double c = rsqrt(t * t + 1.0), s = t * c;
                for (int k = 0; k < 4; k++) {
                    double x = a[k][p], y = a[k][q];
                    a[k][p] = c * x - s * y;
                    a[k][q] = s * x + c * y;
                }
                for (int k = 0; k < 4; k++) {
                    double x = a[p][k], y = a[q][k];
                    a[p][k] = c * x - s * y;
                    a[q][k] = s * x + c * y;
                }
            }
    for (int i = 0; i < 4; i++)
        values[at * 4 + i] = a[i][i];
}

__global__ void escape(int *rounds, double *last, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    double re = -0.7453 + 0.004 * (x - width / 2) / width, im = 0.1127 + 0.004 * (y - height / 2) / height, u = 0, v = 0;
    int n = 0;
    while (n < 200 && u * u + v * v < 4.0) {
        double next = u * u - v * v + re;
        v = 2 * u * v + im;
        u = next;
        n++;
    }
    rounds[y * width + x] = n;
    last[y * width + x] = u;
}

// Sums whose rounding errors are carried along; a tree over the warp, in one order.
__global__ void compensated(const double *in, double *sums, int count)
{
    double sum = 0, error = 0;
    for (int i = threadIdx.x; i < count; i += 32) {
        double y = __dsub_rn(in[i], error), t = __dadd_rn(sum, y);
        error = __dsub_rn(__dsub_rn(t, sum), y);
        sum = t;
    }
    for (int reach = 16; reach > 0; reach /= 2)
        sum += __shfl_xor_sync(0xffffffffu, sum, reach);
    if (threadIdx.x == 0)
        sums[0] = sum;
}

__global__ void functions(const double *in, double *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    double x = in[i];
    out[i] = sin(x) * exp(-x * x) + log1p(fabs(x));
    out[count + i] = cbrt(x) + atan2(x, 2.0) - tanh(x);
    out[2 * count + i] = pow(fabs(x) + 0.5, 1.7) + erf(x);
    out[3 * count + i] = fmod(7.0 * x, 1.3) + floor(x) + rint(3 * x) + (double)(long long)(1000 * x);
    out[4 * count + i] = lgamma(fabs(x) + 1.0) + cospi(x);
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int matrices = 3, small = 40, count = 400, width = 48, height = 32;
    std::vector<float> noise = real_values(20000, 21, -1.0f, 2.0f);
    std::vector<double> spd(matrices * N * N), symmetric(small * 16), values(count);
    for (int m = 0; m < matrices; m++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++)
                spd[(m * N + i) * N + j] = noise[m * 1000 + std::min(i, j) * N + std::max(i, j)] * 0.3 + (i == j ? N : 0);
    for (int m = 0; m < small; m++)
        for (int i = 0; i < 16; i++)
            symmetric[m * 16 + i] = noise[5000 + m * 16 + std::min(i / 4, i % 4) * 4 + std::max(i / 4, i % 4)];
    for (int i = 0; i < count; i++)
        values[i] = 3.0 * noise[9000 + i] + 1e-9 * i;
    double *a = to_device(spd), *s = to_device(symmetric), *x = to_device(values), *l = poisoned<double>(spd.size()),
           *e = poisoned<double>(small * 4), *last = poisoned<double>(width * height), *sum = poisoned<double>(1),
           *f = poisoned<double>(5 * count);
    int *rounds = poisoned<int>(width * height);
    cholesky<<<matrices, N>>>(a, l);
    jacobi<<<2, 32>>>(s, e, small);
    escape<<<dim3(3, 4), dim3(16, 8)>>>(rounds, last, width, height);
    compensated<<<1, 32>>>(x, sum, count);
    functions<<<blocks_for(count, 64), 64>>>(x, f, count);
    CHECK(cudaDeviceSynchronize());
    std::vector<double> factor = to_host(l, spd.size()), eigen = to_host(e, small * 4), made = to_host(f, 5 * count);
    for (int m = 0; m < matrices; m++)
        for (int i = 0; i < N; i++)
            for (int j = 0; j < N; j++) {
                double product = 0;
                for (int k = 0; k < N; k++)
                    product += factor[(m * N + i) * N + k] * factor[(m * N + j) * N + k];
                report.expect("cholesky", i * N + j, product, spd[(m * N + i) * N + j], 1e-12);
            }
    for (int m = 0; m < small; m++) {
        double trace = 0, square = 0, values_sum = 0, values_square = 0;
        for (int i = 0; i < 16; i++) {
            trace += i % 5 == 0 ? symmetric[m * 16 + i] : 0;
            square += symmetric[m * 16 + i] * symmetric[m * 16 + i];
        }
        for (int i = 0; i < 4; i++) {
            values_sum += eigen[m * 4 + i];
            values_square += eigen[m * 4 + i] * eigen[m * 4 + i];
        }
        report.expect("trace", m, values_sum, trace, 1e-12);
        report.expect("square", m, values_square, square, 1e-11);
    }
    double total = 0;
    for (int i = 0; i < count; i++) {
        double v = values[i];
        total += v;
        report.expect("sin", i, made[i], std::sin(v) * std::exp(-v * v) + std::log1p(std::fabs(v)), 1e-13);
        report.expect("cbrt", i, made[count + i], std::cbrt(v) + std::atan2(v, 2.0) - std::tanh(v), 1e-13);
        report.expect("pow", i, made[2 * count + i], std::pow(std::fabs(v) + 0.5, 1.7) + std::erf(v), 1e-12);
        report.expect("lgamma", i, made[4 * count + i], std::lgamma(std::fabs(v) + 1.0) + std::cos(M_PI * v), 1e-11);
    }
    report.expect("sum", 0, to_host(sum, 1)[0], total, 1e-10);
    report.keep(factor);
    report.keep(eigen);
    report.keep(made);
    report.keep(to_host(rounds, width * height));
    report.keep(to_host(last, width * height));
    return report.finish("doubles");
}
