// vprintf and __assertfail for device code, as PTX: `make services` compiles this to output.ptx.
//
// Both write records into a ring in device memory that the host empties (zluda/device/output.py). A record is
// a row of 8-byte words, each at its position modulo the ring's size, a power of two:
//
//   0  its own position, mixed with STAMP: so the host finds where the oldest whole record begins
//   1  its bytes (32 bits), its arguments (16 bits), its kind (16 bits)
//   2  the format's bytes
//   3  a word for each argument; of a string its bytes, or -1 for a null pointer
//   …  the format's text, then each string's, padded to whole words
//
// Names begin with __zluda_ here because nvcc knows the real ones; the makefile's rule puts those in their
// place.

typedef unsigned int u32;
typedef unsigned long long u64;

struct Ring {
  u64 size;  // bytes of records that follow, a power of two
  u64 head;  // where the next record begins; never wraps
};

extern "C" {
__device__ Ring *__zluda_printf;
}

constexpr u64 STAMP = 0x5a4c5544412d7072ull;
constexpr u32 HEADER = 24;
constexpr u32 MOST_ARGUMENTS = 32;  // CUDA C++ Programming Guide, "Formatted Output"
enum Kind : u64 { PRINTED = 0, ASSERTED = 1 };
enum Value : u32 { NONE = 0, WORD = 1, LONG = 2, TEXT = 3 };

// A conversion specification: its length in the format, the stars in it, what it converts.
struct Conversion {
  u32 length, stars;
  Value value;
};

static __device__ bool is_flag(char c) { return c == '#' || c == ' ' || c == '0' || c == '+' || c == '-'; }
static __device__ bool is_digit(char c) { return c >= '0' && c <= '9'; }

// `%[flags][width][.precision][size]type` at `format`; what does not read so is text, and converts nothing. As on
// NVIDIA GPUs (measured on an H200) that includes a star as precision, and `hh`.
extern "C" __device__ __noinline__ Conversion __zluda_output_conversion(const char *format) {
  u32 at = 1, stars = 0;
  #pragma unroll 1
  while (is_flag(format[at])) at++;
  #pragma unroll 1
  for (int part = 0; part < 2; part++) {
    if (part == 1) {
      if (format[at] != '.') break;
      at++;
    }
    if (part == 0 && format[at] == '*') {
      stars++;
      at++;
    }
    #pragma unroll 1
    while (is_digit(format[at])) at++;
  }
  bool wide = false;
  if (format[at] == 'h') {
    at++;
  } else {
#pragma unroll 1
    while (format[at] == 'l' || format[at] == 'j' || format[at] == 'z' || format[at] == 't') {
      wide = true;
      at++;
    }
  }
  Value value;
  switch (format[at]) {
    case '%': return {at + 1, 0, NONE};
    case 'd': case 'i': case 'o': case 'u': case 'x': case 'X': value = wide ? LONG : WORD; break;
    case 'c': value = WORD; break;
    case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A': case 'p':
      value = LONG;
      break;
    case 's': value = TEXT; break;
    default: return {1, 0, NONE};
  }
  return {at + 1, stars, value};
}

static __device__ u64 padded(u64 bytes) { return (bytes + 7) & ~7ull; }

static __device__ u64 length_of(const char *text) {
  u64 n = 0;
  #pragma unroll 1
  while (text[n]) n++;
  return n;
}

static __device__ void put(Ring *ring, u64 at, u64 word) {
  *(u64 *)((char *)(ring + 1) + (at & (ring->size - 1))) = word;
}

extern "C" __device__ __noinline__ void __zluda_output_put_text(Ring *ring, u64 at, const char *text, u64 bytes) {
  #pragma unroll 1
  for (u64 i = 0; i < bytes; i += 8) {
    u64 word = 0;
    #pragma unroll 1
    for (u64 j = 0; j < 8 && i + j < bytes; j++) word |= (u64)(unsigned char)text[i + j] << (8 * j);
    put(ring, at + i, word);
  }
}

// Room for a record, and its header; -1 where it is larger than the whole ring.
extern "C" __device__ __noinline__ u64 __zluda_output_begin(Ring *ring, u64 bytes, u64 arguments, Kind kind, u64 format) {
  if (bytes > ring->size) return ~0ull;
  u64 at = atomicAdd(&ring->head, bytes);
  put(ring, at, at ^ STAMP);
  put(ring, at + 8, bytes | arguments << 32 | (u64)kind << 48);
  put(ring, at + 16, format);
  return at;
}

// What a walk over a format's arguments finds: how many they are, and the padded bytes of all strings.
struct Arguments {
  u32 count;
  u64 text;
};

// Walk over the arguments that a format asks for, which lie side by side in `buffer`, each aligned to its
// size. With a ring, write them: from `words` on their words, from `text` on the strings.
extern "C" __device__ __noinline__ Arguments __zluda_output_walk(const char *format, const char *buffer, Ring *ring, u64 words, u64 text) {
  Arguments found = {0, 0};
  u64 offset = 0;
  #pragma unroll 1
  for (u64 at = 0; format[at];) {
    if (format[at] != '%') {
      at++;
      continue;
    }
    Conversion one = __zluda_output_conversion(format + at);
    at += one.length;
    u32 arguments = one.stars + (one.value != NONE);
    #pragma unroll 1
    for (u32 i = 0; i < arguments && found.count < MOST_ARGUMENTS; i++) {
      Value value = i < one.stars ? WORD : one.value;
      u64 word;
      if (value == WORD) {
        word = *(const u32 *)(buffer + offset);
        offset += 4;
      } else {
        offset = padded(offset);
        word = *(const u64 *)(buffer + offset);
        offset += 8;
      }
      if (value == TEXT) {
        const char *string = (const char *)word;
        word = string ? length_of(string) : ~0ull;
        u64 bytes = string ? word : 0;
        if (ring) __zluda_output_put_text(ring, text + found.text, string, bytes);
        found.text += padded(bytes);
      }
      if (ring) put(ring, words + 8 * found.count, word);
      found.count++;
    }
  }
  return found;
}

// The arguments that the format asks for; -1 for no format, -2 for a record larger than the ring.
extern "C" __device__ int __zluda_vprintf(const char *format, const char *buffer) {
  if (!format) return -1;
  Ring *ring = __zluda_printf;
  Arguments asked = __zluda_output_walk(format, buffer, nullptr, 0, 0);
  u64 length = length_of(format);
  u64 words = 8ull * asked.count;
  u64 at = __zluda_output_begin(ring, HEADER + words + padded(length) + asked.text, asked.count, PRINTED, length);
  if (at == ~0ull) return -2;
  __zluda_output_put_text(ring, at + HEADER + words, format, length);
  __zluda_output_walk(format, buffer, ring, at + HEADER, at + HEADER + words + padded(length));
  return asked.count;
}

extern "C" __device__ void __zluda_stop_assert();

// A record of kind ASSERTED, whose format is the message; the launch ends.
extern "C" __device__ void __zluda_assertfail(const char *message, const char *file, u32 line,
                                              const char *function, u64) {
  Ring *ring = __zluda_printf;
  u64 lengths[3] = {length_of(message), length_of(file), length_of(function)};
  u64 words[9] = {line, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
                  lengths[1], lengths[2]};
  u64 text = HEADER + sizeof(words);
  u64 bytes = text + padded(lengths[0]) + padded(lengths[1]) + padded(lengths[2]);
  u64 at = __zluda_output_begin(ring, bytes, 9, ASSERTED, lengths[0]);
  if (at != ~0ull) {
    #pragma unroll 1
    for (int i = 0; i < 9; i++) put(ring, at + HEADER + 8 * i, words[i]);
    __zluda_output_put_text(ring, at + text, message, lengths[0]);
    __zluda_output_put_text(ring, at + text + padded(lengths[0]), file, lengths[1]);
    __zluda_output_put_text(ring, at + text + padded(lengths[0]) + padded(lengths[1]), function, lengths[2]);
  }
  __zluda_stop_assert();
}
