// The twelve kernels of bench/amd_code.py, in OpenCL C; twelve.cu holds the same algorithms in CUDA C++, line by
// line. Work-item functions are clang's builtins, as ROCm's device library has them.

#define KERNEL __attribute__((amdgpu_flat_work_group_size(1, 256))) kernel void
#define LOCAL_X (int)__builtin_amdgcn_workitem_id_x()
#define LOCAL_Y (int)__builtin_amdgcn_workitem_id_y()
#define GROUP_X (int)__builtin_amdgcn_workgroup_id_x()
#define GROUP_Y (int)__builtin_amdgcn_workgroup_id_y()
#define SIZE_X (int)__builtin_amdgcn_workgroup_size_x()
#define SIZE_Y (int)__builtin_amdgcn_workgroup_size_y()
#define GLOBAL_SIZE_X (int)__builtin_amdgcn_grid_size_x()
#define THREAD (GROUP_X * SIZE_X + LOCAL_X)

typedef unsigned int uint;
typedef __attribute__((ext_vector_type(4))) float float4;

static inline void barrier_local(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

KERNEL saxpy(global const float *x, global float *y, float a, int n) {
    int i = THREAD;
    if (i < n) y[i] = __builtin_fmaf(a, x[i], y[i]);
}

static inline float cumulative_normal(float d) {
    float k = 1.0f / __builtin_fmaf(0.2316419f, __builtin_fabsf(d), 1.0f);
    float poly = __builtin_fmaf(__builtin_fmaf(__builtin_fmaf(__builtin_fmaf(1.330274429f, k, -1.821255978f), k, 1.781477937f), k, -0.356563782f), k, 0.31938153f) * k;
    float tail = 0.39894228f * __builtin_amdgcn_exp2f(d * d * -0.72134752f) * poly;
    return d > 0.0f ? 1.0f - tail : tail;
}

KERNEL black_scholes(global const float *price, global const float *strike, global const float *years, global float *call, global float *put,
                     float rate, float volatility, int n) {
    int i = THREAD;
    if (i >= n) return;
    float s = price[i], x = strike[i], t = years[i];
    float root = __builtin_sqrtf(t);
    float d1 = __builtin_fmaf(__builtin_amdgcn_logf(s / x), 0.69314718f, __builtin_fmaf(0.5f * volatility, volatility, rate) * t) / (volatility * root);
    float d2 = __builtin_fmaf(-volatility, root, d1);
    float c1 = cumulative_normal(d1), c2 = cumulative_normal(d2);
    float discounted = x * __builtin_amdgcn_exp2f(rate * t * -1.44269504f);
    call[i] = __builtin_fmaf(s, c1, -(discounted * c2));
    put[i] = __builtin_fmaf(discounted, 1.0f - c2, -(s * (1.0f - c1)));
}

KERNEL reduction(global const float *in, global float *out, int n) {
    local float sums[256];
    int t = LOCAL_X;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = THREAD; i < n; i += GLOBAL_SIZE_X) sum += in[i];
    sums[t] = sum;
    barrier_local();
    for (int s = 128; s > 0; s >>= 1) {
        if (t < s) sums[t] += sums[t + s];
        barrier_local();
    }
    if (t == 0) out[GROUP_X] = sums[0];
}

KERNEL matmul(global const float *a, global const float *b, global float *c, int n) {
    local float as[16][16], bs[16][16];
    int tx = LOCAL_X, ty = LOCAL_Y;
    int row = GROUP_Y * 16 + ty, column = GROUP_X * 16 + tx;
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += 16) {
        as[ty][tx] = a[row * n + k0 + tx];
        bs[ty][tx] = b[(k0 + ty) * n + column];
        barrier_local();
        for (int k = 0; k < 16; k++) sum = __builtin_fmaf(as[ty][k], bs[k][tx], sum);
        barrier_local();
    }
    c[row * n + column] = sum;
}

KERNEL histogram(global const uint *in, global uint *bins, int n) {
    local uint local_bins[256];
    int t = LOCAL_X;
    local_bins[t] = 0;
    barrier_local();
#pragma unroll 1
    for (int i = THREAD; i < n; i += GLOBAL_SIZE_X) {
        uint word = in[i];
        __opencl_atomic_fetch_add((local atomic_uint *)&local_bins[word & 255], 1u, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
        __opencl_atomic_fetch_add((local atomic_uint *)&local_bins[word >> 8 & 255], 1u, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
        __opencl_atomic_fetch_add((local atomic_uint *)&local_bins[word >> 16 & 255], 1u, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
        __opencl_atomic_fetch_add((local atomic_uint *)&local_bins[word >> 24], 1u, __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
    }
    barrier_local();
    __opencl_atomic_fetch_add((global atomic_uint *)&bins[t], local_bins[t], __ATOMIC_RELAXED, __OPENCL_MEMORY_SCOPE_DEVICE);
}

KERNEL bitonic_sort(global uint *keys) {
    local uint s[512];
    int t = LOCAL_X, base = GROUP_X * 512;
    s[t] = keys[base + t];
    s[t + 256] = keys[base + t + 256];
    for (uint size = 2; size <= 512; size <<= 1)
        for (uint stride = size >> 1; stride > 0; stride >>= 1) {
            barrier_local();
            uint low = 2 * t - (t & (stride - 1)), high = low + stride;
            uint x = s[low], y = s[high];
            int up = (low & size) == 0;
            if ((x > y) == up) {
                s[low] = y;
                s[high] = x;
            }
        }
    barrier_local();
    keys[base + t] = s[t];
    keys[base + t + 256] = s[t + 256];
}

KERNEL n_body(global const float4 *bodies, global float4 *acceleration, int n) {
    local float4 tile[256];
    int i = THREAD, t = LOCAL_X;
    float4 own = bodies[i];
    float x = 0.0f, y = 0.0f, z = 0.0f;
    for (int start = 0; start < n; start += 256) {
        tile[t] = bodies[start + t];
        barrier_local();
#pragma unroll 4
        for (int j = 0; j < 256; j++) {
            float4 other = tile[j];
            float dx = other.x - own.x, dy = other.y - own.y, dz = other.z - own.z;
            float r = __builtin_amdgcn_rsqf(__builtin_fmaf(dx, dx, __builtin_fmaf(dy, dy, __builtin_fmaf(dz, dz, 0.01f))));
            float w = other.w * r * r * r;
            x = __builtin_fmaf(dx, w, x);
            y = __builtin_fmaf(dy, w, y);
            z = __builtin_fmaf(dz, w, z);
        }
        barrier_local();
    }
    acceleration[i] = (float4)(x, y, z, 0.0f);
}

KERNEL stencil(global const float *in, global float *out, int width, int height) {
    int x = GROUP_X * SIZE_X + LOCAL_X, y = GROUP_Y * SIZE_Y + LOCAL_Y;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1) return;
    int i = y * width + x;
    float sum = in[i - 1] + in[i + 1] + in[i - width] + in[i + width];
    out[i] = __builtin_fmaf(0.2f, sum, 0.2f * in[i]);
}

KERNEL scan(global const int *in, global int *out, global int *totals) {
    local int s[512];
    int t = LOCAL_X, base = GROUP_X * 512, offset = 1;
    s[2 * t] = in[base + 2 * t];
    s[2 * t + 1] = in[base + 2 * t + 1];
    for (int d = 256; d > 0; d >>= 1) {
        barrier_local();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) {
        totals[GROUP_X] = s[511];
        s[511] = 0;
    }
    for (int d = 1; d < 512; d *= 2) {
        offset >>= 1;
        barrier_local();
        if (t < d) {
            int low = offset * (2 * t + 1) - 1, high = offset * (2 * t + 2) - 1;
            int left = s[low];
            s[low] = s[high];
            s[high] += left;
        }
    }
    barrier_local();
    out[base + 2 * t] = s[2 * t];
    out[base + 2 * t + 1] = s[2 * t + 1];
}

KERNEL softmax(global const float *in, global float *out, int columns) {
    local float s[256];
    int t = LOCAL_X;
    const global float *row = in + (long)GROUP_X * columns;
    global float *result = out + (long)GROUP_X * columns;
    float most = -3.4e38f;
#pragma unroll 1
    for (int i = t; i < columns; i += 256) most = __builtin_fmaxf(most, row[i]);
    s[t] = most;
    barrier_local();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] = __builtin_fmaxf(s[t], s[t + d]);
        barrier_local();
    }
    most = s[0];
    barrier_local();
    float sum = 0.0f;
#pragma unroll 1
    for (int i = t; i < columns; i += 256) {
        float e = __builtin_amdgcn_exp2f((row[i] - most) * 1.44269504f);
        result[i] = e;
        sum += e;
    }
    s[t] = sum;
    barrier_local();
    for (int d = 128; d > 0; d >>= 1) {
        if (t < d) s[t] += s[t + d];
        barrier_local();
    }
    sum = s[0];
#pragma unroll 1
    for (int i = t; i < columns; i += 256) result[i] = result[i] / sum;
}

KERNEL transpose(global const float *in, global float *out, int width, int height) {
    local float tile[32][33];
    int tx = LOCAL_X, ty = LOCAL_Y;
    int x = GROUP_X * 32 + tx, y = GROUP_Y * 32 + ty;
    for (int j = 0; j < 32; j += 8) tile[ty + j][tx] = in[(y + j) * width + x];
    barrier_local();
    x = GROUP_Y * 32 + tx;
    y = GROUP_X * 32 + ty;
    for (int j = 0; j < 32; j += 8) out[(y + j) * height + x] = tile[tx][ty + j];
}

KERNEL spmv(global const int *starts, global const int *columns, global const float *values, global const float *x, global float *y, int rows) {
    int row = THREAD;
    if (row >= rows) return;
    float sum = 0.0f;
#pragma unroll 1
    for (int i = starts[row]; i < starts[row + 1]; i++) sum = __builtin_fmaf(values[i], x[columns[i]], sum);
    y[row] = sum;
}
