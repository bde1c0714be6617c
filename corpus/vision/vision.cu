// Two steps of computer vision: disparities of a stereo pair by sums of absolute differences of packed bytes, and a
// cascade of rectangle features over an integral image.
#include "../support.cuh"

constexpr int WIDTH = 96, HEIGHT = 40, RANGE = 12, REACH = 2;

// Bytes at a place that need not be aligned, as one word.
__device__ unsigned int four(const unsigned char *row, int x)
{
    const unsigned int *words = reinterpret_cast<const unsigned int *>(row);
    int word = x >> 2;
    return __byte_perm(words[word], words[word + 1], 0x3210 + 0x1111 * (x & 3));
}

__global__ void disparity(const unsigned char *left, const unsigned char *right, unsigned char *best)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x + RANGE + REACH, y = blockIdx.y + REACH;
    if (x >= WIDTH - 8 || y >= HEIGHT - REACH)
        return;
    unsigned int least = 0xffffffffu;
    int found = 0;
    for (int d = 0; d < RANGE; d++) {
        unsigned int cost = 0;
        for (int j = -REACH; j <= REACH; j++) {
            unsigned int a = four(left + (y + j) * WIDTH, x), b = four(right + (y + j) * WIDTH, x - d);
            cost += __vsadu4(a, b);
            cost += __dp4a(__vabsdiffu4(a, b), 0x01010101u, 0u);
        }
        if (cost < least) {
            least = cost;
            found = d;
        }
    }
    best[y * WIDTH + x] = (unsigned char)found;
}

// Sums of each row, a warp a row.
__global__ void sum_rows(const unsigned char *in, unsigned int *out)
{
    int lane = threadIdx.x, y = blockIdx.x;
    unsigned int carry = 0;
    for (int start = 0; start < WIDTH; start += 32) {
        unsigned int value = in[y * WIDTH + start + lane];
        for (int reach = 1; reach < 32; reach *= 2) {
            unsigned int other = __shfl_up_sync(0xffffffffu, value, reach);
            if (lane >= reach)
                value += other;
        }
        out[y * WIDTH + start + lane] = value + carry;
        carry += __shfl_sync(0xffffffffu, value, 31);
    }
}

__global__ void sum_columns(unsigned int *sums)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    for (int y = 1; x < WIDTH && y < HEIGHT; y++)
        sums[y * WIDTH + x] += sums[(y - 1) * WIDTH + x];
}

struct Feature {  // what is in one rectangle, less what is in another
    short x, y, width, height, x2, y2, width2, height2;
    int threshold;
};
__constant__ Feature features[6];
constexpr int STAGES[] = {0, 1, 3, 6}, WINDOW = 16;
__constant__ int stages[4];

__host__ __device__ unsigned int inside(const unsigned int *sums, int x, int y, int width, int height)
{
    unsigned int d = sums[(y + height) * WIDTH + x + width], b = sums[y * WIDTH + x + width],
                 c = sums[(y + height) * WIDTH + x], a = sums[y * WIDTH + x];
    return d - b - c + a;
}

// How many stages a window passes; most fail the first, so that lanes part ways.
__global__ void cascade(const unsigned int *sums, unsigned char *passed, unsigned int *hits, unsigned int *list)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= WIDTH - WINDOW || y >= HEIGHT - WINDOW)
        return;
    int stage = 0;
    for (; stage < 3; stage++) {
        int votes = 0;
        for (int i = stages[stage]; i < stages[stage + 1]; i++) {
            const Feature &one = features[i];
            int light = inside(sums, x + one.x, y + one.y, one.width, one.height);
            int dark = inside(sums, x + one.x2, y + one.y2, one.width2, one.height2);
            votes += light - dark > one.threshold ? 1 : -1;
        }
        if (votes <= 0)
            break;
    }
    passed[y * WIDTH + x] = (unsigned char)stage;
    if (stage == 3) {
        unsigned int peers = __activemask();  // one lane counts for all that came here
        int lane = threadIdx.x & 31;
        if (lane == __ffs(peers) - 1)
            atomicAdd(hits, __popc(peers));
        list[y * WIDTH + x] = 1;
    }
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int count = WIDTH * HEIGHT;
    std::vector<unsigned char> left(count + 8), right(count + 8);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) {
            int depth = 3 + (x > 45) * 4;
            right[y * WIDTH + x] = (unsigned char)(hash(y * 1000 + x) >> 24);
            left[y * WIDTH + x] = (unsigned char)(hash(y * 1000 + x - depth) >> 24);
        }
    unsigned char *device_left = to_device(left), *device_right = to_device(right), *best = poisoned<unsigned char>(count);
    CHECK(cudaMemset(best, 255, count));
    disparity<<<dim3(blocks_for(WIDTH, 32), HEIGHT - 2 * REACH), 32>>>(device_left, device_right, best);
    std::vector<unsigned char> depths = to_host(best, count);
    for (int y = REACH; y < HEIGHT - REACH; y++)
        for (int x = RANGE + REACH; x < WIDTH - 8; x++)
            if (x < 40 || x > 46 + RANGE)
                report.expect("depth", y * WIDTH + x, depths[y * WIDTH + x], 3 + (x > 45) * 4);

    const Feature host[6] = {{0, 0, 16, 8, 0, 8, 16, 8, -900}, {0, 0, 8, 16, 8, 0, 8, 16, -500},
                             {4, 4, 8, 8, 0, 0, 16, 16, -26000}, {0, 0, 8, 8, 8, 8, 8, 8, -700},
                             {2, 0, 4, 16, 10, 0, 4, 16, -300}, {0, 4, 16, 4, 0, 10, 16, 4, -600}};
    CHECK(cudaMemcpyToSymbol(features, host, sizeof host));
    CHECK(cudaMemcpyToSymbol(stages, STAGES, sizeof STAGES));
    unsigned int *sums = poisoned<unsigned int>(count), *hits = to_device(std::vector<unsigned int>(1)),
                 *list = to_device(std::vector<unsigned int>(count));
    unsigned char *passed = poisoned<unsigned char>(count);
    CHECK(cudaMemset(passed, 0, count));
    sum_rows<<<HEIGHT, 32>>>(device_left, sums);
    sum_columns<<<blocks_for(WIDTH, 32), 32>>>(sums);
    cascade<<<dim3(blocks_for(WIDTH - WINDOW, 32), HEIGHT - WINDOW), 32>>>(sums, passed, hits, list);
    CHECK(cudaDeviceSynchronize());

    std::vector<unsigned int> own(count);
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++)
            own[y * WIDTH + x] = left[y * WIDTH + x] + (x ? own[y * WIDTH + x - 1] : 0) +
                                 (y ? own[(y - 1) * WIDTH + x] - (x ? own[(y - 1) * WIDTH + x - 1] : 0) : 0);
    std::vector<unsigned int> got_sums = to_host(sums, count), places = to_host(list, count);
    std::vector<unsigned char> got = to_host(passed, count);
    unsigned int found = 0;
    for (int i = 0; i < count; i++) {
        report.expect("sum", i, got_sums[i], own[i]);
        int x = i % WIDTH, y = i / WIDTH, stage = 0;
        if (x >= WIDTH - WINDOW || y >= HEIGHT - WINDOW)
            continue;
        for (; stage < 3; stage++) {
            int votes = 0;
            for (int f = STAGES[stage]; f < STAGES[stage + 1]; f++)
                votes += int(inside(own.data(), x + host[f].x, y + host[f].y, host[f].width, host[f].height)) -
                                     int(inside(own.data(), x + host[f].x2, y + host[f].y2, host[f].width2, host[f].height2)) >
                                 host[f].threshold
                             ? 1
                             : -1;
            if (votes <= 0)
                break;
        }
        report.expect("passed", i, got[i], stage);
        report.expect("listed", i, places[i] != 0, stage == 3);
        found += stage == 3;
    }
    report.expect("hits", 0, to_host(hits, 1)[0], found);
    report.keep(depths);
    report.keep(got_sums);
    report.keep(got);
    return report.finish("vision");
}
