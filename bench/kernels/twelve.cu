// The twelve kernels of bench/amd_code.py, in CUDA C++. twelve.cl holds the same algorithms in OpenCL C, line by
// line; both give the same results. Products that are added are fused where it says fmaf, and nowhere else.
// Blocks have 256 threads. The PTX beside this file: nvcc -ptx -arch=sm_80 -fmad=false twelve.cu

#define KERNEL extern "C" __global__ void __launch_bounds__(256)
#define THREAD (int)(blockIdx.x * blockDim.x + threadIdx.x)

__device__ inline float exp2_approx(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ inline float log2_approx(float x) { float y; asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
__device__ inline float rsqrt_approx(float x) { float y; asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }

KERNEL saxpy(const float *x, float *y, float a, int n) {
    int i = THREAD;
    if (i < n) y[i] = fmaf(a, x[i], y[i]);
}

__device__ inline float cumulative_normal(float d) {
    float k = 1.0f / fmaf(0.2316419f, fabsf(d), 1.0f);
    float poly = fmaf(fmaf(fmaf(fmaf(1.330274429f, k, -1.821255978f), k, 1.781477937f), k, -0.356563782f), k, 0.31938153f) * k;
    float tail = 0.39894228f * exp2_approx(d * d * -0.72134752f) * poly;
    return d > 0.0f ? 1.0f - tail : tail;
}

KERNEL black_scholes(const float *price, const float *strike, const float *years, float *call, float *put,
                     float rate, float volatility, int n) {
    int i = THREAD;
    if (i >= n) return;
    float s = price[i], x = strike[i], t = years[i];
    float root = sqrtf(t);
    float d1 = fmaf(log2_approx(s / x), 0.69314718f, fmaf(0.5f * volatility, volatility, rate) * t) / (volatility * root);
    float d2 = fmaf(-volatility, root, d1);
    float c1 = cumulative_normal(d1), c2 = cumulative_normal(d2);
    float discounted = x * exp2_approx(rate * t * -1.44269504f);
    call[i] = fmaf(s, c1, -(discounted * c2));
    put[i] = fmaf(discounted, 1.0f - c2, -(s * (1.0f - c1)));
}

KERNEL reduction(const float *in, float *out, int n) {
    __shared__ float sums[256];
    int t = threadIdx.x;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) sum += in[i];
    sums[t] = sum;
    __syncthreads();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) sums[t] += sums[t + s];
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = sums[0];
}

KERNEL matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 16 + ty, column = blockIdx.x * 16 + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += 16) {
        as[ty][tx] = a[row * n + k0 + tx];
        bs[ty][tx] = b[(k0 + ty) * n + column];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum = fmaf(as[ty][k], bs[k][tx], sum);
        __syncthreads();
    }
    c[row * n + column] = sum;
}

KERNEL histogram(const unsigned *in, unsigned *bins, int n) {
    __shared__ unsigned local_bins[256];
    int t = threadIdx.x;
    local_bins[t] = 0;
    __syncthreads();
#pragma unroll 1
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) {
        unsigned word = in[i];
        atomicAdd(&local_bins[word & 255], 1u);
        atomicAdd(&local_bins[word >> 8 & 255], 1u);
        atomicAdd(&local_bins[word >> 16 & 255], 1u);
        atomicAdd(&local_bins[word >> 24], 1u);
    }
    __syncthreads();
    atomicAdd(&bins[t], local_bins[t]);
}

KERNEL bitonic_sort(unsigned *keys) {
    __shared__ unsigned s[512];
    int t = threadIdx.x, base = blockIdx.x * 512;
    s[t] = keys[base + t];
    s[t + 256] = keys[base + t + 256];
    for (unsigned size = 2; size <= 512; size <<= 1)
        for (unsigned stride = size >> 1; stride > 0; stride >>= 1) {
            __syncthreads();
            unsigned low = 2 * t - (t & (stride - 1)), high = low + stride;
            unsigned x = s[low], y = s[high];
            bool up = (low & size) == 0;
            if ((x > y) == up) {
                s[low] = y;
                s[high] = x;
            }
        }
    __syncthreads();
    keys[base + t] = s[t];
    keys[base + t + 256] = s[t + 256];
}

KERNEL n_body(const float4 *bodies, float4 *acceleration, int n) {
    __shared__ float4 tile[256];
    int i = THREAD, t = threadIdx.x;
    float4 own = bodies[i];
    float x = 0.0f, y = 0.0f, z = 0.0f;
    for (int start = 0; start < n; start += 256) {
        tile[t] = bodies[start + t];
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < 256; j++) {
            float4 other = tile[j];
            float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            float r = rsqrt_approx(fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, 0.01f))));
            float w = other.w * r * r * r;
            x = fmaf(dx, w, x);
            y = fmaf(dy, w, y);
            z = fmaf(dz, w, z);
        }
        __syncthreads();
    }
    acceleration[i] = make_float4(x, y, z, 0.0f);
}

KERNEL stencil(const float *in, float *out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
    int i = y * width + x;
    float sum = in[i - 1] + in[i + 1] + in[i - width] + in[i + width];
    out[i] = fmaf(0.2f, sum, 0.2f * in[i]);
}

KERNEL scan(const int *in, int *out, int *totals) {
    __shared__ int s[512];
    int t = threadIdx.x, base = blockIdx.x * 512, offset = 1;
    s[2 * t] = in[base + 2 * t];
    s[2 * t + 1] = in[base + 2 * t + 1];
    for (int d = 256; d > 0; d >>= 1) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) {
        totals[blockIdx.x] = s[511];
        s[511] = 0;
    }
    for (int d = 1; d < 512; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (t < d) {
            int low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1;
            int left = s[low];
            s[low] = s[high];
            s[high] += left;
        }
    }
    __syncthreads();
    out[base + 2 * t] = s[2 * t];
    out[base + 2 * t + 1] = s[2 * t + 1];
}

KERNEL softmax(const float *in, float *out, int columns) {
    __shared__ float s[256];
    int t = threadIdx.x;
    const float *row = in + (long long)blockIdx.x * columns;
    float *result = out + (long long)blockIdx.x * columns;
    float most = -3.4e38f;
#pragma unroll 1
    for (int i = t; i < columns; i += 256) most = fmaxf(most, row[i]);
    s[t] = most;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    most = s[0];
    __syncthreads();
    float sum = 0.0f;
#pragma unroll 1
    for (int i = t; i < columns; i += 256) {
        float e = exp2_approx((row[i] - most) * 1.44269504f);
        result[i] = e;
        sum += e;
    }
    s[t] = sum;
    __syncthreads();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    sum = s[0];
#pragma unroll 1
    for (int i = t; i < columns; i += 256) result[i] = result[i] / sum;
}

KERNEL transpose(const float *in, float *out, int width, int height) {
    __shared__ float tile[32][33];
    int tx = threadIdx.x, ty = threadIdx.y;
    int x = blockIdx.x * 32 + tx, y = blockIdx.y * 32 + ty;
    for (int j = 0; j < 32; j += 8) tile[ty + j][tx] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + tx;
    y = blockIdx.x * 32 + ty;
    for (int j = 0; j < 32; j += 8) out[(y + j) * height + x] = tile[tx][ty + j];
}

KERNEL spmv(const int *starts, const int *columns, const float *values, const float *x, float *y, int rows) {
    int row = THREAD;
    if (row >= rows) return;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = starts[row]; i < starts[row + 1]; i++) sum = fmaf(values[i], x[columns[i]], sum);
    y[row] = sum;
}
