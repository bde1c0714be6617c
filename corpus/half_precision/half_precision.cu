// Arithmetic in f16, bf16 and fp8: packed and scalar, fused and not, conversions with their roundings, the
// approximate functions of cuda_fp16.h and cuda_bf16.h, packed atomics, and what a block sums in half precision.
#include "../support.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

// y = a x + y, and a polynomial with saturation and relu, two values at a time.
__global__ void axpy_half2(const __half2 *x, const __half2 *y, __half2 *sums, __half2 *curves, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half2 a = __float2half2_rn(1.3125f);
    sums[i] = __hfma2(a, x[i], y[i]);
    __half2 p = __hadd2_rn(__hmul2_rn(x[i], x[i]), __hneg2(y[i]));
    p = __hfma2_sat(p, x[i], __floats2half2_rn(0.25f, -0.25f));
    curves[i] = __hmax2(__hsub2(p, __hmul2(y[i], a)), __hmin2(x[i], y[i]));
}

__global__ void axpy_bfloat16(const __nv_bfloat162 *x, const __nv_bfloat162 *y, __nv_bfloat162 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __nv_bfloat162 fused = __hfma2(x[i], y[i], __hmul2_rn(x[i], x[i]));
    out[i] = __hfma2_relu(fused, __float2bfloat162_rn(0.75f), __hsub2(y[i], x[i]));
}

// Approximate functions, one value at a time: on f16 and, through f32, on bf16.
__global__ void elementary(const __half *x, __half *out, __nv_bfloat16 *wide, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    __half v = x[i], positive = __habs(v);
    __half results[] = {hexp(v), hexp2(v), hlog(positive), hlog2(positive), hrcp(v), hrsqrt(positive),
                        hsqrt(positive), hsin(v), hcos(v), htanh_approx(v), hfloor(v), hrint(v)};
    for (int k = 0; k < 12; k++)
        out[i * 12 + k] = results[k];
    __nv_bfloat16 b = __float2bfloat16_rn(__half2float(v)), c = __habs(b);
    __nv_bfloat16 wides[] = {hexp(b), hexp2(b), hlog2(c), hrcp(b), hrsqrt(c), hsqrt(c), htanh_approx(b), hceil(b)};
    for (int k = 0; k < 8; k++)
        wide[i * 8 + k] = wides[k];
}

// From f32, f64 and integers and back, in every rounding that the headers have.
__global__ void conversions(const float *x, __half *halves, __nv_bfloat16 *bfloats, int *integers, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    __half *h = halves + i * 7;
    h[0] = __float2half_rn(v);
    h[1] = __float2half_rz(v);
    h[2] = __float2half_ru(v);
    h[3] = __float2half_rd(v);
    h[4] = __double2half(double(v) * 1.0009765625);
    h[5] = __int2half_rn(int(v * 3.0f));
    h[6] = __ushort2half_rz((unsigned short)(int(v) & 0xffff));
    __nv_bfloat16 *b = bfloats + i * 4;
    b[0] = __float2bfloat16_rn(v);
    b[1] = __float2bfloat16_rz(v);
    b[2] = __float2bfloat16_ru(v);
    b[3] = __double2bfloat16(double(v) / 3.0);
    int *z = integers + i * 4;
    z[0] = __half2int_rn(h[0]);
    z[1] = __half2int_rz(h[0]);
    z[2] = __half2short_rd(h[0]);
    z[3] = __bfloat162int_ru(b[0]);
}

// To both fp8 formats, saturating and not, back to f16, and a product of two fp8 values in f16.
__global__ void round_trips(const float *x, unsigned char *fp8, __half *back, __half2 *products, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float v = x[i];
    __nv_fp8_storage_t e4m3 = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3);
    __nv_fp8_storage_t e5m2 = __nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E5M2);
    fp8[i * 2] = e4m3;
    fp8[i * 2 + 1] = e5m2;
    back[i * 2] = __half(__nv_cvt_fp8_to_halfraw(e4m3, __NV_E4M3));
    back[i * 2 + 1] = __half(__nv_cvt_fp8_to_halfraw(e5m2, __NV_E5M2));
    __nv_fp8x2_storage_t pair = __nv_cvt_float2_to_fp8x2(make_float2(v, -v * 0.5f), __NV_SATFINITE, __NV_E4M3);
    __half2 wide = __half2(__nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3));
    products[i] = __hmul2(wide, __lowhigh2highlow(wide));
}

// Packed atomics: sums of small integers, which any order gives alike.
__global__ void count(const float *x, __half2 *halves, __nv_bfloat162 *bfloats, int bins, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int bin = int(fabsf(x[i]) * 8.0f) % bins;
    atomicAdd(halves + bin, __floats2half2_rn(1.0f, float(i % 3)));
    atomicAdd(bfloats + bin, __floats2bfloat162_rn(float(i % 2), 1.0f));
}

// A dot product a block: products in f16, shuffled sums, comparisons and selections of halves.
__global__ void dot(const __half2 *x, const __half2 *y, __half *out, unsigned *larger, int n)
{
    __shared__ __half partial[4];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    __half2 product = i < n ? __hmul2(x[i], y[i]) : __float2half2_rn(0.0f);
    __half sum = __hadd(__low2half(product), __high2half(product));
    for (int offset = 16; offset > 0; offset /= 2)
        sum = __hadd(sum, __shfl_xor_sync(0xffffffffu, sum, offset));
    unsigned ballot = __ballot_sync(0xffffffffu, i < n && __hbgt2(x[i], y[i]));
    if (lane == 0) {
        partial[threadIdx.x / 32] = sum;
        larger[i / 32] = ballot;
    }
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = __hadd(__hadd(partial[0], partial[1]), __hadd(partial[2], partial[3]));
}

template <typename T> std::vector<T> rounded(const std::vector<float> &values)
{
    return std::vector<T>(values.begin(), values.end());
}

int main(int argc, char **argv)
{
    const int n = 1000, threads = 128, bins = 37;
    Report report(argc, argv);
    std::vector<float> reals = real_values(2 * n, 11, -4.0f, 8.0f), others = real_values(2 * n, 23, -2.0f, 4.0f);
    reals[3] = 0.0f, reals[4] = -0.0f, reals[5] = 70000.0f, reals[6] = 1e-7f, reals[7] = -6e-5f, reals[8] = 480.0f;
    std::vector<__half> halves = rounded<__half>(reals), other_halves = rounded<__half>(others);
    std::vector<__nv_bfloat16> bfloats = rounded<__nv_bfloat16>(reals), other_bfloats = rounded<__nv_bfloat16>(others);
    unsigned blocks = blocks_for(n, threads);
    float *x = to_device(reals);
    __half *h = to_device(halves), *g = to_device(other_halves);
    __nv_bfloat16 *b = to_device(bfloats), *c = to_device(other_bfloats);

    __half2 *sums = poisoned<__half2>(n), *curves = poisoned<__half2>(n);
    axpy_half2<<<blocks, threads>>>((__half2 *)h, (__half2 *)g, sums, curves, n);
    __nv_bfloat162 *fused = poisoned<__nv_bfloat162>(n);
    axpy_bfloat16<<<blocks, threads>>>((__nv_bfloat162 *)b, (__nv_bfloat162 *)c, fused, n);
    const int few = 256;
    __half *functions = poisoned<__half>(few * 12);
    __nv_bfloat16 *wide = poisoned<__nv_bfloat16>(few * 8);
    elementary<<<blocks_for(few, threads), threads>>>(h, functions, wide, few);
    __half *converted = poisoned<__half>(few * 7);
    __nv_bfloat16 *converted_wide = poisoned<__nv_bfloat16>(few * 4);
    int *integers = poisoned<int>(few * 4);
    conversions<<<blocks_for(few, threads), threads>>>(x, converted, converted_wide, integers, few);
    unsigned char *fp8 = poisoned<unsigned char>(2 * n);
    __half *back = poisoned<__half>(2 * n);
    __half2 *products = poisoned<__half2>(n);
    round_trips<<<blocks, threads>>>(x, fp8, back, products, n);
    __half2 *counts = poisoned<__half2>(bins);
    __nv_bfloat162 *counts_wide = poisoned<__nv_bfloat162>(bins);
    CHECK(cudaMemset(counts, 0, bins * sizeof(__half2)));
    CHECK(cudaMemset(counts_wide, 0, bins * sizeof(__nv_bfloat162)));
    count<<<blocks, threads>>>(x, counts, counts_wide, bins, n);
    __half *dots = poisoned<__half>(blocks);
    unsigned *larger = poisoned<unsigned>(blocks * threads / 32);
    dot<<<blocks, threads>>>((__half2 *)h, (__half2 *)g, dots, larger, n);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());

    auto got_sums = to_host(sums, n);
    report.keep(got_sums);
    for (int i = 0; i < n; i++) {
        float expected = 1.3125f * float(halves[2 * i]) + float(other_halves[2 * i]);
        if (std::fabs(expected) < 65504.0f)
            report.expect("sum", i, float(got_sums[i].x), float(__half(expected)), std::fabs(expected) * 0.001 + 1e-7);
    }
    report.keep(to_host(curves, n));
    report.keep(to_host(fused, n));
    auto got_functions = to_host(functions, few * 12);
    report.keep(got_functions);
    for (int i = 16; i < few; i++) {
        double v = float(halves[i]);
        report.expect("exp", i, float(got_functions[i * 12]), std::exp(v), std::exp(v) * 0.002);
        report.expect("sqrt", i, float(got_functions[i * 12 + 6]), std::sqrt(std::fabs(v)), 0.002);
    }
    report.keep(to_host(wide, few * 8));
    report.keep(to_host(converted, few * 7));
    report.keep(to_host(converted_wide, few * 4));
    auto got_integers = to_host(integers, few * 4);
    report.keep(got_integers);
    for (int i = 16; i < few; i++)
        report.expect("integer", i, got_integers[i * 4 + 1], int(float(halves[i])));
    report.keep(to_host(fp8, 2 * n));
    auto got_back = to_host(back, 2 * n);
    report.keep(got_back);
    for (int i = 16; i < n; i++)
        report.expect("fp8", i, float(got_back[i * 2]), reals[i], std::fabs(reals[i]) / 16.0 + 0.001);
    report.keep(to_host(products, n));
    auto got_counts = to_host(counts, bins);
    report.keep(got_counts);
    report.keep(to_host(counts_wide, bins));
    float total = 0.0f;
    for (int i = 0; i < bins; i++)
        total += float(got_counts[i].x);
    report.expect("total", 0, total, n);
    report.keep(to_host(dots, blocks));
    report.keep(to_host(larger, blocks * threads / 32));
    return report.finish("half_precision");
}
