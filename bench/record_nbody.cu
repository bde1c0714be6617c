// n-body with all pairs, `steps` launches over two buffers of positions, timed: `record_nbody BODIES STEPS`. Its own time,
// without and under `zluda trace --capture full`, is what capturing costs a program that computes.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void step(int n, const float4 *from, float4 *to, float4 *velocity)
{
    __shared__ float4 tile[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    float4 own = from[i], v = velocity[i];
    float ax = 0, ay = 0, az = 0;
    for (int start = 0; start < n; start += 256)
    {
        tile[threadIdx.x] = from[start + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 256; j++)
        {
            float dx = tile[j].x - own.x, dy = tile[j].y - own.y, dz = tile[j].z - own.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float force = tile[j].w * inverse * inverse * inverse;
            ax += dx * force, ay += dy * force, az += dz * force;
        }
        __syncthreads();
    }
    v.x += 1e-4f * ax, v.y += 1e-4f * ay, v.z += 1e-4f * az;
    velocity[i] = v;
    to[i] = make_float4(own.x + 1e-4f * v.x, own.y + 1e-4f * v.y, own.z + 1e-4f * v.z, own.w);
}

int main(int argc, char **argv)
{
    int n = argc > 1 ? atoi(argv[1]) : 16384, steps = argc > 2 ? atoi(argv[2]) : 60;
    std::vector<float4> bodies(n);
    float4 *position[2], *velocity;
    for (int i = 0; i < n; i++)
        bodies[i] = make_float4(i % 97 * 0.01f, i % 89 * 0.01f, i % 83 * 0.01f, 1.0f / n);
    for (float4 *&one : position)
        cudaMalloc(&one, n * sizeof(float4));
    cudaMalloc(&velocity, n * sizeof(float4));
    cudaMemcpy(position[0], bodies.data(), n * sizeof(float4), cudaMemcpyHostToDevice);
    cudaMemset(velocity, 0, n * sizeof(float4));
    step<<<n / 256, 256>>>(n, position[0], position[1], velocity);
    cudaDeviceSynchronize();
    auto start = std::chrono::steady_clock::now();
    for (int i = 1; i <= steps; i++)
        step<<<n / 256, 256>>>(n, position[i % 2], position[1 - i % 2], velocity);
    if (cudaDeviceSynchronize() != cudaSuccess)
        return 1;
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    printf("%d bodies, %d steps: %.3f ms a step\n", n, steps, 1e3 * seconds / steps);
    return 0;
}
