// Products of small matrices by every kind of tensor-core instruction: the wmma interface, mma.sync of each
// type fed by ldmatrix, a sparse mma, wgmma from shared memory; and the instructions that turn matrices.
#include "../support.cuh"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <mma.h>

constexpr int ROWS = 32, COLUMNS = 32; // of D
constexpr int LINE = 128;              // bytes of a row of A, or of a column of B

// --- wmma ---------------------------------------------------------------------------------------------

__global__ void wmma_f16(const half *a, const half *b, float *d, int k)
{
    using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, half, row_major> fa;
    fragment<matrix_b, 16, 16, 16, half, col_major> fb;
    fragment<accumulator, 16, 16, 16, float> fd;
    int row = 16 * blockIdx.y, column = 16 * blockIdx.x;
    fill_fragment(fd, 0.0f);
    for (int i = 0; i < k; i += 16) {
        load_matrix_sync(fa, a + row * k + i, k);
        load_matrix_sync(fb, b + column * k + i, k);
        mma_sync(fd, fa, fb, fd);
    }
    store_matrix_sync(d + row * COLUMNS + column, fd, COLUMNS, mem_row_major);
}

// --- mma.sync -----------------------------------------------------------------------------------------

// Registers of one mma: 32 bytes of K, sixteen rows of A, eight columns of B.
struct Fragments {
    uint32_t a[4], b[2];
};

__device__ uint32_t shared_address(const void *p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ void load_fragments(Fragments &f, const unsigned char *a, const unsigned char *b, int bytes)
{
    int lane = threadIdx.x;
    uint32_t at = shared_address(a + lane % 16 * LINE + bytes + lane / 16 * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(f.a[0]), "=r"(f.a[1]), "=r"(f.a[2]), "=r"(f.a[3])
                 : "r"(at));
    uint32_t bt = shared_address(b + lane % 8 * LINE + bytes + lane / 8 % 2 * 16);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(f.b[0]), "=r"(f.b[1]) : "r"(bt));
}

#define MMA(name, shape_and_types, type, constraint)                                                           \
    struct name {                                                                                              \
        using Result = type;                                                                                   \
        static __device__ void multiply(type (&d)[4], const Fragments &f)                                      \
        {                                                                                                      \
            asm volatile("mma.sync.aligned." shape_and_types " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
                         "{%0, %1, %2, %3};"                                                                   \
                         : "+" constraint(d[0]), "+" constraint(d[1]), "+" constraint(d[2]), "+" constraint(d[3]) \
                         : "r"(f.a[0]), "r"(f.a[1]), "r"(f.a[2]), "r"(f.a[3]), "r"(f.b[0]), "r"(f.b[1]));      \
        }                                                                                                      \
    }

MMA(Bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f");
MMA(Tf32, "m16n8k8.row.col.f32.tf32.tf32.f32", float, "f");
MMA(Fp8, "m16n8k32.row.col.f32.e4m3.e5m2.f32", float, "f");
MMA(S8, "m16n8k32.row.col.s32.s8.u8.s32", int, "r");

// A block is one warp and makes sixteen rows and eight columns of D.
template <typename Kind>
__global__ void mma_sync(const unsigned char *a, const unsigned char *b, typename Kind::Result *d)
{
    __shared__ alignas(16) unsigned char tile_a[16 * LINE], tile_b[8 * LINE];
    int row = 16 * blockIdx.y, column = 8 * blockIdx.x, lane = threadIdx.x;
    for (int i = 16 * lane; i < 16 * LINE; i += 16 * 32)
        *(uint4 *)(tile_a + i) = *(const uint4 *)(a + row * LINE + i);
    for (int i = 16 * lane; i < 8 * LINE; i += 16 * 32)
        *(uint4 *)(tile_b + i) = *(const uint4 *)(b + column * LINE + i);
    __syncwarp();
    typename Kind::Result sum[4] = {};
    for (int bytes = 0; bytes < LINE; bytes += 32) {
        Fragments f;
        load_fragments(f, tile_a, tile_b, bytes);
        Kind::multiply(sum, f);
    }
    for (int i = 0; i < 4; i++)
        d[(row + lane / 4 + i / 2 * 8) * COLUMNS + column + lane % 4 * 2 + i % 2] = sum[i];
}

// --- mma.sp -------------------------------------------------------------------------------------------

// One warp: of every four elements of a row of A two are stored, which ones say two bits each. The registers
// are the host's: a[32][4], b[32][4], metadata[32].
__global__ void mma_sparse(const uint32_t *a, const uint32_t *b, const uint32_t *metadata, float *d)
{
    int lane = threadIdx.x;
    const uint32_t *ra = a + 4 * lane, *rb = b + 4 * lane;
    float sum[4] = {};
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, 0x0;"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]), "r"(rb[2]), "r"(rb[3]),
                   "r"(metadata[lane]));
    for (int i = 0; i < 4; i++)
        d[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

// --- wgmma --------------------------------------------------------------------------------------------

// Where (line, byte of K) is in shared memory: cores of 8 lines and 16 bytes.
__host__ __device__ inline int core_offset(int line, int byte)
{
    return line / 8 * 8 * LINE + byte / 16 * 128 + line % 8 * 16 + byte % 16;
}

__device__ uint64_t descriptor(const void *p)
{
    uint64_t leading = 128 / 16, stride = 8 * LINE / 16;
    return uint64_t(shared_address(p) / 16 & 0x3fff) | leading << 16 | stride << 32;
}

// A warpgroup makes 64 rows and 16 columns.
__global__ void wgmma_f16(const unsigned char *a, const unsigned char *b, float *d)
{
    __shared__ alignas(1024) unsigned char tile_a[64 * LINE], tile_b[16 * LINE];
    for (int i = 16 * threadIdx.x; i < 64 * LINE; i += 16 * blockDim.x)
        *(uint4 *)(tile_a + core_offset(i / LINE, i % LINE)) = *(const uint4 *)(a + i);
    for (int i = 16 * threadIdx.x; i < 16 * LINE; i += 16 * blockDim.x)
        *(uint4 *)(tile_b + core_offset(i / LINE, i % LINE)) = *(const uint4 *)(b + i);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    float sum[8] = {};
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    for (int bytes = 0; bytes < LINE; bytes += 32)
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %10, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n16k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, p, "
                     "1, 1, 0, 0; }"
                     : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]), "+f"(sum[4]), "+f"(sum[5]),
                       "+f"(sum[6]), "+f"(sum[7])
                     : "l"(descriptor(tile_a + bytes * 8)), "l"(descriptor(tile_b + bytes * 8)), "r"(bytes)
                     : "memory");
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    int lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
    for (int i = 0; i < 8; i++)
        d[(row + i / 2 % 2 * 8) * 16 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sum[i];
}

// --- turning matrices ---------------------------------------------------------------------------------

// Four 8x8 matrices of 16 bits: each turned by ldmatrix, turned back by movmatrix, and turned by stmatrix.
__global__ void turn(const uint16_t *in, uint16_t *out)
{
    __shared__ alignas(16) uint16_t from[256], to[256];
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32)
        from[i] = in[i];
    __syncwarp();
    uint32_t r[4];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(from + 8 * lane)));
    for (int i = 0; i < 4; i++)
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(r[i]));
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                     shared_address(to + 8 * lane)),
                 "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
    __syncwarp();
    for (int i = lane; i < 256; i += 32)
        out[i] = to[i];
}

// --- the host's side ----------------------------------------------------------------------------------

// Lines of LINE bytes, each of elements made from real values; `values` is what they stand for.
struct Matrix {
    std::vector<unsigned char> bytes;
    std::vector<double> values;
};

template <typename T, typename Make, typename Value> Matrix matrix(int lines, uint32_t seed, Make make, Value value)
{
    size_t count = size_t(lines) * LINE / sizeof(T);
    Matrix m{std::vector<unsigned char>(count * sizeof(T)), std::vector<double>(count)};
    std::vector<float> real = real_values(count, seed, -2.0f, 4.0f);
    for (size_t i = 0; i < count; i++) {
        T element = make(real[i]);
        reinterpret_cast<T *>(m.bytes.data())[i] = element;
        m.values[i] = value(element);
    }
    return m;
}

Matrix halves(int lines, uint32_t seed)
{
    return matrix<half>(lines, seed, [](float x) { return __float2half(x); }, [](half x) { return __half2float(x); });
}

// Row by row: D[i] is the product of row i / columns of A and column i % columns of B.
template <typename T>
void check(Report &report, const char *what, const std::vector<T> &d, const Matrix &a, const Matrix &b, int columns,
           double tolerance)
{
    size_t k = a.values.size() / (d.size() / columns);
    for (size_t i = 0; i < d.size(); i++) {
        double sum = 0;
        for (size_t j = 0; j < k; j++)
            sum += a.values[i / columns * k + j] * b.values[i % columns * k + j];
        report.expect(what, i, d[i], sum, tolerance);
    }
    report.keep(d);
}

template <typename Kind>
void run(Report &report, const char *what, const Matrix &a, const Matrix &b, double tolerance)
{
    using Result = typename Kind::Result;
    unsigned char *device_a = to_device(a.bytes), *device_b = to_device(b.bytes);
    Result *d = poisoned<Result>(ROWS * COLUMNS);
    mma_sync<Kind><<<dim3(COLUMNS / 8, ROWS / 16), 32>>>(device_a, device_b, d);
    CHECK(cudaGetLastError());
    check(report, what, to_host(d, ROWS * COLUMNS), a, b, COLUMNS, tolerance);
}

void run_wmma(Report &report)
{
    Matrix a = halves(ROWS, 1), b = halves(COLUMNS, 2);
    float *d = poisoned<float>(ROWS * COLUMNS);
    const unsigned char *device_a = to_device(a.bytes), *device_b = to_device(b.bytes);
    wmma_f16<<<dim3(COLUMNS / 16, ROWS / 16), 32>>>((const half *)device_a, (const half *)device_b, d, LINE / 2);
    CHECK(cudaGetLastError());
    check(report, "wmma f16", to_host(d, ROWS * COLUMNS), a, b, COLUMNS, 1e-4);
}

void run_sparse(Report &report)
{
    Matrix a = halves(8, 9), b = halves(8, 10); // 32 lanes of 16 bytes each
    std::vector<uint32_t> metadata(32);
    const int pairs[6] = {0x4, 0x8, 0xc, 0x9, 0xd, 0xe}; // the ascending pairs of 0 to 3
    for (int lane = 0; lane < 32; lane++)
        for (int chunk = 0; chunk < 8; chunk++)
            metadata[lane] |= uint32_t(pairs[hash(8 * lane + chunk) % 6]) << 4 * chunk;
    a.bytes.resize(512), b.bytes.resize(512);
    float *d = poisoned<float>(16 * 8);
    mma_sparse<<<1, 32>>>((const uint32_t *)to_device(a.bytes), (const uint32_t *)to_device(b.bytes),
                          to_device(metadata), d);
    CHECK(cudaGetLastError());
    std::vector<float> result = to_host(d, 16 * 8);
    for (int row = 0; row < 16; row++)
        for (int column = 0; column < 8; column++) {
            double sum = 0;
            for (int stored = 0; stored < 16; stored++) {
                int lane = row % 8 * 4 + stored % 8 / 2, chunk = stored / 2;
                double x = a.values[lane * 8 + (row / 8 + stored / 8 * 2) * 2 + stored % 2];
                uint32_t bits = metadata[row % 8 * 4 + chunk / 4] >> (row / 8 * 16 + chunk % 4 * 4 + stored % 2 * 2);
                int k = chunk * 4 + int(bits & 3);
                sum += x * b.values[(column * 4 + k % 8 / 2) * 8 + k / 8 * 2 + k % 2];
            }
            report.expect("mma.sp f16", row * 8 + column, result[row * 8 + column], sum, 1e-4);
        }
    report.keep(result);
}

void run_wgmma(Report &report)
{
    Matrix a = halves(64, 11), b = halves(16, 12);
    float *d = poisoned<float>(64 * 16);
    wgmma_f16<<<1, 128>>>(to_device(a.bytes), to_device(b.bytes), d);
    CHECK(cudaGetLastError());
    check(report, "wgmma f16", to_host(d, 64 * 16), a, b, 16, 1e-4);
}

void run_turn(Report &report)
{
    std::vector<uint16_t> in(256);
    for (uint32_t i = 0; i < in.size(); i++)
        in[i] = uint16_t(hash(i));
    uint16_t *out = poisoned<uint16_t>(256);
    turn<<<1, 32>>>(to_device(in), out);
    CHECK(cudaGetLastError());
    std::vector<uint16_t> result = to_host(out, 256);
    for (int i = 0; i < 256; i++)
        report.expect("turn", i, result[i], in[i / 64 * 64 + i % 8 * 8 + i / 8 % 8]);
    report.keep(result);
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    auto bf16 = [](int lines, uint32_t seed) {
        return matrix<__nv_bfloat16>(lines, seed, [](float x) { return __float2bfloat16(x); },
                                     [](__nv_bfloat16 x) { return __bfloat162float(x); });
    };
    auto tf32 = [](int lines, uint32_t seed) { // the unit reads the upper 19 bits
        auto value = [](uint32_t bits) {
            bits &= 0xffffe000;
            float x;
            memcpy(&x, &bits, 4);
            return double(x);
        };
        auto make = [](float x) {
            uint32_t bits;
            memcpy(&bits, &x, 4);
            return bits;
        };
        return matrix<uint32_t>(lines, seed, make, value);
    };
    Matrix e4m3 = matrix<__nv_fp8_e4m3>(ROWS, 5, [](float x) { return __nv_fp8_e4m3(x); },
                                        [](__nv_fp8_e4m3 x) { return double(float(x)); });
    Matrix e5m2 = matrix<__nv_fp8_e5m2>(COLUMNS, 6, [](float x) { return __nv_fp8_e5m2(x); },
                                        [](__nv_fp8_e5m2 x) { return double(float(x)); });
    Matrix s8 = matrix<int8_t>(ROWS, 7, [](float x) { return int8_t(x * 60); }, [](int8_t x) { return double(x); });
    Matrix u8 = matrix<uint8_t>(COLUMNS, 8, [](float x) { return uint8_t(x * 60 + 125); },
                                [](uint8_t x) { return double(x); });
    run_wmma(report);
    run<Bf16>(report, "mma bf16", bf16(ROWS, 3), bf16(COLUMNS, 4), 1e-4);
    run<Tf32>(report, "mma tf32", tf32(ROWS, 13), tf32(COLUMNS, 14), 1e-4);
    run<Fp8>(report, "mma e4m3 e5m2", e4m3, e5m2, 1e-4);
    run<S8>(report, "mma s8 u8", s8, u8, 0);
    run_sparse(report);
    run_wgmma(report);
    run_turn(report);
    CHECK(cudaDeviceSynchronize());
    return report.finish("tensor_cores");
}
