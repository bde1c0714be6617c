// Filters of a grey image: a separable blur through shared memory, Sobel, Canny (thinning, then hysteresis until nothing
// changes), and histogram equalisation.
#include "../support.cuh"

constexpr int WIDTH = 116, HEIGHT = 75, RADIUS = 3, TILE = 16;
__constant__ float weights[2 * RADIUS + 1];

__host__ __device__ inline int clamped(int at, int size) { return at < 0 ? 0 : at >= size ? size - 1 : at; }

template <bool ROWS> __global__ void blur(const float *in, float *out)
{
    __shared__ float tile[TILE][TILE + 2 * RADIUS + 1];
    int along = blockIdx.x * TILE, line = blockIdx.y * TILE + threadIdx.y;
    int size = ROWS ? WIDTH : HEIGHT, lines = ROWS ? HEIGHT : WIDTH;
    for (int i = threadIdx.x; i < TILE + 2 * RADIUS; i += TILE) {
        int at = clamped(along + i - RADIUS, size), other = clamped(line, lines);
        tile[threadIdx.y][i] = ROWS ? in[other * WIDTH + at] : in[at * WIDTH + other];
    }
    __syncthreads();
    int at = along + threadIdx.x;
    if (at >= size || line >= lines)
        return;
    float sum = 0;
    for (int i = 0; i <= 2 * RADIUS; i++)
        sum = fmaf(weights[i], tile[threadIdx.y][threadIdx.x + i], sum);
    out[ROWS ? line * WIDTH + at : at * WIDTH + line] = sum;
}

__global__ void sobel(const float *in, float *size, unsigned char *direction)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= WIDTH || y >= HEIGHT)
        return;
    float around[3][3];
    for (int j = 0; j < 3; j++)
        for (int i = 0; i < 3; i++)
            around[j][i] = in[clamped(y + j - 1, HEIGHT) * WIDTH + clamped(x + i - 1, WIDTH)];
    float gx = around[0][2] + 2 * around[1][2] + around[2][2] - around[0][0] - 2 * around[1][0] - around[2][0];
    float gy = around[2][0] + 2 * around[2][1] + around[2][2] - around[0][0] - 2 * around[0][1] - around[0][2];
    size[y * WIDTH + x] = sqrtf(gx * gx + gy * gy);
    float ax = fabsf(gx), ay = fabsf(gy);  // of four directions, the one across the edge
    direction[y * WIDTH + x] = ay < 0.41421356f * ax ? 0 : ax < 0.41421356f * ay ? 2 : gx * gy > 0 ? 1 : 3;
}

__global__ void thin(const float *size, const unsigned char *direction, unsigned char *mark, float low, float high)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= WIDTH || y >= HEIGHT)
        return;
    const int dx[] = {1, 1, 0, -1}, dy[] = {0, 1, 1, 1};
    int way = direction[y * WIDTH + x];
    float here = size[y * WIDTH + x];
    float next = size[clamped(y + dy[way], HEIGHT) * WIDTH + clamped(x + dx[way], WIDTH)];
    float last = size[clamped(y - dy[way], HEIGHT) * WIDTH + clamped(x - dx[way], WIDTH)];
    bool top = here >= next && here > last;
    mark[y * WIDTH + x] = !top || here < low ? 0 : here < high ? 1 : 2;
}

// Weak pixels beside strong ones become strong. Each launch reads what the last one left.
__global__ void spread(const unsigned char *in, unsigned char *out, unsigned int *changed)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    bool turns = false;
    if (x < WIDTH && y < HEIGHT) {
        unsigned char here = in[y * WIDTH + x];
        if (here == 1)
            for (int j = -1; j <= 1; j++)
                for (int i = -1; i <= 1; i++)
                    turns |= in[clamped(y + j, HEIGHT) * WIDTH + clamped(x + i, WIDTH)] == 2;
        out[y * WIDTH + x] = turns ? 2 : here;
    }
    unsigned int count = __syncthreads_count(turns);
    if (threadIdx.x == 0 && threadIdx.y == 0 && count)
        atomicAdd(changed, count);
}

__global__ void count_levels(const float *in, unsigned int *levels)
{
    __shared__ unsigned int own[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        own[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < WIDTH * HEIGHT; i += gridDim.x * blockDim.x)
        atomicAdd(&own[min(255, max(0, int(in[i])))], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x)
        if (own[i])
            atomicAdd(&levels[i], own[i]);
}

__global__ void make_table(const unsigned int *levels, unsigned char *table)
{
    __shared__ unsigned int sums[256];
    int i = threadIdx.x;
    sums[i] = levels[i];
    __syncthreads();
    for (int reach = 1; reach < 256; reach *= 2) {
        unsigned int value = i >= reach ? sums[i - reach] : 0;
        __syncthreads();
        sums[i] += value;
        __syncthreads();
    }
    unsigned int first = sums[0];
    table[i] = (unsigned char)((sums[i] - first) * 255u / (WIDTH * HEIGHT - first));
}

__global__ void equalize(const float *in, const unsigned char *table, unsigned char *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < WIDTH * HEIGHT)
        out[i] = table[min(255, max(0, int(in[i])))];
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int count = WIDTH * HEIGHT;
    std::vector<float> image = real_values(count, 7, 0.0f, 40.0f);
    for (int i = 0; i < count; i++) {  // discs and a ramp under the noise
        int x = i % WIDTH, y = i / WIDTH;
        image[i] += 0.5f * x + ((x - 40) * (x - 40) + (y - 30) * (y - 30) < 400 ? 90 : 0) + (x > 80 && y > 45 ? 60 : 0);
    }
    float host_weights[2 * RADIUS + 1], total = 0;
    for (int i = 0; i <= 2 * RADIUS; i++)
        total += host_weights[i] = std::exp(-0.25f * (i - RADIUS) * (i - RADIUS));
    for (float &weight : host_weights)
        weight /= total;
    CHECK(cudaMemcpyToSymbol(weights, host_weights, sizeof host_weights));

    float *in = to_device(image), *half = poisoned<float>(count), *soft = poisoned<float>(count),
          *size = poisoned<float>(count);
    auto *direction = poisoned<unsigned char>(count), *mark = poisoned<unsigned char>(count),
         *next = poisoned<unsigned char>(count), *table = poisoned<unsigned char>(256),
         *equal = poisoned<unsigned char>(count);
    unsigned int *changed = to_device(std::vector<unsigned int>(1)), *levels = to_device(std::vector<unsigned int>(256));
    dim3 threads(TILE, TILE), blocks(blocks_for(WIDTH, TILE), blocks_for(HEIGHT, TILE)), turned(blocks.y, blocks.x);
    blur<true><<<blocks, threads>>>(in, half);
    blur<false><<<turned, threads>>>(half, soft);
    sobel<<<blocks, threads>>>(soft, size, direction);
    thin<<<blocks, threads>>>(size, direction, mark, 40.0f, 187.0f);
    int rounds = 0;
    for (unsigned int now = 1; now && rounds < 64; rounds++) {
        CHECK(cudaMemset(changed, 0, sizeof now));
        spread<<<blocks, threads>>>(mark, next, changed);
        CHECK(cudaMemcpy(&now, changed, sizeof now, cudaMemcpyDeviceToHost));
        std::swap(mark, next);
    }
    count_levels<<<3, 128>>>(soft, levels);
    make_table<<<1, 256>>>(levels, table);
    equalize<<<blocks_for(count, 128), 128>>>(soft, table, equal);
    CHECK(cudaDeviceSynchronize());

    std::vector<float> rows(count), expected(count);
    for (int i = 0; i < count; i++)
        for (int j = 0; j <= 2 * RADIUS; j++)
            rows[i] = std::fmaf(host_weights[j], image[i - i % WIDTH + clamped(i % WIDTH + j - RADIUS, WIDTH)], rows[i]);
    for (int i = 0; i < count; i++)
        for (int j = 0; j <= 2 * RADIUS; j++)
            expected[i] =
                std::fmaf(host_weights[j], rows[clamped(i / WIDTH + j - RADIUS, HEIGHT) * WIDTH + i % WIDTH], expected[i]);
    std::vector<float> blurred = to_host(soft, count);
    for (int i = 0; i < count; i++)
        report.expect("blurred", i, blurred[i], expected[i]);
    std::vector<unsigned char> edges = to_host(mark, count), flat = to_host(equal, count);
    for (int i = 0; i < count; i++) {  // none that is weak is left beside a strong one
        bool beside = false;
        for (int j = -1; j <= 1; j++)
            for (int k = -1; k <= 1; k++)
                beside |= edges[clamped(i / WIDTH + j, HEIGHT) * WIDTH + clamped(i % WIDTH + k, WIDTH)] == 2;
        report.expect("edge", i, edges[i] == 1 && beside, 0);
    }
    report.expect("rounds", 0, rounds > 1 && rounds < 64, 1);
    unsigned int own[256] = {}, sum = 0;
    for (float value : blurred)
        own[std::min(255, std::max(0, int(value)))]++;
    unsigned char own_table[256];
    for (int i = 0; i < 256; i++)
        own_table[i] = (unsigned char)(((sum += own[i]) - own[0]) * 255u / (count - own[0]));
    for (int i = 0; i < count; i++)
        report.expect("equal", i, flat[i], own_table[std::min(255, std::max(0, int(blurred[i])))]);
    report.keep(blurred);
    report.keep(edges);
    report.keep(flat);
    report.keep(to_host(size, count));
    return report.finish("image_filters");
}
