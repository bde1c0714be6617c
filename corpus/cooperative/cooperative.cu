// Threads that work together, from few to all: tiles of a warp, the threads that happen to be active, clusters of
// blocks that read and change each other's shared memory, and a grid whose blocks meet. All sums are of integers.
#include "../support.cuh"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>

namespace cg = cooperative_groups;

constexpr int THREADS = 96; // three warps a block
constexpr int BLOCKS = 12;
constexpr int COUNT = THREADS * BLOCKS;

// --- a grid that meets --------------------------------------------------------------------------------

constexpr int STEPS = 6;

__host__ __device__ inline uint32_t step(uint32_t left, uint32_t here, uint32_t right)
{
    return left * 3u + (here ^ right >> 3) + 1u;
}

// Every step reads what the neighbours, in other blocks too, wrote in the step before.
__global__ void meeting_grid(uint32_t *a, uint32_t *b)
{
    cg::grid_group grid = cg::this_grid();
    unsigned i = grid.thread_rank(), n = grid.num_threads();
    for (int s = 0; s < STEPS; s++) {
        const uint32_t *from = s % 2 ? b : a;
        uint32_t *to = s % 2 ? a : b;
        to[i] = step(from[(i + n - 1) % n], from[i], from[(i + 1) % n]);
        grid.sync();
    }
}

// The same between blocks that were not launched as a cooperative grid: the last one adds up what all have left.
__global__ void last_block_sums(const uint32_t *values, uint32_t *partial, unsigned *arrived, uint32_t *total)
{
    __shared__ uint32_t sums[THREADS / 32];
    __shared__ bool last;
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    uint32_t sum = cg::reduce(warp, values[blockIdx.x * THREADS + threadIdx.x], cg::plus<uint32_t>());
    if (warp.thread_rank() == 0)
        sums[warp.meta_group_rank()] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t all = 0;
        for (uint32_t s : sums)
            all += s;
        partial[blockIdx.x] = all;
        __threadfence();
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        uint32_t all = 0;
        for (unsigned i = 0; i < gridDim.x; i++)
            all += *(volatile uint32_t *)(partial + i);
        *total = all;
    }
}

// A lock that blocks take in turn.
__global__ void locked_count(unsigned *lock, uint32_t *count)
{
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0u, 1u) != 0u)
            ;
        __threadfence();
        *(volatile uint32_t *)count = *(volatile uint32_t *)count * 3u + 1u;
        __threadfence();
        atomicExch(lock, 0u);
    }
}

// --- clusters -----------------------------------------------------------------------------------------

constexpr int BINS = 64, CLUSTER = 4; // a block holds a quarter of the bins

__global__ void __cluster_dims__(CLUSTER, 1, 1) cluster_histogram(const uint32_t *values, uint32_t *bins)
{
    __shared__ uint32_t mine[BINS / CLUSTER];
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x < BINS / CLUSTER)
        mine[threadIdx.x] = 0;
    cluster.sync();
    for (int i = 0; i < 4; i++) {
        uint32_t bin = (values[blockIdx.x * THREADS + threadIdx.x] >> 8 * i) % BINS;
        atomicAdd(cluster.map_shared_rank(mine, bin / (BINS / CLUSTER)) + bin % (BINS / CLUSTER), 1u);
    }
    cluster.sync();
    if (threadIdx.x < BINS / CLUSTER) {
        unsigned base = (blockIdx.x / CLUSTER) * BINS + cluster.block_rank() * (BINS / CLUSTER);
        bins[base + threadIdx.x] = mine[threadIdx.x];
    }
}

// Where a block is, and what the block across the cluster says of itself; the shape comes with the launch.
__global__ void cluster_exchange(uint4 *out)
{
    __shared__ uint32_t word[THREADS];
    cg::cluster_group cluster = cg::this_cluster();
    unsigned block = blockIdx.x + gridDim.x * blockIdx.y;
    word[threadIdx.x] = block * 1000 + threadIdx.x;
    auto token = cluster.barrier_arrive();
    unsigned other = cluster.num_blocks() - 1 - cluster.block_rank();
    dim3 place = cluster.block_index();
    cluster.barrier_wait(std::move(token));
    const uint32_t *theirs = cluster.map_shared_rank(word, other);
    uint4 found = {theirs[THREADS - 1 - threadIdx.x], cluster.query_shared_rank(theirs), place.x + 16 * place.y,
                   cluster.num_threads()};
    cluster.sync(); // nobody may go while others read
    out[block * THREADS + threadIdx.x] = found;
}

// --- groups of threads --------------------------------------------------------------------------------

template <unsigned SIZE> __device__ uint32_t tile_work(uint32_t value)
{
    auto tile = cg::tiled_partition<SIZE>(cg::this_thread_block());
    uint32_t turned = tile.shfl_xor(value, SIZE / 2) + tile.shfl_down(value, 1);
    uint32_t sum = cg::reduce(tile, value, cg::plus<uint32_t>()) ^ cg::reduce(tile, value, cg::greater<uint32_t>());
    uint32_t before = cg::exclusive_scan(tile, value & 0xffff, cg::plus<uint32_t>());
    uint32_t equal = tile.match_any(value & 3) + (tile.any(value % 7 == 0) ? 1u << 16 : 0);
    return turned * 5u + sum + before * 3u + equal + tile.meta_group_rank();
}

__global__ void tiles(const uint32_t *values, uint4 *out)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x;
    uint32_t v = values[i];
    out[i] = {tile_work<4>(v), tile_work<8>(v), tile_work<16>(v), tile_work<32>(v)};
}

// Of each warp's values those that are odd move to the front, in order; the threads in a branch are a group.
__global__ void coalesced(const uint32_t *values, uint32_t *out, uint32_t *counts)
{
    unsigned i = blockIdx.x * THREADS + threadIdx.x, warp = i / 32;
    uint32_t v = values[i];
    if (v & 1) {
        cg::coalesced_group odd = cg::coalesced_threads();
        out[warp * 32 + odd.thread_rank()] = odd.shfl(v, 0) + 7u * v;
        if (odd.thread_rank() == 0)
            counts[warp] = odd.num_threads();
        auto label = cg::labeled_partition(odd, v >> 1 & 3);
        atomicAdd(counts + COUNT / 32 + warp, cg::reduce(label, v, cg::plus<uint32_t>()));
    }
}

// --- host ---------------------------------------------------------------------------------------------

static void check_meeting(Report &report, std::vector<uint32_t> a)
{
    std::vector<uint32_t> b(COUNT);
    uint32_t *da = to_device(a), *db = poisoned<uint32_t>(COUNT);
    void *arguments[] = {&da, &db};
    CHECK(cudaLaunchCooperativeKernel((void *)meeting_grid, dim3(BLOCKS), dim3(THREADS), arguments, 0, nullptr));
    std::vector<uint32_t> got = to_host(da, COUNT);
    for (int s = 0; s < STEPS; s++) {
        for (int i = 0; i < COUNT; i++)
            b[i] = step(a[(i + COUNT - 1) % COUNT], a[i], a[(i + 1) % COUNT]);
        a.swap(b);
    }
    for (int i = 0; i < COUNT; i++)
        report.expect("meeting_grid", i, got[i], a[i]);
    report.keep(got);
}

static void check_waiting(Report &report, const uint32_t *values, const std::vector<uint32_t> &host)
{
    uint32_t *partial = poisoned<uint32_t>(BLOCKS), *total = poisoned<uint32_t>(1);
    unsigned *words = to_device(std::vector<unsigned>(3, 0));
    last_block_sums<<<BLOCKS, THREADS>>>(values, partial, words, total);
    locked_count<<<40, 64>>>(words + 1, words + 2);
    uint32_t sum = 0, count = 0;
    for (uint32_t v : host)
        sum += v;
    for (int i = 0; i < 40; i++)
        count = count * 3u + 1u;
    std::vector<uint32_t> got = to_host(total, 1), counted = to_host(words, 3);
    report.expect("last_block_sums", 0, got[0], sum);
    report.expect("locked_count", 0, counted[2], count);
    report.keep(got);
    report.keep(counted);
}

static void check_clusters(Report &report, const uint32_t *values, const std::vector<uint32_t> &host)
{
    constexpr int ALL = BLOCKS / CLUSTER * BINS;
    uint32_t *bins = poisoned<uint32_t>(ALL);
    cluster_histogram<<<BLOCKS, THREADS>>>(values, bins);
    CHECK(cudaGetLastError());
    std::vector<uint32_t> expected(ALL), got = to_host(bins, ALL);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < 4; k++)
            expected[i / (THREADS * CLUSTER) * BINS + (host[i] >> 8 * k) % BINS]++;
    for (int i = 0; i < ALL; i++)
        report.expect("cluster_histogram", i, got[i], expected[i]);
    report.keep(got);

    uint4 *out = poisoned<uint4>(8 * THREADS);
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(4, 2);
    config.blockDim = dim3(THREADS);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = attribute.val.clusterDim.y = 2;
    attribute.val.clusterDim.z = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    CHECK(cudaLaunchKernelEx(&config, cluster_exchange, out));
    std::vector<uint4> seen = to_host(out, 8 * THREADS);
    for (int i = 0; i < 8 * THREADS; i++) {
        int x = i / THREADS % 4, y = i / THREADS / 4, t = i % THREADS, other = (x ^ 1) + 4 * (y ^ 1);
        report.expect("cluster_exchange.x", i, seen[i].x, other * 1000 + THREADS - 1 - t);
        report.expect("cluster_exchange.y", i, seen[i].y, 3 - (x % 2 + 2 * (y % 2)));
        report.expect("cluster_exchange.z", i, seen[i].z, x % 2 + 16 * (y % 2));
        report.expect("cluster_exchange.w", i, seen[i].w, 4 * THREADS);
    }
    report.keep(seen);
}

static void check_groups(Report &report, const uint32_t *values, const std::vector<uint32_t> &host)
{
    uint4 *out = poisoned<uint4>(COUNT);
    tiles<<<BLOCKS, THREADS>>>(values, out);
    report.keep(to_host(out, COUNT));
    uint32_t *front = poisoned<uint32_t>(COUNT), *counts = to_device(std::vector<uint32_t>(2 * COUNT / 32, 0));
    coalesced<<<BLOCKS, THREADS>>>(values, front, counts);
    std::vector<uint32_t> got = to_host(front, COUNT), counted = to_host(counts, 2 * COUNT / 32);
    for (int w = 0; w < COUNT / 32; w++) {
        uint32_t n = 0, first = 0;
        for (int i = 32 * w; i < 32 * w + 32; i++)
            if (host[i] & 1) {
                first = n ? first : host[i];
                report.expect("coalesced", i, got[32 * w + n++], first + 7u * host[i]);
            }
        report.expect("coalesced.count", w, counted[w], n);
    }
    report.keep(got);
    report.keep(counted);
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    std::vector<uint32_t> host(COUNT);
    for (int i = 0; i < COUNT; i++)
        host[i] = hash(i);
    uint32_t *values = to_device(host);
    check_meeting(report, host);
    check_waiting(report, values, host);
    check_clusters(report, values, host);
    check_groups(report, values, host);
    CHECK(cudaDeviceSynchronize());
    return report.finish("cooperative");
}
