// Bodies under gravity: two streams compute one half of the accelerations each and wait for each other by events.
#include "../support.cuh"

const int BODIES = 500, HALF = 270, STEPS = 5;
const float SOFTENING = 0.01f, TIME_STEP = 0.0078125f;

// Moves the bodies [first, first + count) by one step; all positions are read from `from`. w is the mass.
__global__ void step(const float4 *from, float4 *to, float4 *velocity, int first, int count, int n, float softening, float dt)
{
    extern __shared__ float4 tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool mine = i < count;
    float4 body = mine ? from[first + i] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    float ax = 0.0f, ay = 0.0f, az = 0.0f;
    for (int start = 0; start < n; start += blockDim.x) {
        int other = start + threadIdx.x;
        tile[threadIdx.x] = other < n ? from[other] : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        __syncthreads();
#pragma unroll 4
        for (int j = 0; j < blockDim.x; j++) {
            float4 there = tile[j];
            float dx = there.x - body.x, dy = there.y - body.y, dz = there.z - body.z;
            float distance = fmaf(dx, dx, fmaf(dy, dy, fmaf(dz, dz, softening)));
            float inverse = rsqrtf(distance);
            float pull = __fmul_rn(there.w, __fmul_rn(inverse, __fmul_rn(inverse, inverse)));
            ax = fmaf(dx, pull, ax);
            ay = fmaf(dy, pull, ay);
            az = fmaf(dz, pull, az);
        }
        __syncthreads();
    }
    if (!mine)
        return;
    float4 speed = velocity[first + i];
    speed.x = fmaf(ax, dt, speed.x);
    speed.y = fmaf(ay, dt, speed.y);
    speed.z = fmaf(az, dt, speed.z);
    velocity[first + i] = speed;
    to[first + i] = make_float4(fmaf(speed.x, dt, body.x), fmaf(speed.y, dt, body.y), fmaf(speed.z, dt, body.z), body.w);
}

// Kinetic energy of each block's bodies, in fixed order.
__global__ void energy(const float4 *velocity, const float4 *position, double *result, int n)
{
    __shared__ double part[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    double value = 0.0;
    if (i < n) {
        float4 v = velocity[i];
        value = 0.5 * position[i].w * fma(double(v.x), double(v.x), fma(double(v.y), double(v.y), __dmul_rn(v.z, v.z)));
    }
    part[threadIdx.x] = value;
    __syncthreads();
    for (int width = 64; width > 0; width /= 2) {
        if (threadIdx.x < width)
            part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        result[blockIdx.x] = part[0];
}

static void step_on_host(const std::vector<float4> &from, std::vector<float4> &to, std::vector<float4> &velocity)
{
    for (int i = 0; i < BODIES; i++) {
        double a[3] = {0.0, 0.0, 0.0};
        for (const float4 &there : from) {
            double d[3] = {there.x - from[i].x, there.y - from[i].y, there.z - from[i].z};
            double distance = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + SOFTENING;
            for (int k = 0; k < 3; k++)
                a[k] += there.w * d[k] / (distance * std::sqrt(distance));
        }
        velocity[i].x += float(a[0]) * TIME_STEP;
        velocity[i].y += float(a[1]) * TIME_STEP;
        velocity[i].z += float(a[2]) * TIME_STEP;
        to[i] = make_float4(from[i].x + velocity[i].x * TIME_STEP, from[i].y + velocity[i].y * TIME_STEP,
                            from[i].z + velocity[i].z * TIME_STEP, from[i].w);
    }
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<float> numbers = real_values(4 * BODIES, 31, -1.0f, 2.0f);
    std::vector<float4> start(BODIES), still(BODIES, make_float4(0.0f, 0.0f, 0.0f, 0.0f));
    for (int i = 0; i < BODIES; i++)
        start[i] = make_float4(numbers[4 * i], numbers[4 * i + 1], numbers[4 * i + 2], 0.01f + 0.005f * fabsf(numbers[4 * i + 3]));

    const size_t bytes = BODIES * sizeof(float4);
    const unsigned threads = 128;
    float4 *position[2], *velocity, *pinned;
    double *device_energy = poisoned<double>(blocks_for(BODIES, threads));
    CHECK(cudaMalloc(&position[0], bytes));
    position[1] = poisoned<float4>(BODIES);
    CHECK(cudaMalloc(&velocity, bytes));
    CHECK(cudaMallocHost(&pinned, bytes));
    std::copy(start.begin(), start.end(), pinned);
    CHECK(cudaDeviceSynchronize());  // the streams below do not wait for the default one
    cudaStream_t stream[2];
    cudaEvent_t done[2];
    for (int k = 0; k < 2; k++) {
        CHECK(cudaStreamCreateWithFlags(&stream[k], cudaStreamNonBlocking));
        CHECK(cudaEventCreateWithFlags(&done[k], cudaEventDisableTiming));
    }
    CHECK(cudaMemcpyAsync(position[0], pinned, bytes, cudaMemcpyHostToDevice, stream[0]));
    CHECK(cudaMemsetAsync(velocity, 0, bytes, stream[0]));
    CHECK(cudaEventRecord(done[0], stream[0]));
    CHECK(cudaStreamWaitEvent(stream[1], done[0], 0));

    for (int n = 0; n < STEPS; n++) {
        for (int k = 0; k < 2; k++) {
            int first = k ? HALF : 0, count = k ? BODIES - HALF : HALF;
            step<<<blocks_for(count, threads), threads, threads * sizeof(float4), stream[k]>>>(
                position[n % 2], position[1 - n % 2], velocity, first, count, BODIES, SOFTENING, TIME_STEP);
            CHECK(cudaGetLastError());
            CHECK(cudaEventRecord(done[k], stream[k]));
        }
        CHECK(cudaStreamWaitEvent(stream[0], done[1], 0));
        CHECK(cudaStreamWaitEvent(stream[1], done[0], 0));
    }
    energy<<<blocks_for(BODIES, threads), threads, 0, stream[1]>>>(velocity, position[STEPS % 2], device_energy, BODIES);
    CHECK(cudaMemcpyAsync(pinned, position[STEPS % 2], bytes, cudaMemcpyDeviceToHost, stream[0]));
    CHECK(cudaStreamSynchronize(stream[0]));
    CHECK(cudaStreamSynchronize(stream[1]));
    std::vector<float4> result(pinned, pinned + BODIES), speeds = to_host(velocity, BODIES);
    std::vector<double> energies = to_host(device_energy, blocks_for(BODIES, threads));

    std::vector<float4> here = start, next(BODIES), expected_speed = still;
    for (int n = 0; n < STEPS; n++) {
        step_on_host(here, next, expected_speed);
        std::swap(here, next);
    }
    double total = 0.0, expected_total = 0.0;
    for (int i = 0; i < BODIES; i++) {
        report.expect("x", i, result[i].x, here[i].x, 1e-3);
        report.expect("y", i, result[i].y, here[i].y, 1e-3);
        report.expect("z", i, result[i].z, here[i].z, 1e-3);
        expected_total += 0.5 * result[i].w * (double(speeds[i].x) * speeds[i].x + double(speeds[i].y) * speeds[i].y +
                                               double(speeds[i].z) * speeds[i].z);
    }
    for (double part : energies)
        total += part;
    report.expect("energy", 0, total, expected_total, 1e-9);
    report.keep(result);
    report.keep(speeds);
    report.keep(energies);
    for (int k = 0; k < 2; k++) {
        CHECK(cudaEventDestroy(done[k]));
        CHECK(cudaStreamDestroy(stream[k]));
        CHECK(cudaFree(position[k]));
    }
    CHECK(cudaFree(velocity));
    CHECK(cudaFree(device_energy));
    CHECK(cudaFreeHost(pinned));
    return report.finish("nbody");
}
