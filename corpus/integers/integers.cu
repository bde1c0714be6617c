// Integer work: SHA-256 of many messages, products of 256-bit numbers by chains of carries, a CRC by tables in constant
// memory, a linear congruence jumped ahead, bit counts.
#include "../support.cuh"

__constant__ uint32_t round_keys[64];
__constant__ uint32_t crc_table[256];

__host__ __device__ inline uint32_t rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

__host__ __device__ inline void sha256_block(uint32_t *state, const uint32_t *block, const uint32_t *keys)
{
    uint32_t w[16], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = block[i];
    for (int i = 0; i < 8; i++)
        s[i] = state[i];
    for (int i = 0; i < 64; i++) {
        if (i >= 16) {
            uint32_t a = w[(i + 1) & 15], b = w[(i + 14) & 15];
            w[i & 15] += (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[(i + 9) & 15] + (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
        }
        uint32_t t = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) + ((s[4] & s[5]) ^ (~s[4] & s[6])) +
                     keys[i] + w[i & 15];
        uint32_t u = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) + ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));
        for (int k = 7; k > 0; k--)
            s[k] = s[k - 1];
        s[4] += t;
        s[0] = t + u;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

__global__ void sha256(const uint32_t *messages, uint32_t *digests, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    sha256_block(state, messages + 16 * i, round_keys);
    for (int k = 0; k < 8; k++)
        digests[8 * i + k] = state[k];
}

// A 256-bit product, the carry kept in the condition code; 64-bit limbs in a second one.
__global__ void multiply(const uint32_t *a, const uint32_t *b, uint32_t *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    uint32_t x[8], y[8], p[16] = {};
    for (int k = 0; k < 8; k++)
        x[k] = a[8 * i + k], y[k] = b[8 * i + k];
#pragma unroll
    for (int row = 0; row < 8; row++) {
        asm("mad.lo.cc.u32 %0, %9, %10, %0;\n\tmadc.lo.cc.u32 %1, %9, %11, %1;\n\tmadc.lo.cc.u32 %2, %9, %12, %2;\n\t"
            "madc.lo.cc.u32 %3, %9, %13, %3;\n\tmadc.lo.cc.u32 %4, %9, %14, %4;\n\tmadc.lo.cc.u32 %5, %9, %15, %5;\n\t"
            "madc.lo.cc.u32 %6, %9, %16, %6;\n\tmadc.lo.cc.u32 %7, %9, %17, %7;\n\taddc.u32 %8, 0, 0;"
            : "+r"(p[row]), "+r"(p[row + 1]), "+r"(p[row + 2]), "+r"(p[row + 3]), "+r"(p[row + 4]), "+r"(p[row + 5]),
              "+r"(p[row + 6]), "+r"(p[row + 7]), "=r"(p[row + 8])
            : "r"(x[row]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
        asm("mad.hi.cc.u32 %0, %8, %9, %0;\n\tmadc.hi.cc.u32 %1, %8, %10, %1;\n\tmadc.hi.cc.u32 %2, %8, %11, %2;\n\t"
            "madc.hi.cc.u32 %3, %8, %12, %3;\n\tmadc.hi.cc.u32 %4, %8, %13, %4;\n\tmadc.hi.cc.u32 %5, %8, %14, %5;\n\t"
            "madc.hi.cc.u32 %6, %8, %15, %6;\n\tmadc.hi.u32 %7, %8, %16, %7;"
            : "+r"(p[row + 1]), "+r"(p[row + 2]), "+r"(p[row + 3]), "+r"(p[row + 4]), "+r"(p[row + 5]), "+r"(p[row + 6]),
              "+r"(p[row + 7]), "+r"(p[row + 8])
            : "r"(x[row]), "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));
    }
    for (int k = 0; k < 16; k++)
        out[16 * i + k] = p[k];
}

__global__ void crc(const uint8_t *bytes, uint32_t *sums, int length, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    uint32_t sum = 0xffffffffu;
    for (int k = 0; k < length; k++)
        sum = crc_table[(sum ^ bytes[i * length + k]) & 0xff] ^ sum >> 8;
    sums[i] = ~sum;
}

__global__ void bits(const uint32_t *in, uint64_t *out, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    uint64_t wide = (uint64_t)in[i] << 32 | in[count - 1 - i], state = 1, factor = 6364136223846793005ull, sum = 1442695040888963407ull;
    for (unsigned int jump = in[i] & 0xffff; jump; jump >>= 1) {  // a congruence, so many steps ahead
        if (jump & 1)
            state = state * factor + sum;
        sum *= factor + 1;
        factor *= factor;
    }
    out[i] = state + __popcll(wide) + 64ull * __clzll(wide >> (i & 31)) + 4096ull * __ffsll(wide << (i & 15)) +
             (__brevll(wide) ^ __umul64hi(wide, state)) + wide % (in[i] % 1000 + 1) + wide / (in[i] | 1);
}

int main(int argc, char **argv)
{
    Report report(argc, argv);
    const int count = 300;
    uint32_t keys[64], table[256];
    for (int i = 0, prime = 2; i < 64; prime++) {
        bool is = true;
        for (int d = 2; d * d <= prime; d++)
            is &= prime % d != 0;
        if (is)
            keys[i++] = uint32_t((std::cbrt((long double)prime) - std::floor(std::cbrt((long double)prime))) * 4294967296.0L);
    }
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++)
            table[i] = table[i] & 1 ? table[i] >> 1 ^ 0xedb88320u : table[i] >> 1;
    }
    CHECK(cudaMemcpyToSymbol(round_keys, keys, sizeof keys));
    CHECK(cudaMemcpyToSymbol(crc_table, table, sizeof table));
    std::vector<uint32_t> words(16 * count), left(8 * count), right(8 * count);
    for (size_t i = 0; i < words.size(); i++)
        words[i] = hash(uint32_t(i));
    for (size_t i = 0; i < left.size(); i++) {
        left[i] = i % 24 < 8 ? 0xffffffffu : hash(uint32_t(i) + 77777);
        right[i] = i % 40 < 8 ? 0xffffffffu : hash(uint32_t(i) + 99999);
    }
    const uint32_t abc[16] = {0x61626380, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24};  // "abc", whose digest is known
    std::copy(abc, abc + 16, words.begin());
    uint32_t *m = to_device(words), *d = poisoned<uint32_t>(8 * count), *a = to_device(left), *b = to_device(right),
             *p = poisoned<uint32_t>(16 * count), *c = poisoned<uint32_t>(count);
    uint64_t *w = poisoned<uint64_t>(count);
    sha256<<<blocks_for(count, 64), 64>>>(m, d, count);
    multiply<<<blocks_for(count, 64), 64>>>(a, b, p, count);
    crc<<<blocks_for(count, 64), 64>>>(reinterpret_cast<uint8_t *>(m), c, 64, count);
    bits<<<blocks_for(count, 64), 64>>>(m, w, count);
    CHECK(cudaDeviceSynchronize());
    std::vector<uint32_t> digests = to_host(d, 8 * count), products = to_host(p, 16 * count), sums = to_host(c, count);
    report.expect("abc", 0, digests[0], 0xba7816bf);
    report.expect("abc", 7, digests[7], 0xf20015ad);
    for (int i = 0; i < count; i++) {
        uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
        sha256_block(state, &words[16 * i], keys);
        for (int k = 0; k < 8; k++)
            report.expect("digest", 8 * i + k, digests[8 * i + k], state[k]);
        uint32_t product[16] = {};
        for (int j = 0; j < 8; j++) {
            uint64_t carry = 0;
            for (int k = 0; k < 8; k++) {
                carry += uint64_t(left[8 * i + j]) * right[8 * i + k] + product[j + k];
                product[j + k] = uint32_t(carry);
                carry >>= 32;
            }
            product[j + 8] = uint32_t(carry);
        }
        for (int k = 0; k < 16; k++)
            report.expect("product", 16 * i + k, products[16 * i + k], product[k]);
        uint32_t sum = 0xffffffffu;
        for (int k = 0; k < 64; k++)
            sum = table[(sum ^ (words[16 * i + k / 4] >> 8 * (k % 4))) & 0xff] ^ sum >> 8;
        report.expect("crc", i, sums[i], ~sum);
    }
    report.keep(digests);
    report.keep(products);
    report.keep(sums);
    report.keep(to_host(w, count));
    return report.finish("integers");
}
