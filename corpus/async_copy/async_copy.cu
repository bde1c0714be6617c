// Copies that run beside the threads: cp.async in a pipeline of groups, copies in bulk that complete an mbarrier, tiles
// of tensors by a tensor map (TMA) in both directions, and one copy for all blocks of a cluster.
#include "../support.cuh"

#include <cuda.h>
#include <cuda_pipeline.h>

constexpr int THREADS = 64;

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ void barrier_init(uint64_t *barrier, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ void barrier_expect(uint64_t *barrier, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ void barrier_wait(uint64_t *barrier, int parity)
{
    asm volatile("{ .reg .pred p;\n"
                 "WAIT: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
                 "@p bra DONE; bra WAIT;\nDONE: }" ::"r"(shared_address(barrier)), "r"(parity)
                 : "memory");
}

// --- cp.async -----------------------------------------------------------------------------------------

constexpr int STAGES = 3, TILE = 4 * THREADS; // values

// Sums of neighbours, tile after tile; two tiles are under way while one is summed. The last is not whole.
__global__ void pipeline(const uint32_t *in, uint32_t *out, int count)
{
    __shared__ alignas(16) uint32_t tiles[STAGES][TILE];
    int tile_count = (count + TILE - 1) / TILE;
    auto fetch = [&](int t) {
        int at = t * TILE + 4 * threadIdx.x, left = count - at;
        if (t < tile_count) {
            int missing = left >= 4 ? 0 : left > 0 ? 16 - 4 * left : 16;
            __pipeline_memcpy_async(tiles[t % STAGES] + 4 * threadIdx.x, in + (left > 0 ? at : 0), 16, missing);
        }
        __pipeline_commit();
    };
    for (int t = 0; t < STAGES - 1; t++)
        fetch(t);
    for (int t = 0; t < tile_count; t++) {
        __pipeline_wait_prior(STAGES - 2);
        __syncthreads();
        for (int i = threadIdx.x; i < TILE; i += THREADS)
            if (t * TILE + i < count)
                out[t * TILE + i] = tiles[t % STAGES][i] + 3u * tiles[t % STAGES][(i + 1) % TILE];
        fetch(t + STAGES - 1);
    }
}

// --- cp.async.bulk ------------------------------------------------------------------------------------

// A block turns its part round: in by one copy, out by another; and adds it into a third place by a reducing one.
__global__ void bulk(const uint32_t *in, uint32_t *out, uint32_t *sums)
{
    __shared__ alignas(128) uint32_t part[TILE], turned[TILE];
    __shared__ alignas(8) uint64_t barrier;
    if (threadIdx.x == 0)
        barrier_init(&barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        barrier_expect(&barrier, sizeof part);
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(part)),
                     "l"(in + blockIdx.x * TILE), "r"(int(sizeof part)), "r"(shared_address(&barrier))
                     : "memory");
    }
    barrier_wait(&barrier, 0);
    for (int i = threadIdx.x; i < TILE; i += THREADS)
        turned[TILE - 1 - i] = part[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(out + blockIdx.x * TILE),
                     "r"(shared_address(turned)), "r"(int(sizeof turned))
                     : "memory");
        asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%0], [%1], %2;" ::"l"(sums),
                     "r"(shared_address(turned)), "r"(int(sizeof turned))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// --- tensor copies ------------------------------------------------------------------------------------

constexpr int WIDTH = 72, HEIGHT = 20, BOX_X = 32, BOX_Y = 8; // floats; boxes go over the edges

// A tile as it lies in shared memory, out of which it goes, some rows and columns further, into another tensor. A load may
// begin outside of its tensor, a store may not.
__global__ void tile(const __grid_constant__ CUtensorMap from, const __grid_constant__ CUtensorMap to, float *out)
{
    __shared__ alignas(1024) float box[BOX_X * BOX_Y];
    __shared__ alignas(8) uint64_t barrier;
    int x = int(blockIdx.x) * BOX_X - 4, y = int(blockIdx.y) * BOX_Y - 2;
    if (threadIdx.x == 0)
        barrier_init(&barrier, 1);
    __syncthreads();
    if (threadIdx.x == 0) {
        barrier_expect(&barrier, sizeof box);
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
                     "%3}], [%4];" ::"r"(shared_address(box)),
                     "l"(&from), "r"(x), "r"(y), "r"(shared_address(&barrier))
                     : "memory");
    }
    barrier_wait(&barrier, 0);
    int block = blockIdx.x + gridDim.x * blockIdx.y;
    for (int i = threadIdx.x; i < BOX_X * BOX_Y; i += THREADS)
        out[block * BOX_X * BOX_Y + i] = box[i];
    if (threadIdx.x == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&to),
                     "r"(x + 4), "r"(y + 2), "r"(shared_address(box))
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// The first block of a cluster fetches for all.
constexpr int CLUSTER = 2;

__global__ void __cluster_dims__(CLUSTER, 1, 1) multicast(const uint32_t *in, uint32_t *out)
{
    __shared__ alignas(128) uint32_t part[TILE];
    __shared__ alignas(8) uint64_t barrier;
    uint32_t rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (threadIdx.x == 0) {
        barrier_init(&barrier, 1);
        barrier_expect(&barrier, sizeof part);
    }
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    if (threadIdx.x == 0 && rank == 0)
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, "
                     "[%3], %4;" ::"r"(shared_address(part)),
                     "l"(in + blockIdx.x / CLUSTER * TILE), "r"(int(sizeof part)), "r"(shared_address(&barrier)),
                     "h"(uint16_t((1 << CLUSTER) - 1))
                     : "memory");
    barrier_wait(&barrier, 0);
    for (int i = threadIdx.x; i < TILE; i += THREADS)
        out[blockIdx.x * TILE + i] = part[i] + rank;
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// --- host ---------------------------------------------------------------------------------------------

static CUtensorMap tensor_map(float *tensor, CUtensorMapSwizzle swizzle)
{
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found));
    auto encode = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry);
    CUtensorMap map;
    cuuint64_t size[] = {WIDTH, HEIGHT}, stride[] = {WIDTH * sizeof(float)};
    cuuint32_t box[] = {BOX_X, BOX_Y}, step[] = {1, 1};
    if (encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, tensor, size, stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE,
               swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS) {
        std::fprintf(stderr, "cuTensorMapEncodeTiled failed\n");
        std::exit(1);
    }
    return map;
}

static void check_tiles(Report &report, CUtensorMapSwizzle swizzle)
{
    const std::vector<float> host = real_values(WIDTH * HEIGHT, 5, -1.0f, 2.0f);
    float *from = to_device(host), *to = to_device(std::vector<float>(WIDTH * HEIGHT, 9.0f));
    dim3 grid(3, 3);
    const size_t boxes = grid.x * grid.y * BOX_X * BOX_Y;
    float *out = poisoned<float>(boxes);
    tile<<<grid, THREADS>>>(tensor_map(from, swizzle), tensor_map(to, swizzle), out);
    CHECK(cudaGetLastError());
    std::vector<float> got = to_host(out, boxes), copied = to_host(to, WIDTH * HEIGHT), expected(WIDTH * HEIGHT, 9.0f);
    for (size_t b = 0; b < grid.x * grid.y; b++)
        for (int i = 0; i < BOX_X * BOX_Y; i++) {
            int x0 = int(b % grid.x) * BOX_X - 4, y0 = int(b / grid.x) * BOX_Y - 2;
            int x = x0 + i % BOX_X, y = y0 + i / BOX_X;
            bool inside = x >= 0 && x < WIDTH && y >= 0 && y < HEIGHT;
            float value = inside ? host[y * WIDTH + x] : 0.0f;
            // 128-byte swizzle: the sixteen-byte chunk's number within a row of 128 bytes, exclusive or the row's
            int chunk = i % BOX_X / 4 ^ (swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? i / BOX_X % 8 : 0);
            report.expect("tile", b, got[b * BOX_X * BOX_Y + i / BOX_X * BOX_X + 4 * chunk + i % 4], value);
            if (x + 4 < WIDTH && y + 2 < HEIGHT)
                expected[(y + 2) * WIDTH + x + 4] = value;
        }
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        report.expect("tile.stored", i, copied[i], expected[i]);
    report.keep(got);
    report.keep(copied);
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    constexpr int COUNT = 5 * TILE - 10, PARTS = 4;
    std::vector<uint32_t> host(5 * TILE);
    for (int i = 0; i < 5 * TILE; i++)
        host[i] = hash(i + 99);
    uint32_t *in = to_device(host), *out = poisoned<uint32_t>(COUNT);
    pipeline<<<1, THREADS>>>(in, out, COUNT);
    std::vector<uint32_t> got = to_host(out, COUNT);
    for (int i = 0; i < COUNT; i++) {
        int next = i / TILE * TILE + (i + 1) % TILE;
        report.expect("pipeline", i, got[i], host[i] + 3u * (next < COUNT ? host[next] : 0));
    }
    report.keep(got);

    uint32_t *turned = poisoned<uint32_t>(PARTS * TILE), *sums = to_device(std::vector<uint32_t>(TILE, 1));
    bulk<<<PARTS, THREADS>>>(in, turned, sums);
    std::vector<uint32_t> parts = to_host(turned, PARTS * TILE), added = to_host(sums, TILE);
    for (int i = 0; i < TILE; i++) {
        uint32_t sum = 1;
        for (int p = 0; p < PARTS; p++) {
            sum += host[p * TILE + TILE - 1 - i];
            report.expect("bulk", p * TILE + i, parts[p * TILE + i], host[p * TILE + TILE - 1 - i]);
        }
        report.expect("bulk.sums", i, added[i], sum);
    }
    report.keep(parts);
    report.keep(added);

    check_tiles(report, CU_TENSOR_MAP_SWIZZLE_NONE);
    check_tiles(report, CU_TENSOR_MAP_SWIZZLE_128B);

    uint32_t *cast = poisoned<uint32_t>(PARTS * TILE);
    multicast<<<PARTS, THREADS>>>(in, cast);
    CHECK(cudaGetLastError());
    std::vector<uint32_t> seen = to_host(cast, PARTS * TILE);
    for (int i = 0; i < PARTS * TILE; i++)
        report.expect("multicast", i, seen[i], host[i / TILE / CLUSTER * TILE + i % TILE] + i / TILE % CLUSTER);
    report.keep(seen);
    CHECK(cudaDeviceSynchronize());
    return report.finish("async_copy");
}
