// Sorting and what it is made of: a bitonic sort in shared and global memory, a radix sort by digits, a scan whose blocks
// look back at each other, compaction.
#include "../support.cuh"

constexpr int COUNT = 2048, BLOCK = 256, TILES = COUNT / BLOCK;

__device__ void order(uint32_t &a, uint32_t &b, bool up)
{
    if ((a > b) == up) {
        uint32_t t = a;
        a = b;
        b = t;
    }
}

__global__ void bitonic_shared(uint32_t *keys)
{
    __shared__ uint32_t own[2 * BLOCK];
    int base = blockIdx.x * 2 * BLOCK;
    own[threadIdx.x] = keys[base + threadIdx.x];
    own[threadIdx.x + BLOCK] = keys[base + threadIdx.x + BLOCK];
    for (int size = 2; size <= 2 * BLOCK; size *= 2)
        for (int reach = size / 2; reach > 0; reach /= 2) {
            __syncthreads();
            int at = 2 * threadIdx.x - (threadIdx.x & (reach - 1));
            order(own[at], own[at + reach], ((base + at) & size) == 0);
        }
    __syncthreads();
    keys[base + threadIdx.x] = own[threadIdx.x];
    keys[base + threadIdx.x + BLOCK] = own[threadIdx.x + BLOCK];
}

__global__ void bitonic_global(uint32_t *keys, int size, int reach)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = 2 * i - (i & (reach - 1));
    order(keys[at], keys[at + reach], (at & size) == 0);
}

// A digit of four bits: counts of each tile, digit by digit.
__global__ void count_digits(const uint32_t *keys, uint32_t *counts, int shift)
{
    __shared__ uint32_t own[16];
    if (threadIdx.x < 16)
        own[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&own[keys[blockIdx.x * BLOCK + threadIdx.x] >> shift & 15], 1u);
    __syncthreads();
    if (threadIdx.x < 16)
        counts[threadIdx.x * TILES + blockIdx.x] = own[threadIdx.x];
}

// An exclusive scan of any length: a block takes the next tile, and adds what the tiles before it have announced.
__global__ void scan(const uint32_t *in, uint32_t *out, unsigned long long *announced, uint32_t *next, int count)
{
    __shared__ uint32_t warps[BLOCK / 32], tile, before;
    if (threadIdx.x == 0)
        tile = atomicAdd(next, 1u);
    __syncthreads();
    int i = tile * BLOCK + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t own = i < count ? in[i] : 0, sum = own;
    for (int reach = 1; reach < 32; reach *= 2) {
        uint32_t other = __shfl_up_sync(0xffffffffu, sum, reach);
        if (lane >= reach)
            sum += other;
    }
    if (lane == 31)
        warps[warp] = sum;
    __syncthreads();
    for (int k = 0; k < warp; k++)
        sum += warps[k];
    if (threadIdx.x == BLOCK - 1) {
        volatile unsigned long long *state = announced;
        uint32_t total = 0;
        state[tile] = 1ull << 32 | sum;  // the tile's own sum
        __threadfence();
        for (int k = int(tile) - 1; k >= 0; k--) {
            unsigned long long word;
            while (((word = state[k]) >> 32) == 0)
                ;
            total += uint32_t(word);
            if (word >> 32 == 2)
                break;
        }
        __threadfence();
        state[tile] = 2ull << 32 | uint32_t(total + sum);  // and with all before it
        before = total;
    }
    __syncthreads();
    if (i < count)
        out[i] = before + sum - own;
}

__global__ void scatter(const uint32_t *keys, const uint32_t *values, const uint32_t *places, uint32_t *keys_out,
                        uint32_t *values_out, int shift)
{
    __shared__ uint32_t counts[BLOCK / 32][16];
    int i = blockIdx.x * BLOCK + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t key = keys[i], digit = key >> shift & 15;
    if (lane < 16)
        counts[warp][lane] = 0;
    __syncwarp();
    uint32_t peers = __match_any_sync(0xffffffffu, digit), below = __popc(peers & ((1u << lane) - 1));
    if (below == 0)
        counts[warp][digit] = __popc(peers);
    __syncthreads();
    uint32_t place = places[digit * TILES + blockIdx.x] + below;
    for (int k = 0; k < warp; k++)
        place += counts[k][digit];
    keys_out[place] = key;
    values_out[place] = values[i];
}

__global__ void mark(const uint32_t *keys, uint32_t *marks, uint32_t below)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    marks[i] = keys[i] % 97 < below;
}

__global__ void compact(const uint32_t *keys, const uint32_t *marks, const uint32_t *places, uint32_t *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (marks[i])
        out[places[i]] = keys[i];
}

// For each key how many of a sorted table are smaller.
__global__ void search(const uint32_t *table, const uint32_t *keys, uint32_t *found)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, low = 0, high = COUNT;
    while (low < high) {
        int middle = (low + high) / 2;
        if (table[middle] < keys[i])
            low = middle + 1;
        else
            high = middle;
    }
    found[i] = low;
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<uint32_t> keys(COUNT), numbers(COUNT);
    for (int i = 0; i < COUNT; i++) {
        keys[i] = hash(i) >> (i % 3 * 8);
        numbers[i] = i;
    }
    uint32_t *bitonic = to_device(keys), *a = to_device(keys), *b = poisoned<uint32_t>(COUNT), *va = to_device(numbers),
             *vb = poisoned<uint32_t>(COUNT), *counts = poisoned<uint32_t>(16 * TILES), *places = poisoned<uint32_t>(COUNT),
             *marks = poisoned<uint32_t>(COUNT), *packed = poisoned<uint32_t>(COUNT), *found = poisoned<uint32_t>(COUNT);
    unsigned long long *announced = poisoned<unsigned long long>(TILES);
    uint32_t *next = poisoned<uint32_t>(1), *original = to_device(keys);
    bitonic_shared<<<COUNT / (2 * BLOCK), BLOCK>>>(bitonic);
    for (int size = 4 * BLOCK; size <= COUNT; size *= 2)
        for (int reach = size / 2; reach > 0; reach /= 2)
            bitonic_global<<<COUNT / 2 / BLOCK, BLOCK>>>(bitonic, size, reach);
    auto scan_all = [&](const uint32_t *in, uint32_t *out, int count) {
        CHECK(cudaMemset(announced, 0, TILES * sizeof *announced));
        CHECK(cudaMemset(next, 0, sizeof *next));
        scan<<<blocks_for(count, BLOCK), BLOCK>>>(in, out, announced, next, count);
    };
    for (int shift = 0; shift < 32; shift += 4) {
        count_digits<<<TILES, BLOCK>>>(a, counts, shift);
        scan_all(counts, places, 16 * TILES);
        scatter<<<TILES, BLOCK>>>(a, va, places, b, vb, shift);
        std::swap(a, b);
        std::swap(va, vb);
    }
    mark<<<TILES, BLOCK>>>(original, marks, 31);
    scan_all(marks, places, COUNT);
    CHECK(cudaMemset(packed, 0, COUNT * sizeof *packed));
    compact<<<TILES, BLOCK>>>(original, marks, places, packed);
    search<<<TILES, BLOCK>>>(a, original, found);
    CHECK(cudaDeviceSynchronize());

    std::vector<uint32_t> sorted = keys, by_bitonic = to_host(bitonic, COUNT), by_radix = to_host(a, COUNT),
                          order_of = to_host(va, COUNT), kept = to_host(packed, COUNT), ranks = to_host(found, COUNT);
    std::sort(sorted.begin(), sorted.end());
    std::stable_sort(numbers.begin(), numbers.end(), [&](uint32_t x, uint32_t y) { return keys[x] < keys[y]; });
    int place = 0;
    for (int i = 0; i < COUNT; i++) {
        report.expect("bitonic", i, by_bitonic[i], sorted[i]);
        report.expect("radix", i, by_radix[i], sorted[i]);
        report.expect("order", i, order_of[i], numbers[i]);
        report.expect("rank", i, ranks[i], double(std::lower_bound(sorted.begin(), sorted.end(), keys[i]) - sorted.begin()));
        if (keys[i] % 97 < 31)
            report.expect("kept", place, kept[place], keys[i]), place++;
    }
    report.keep(by_radix);
    report.keep(order_of);
    report.keep(kept);
    report.keep(ranks);
    return report.finish("sorting");
}
