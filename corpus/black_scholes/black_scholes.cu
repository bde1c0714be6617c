// Prices of European options by the formula of Black and Scholes, in f32 with the fast and the accurate functions of
// the math library, and in f64. Built with -fmad=false (see record.toml).
#include "../support.cuh"

struct Option {
    float price, strike, years, volatility;
};

// Hull's polynomial for the cumulative normal distribution.
template <typename T> __host__ __device__ T cumulative_normal(T d)
{
    const T a1 = T(0.31938153), a2 = T(-0.356563782), a3 = T(1.781477937), a4 = T(-1.821255978), a5 = T(1.330274429);
    T k = T(1) / (T(1) + T(0.2316419) * fabs(d));
    T tail = T(0.39894228040143267794) * exp(T(-0.5) * d * d) * (k * (a1 + k * (a2 + k * (a3 + k * (a4 + k * a5)))));
    return d > T(0) ? T(1) - tail : tail;
}

template <typename T>
__host__ __device__ void black_scholes(T price, T strike, T years, T volatility, T rate, T *call, T *put)
{
    T root = sqrt(years);
    T d1 = (log(price / strike) + (rate + T(0.5) * volatility * volatility) * years) / (volatility * root);
    T d2 = d1 - volatility * root;
    T discount = strike * exp(-rate * years), n1 = cumulative_normal(d1), n2 = cumulative_normal(d2);
    *call = price * n1 - discount * n2;
    *put = discount * (T(1) - n2) - price * (T(1) - n1);
}

__global__ void price_options(const Option *options, float2 *prices, int n, float rate)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Option option = options[i];
    float call, put;
    black_scholes(option.price, option.strike, option.years, option.volatility, rate, &call, &put);
    prices[i] = make_float2(call, put);
}

__global__ void price_options_double(const Option *options, double2 *prices, int n, double rate)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Option option = options[i];
    double call, put;
    black_scholes<double>(option.price, option.strike, option.years, option.volatility, rate, &call, &put);
    prices[i] = make_double2(call, put);
}

// Delta of the call and vega with the approximate units: __expf, __logf, __fdividef, rsqrtf, __powf.
__global__ void sensitivities(const Option *options, float *delta, float *vega, int n, float rate)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        Option option = options[i];
        float inverse_root = rsqrtf(option.years), root = option.years * inverse_root;
        float drift = (rate + 0.5f * option.volatility * option.volatility) * option.years;
        float d1 = __fdividef((__logf(__fdividef(option.price, option.strike)) + drift) * inverse_root, option.volatility);
        float density = 0.39894228f * __expf(-0.5f * d1 * d1);
        delta[i] = 0.5f * (1.0f + __powf(fabsf(d1) + 1.0f, 0.25f) * copysignf(0.5f, d1));
        vega[i] = option.price * density * root;
    }
}

int main(int argc, char **argv)
{
    const int n = 3001, doubles = 1001;
    const unsigned threads = 160;
    Report report(argc, argv);
    std::vector<float> price = real_values(n, 21, 5.0f, 95.0f), strike = real_values(n, 22, 1.0f, 99.0f),
                       years = real_values(n, 23, 0.25f, 9.75f), volatility = real_values(n, 24, 0.125f, 0.5f);
    std::vector<Option> options(n);
    for (int i = 0; i < n; i++)
        options[i] = {price[i], strike[i], years[i], volatility[i]};
    Option *device_options = to_device(options);
    float2 *device_prices = poisoned<float2>(n);
    double2 *device_doubles = poisoned<double2>(doubles);
    float *device_delta = poisoned<float>(n), *device_vega = poisoned<float>(n);

    for (float rate : {0.02f, 0.075f}) {
        poison(device_prices, n);
        price_options<<<blocks_for(n, threads), threads>>>(device_options, device_prices, n, rate);
        CHECK(cudaGetLastError());
        std::vector<float2> prices = to_host(device_prices, n);
        for (int i = 0; i < n; i++) {
            double call, put;
            black_scholes<double>(price[i], strike[i], years[i], volatility[i], rate, &call, &put);
            report.expect("call", i, prices[i].x, call, 2e-4);
            report.expect("put", i, prices[i].y, put, 2e-4);
        }
        report.keep(prices);
    }
    price_options_double<<<blocks_for(doubles, 96), 96>>>(device_options, device_doubles, doubles, 0.03);
    sensitivities<<<5, 128>>>(device_options, device_delta, device_vega, n, 0.02f);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    std::vector<double2> accurate = to_host(device_doubles, doubles);
    for (int i = 0; i < doubles; i++) {
        double call, put;
        black_scholes<double>(price[i], strike[i], years[i], volatility[i], 0.03, &call, &put);
        report.expect("accurate call", i, accurate[i].x, call, 1e-11);
        report.expect("accurate put", i, accurate[i].y, put, 1e-11);
    }
    std::vector<float> delta = to_host(device_delta, n), vega = to_host(device_vega, n);
    for (int i = 0; i < n; i++) {
        double root = std::sqrt(double(years[i])), v = volatility[i], rate = 0.02f;
        double d1 = (std::log(double(price[i]) / strike[i]) + (rate + 0.5 * v * v) * years[i]) / (v * root);
        double density = 0.39894228040143267794 * std::exp(-0.5 * d1 * d1);
        double curve = 0.5 * (1.0 + std::pow(std::fabs(d1) + 1.0, 0.25) * std::copysign(0.5, d1));
        if (std::fabs(d1) > 1e-4)  // the sign at zero is a matter of rounding
            report.expect("delta", i, delta[i], curve, 1e-4);
        report.expect("vega", i, vega[i], price[i] * density * root, 1e-2);
    }
    report.keep(accurate);
    report.keep(delta);
    report.keep(vega);
    for (void *pointer : {(void *)device_options, (void *)device_prices, (void *)device_doubles, (void *)device_delta,
                          (void *)device_vega})
        CHECK(cudaFree(pointer));
    return report.finish("black_scholes");
}
