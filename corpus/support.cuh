// What the corpus programs share: checked runtime calls, repeatable input data, and the result file that
// lets two runs be compared byte for byte.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#define CHECK(call)                                                                             \
    do {                                                                                        \
        cudaError_t status_ = (call);                                                           \
        if (status_ != cudaSuccess) {                                                           \
            std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call,                  \
                         cudaGetErrorString(status_));                                          \
            std::exit(1);                                                                       \
        }                                                                                       \
    } while (0)

// A 32-bit multiplicative hash: the same values on every host.
inline uint32_t hash(uint32_t index)
{
    index = (index ^ 61u) ^ (index >> 16);
    index *= 9u;
    index ^= index >> 4;
    index *= 0x27d4eb2du;
    return index ^ (index >> 15);
}

// Values in [low, low + span) that fill the mantissa, so that sums and products round.
inline std::vector<float> real_values(size_t count, uint32_t seed, float low, float span)
{
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++)
        values[i] = low + span * (float(hash(uint32_t(i) + seed) >> 8) / 16777216.0f);
    return values;
}

template <typename T> T *to_device(const std::vector<T> &values)
{
    T *pointer = nullptr;
    CHECK(cudaMalloc(&pointer, values.size() * sizeof(T)));
    CHECK(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return pointer;
}

// Overwrites results-to-be with a pattern that no kernel here computes: a launch whose results were there already would
// change nothing, and what changes nothing cannot be compared.
template <typename T> void poison(T *pointer, size_t count) { CHECK(cudaMemset(pointer, 0xa5, count * sizeof(T))); }

template <typename T> T *poisoned(size_t count)
{
    T *pointer = nullptr;
    CHECK(cudaMalloc(&pointer, count * sizeof(T)));
    poison(pointer, count);
    return pointer;
}

template <typename T> std::vector<T> to_host(const T *pointer, size_t count)
{
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), pointer, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

inline unsigned blocks_for(size_t count, unsigned threads) { return unsigned((count + threads - 1) / threads); }

// Collects results; writes them to the file named on the command line, if any; says whether all was right.
class Report {
  public:
    Report(int argc, char **argv) : file_(argc > 1 ? std::fopen(argv[1], "wb") : nullptr)
    {
        if (argc > 1 && file_ == nullptr) {
            std::perror(argv[1]);
            std::exit(1);
        }
    }

    template <typename T> void keep(const std::vector<T> &values)
    {
        const auto *bytes = reinterpret_cast<const unsigned char *>(values.data());
        for (size_t i = 0; i < values.size() * sizeof(T); i++)
            digest_ = (digest_ ^ bytes[i]) * 0x100000001b3ull;
        if (file_ != nullptr && std::fwrite(bytes, sizeof(T), values.size(), file_) != values.size()) {
            std::perror("writing results");
            std::exit(1);
        }
    }

    // `what[index]` is wrong when it is farther than `tolerance` from `expected` (0: must be equal).
    void expect(const char *what, size_t index, double got, double expected, double tolerance = 0.0)
    {
        if (std::fabs(got - expected) <= tolerance)
            return;
        if (wrong_++ < 5)
            std::fprintf(stderr, "%s[%zu] is %.9g, expected %.9g\n", what, index, got, expected);
    }

    int finish(const char *program)
    {
        if (file_ != nullptr && std::fclose(file_) != 0)
            wrong_++;
        std::printf("%s: %s, digest %016llx\n", program, wrong_ ? "WRONG" : "right", (unsigned long long)digest_);
        return wrong_ ? 1 : 0;
    }

  private:
    std::FILE *file_;
    size_t wrong_ = 0;
    uint64_t digest_ = 0xcbf29ce484222325ull;
};
