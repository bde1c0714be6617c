// Texture and surface instructions in software, as PTX: `make services` compiles this to textures.ptx.
//
// zluda/numerics/texture/layout.py has the layout of descriptors and of the table of handles;
// zluda/compiler/textures/expand.py makes calls of what is defined here; zluda/numerics/texture/reference.py is
// the same arithmetic over NumPy arrays, held like this to an H200's results.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
typedef long long i64;

struct Level {
  u64 address, row_pitch, slice_pitch;
  u32 width, height, depth, unused;
};

struct Descriptor {
  u32 kind, geometry, format, channels, texel_bytes, flags;
  u32 address[3], filter, mip_filter, max_anisotropy, levels, layers;
  float mip_bias, min_lod, max_lod, border[4];
  u32 array_format, unused[2];
  Level level[18];
};
static_assert(sizeof(Level) == 40 && sizeof(Descriptor) == 96 + 18 * 40, "as layout.py has it");

enum Geometry { D1 = 1, D2 = 2, D3 = 3, DIMENSIONS = 3, LAYERED = 4, CUBE = 8, BUFFER = 16 };
enum Format { U8 = 1, U16 = 2, U32 = 3, S8 = 8, S16 = 9, S32 = 10, HALF = 16, FLOAT = 32 };
enum Address { WRAP, CLAMP, MIRROR, BORDER, BEYOND };  // the last: numbers out of range, as they are
enum Flags { NORMALIZED = 1, READ_NORMALIZED = 2, SRGB = 4, SEAMLESS = 8, NO_TRILINEAR_OPTIMIZATION = 16 };
enum Kind { TEXTURE = 1, SURFACE, SAMPLER };
enum Clamp { ON_RANGE_TRAP, ON_RANGE_CLAMP, ON_RANGE_ZERO };

extern "C" {
__device__ u64 *__zluda_textures;
__device__ void __zluda_stop_texture();
__device__ void __zluda_stop_surface();
}

// --- descriptors -----------------------------------------------------------------------------------------

static __device__ const Descriptor *look_up(u64 handle) {
  if (!__zluda_textures) return nullptr;
  const u64 *table = (const u64 *)__zluda_textures[0];
  u32 mask = (u32)__zluda_textures[1];
  u32 slot = (u32)(handle * 0x9E3779B97F4A7C15 >> 32) & mask;
  #pragma unroll 1
  for (;; slot = (slot + 1) & mask) {
    u64 key = table[2 * slot];
    if (key == handle) return (const Descriptor *)table[2 * slot + 1];
    if (!key) return nullptr;
  }
}

// Coordinates are fractions where the texture has it so and its sampler does not forbid it.
static __device__ bool by_fractions(const Descriptor *t, const Descriptor *s) {
  return t->geometry & CUBE || t->flags & s->flags & NORMALIZED;
}

// A handle's descriptor. The launch ends where it has none.
extern "C" __device__ __noinline__ const Descriptor *__zluda_descriptor(u64 handle) {
  const Descriptor *found = look_up(handle);
  if (!found) __zluda_stop_texture();
  return found;
}

static __device__ float as_float(u32 bits) { return __uint_as_float(bits); }
static __device__ u32 as_bits(float value) { return __float_as_uint(value); }

static __device__ i32 clamp(i32 x, i32 low, i32 high) { return min(max(x, low), high); }

// --- coordinates -----------------------------------------------------------------------------------------

// Two texels along an axis (-1: the border) and the weight of the second, in 256ths.
struct Place {
  i32 first, second;
  u32 weight;
};

static __device__ i32 wrapped(i32 i, u32 size, u32 address) {
  i32 n = (i32)size;
  if (address == WRAP) {
    i %= n;
    return i < 0 ? i + n : i;
  }
  if (address == MIRROR) {
    i %= 2 * n;
    if (i < 0) i += 2 * n;
    return i < n ? i : 2 * n - 1 - i;
  }
  if (address == BORDER) return i >= 0 && i < n ? i : -1;
  if (address == BEYOND) return i;
  return clamp(i, 0, n - 1);
}

static __device__ double limited(double x, double limit) { return fmin(fmax(x, -limit), limit); }

// A coordinate in 256ths of a texel; what a filter begins with lies half a texel before it.
static __device__ i32 fixed_point(float x, u32 size, u32 address, bool normalized, bool linear) {
  double wide = fabsf(x) >= 1.17549435e-38f ? (double)x : 0.0;  // NaN and subnormal numbers are 0
  i64 fixed;
  if (normalized) {
    int bits = size > 8192 ? 22 : 21;
    double scale = (double)(1 << bits);
    double s = floor(wide * scale);
    if (address == WRAP || address == MIRROR) {
      double period = 2 * scale;
      s = s - floor(s / period) * period;
      if (!(s >= 0 && s < period)) s = 0;
    } else {
      s = limited(s, 256 * scale);
    }
    i64 u = (i64)s * size;
    fixed = linear ? ((u * 256 + (1ll << (bits - 1))) >> bits) - 128 : (u >> bits) * 256;
  } else {
    wide = limited(wide, 4194304.0);
    fixed = linear ? (i64)floor(wide * 256 + 0.5) - 128 : (i64)floor(wide) * 256;
  }
  return (i32)max(min(fixed, 1ll << 30), -(1ll << 30));
}

// A probe is `shift` 256ths of a texel from there; unfiltered ones (that have no halves taken off) count them too.
__device__ __noinline__ Place zluda_placed(float x, u32 size, u32 address, bool normalized, bool linear, i32 offset,
                                           bool gathers = false, bool probes = false, i32 shift = 0) {
  if (!normalized && address < BORDER) address = CLAMP;
  i32 fixed = fixed_point(x, size, address, normalized, linear || probes) + offset * 256;
  if (probes) fixed = linear ? fixed + shift : (fixed + 128 + shift) & ~255;
  if (address == CLAMP && !gathers) fixed = clamp(fixed, 0, ((i32)size - 1) * 256);
  i32 first = fixed >> 8;
  return {wrapped(first, size, address), wrapped(first + 1, size, address), (u32)fixed & 255};
}

// --- texels ----------------------------------------------------------------------------------------------

__constant__ u16 __zluda_srgb[256] = {
#include "srgb.inc"
};

static __device__ bool reads_floats(const Descriptor *t) {
  return t->flags & READ_NORMALIZED || t->format >= HALF;
}

static __device__ u32 half_to_float(u32 half) {
  u32 sign = (half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= 0x7c00) return sign | 0x7f800000 | (rest & 0x3ff) << 13;
  if (rest >= 0x400) return sign | ((rest << 13) + 0x38000000);
  return sign | as_bits(__fmul_rn((float)rest, 5.9604644775390625e-08f));
}

// A channel's bits in its format, sign-extended where it has one.
static __device__ i32 raw_channel(const Descriptor *t, u64 at, u32 channel) {
  switch (t->format) {
    case U8: return *(const u8 *)(at + channel);
    case S8: return *(const signed char *)(at + channel);
    case U16: case HALF: return *(const u16 *)(at + 2 * channel);
    case S16: return *(const short *)(at + 2 * channel);
    default: return *(const i32 *)(at + 4 * channel);
  }
}

static __device__ bool decodes_srgb(const Descriptor *t, u32 channel) {
  return t->flags & SRGB && t->format == U8 && channel < 3;
}

static __device__ float largest(u32 format) {
  return format == U8 ? 255.0f : format == S8 ? 127.0f : format == U16 ? 65535.0f : 32767.0f;
}

// The same as an unfiltered read gives it: an integer, or a float's bits.
__device__ __noinline__ u32 zluda_decoded(const Descriptor *t, i32 raw, u32 channel) {
  if (t->format == HALF) return half_to_float(raw);
  if (t->format == FLOAT || !(t->flags & READ_NORMALIZED)) return raw;
  if (decodes_srgb(t, channel)) return half_to_float(__zluda_srgb[raw]);
  return as_bits(fmaxf(__fdiv_rn((float)raw, largest(t->format)), -1.0f));
}

__constant__ float __zluda_srgb_limits[255] = {
#include "srgb_limits.inc"
};

static __device__ u32 encoded_srgb(float x) {
  u32 found = 0;
  #pragma unroll 1
  for (u32 i = 0; i < 255; i++) found += x >= __zluda_srgb_limits[i];
  return found;
}

// A number between -1 and 1 as a normalised integer: cut to four bits more than that has, then rounded to nearest,
// ties towards zero.
static __device__ i32 normalized_integer(float x, u32 format) {
  int bits = format == U8 ? 12 : format == S8 ? 11 : format == U16 ? 20 : 19;
  double cut = floor(fabs((double)x) * (1 << bits)) / (1 << bits);
  i32 whole = (i32)ceil(cut * largest(format) - 0.5);
  return x < 0 ? -whole : whole;
}

// Cut, not rounded; what is too large is the largest number. A NaN keeps its highest bits.
static __device__ u32 float_to_half(u32 bits) {
  u32 sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7c00 | max((rest & 0x7fffff) >> 13, 1u);
  if (rest >= 0x47800000) return sign | (rest == 0x7f800000 ? 0x7c00 : 0x7bff);
  if (rest >= 0x38800000) return sign | (rest - 0x38000000) >> 13;
  return sign | (u32)(as_float(rest) * 16777216.0f);
}

// The border's colour in the format's bits: halves are cut, and integers take the lowest bits.
extern "C" __device__ __noinline__ i32 __zluda_border(const Descriptor *t, const Descriptor *s, u32 channel) {
  if (channel >= t->channels) return 0;
  float value = s->border[channel];
  u32 bits = as_bits(value), format = t->format;
  if (format == FLOAT) return bits;
  if (format == HALF) return float_to_half(bits);
  if (t->flags & READ_NORMALIZED && format != U32 && format != S32) {
    bool is_signed = format == S8 || format == S16;
    value = fminf(fmaxf(value, is_signed ? -1.0f : 0.0f), 1.0f);
    if (decodes_srgb(t, channel)) return encoded_srgb(value);
    return normalized_integer(value, format);
  }
  switch (format) {
    case U8: return bits & 0xff;
    case S8: return (i32)(bits << 24) >> 24;
    case U16: return bits & 0xffff;
    case S16: return (i32)(bits << 16) >> 16;
    default: return bits;
  }
}

__device__ __noinline__ i32 zluda_raw_texel(const Descriptor *t, const Descriptor *s, const Level *level, i32 x, i32 y, i32 z,
                                u32 channel) {
  if ((x | y | z) < 0) return __zluda_border(t, s, channel);
  u64 at = level->address + z * level->slice_pitch + y * level->row_pitch + (u64)x * t->texel_bytes;
  return raw_channel(t, at, channel);
}

static __device__ uint4 four(const u32 (&r)[4]) { return make_uint4(r[0], r[1], r[2], r[3]); }

// One texel, unfiltered. Channels that are not there are 0.
extern "C" __device__ __noinline__ uint4 __zluda_texel(const Descriptor *t, const Descriptor *s, u32 level_number,
                                                       i32 x, i32 y, i32 z) {
  const Level *level = &t->level[level_number];
  u32 r[4] = {0, 0, 0, 0};
  #pragma unroll
  for (u32 c = 0; c < 4; c++)
    if (c < t->channels) r[c] = zluda_decoded(t, zluda_raw_texel(t, s, level, x, y, z, c), c);
  return four(r);
}

// --- filtering -------------------------------------------------------------------------------------------

struct Pair {
  u32 first, second;
};

// A weight shared between two texels: one part is rounded half up, the other is what is left.
static __device__ Pair split(u32 whole, u32 weight, bool second_first) {
  if (second_first) {
    u32 second = (whole * weight + 128) >> 8;
    return {whole - second, second};
  }
  u32 first = (whole * (256 - weight) + 128) >> 8;
  return {first, whole - first};
}

enum Seen { IS_NAN = 1, PLUS_INFINITY = 2, MINUS_INFINITY = 4, NUMBER = 8 };

// A filtered channel on the way: the sum in 256ths of a texel's unit, and what special values were met.
struct Sum {
  double total;
  u32 seen;
};

static __device__ i32 widened(const Descriptor *t, i32 raw) { return t->format == U8 ? raw * 257 : raw; }

static __device__ bool filters_floats(const Descriptor *t, u32 channel) {
  return t->format >= HALF || decodes_srgb(t, channel);
}

struct Taps {
  i32 x[4], y[4], z[4];
  u32 weight[4];
};

// The exponent that the unit's table has for an sRGB byte: some just below a power of two have that one's.
__constant__ u8 __zluda_srgb_steps[13] = {1, 2, 4, 7, 13, 22, 32, 48, 64, 96, 136, 184, 248};

static __device__ u32 srgb_exponent(i32 raw) {
  u32 exponent = 114;
  #pragma unroll
  for (int i = 0; i < 13; i++) exponent += raw >= __zluda_srgb_steps[i];
  return exponent;
}

// Four texels (of a slice or a level) of one channel: aligned to the largest exponent of those with a weight.
__device__ __noinline__ Sum zluda_blend(const Descriptor *t, const Descriptor *s, const Level *level, Taps at,
                                        u32 channel) {
  if (!filters_floats(t, channel)) {
    i64 total = 0;
    #pragma unroll
    for (int i = 0; i < 4; i++)
      if (at.weight[i])
        total += (i64)widened(t, zluda_raw_texel(t, s, level, at.x[i], at.y[i], at.z[i], channel)) * at.weight[i];
    return {(double)total, NUMBER};
  }
  u32 bits[4];
  u32 seen = 0, exponent = 0;
  bool srgb = decodes_srgb(t, channel);
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    bits[i] = 0;
    if (!at.weight[i]) continue;
    i32 raw = zluda_raw_texel(t, s, level, at.x[i], at.y[i], at.z[i], channel);
    u32 value = zluda_decoded(t, raw, channel);
    u32 rest = value & 0x7fffffff;
    if (rest > 0x7f800000) seen |= IS_NAN;
    else if (rest == 0x7f800000) seen |= value >> 31 ? MINUS_INFINITY : PLUS_INFINITY;
    else if (value != 0x80000000) seen |= NUMBER;
    if (rest < 0x800000 || rest >= 0x7f800000) continue;
    bits[i] = value;
    exponent = max(exponent, srgb ? srgb_exponent(raw) : rest >> 23);
  }
  int kept = srgb ? 7 : t->format == FLOAT ? 27 : 14;  // bits below the largest exponent's
  i64 total = 0;
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    u32 rest = bits[i] & 0x7fffffff;
    if (!rest) continue;
    u32 down = exponent - (rest >> 23);
    i64 mantissa = (i64)((rest & 0x7fffff) | 0x800000) << 4;  // 27 bits below its leading one
    mantissa = down < 32 ? mantissa >> down >> (27 - kept) : 0;
    total += (bits[i] >> 31 ? -mantissa : mantissa) * at.weight[i];
  }
  return {total ? scalbn((double)total, (int)exponent - 127 - kept) : 0.0, seen};
}

// A sum of signed bytes in 256ths of one as an integer of 16 bits. Of probes it may have bits below those.
static __device__ float widened_s8(double total) {
  return (float)floor(total + floor(total * 0.0625) * 0.12548828125 + 0.5);  // 257 / 2048
}

// A finished sum as a float's bits, rounded once: ties away from zero, or up for normalised integers.
__device__ __noinline__ u32 zluda_finished(const Descriptor *t, Sum sum, u32 channel) {
  if (!filters_floats(t, channel)) {
    float whole = t->format == S8 ? widened_s8(sum.total) : (float)floor(sum.total / 256 + 0.5);
    if (t->format == S8 || t->format == S16) whole = fmaxf(whole, -32767.0f);
    return as_bits(__fdiv_rn(whole, t->format == U8 || t->format == U16 ? 65535.0f : 32767.0f));
  }
  u32 infinite = sum.seen & (PLUS_INFINITY | MINUS_INFINITY);
  bool is_half = t->format != FLOAT;
  if (sum.seen & IS_NAN || infinite == (PLUS_INFINITY | MINUS_INFINITY)) return is_half ? 0x7fffe000 : 0x7fffffff;
  if (infinite) return infinite == PLUS_INFINITY ? 0x7f800000 : 0xff800000;
  if (!(sum.seen & NUMBER)) return 0x80000000;  // of negative zeros alone
  double value = sum.total / 256;
  if (is_half && fabs(value) < 0.00006103515625)  // a subnormal half
    return as_bits((float)copysign(floor(fabs(value) * 16777216 + 0.5) / 16777216, value));
  u64 bits = __double_as_longlong(value), half = 1ull << (is_half ? 41 : 28);
  return as_bits((float)__longlong_as_double((bits + half) & ~(2 * half - 1)));
}

// --- levels ----------------------------------------------------------------------------------------------

static __device__ i32 fixed_lod(float x) { return (i32)limited(trunc((double)(x == x ? x : 0.0f) * 256), 1e6); }

// An anisotropic sampler blends levels in a shorter stretch between them, unless it is told not to.
static __device__ i32 optimised(const Descriptor *s, i32 fixed) {
  u32 most = s->max_anisotropy;
  if (most < 2 || s->flags & NO_TRILINEAR_OPTIMIZATION) return fixed;
  i32 part = fixed & 255;
  i32 steeper = most < 4 ? (3 * part - 126) >> 1 : most < 8 ? (7 * part - 378) >> 2 : 2 * part - 128;
  return fixed - part + clamp(steeper, 0, 256);
}

// A level of detail in 256ths, biased and clamped; where the instruction has none, 0 and only clamped.
static __device__ i32 chosen_lod(const Descriptor *t, const Descriptor *s, float lod, bool explicit_lod) {
  i32 fixed = explicit_lod ? optimised(s, fixed_lod(lod) + fixed_lod(fminf(fmaxf(s->mip_bias, -15.0f), 15.0f))) : 0;
  fixed = max(min(fixed, fixed_lod(s->max_lod)), fixed_lod(s->min_lod));
  return clamp(fixed, 0, ((i32)t->levels - 1) * 256);
}

enum { SEAMLESS_FACES = 4 };  // in place of a number of dimensions

// A direction as whole numbers: a place on a cube of n texels an edge, in halves of a texel from its middle.
static __device__ void on_neighbour(i32 n, i32 &x, i32 &y, i32 &z) {
  i32 u = 2 * x + 1 - n, v = 2 * y + 1 - n, face = z % 6, first = z - face, m = n;
  if (u < -n || u > n) m = n - 1, u = u < 0 ? -n : n;
  else if (v < -n || v > n) m = n - 1, v = v < 0 ? -n : n;
  else return;
  u = clamp(u, -n, n), v = clamp(v, -(n - (abs(u) == n)), n - (abs(u) == n));
  i32 px, py, pz;
  switch (face) {
    case 0: px = m, py = -v, pz = -u; break;
    case 1: px = -m, py = -v, pz = u; break;
    case 2: px = u, py = m, pz = v; break;
    case 3: px = u, py = -m, pz = -v; break;
    case 4: px = u, py = -v, pz = m; break;
    default: px = -u, py = -v, pz = -m;
  }
  if (abs(pz) == n) face = pz < 0 ? 5 : 4, u = pz < 0 ? -px : px, v = -py;
  else if (abs(py) == n) face = py < 0 ? 3 : 2, u = px, v = py < 0 ? -pz : pz;
  else face = px < 0 ? 1 : 0, u = px < 0 ? pz : -pz, v = -py;
  x = clamp((u + n - 1) >> 1, 0, n - 1), y = clamp((v + n - 1) >> 1, 0, n - 1), z = first + face;
}

// Taps beyond an edge are a neighbour's. Where three faces meet there is no fourth texel: the others share its
// weight, a third for each, what is left for the one across.
static __device__ void across_seams(Taps &at, i32 n) {
  #pragma unroll
  for (int i = 0; i < 4; i++) {
    if ((u32)at.x[i] < (u32)n || (u32)at.y[i] < (u32)n) continue;
    u32 whole = at.weight[i], third = (whole + 1) / 3;
    at.weight[i] = 0;
    #pragma unroll
    for (int j = 0; j < 4; j++)
      if (j != i) at.weight[j] += j == 3 - i ? whole - 2 * third : third;
  }
  #pragma unroll
  for (int i = 0; i < 4; i++) on_neighbour(n, at.x[i], at.y[i], at.z[i]);
}

struct Where {
  const Descriptor *t, *s;
  float x, y, z;
  i32 slice;         // layer or face
  i32 ox, oy, oz;    // offsets in texels
  bool probes;       // whether this is one of an anisotropic footprint's places
  i32 shift_x, shift_y;
};

template <int DIMENSIONS>
__device__ __noinline__ uint4 zluda_unfiltered(Where w, u32 number) {
  const Level *level = &w.t->level[number];
  bool normalized = by_fractions(w.t, w.s);
  i32 x = zluda_placed(w.x, level->width, w.s->address[0], normalized, false, w.ox).first;
  i32 y = DIMENSIONS > 1 ? zluda_placed(w.y, level->height, w.s->address[1], normalized, false, w.oy).first : 0;
  i32 z = DIMENSIONS == 3 ? zluda_placed(w.z, level->depth, w.s->address[2], normalized, false, w.oz).first : w.slice;
  return __zluda_texel(w.t, w.s, number, x, y, z);
}

// What one level, with this much of the weight, gives to a channel.
template <int DIMENSIONS>
__device__ __noinline__ Sum zluda_level_sum(Where w, u32 number, u32 share, u32 channel) {
  const Level *level = &w.t->level[number];
  bool normalized = by_fractions(w.t, w.s), linear = w.s->filter != 0;
  bool seamless = DIMENSIONS == SEAMLESS_FACES;
  Place x = zluda_placed(w.x, level->width, seamless ? BEYOND : w.s->address[0], normalized, linear, w.ox, false,
                         w.probes, w.shift_x);
  // A line is an image of one row, and is read at its upper edge.
  Place y = zluda_placed(DIMENSIONS > 1 ? w.y : 0.0f, level->height, seamless ? BEYOND : w.s->address[1], normalized,
                         linear, w.oy, false, w.probes, w.shift_y);
  Place z = {w.slice, w.slice, 0};
  if (DIMENSIONS == 3) z = zluda_placed(w.z, level->depth, w.s->address[2], normalized, linear, w.oz);
  Pair slices = split(share, z.weight, false);
  Sum sum = {0, 0};
  #pragma unroll
  for (int i = 0; i < (DIMENSIONS == 3 ? 2 : 1); i++) {
    u32 whole = i ? slices.second : slices.first;
    if (!whole) continue;
    Pair columns = split(whole, x.weight, true);
    Pair left = split(columns.first, y.weight, false), right = split(columns.second, y.weight, true);
    i32 slice = i ? z.second : z.first;
    Taps at = {{x.first, x.first, x.second, x.second}, {y.first, y.second, y.first, y.second},
               {slice, slice, slice, slice}, {left.first, left.second, right.first, right.second}};
    if (DIMENSIONS == SEAMLESS_FACES) across_seams(at, level->width);
    Sum part = zluda_blend(w.t, w.s, level, at, channel);
    sum.total += part.total;
    sum.seen |= part.seen;
  }
  return sum;
}

// `tex` by float coordinates. `lod` is only looked at where there are levels to choose from.
template <int DIMENSIONS>
__device__ __noinline__ uint4 zluda_sampled(Where w, float lod, bool explicit_lod) {
  i32 fixed = chosen_lod(w.t, w.s, lod, explicit_lod);
  bool blends = w.s->mip_filter && fixed & 255 && reads_floats(w.t);
  u32 number = w.s->mip_filter ? fixed >> 8 : (fixed + 128) >> 8;
  number = min(number, w.t->levels - 1);
  if (!reads_floats(w.t) || (!blends && !w.s->filter)) return zluda_unfiltered<DIMENSIONS>(w, number);
  u32 weight = blends ? fixed & 255 : 0;
  u32 next = min(number + 1, w.t->levels - 1);
  u32 r[4] = {0, 0, 0, 0};
  #pragma unroll 1
  for (u32 c = 0; c < w.t->channels; c++) {
    Sum sum = {0, 0};
    #pragma unroll 1
    for (u32 i = 0; i < (weight ? 2 : 1); i++) {
      Sum part = zluda_level_sum<DIMENSIONS>(w, i ? next : number, i ? weight : 256 - weight, c);
      sum.total += part.total;
      sum.seen |= part.seen;
    }
    u32 value = zluda_finished(w.t, sum, c);
    r[0] = c == 0 ? value : r[0];
    r[1] = c == 1 ? value : r[1];
    r[2] = c == 2 ? value : r[2];
    r[3] = c == 3 ? value : r[3];
  }
  return four(r);
}

static __device__ i32 layer_of(const Descriptor *t, u32 layer) { return (i32)min(layer, t->layers - 1); }

static __device__ i32 texel_offset(i32 offset) { return offset << 28 >> 28; }  // four bits count

// --- tex -------------------------------------------------------------------------------------------------

#define ENTRY extern "C" __device__ __noinline__

// By float coordinates. Linear memory is not read so.
ENTRY uint4 __zluda_tex_1d(u64 t, u64 s, float x, float lod, u32 has_lod, i32 ox) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, 0, 0, 0, texel_offset(ox), 0, 0};
  if (w.t->geometry & BUFFER) return make_uint4(0, 0, 0, 0);
  return zluda_sampled<1>(w, lod, has_lod);
}

ENTRY uint4 __zluda_tex_a1d(u64 t, u64 s, u32 layer, float x, float lod, u32 has_lod, i32 ox) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, 0, 0, 0, texel_offset(ox), 0, 0};
  w.slice = layer_of(w.t, layer);
  return zluda_sampled<1>(w, lod, has_lod);
}

ENTRY uint4 __zluda_tex_2d(u64 t, u64 s, float x, float y, float lod, u32 has_lod, i32 ox, i32 oy) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, y, 0, 0, texel_offset(ox), texel_offset(oy), 0};
  return zluda_sampled<2>(w, lod, has_lod);
}

ENTRY uint4 __zluda_tex_a2d(u64 t, u64 s, u32 layer, float x, float y, float lod, u32 has_lod, i32 ox, i32 oy) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, y, 0, 0, texel_offset(ox), texel_offset(oy), 0};
  w.slice = layer_of(w.t, layer);
  return zluda_sampled<2>(w, lod, has_lod);
}

ENTRY uint4 __zluda_tex_3d(u64 t, u64 s, float x, float y, float z, float lod, u32 has_lod, i32 ox, i32 oy,
                           i32 oz) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, y, z, 0,
             texel_offset(ox), texel_offset(oy), texel_offset(oz)};
  return zluda_sampled<3>(w, lod, has_lod);
}

// A direction's face, and the place in it as normalised coordinates.
struct Facing {
  i32 face;
  float s, t;
};

static __device__ float reciprocal(float x) {  // MUFU.RCP
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

struct Direction {
  float x, y, z;
};

// ptxas brings a direction onto the cube: times the approximate reciprocal of what is largest.
static __device__ Direction on_cube(float x, float y, float z) {
  float r = reciprocal(fmaxf(fabsf(z), fmaxf(fabsf(x), fabsf(y))));
  return {__fmul_rn(x, r), __fmul_rn(y, r), __fmul_rn(z, r)};
}

static __device__ float magnitude(float x) { return x == x ? fabsf(x) : -1; }  // NaN is smaller than any number

// The face on which a direction is: the largest coordinate's, z before y before x.
static __device__ int face_of(Direction d) {
  float ax = magnitude(d.x), ay = magnitude(d.y), az = magnitude(d.z);
  if (az >= ax && az >= ay) return d.z < 0 ? 5 : 4;
  return ay >= ax ? (d.y < 0 ? 3 : 2) : d.x < 0 ? 1 : 0;
}

// The largest coordinate is taken for 1, whatever the reciprocal made it. In a place NaN is a zero.
__device__ __noinline__ Facing zluda_facing(float x, float y, float z) {
  Direction d = on_cube(x, y, z);
  i32 face = face_of(d);
  x = d.x == d.x ? d.x : 0, y = d.y == d.y ? d.y : 0, z = d.z == d.z ? d.z : 0;
  float u = face < 2 ? (face ? z : -z) : face == 5 ? -x : x;
  float v = face / 2 != 1 ? -y : face == 3 ? -z : z;
  u = fminf(fmaxf(u, -1.0f), 1.0f), v = fminf(fmaxf(v, -1.0f), 1.0f);
  // At most 22 bits count later.
  double s = floor((u * 0.5 + 0.5) * 4194304), t = floor((v * 0.5 + 0.5) * 4194304);
  return {face, (float)(s / 4194304), (float)(t / 4194304)};
}

// What is no cube has one face: a fetch of the wrong kind does not leave the texels.
static __device__ bool has_faces(const Descriptor *t) { return (t->geometry & CUBE) != 0; }

static __device__ Where on_faces(u64 t, u64 s, u32 layer, float x, float y, float z) {
  Facing at = zluda_facing(x, y, z);
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), at.s, at.t, 0, 0, 0, 0, 0};
  if (has_faces(w.t)) w.slice = at.face + 6 * layer_of(w.t, layer);
  return w;
}

static __device__ bool seamless(Where w) { return has_faces(w.t) && w.s->flags & SEAMLESS && w.s->filter; }

static __device__ uint4 sampled_cube(u64 t, u64 s, u32 layer, float x, float y, float z, float lod, u32 has_lod) {
  Where w = on_faces(t, s, layer, x, y, z);
  return seamless(w) ? zluda_sampled<SEAMLESS_FACES>(w, lod, has_lod) : zluda_sampled<2>(w, lod, has_lod);
}

ENTRY uint4 __zluda_tex_cube(u64 t, u64 s, float x, float y, float z, float lod, u32 has_lod) {
  return sampled_cube(t, s, 0, x, y, z, lod, has_lod);
}

ENTRY uint4 __zluda_tex_acube(u64 t, u64 s, u32 layer, float x, float y, float z, float lod, u32 has_lod) {
  return sampled_cube(t, s, layer, x, y, z, lod, has_lod);
}

// By integers: a texel of the first level's range, brought into its own level's; zeros elsewhere.
__device__ __noinline__ uint4 zluda_whole(u64 handle, u32 layer, i32 x, i32 y, i32 z, i32 number, bool buffer) {
  const Descriptor *t = __zluda_descriptor(handle);
  const Level *first = &t->level[0];
  bool inside = (u32)x < first->width && (u32)y < first->height && (u32)z < first->depth &&
                layer < t->layers && (u32)number < t->levels && buffer == ((t->geometry & BUFFER) != 0);
  if (!inside) return make_uint4(0, 0, 0, 0);
  const Level *level = &t->level[number];
  x = min(x, (i32)level->width - 1), y = min(y, (i32)level->height - 1), z = min(z, (i32)level->depth - 1);
  return __zluda_texel(t, t, number, x, y, z + layer);
}

ENTRY uint4 __zluda_texi_1d(u64 t, u64 s, i32 x, i32 level, u32 has_level, i32 ox) {
  return zluda_whole(t, 0, x, 0, 0, level, true);
}

ENTRY uint4 __zluda_texi_a1d(u64 t, u64 s, u32 layer, i32 x, i32 level, u32 has_level, i32 ox) {
  return zluda_whole(t, layer, x + texel_offset(ox), 0, 0, level, false);
}

ENTRY uint4 __zluda_texi_2d(u64 t, u64 s, i32 x, i32 y, i32 level, u32 has_level, i32 ox, i32 oy) {
  return zluda_whole(t, 0, x + texel_offset(ox), y + texel_offset(oy), 0, level, false);
}

ENTRY uint4 __zluda_texi_a2d(u64 t, u64 s, u32 layer, i32 x, i32 y, i32 level, u32 has_level, i32 ox, i32 oy) {
  return zluda_whole(t, layer, x + texel_offset(ox), y + texel_offset(oy), 0, level, false);
}

ENTRY uint4 __zluda_texi_3d(u64 t, u64 s, i32 x, i32 y, i32 z, i32 level, u32 has_level, i32 ox, i32 oy, i32 oz) {
  return zluda_whole(t, 0, x + texel_offset(ox), y + texel_offset(oy), z + texel_offset(oz), level, false);
}

// --- levels of detail from gradients ---------------------------------------------------------------------
//
// The unit reckons with numbers of ten bits, cut, here floats whose other bits are zeros. Its multiplier leaves
// out the six lowest columns of partial products and has a constant in their place.

__constant__ u8 __zluda_log2[256] = {
#include "log2.inc"
};

static __device__ float cut(float x) { return as_float(as_bits(x) & 0xffffc000); }

static __device__ float power(i32 exponent) { return as_float((u32)clamp(exponent + 127, 0, 255) << 23); }

static __device__ i32 exponent_of(float x) { return (i32)(as_bits(x) >> 23 & 255) - 127; }

// The ten bits of a number as an integer; zero for what is smaller than any normal one.
static __device__ u32 mantissa_of(float x) {
  u32 bits = as_bits(x);
  return bits & 0x7f800000 ? (bits >> 14 & 0x1ff) | 0x200 : 0;
}

// In two steps, since a power of two that is wanted may be none of a float's.
static __device__ float scaled(u32 value, i32 exponent) {
  i32 first = exponent >> 1;
  return __fmul_rn(__fmul_rn((float)value, power(first)), power(exponent - first));
}

__device__ __noinline__ float zluda_product(float x, float y) {
  u32 a = mantissa_of(x), b = mantissa_of(y), sum = a * b + 448;
  if (!a || !b) return 0;
  #pragma unroll
  for (u32 j = 0; j < 6; j++)
    if (b >> j & 1) sum -= (a & ((1 << (6 - j)) - 1)) << j;
  float size = cut(scaled(sum, exponent_of(x) + exponent_of(y) - 18));
  return (as_bits(x) ^ as_bits(y)) >> 31 ? -size : size;
}

// A sum: the smaller one is aligned to the larger one's ten bits and one more, and cut; so is the result.
static __device__ float sum_of(float x, float y) {
  if (fabsf(x) < fabsf(y)) {
    float t = x;
    x = y, y = t;
  }
  u32 down = (as_bits(x) >> 23 & 255) - (as_bits(y) >> 23 & 255);
  return cut(__fadd_rn(x, down > 10 ? 0.0f : as_float(as_bits(y) & ~0u << (13 + down))));
}

// Eleven times the mantissa, the lowest three bits rounded: 11/16 of a number at exponent - 10, 11/32 at - 11.
static __device__ u32 eleven(float x) { return (mantissa_of(x) * 11 + 4) >> 3; }

struct Vector3 {
  float x, y, z;
};

// What stands for a vector's length, in ten bits: its longest side, 11/32 of the next and a quarter of the shortest.
// With `diagonal`, 11/16 of that, for the sum or the difference of two.
__device__ __noinline__ float zluda_length(Vector3 v, bool solid, bool diagonal) {
  float x = fabsf(v.x), y = fabsf(v.y), z = fabsf(v.z);
  float longest = fmaxf(x, fmaxf(y, z)), shortest = fminf(x, fminf(y, z));
  float middle = fmaxf(fminf(x, y), fminf(fmaxf(x, y), z));
  i32 m = exponent_of(middle), s = exponent_of(shortest);
  float second = diagonal ? scaled((mantissa_of(middle) * 121 + 32) >> 6, m - 12) : scaled(eleven(middle), m - 11);
  if (solid)
    second = sum_of(cut(second), diagonal ? cut(scaled(eleven(shortest), s - 12)) : __fmul_rn(shortest, 0.25f));
  if (diagonal) longest = cut(scaled(eleven(longest), exponent_of(longest) - 10));
  return cut(__fadd_rn(longest, second));
}

static __device__ float eleven_16ths(float x) {
  float size = cut(scaled(eleven(x), exponent_of(x) - 10));
  return x < 0 ? -size : size;
}

struct Axis {
  float length;
  Vector3 along;
};

static __device__ Axis longer(Axis one, Axis other) { return other.length > one.length ? other : one; }

// 11/16 of the sum of two vectors.
__device__ __noinline__ Axis zluda_diagonal(Vector3 a, Vector3 b, bool solid) {
  Vector3 sum = {sum_of(a.x, b.x), sum_of(a.y, b.y), sum_of(a.z, b.z)};
  return {zluda_length(sum, solid, true), {eleven_16ths(sum.x), eleven_16ths(sum.y), 0}};
}

// The longer axis of the footprint that two vectors span: the first, their sum, the second or their difference, in
// this order where they are as long. A difference is what the shorter one is taken from. Across an edge of a cube
// (`bent`) only the two count.
static __device__ Axis major_axis(Vector3 a, Vector3 b, bool solid, bool bent) {
  Axis first = {zluda_length(a, solid, false), a}, second = {zluda_length(b, solid, false), b};
  if (bent) return longer(first, second);
  Axis most = longer(longer(first, zluda_diagonal(a, b, solid)), second);
  if (second.length < first.length) b = {-b.x, -b.y, -b.z};
  else a = {-a.x, -a.y, -a.z};
  return longer(most, zluda_diagonal(a, b, solid));
}

static __device__ const i32 NO_LOD = -(1 << 20);

// 256 log2 of a length, by its highest nine bits.
static __device__ i32 logarithm(float length) {
  u32 bits = as_bits(length) & 0x7fffffff;
  if (bits < 0x800000) return NO_LOD;
  if (bits >= 0x7f800000) return bits == 0x7f800000 ? -NO_LOD : 0;
  return ((i32)(bits >> 23) - 127) * 256 + __zluda_log2[bits >> 15 & 255];
}

// 256 log2 of the largest ratio of a footprint's axes; the sampler knows no others.
static __device__ i32 most_anisotropy(const Descriptor *s) {
  u32 n = s->max_anisotropy;
  return n < 2 ? 0 : n < 4 ? 256 : n < 6 ? 512 : n < 8 ? 656 : n < 10 ? 768 : n < 12 ? 848 : n < 16 ? 912 : 1024;
}

struct Footprint {
  float lod;
  i32 ratio;  // of its axes, in 256ths of an octave
  float x, y;  // the longer axis
};

// The level of detail: the longer axis' or, of an anisotropic sampler, the shorter one's, which is the area of
// the footprint by the longer one.
static __device__ Footprint footprint_of(const Descriptor *s, Vector3 a, Vector3 b, bool solid, bool bent) {
  Axis axis = major_axis(a, b, solid, bent);
  i32 major = logarithm(axis.length), most = most_anisotropy(s);
  if (!most || solid || bent) return {major * 0.00390625f, 0, 0, 0};
  i32 area = logarithm(sum_of(zluda_product(a.x, b.y), -zluda_product(a.y, b.x)));
  i32 minor = max(min(area - major, major), major - most);
  return {minor * 0.00390625f, major - max(minor, 0), axis.along.x, axis.along.y};
}

static __device__ float in_texels(float x, u32 size) { return x == x ? zluda_product(x, (float)size) : 0; }

// 256 / 2^(i / 256), rounded, but for the first, which is 256.
__constant__ u8 __zluda_exp2[256] = {
#include "exp2.inc"
};

// The probes of one level: how many, each a step from the next, and what the inner and the two outer ones weigh, of
// 256 << shift together.
struct Probes {
  i32 count, step_x, step_y;  // the steps in 64ths of a texel
  u32 inner, outer, shift;
};

static __device__ i32 half_up(float x) { return (i32)floorf(x + 0.5f); }

static __device__ float middle_of_step(float x) { return x < 0.25f ? 0 : floorf(x) + 0.5f; }

// Of a footprint that is longer than a texel of the level by `ratio` 256ths of an octave.
static __device__ Probes probes_of(Footprint f, i32 ratio) {
  if (ratio <= 0) return {1, 0, 0, 256, 256, 0};
  // The direction in 64ths, by the four highest bits of the longer side, those of the shorter one and a half each; a
  // shorter side of less than a quarter of one is none.
  float scale = power(3 - exponent_of(fmaxf(fabsf(f.x), fabsf(f.y))));
  float sx = middle_of_step(fabsf(f.x) * scale), sy = middle_of_step(fabsf(f.y) * scale);
  float length = __fsqrt_rn(__fadd_rn(__fmul_rn(sx, sx), __fmul_rn(sy, sy)));
  i32 x = half_up(__fdiv_rn(64 * sx, length)), y = half_up(__fdiv_rn(64 * sy, length));
  if (f.x < 0) x = -x;
  if (f.y < 0) y = -y;
  u32 reciprocal = (ratio & 255) ? __zluda_exp2[ratio & 255] : 256;
  if (ratio <= 256) {  // two, as far apart as the footprint is longer than wide
    i32 apart = 256 - (i32)(reciprocal >> (ratio >> 8));
    return {2, half_up(apart * x * 0.0078125f), half_up(apart * y * 0.0078125f), 256, 256, 1};
  }
  u32 shift = ratio <= 510 ? 1 : 2, whole = 256 << shift;
  u32 inner = ratio <= 510 ? reciprocal : ratio <= 512 ? 256 : reciprocal >> ((ratio >> 8) - 2);
  i32 count = 4;
  #pragma unroll 1
  while ((whole - (count - 2) * inner) >> 1 > inner) count += 2;
  return {count, x, y, inner, (whole - (count - 2) * inner) >> 1, shift};
}

// Where two levels are blended, each has probes of its own. The larger one has as many as the footprint is longer
// than the width between the two, and as far apart as that; the smaller one a texel apart, as many as there are.
static __device__ Probes probes_of_level(Footprint f, u32 weight, bool second) {
  if (second) return probes_of(f, f.ratio - 256 + (i32)weight);
  Probes p = probes_of(f, f.ratio);
  if (!weight) return p;
  i32 wider = __zluda_exp2[256 - weight] >> 1;  // 64 * 2^(weight / 256)
  p.step_x = p.step_x * wider >> 6, p.step_y = p.step_y * wider >> 6;
  return p;
}

// What a level's probes give to a channel, `level_weight` 256ths in all: of each the sum so far is rounded half up.
template <int DIMENSIONS>
__device__ __noinline__ Sum zluda_probes_sum(Where w, Probes p, u32 number, u32 level_weight, u32 channel) {
  Sum sum = {0, 0};
  u32 whole = 0, before = 0;
  #pragma unroll 1
  for (i32 i = 0; i < p.count; i++) {
    whole += (i == 0 || i == p.count - 1 ? p.outer : p.inner) * level_weight;
    u32 until = (whole + 128) >> 8, share = until - before;
    before = until;
    i32 steps = 2 * (2 * i - p.count + 1);  // halves, in 256ths
    w.shift_x = steps * p.step_x, w.shift_y = steps * p.step_y;
    Sum part = zluda_level_sum<DIMENSIONS>(w, number, share, channel);
    sum.total += part.total;
    sum.seen |= part.seen;
  }
  sum.total /= 1 << p.shift;
  return sum;
}

// A fetch by gradients: like one by level, at each probe.
template <int DIMENSIONS>
__device__ __noinline__ uint4 zluda_probed(Where w, Footprint f) {
  if (f.ratio <= 0 || !reads_floats(w.t)) return zluda_sampled<DIMENSIONS>(w, f.lod, true);
  i32 fixed = chosen_lod(w.t, w.s, f.lod, true);
  u32 number = min((u32)(w.s->mip_filter ? fixed >> 8 : (fixed + 128) >> 8), w.t->levels - 1);
  u32 next = min(number + 1, w.t->levels - 1), weight = w.s->mip_filter ? fixed & 255 : 0;
  w.probes = true;
  u32 r[4] = {0, 0, 0, 0};
  #pragma unroll 1
  for (u32 c = 0; c < w.t->channels; c++) {
    Sum sum = {0, 0};
    #pragma unroll 1
    for (u32 i = 0; i < (weight ? 2 : 1); i++) {
      Probes p = probes_of_level(f, weight, i);
      Sum part = zluda_probes_sum<DIMENSIONS>(w, p, i ? next : number, i ? weight : 256 - weight, c);
      sum.total += part.total;
      sum.seen |= part.seen;
    }
    u32 value = zluda_finished(w.t, sum, c);
    r[0] = c == 0 ? value : r[0];
    r[1] = c == 1 ? value : r[1];
    r[2] = c == 2 ? value : r[2];
    r[3] = c == 3 ? value : r[3];
  }
  return four(r);
}

static __device__ uint4 line_by_gradients(Where w, float dx, float dy) {
  u32 width = w.t->level[0].width;
  Vector3 a = {in_texels(dx, width), 0, 0}, b = {in_texels(dy, width), 0, 0};
  return zluda_probed<1>(w, footprint_of(w.s, a, b, false, false));
}

static __device__ uint4 plane_by_gradients(Where w, float ax, float ay, float bx, float by) {
  u32 width = w.t->level[0].width, height = w.t->level[0].height;
  Vector3 a = {in_texels(ax, width), in_texels(ay, height), 0}, b = {in_texels(bx, width), in_texels(by, height), 0};
  return zluda_probed<2>(w, footprint_of(w.s, a, b, false, false));
}

ENTRY uint4 __zluda_grad_1d(u64 t, u64 s, float x, float dx, float dy, i32 ox) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, 0, 0, 0, texel_offset(ox), 0, 0};
  if (w.t->geometry & BUFFER) return make_uint4(0, 0, 0, 0);
  return line_by_gradients(w, dx, dy);
}

ENTRY uint4 __zluda_grad_a1d(u64 t, u64 s, u32 layer, float x, float dx, float dy, i32 ox) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, 0, 0, 0, texel_offset(ox), 0, 0};
  w.slice = layer_of(w.t, layer);
  return line_by_gradients(w, dx, dy);
}

ENTRY uint4 __zluda_grad_2d(u64 t, u64 s, float x, float y, float ax, float ay, float bx, float by, i32 ox, i32 oy) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, y, 0, 0, texel_offset(ox), texel_offset(oy), 0};
  return plane_by_gradients(w, ax, ay, bx, by);
}

ENTRY uint4 __zluda_grad_a2d(u64 t, u64 s, u32 layer, float x, float y, float ax, float ay, float bx, float by,
                             i32 ox, i32 oy) {
  Where w = {__zluda_descriptor(t), __zluda_descriptor(s), x, y, 0, 0, texel_offset(ox), texel_offset(oy), 0};
  w.slice = layer_of(w.t, layer);
  return plane_by_gradients(w, ax, ay, bx, by);
}

// In three dimensions and on cubes NVIDIA's library makes a quad of the place, and of the two at the gradients'
// ends, so that their differences count.
static __device__ float step(float at, float gradient) { return __fsub_rn(__fadd_rn(at, gradient), at); }

ENTRY float __zluda_lod_3d(u64 t, u64 s, float x, float y, float z, float ax, float ay, float az, float bx, float by,
                           float bz) {
  const Level *level = &__zluda_descriptor(t)->level[0];
  u32 w = level->width, h = level->height, d = level->depth;
  Vector3 a = {in_texels(step(x, ax), w), in_texels(step(y, ay), h), in_texels(step(z, az), d)};
  Vector3 b = {in_texels(step(x, bx), w), in_texels(step(y, by), h), in_texels(step(z, bz), d)};
  return footprint_of(__zluda_descriptor(s), a, b, true, false).lod;
}

// Faces as axes, 0 to 2, and whether they are the negative one.
static __device__ float along(Direction d, int axis) { return axis == 0 ? d.x : axis == 1 ? d.y : d.z; }

// From one place on a cube to another one, along an axis of the first one's face, in texels of `size` an edge: over
// an edge it is the way there and the way from there.
static __device__ float way(Direction from, int face, Direction to, int other, int axis, u32 size) {
  float here = along(from, axis), there = along(to, axis);
  if (other / 2 != axis) return in_texels(__fmul_rn(__fsub_rn(there, here), 0.5f), size);
  float sign = there < 0 ? -1.0f : 1.0f, up = along(to, face / 2);
  float near = __fsub_rn(1.0f, __fmul_rn(sign, here)), far = __fsub_rn(1.0f, face & 1 ? -up : up);
  return sum_of(in_texels(__fmul_rn(near, 0.5f), size), in_texels(__fmul_rn(far, 0.5f), size));
}

// The gradient along a face's axis: `u` and `v` of a place there may be the negative coordinate.
static __device__ Vector3 on_face(Direction from, int face, Direction to, int other, u32 size) {
  float x = way(from, face, to, other, face < 2 ? 2 : 0, size);
  float y = way(from, face, to, other, face / 2 == 1 ? 2 : 1, size);
  return {face == 0 || face == 5 ? -x : x, face == 2 ? y : -y, 0};
}

// The footprint of a place on a cube and the two at its gradients' ends; to the opposite face it is all there is.
static __device__ Footprint cube_footprint(const Descriptor *t, const Descriptor *s, Direction p, Direction a,
                                           Direction b) {
  u32 size = t->level[0].width;
  int face = face_of(p), first = face_of(a), second = face_of(b);
  if (first == (face ^ 1) || second == (face ^ 1)) return {-NO_LOD * 0.00390625f, 0, 0, 0};
  return footprint_of(s, on_face(p, face, a, first, size), on_face(p, face, b, second, size), false,
                      first != face || second != face);
}

static __device__ uint4 cube_by_gradients(u64 t, u64 s, u32 layer, float x, float y, float z, float ax, float ay,
                                          float az, float bx, float by, float bz) {
  Where w = on_faces(t, s, layer, x, y, z);
  Footprint f = cube_footprint(w.t, w.s, on_cube(x, y, z),
                               on_cube(__fadd_rn(x, ax), __fadd_rn(y, ay), __fadd_rn(z, az)),
                               on_cube(__fadd_rn(x, bx), __fadd_rn(y, by), __fadd_rn(z, bz)));
  return seamless(w) ? zluda_probed<SEAMLESS_FACES>(w, f) : zluda_probed<2>(w, f);
}

ENTRY uint4 __zluda_grad_cube(u64 t, u64 s, float x, float y, float z, float ax, float ay, float az, float bx,
                              float by, float bz) {
  return cube_by_gradients(t, s, 0, x, y, z, ax, ay, az, bx, by, bz);
}

ENTRY uint4 __zluda_grad_acube(u64 t, u64 s, u32 layer, float x, float y, float z, float ax, float ay, float az,
                               float bx, float by, float bz) {
  return cube_by_gradients(t, s, layer, x, y, z, ax, ay, az, bx, by, bz);
}

// --- tld4 ------------------------------------------------------------------------------------------------

static __device__ i32 gather_offset(i32 offset) { return offset << 26 >> 26; }  // six bits count

static __device__ u32 gathered_one(const Descriptor *t, const Descriptor *s, i32 x, i32 y, i32 z, u32 c) {
  return c < t->channels ? zluda_decoded(t, zluda_raw_texel(t, s, &t->level[0], x, y, z, c), c) : 0;
}

// One component of the four texels a linear filter would blend: lower left, lower right, upper right, upper left.
__device__ __noinline__ uint4 zluda_gathered(u64 th, u64 sh, u32 layer, float fx, float fy, u32 c, i32 ox, i32 oy) {
  const Descriptor *t = __zluda_descriptor(th), *s = __zluda_descriptor(sh);
  bool normalized = by_fractions(t, s);
  const Level *level = &t->level[0];
  Place x = zluda_placed(fx, level->width, s->address[0], normalized, true, gather_offset(ox), true);
  Place y = zluda_placed(fy, level->height, s->address[1], normalized, true, gather_offset(oy), true);
  i32 z = layer_of(t, layer);
  return make_uint4(gathered_one(t, s, x.first, y.second, z, c), gathered_one(t, s, x.second, y.second, z, c),
                    gathered_one(t, s, x.second, y.first, z, c), gathered_one(t, s, x.first, y.first, z, c));
}

ENTRY uint4 __zluda_tld4_2d(u64 t, u64 s, float x, float y, u32 component, i32 ox, i32 oy) {
  return zluda_gathered(t, s, 0, x, y, component, ox, oy);
}

ENTRY uint4 __zluda_tld4_a2d(u64 t, u64 s, u32 layer, float x, float y, u32 component, i32 ox, i32 oy) {
  return zluda_gathered(t, s, layer, x, y, component, ox, oy);
}

// Where three faces meet there is no fourth texel: what a filter gives that looks there alone takes its place.
ENTRY uint4 __zluda_tld4_acube(u64 th, u64 sh, u32 layer, float fx, float fy, float fz, u32 c) {
  const Descriptor *t = __zluda_descriptor(th), *s = __zluda_descriptor(sh);
  Facing at = zluda_facing(fx, fy, fz);
  const Level *level = &t->level[0];
  bool seamless = has_faces(t) && s->flags & SEAMLESS;
  Place x = zluda_placed(at.s, level->width, seamless ? BEYOND : CLAMP, true, true, 0, true);
  Place y = zluda_placed(at.t, level->height, seamless ? BEYOND : CLAMP, true, true, 0, true);
  i32 z = has_faces(t) ? at.face + 6 * layer_of(t, layer) : 0, n = level->width, missing = -1;
  Taps taps = {{x.first, x.first, x.second, x.second}, {y.first, y.second, y.first, y.second}, {z, z, z, z}, {}};
  if (seamless) {
    #pragma unroll
    for (int i = 0; i < 4; i++)
      if ((u32)taps.x[i] >= (u32)n && (u32)taps.y[i] >= (u32)n) missing = i, taps.weight[i] = 256;
    across_seams(taps, n);
  }
  u32 r[4];
  #pragma unroll
  for (int i = 0; i < 4; i++) r[i] = gathered_one(t, s, taps.x[i], taps.y[i], taps.z[i], c);
  if (missing >= 0 && c < t->channels && reads_floats(t)) {
    u32 value = zluda_finished(t, zluda_blend(t, s, level, taps, c), c);
    #pragma unroll
    for (int i = 0; i < 4; i++) r[i] = i == missing ? value : r[i];
  }
  return make_uint4(r[1], r[3], r[2], r[0]);
}

ENTRY uint4 __zluda_tld4_cube(u64 t, u64 s, float x, float y, float z, u32 component) {
  return __zluda_tld4_acube(t, s, 0, x, y, z, component);
}

// --- surfaces --------------------------------------------------------------------------------------------

__device__ u32 __zluda_zeros[4];   // what loads out of range give
__device__ u32 __zluda_thrown[4];  // where stores out of range go

// Where an access is, in a surface's first level; 0 for one out of range that counts for nothing.
__device__ __noinline__ u64 zluda_place_in_surface(const Descriptor *t, u32 layer, i32 x, i32 y, i32 z, i32 bytes, u32 mode) {
  const Level *level = &t->level[0];
  bool cube = t->geometry & CUBE;
  i32 size = bytes ? bytes : (i32)t->texel_bytes;
  i32 width = (i32)(level->width * t->texel_bytes), height = level->height, depth = level->depth;
  i32 layers = (i32)t->layers * (cube ? 6 : 1);
  if (!bytes) x = clamp(x, -1, (i32)level->width) * (i32)t->texel_bytes;
  bool inside = x >= 0 && x <= width - size && (u32)y < (u32)height && (u32)z < (u32)depth && layer < (u32)layers;
  if (!inside) {
    if (mode == ON_RANGE_TRAP) __zluda_stop_surface();
    if (mode != ON_RANGE_CLAMP || size > width) return 0;
    if (x < 0) x = 0;
    else if (x > width - size) x = width - size;
    y = clamp(y, 0, height - 1), z = clamp(z, 0, depth - 1), layer = min(layer, (u32)layers - 1);
  }
  return level->address + (z + layer) * level->slice_pitch + y * level->row_pitch + x;
}

static __device__ u64 surface(u64 handle, u32 layer, i32 x, i32 y, i32 z, i32 bytes, u32 mode, u32 stores) {
  u64 found = zluda_place_in_surface(__zluda_descriptor(handle), layer, x, y, z, bytes, mode);
  return found ? found : (u64)(stores ? __zluda_thrown : __zluda_zeros);
}

ENTRY u64 __zluda_surface_1d(u64 t, i32 x, i32 bytes, u32 mode, u32 stores) {
  return surface(t, 0, x, 0, 0, bytes, mode, stores);
}

ENTRY u64 __zluda_surface_2d(u64 t, i32 x, i32 y, i32 bytes, u32 mode, u32 stores) {
  return surface(t, 0, x, y, 0, bytes, mode, stores);
}

ENTRY u64 __zluda_surface_3d(u64 t, i32 x, i32 y, i32 z, i32 bytes, u32 mode, u32 stores) {
  return surface(t, 0, x, y, z, bytes, mode, stores);
}

ENTRY u64 __zluda_surface_a1d(u64 t, u32 layer, i32 x, i32 bytes, u32 mode, u32 stores) {
  return surface(t, layer, x, 0, 0, bytes, mode, stores);
}

ENTRY u64 __zluda_surface_a2d(u64 t, u32 layer, i32 x, i32 y, i32 bytes, u32 mode, u32 stores) {
  return surface(t, layer, x, y, 0, bytes, mode, stores);
}

// A value as the surface's format holds it.
static __device__ void store_channel(const Descriptor *t, u64 at, u32 value, u32 channel) {
  switch (t->format) {
    case U8: *(u8 *)(at + channel) = (u8)min(value, 255u); break;
    case S8: *(u8 *)(at + channel) = (u8)clamp((i32)value, -128, 127); break;
    case U16: *(u16 *)(at + 2 * channel) = (u16)min(value, 65535u); break;
    case S16: *(u16 *)(at + 2 * channel) = (u16)clamp((i32)value, -32768, 32767); break;
    case HALF: *(u16 *)(at + 2 * channel) = (u16)float_to_half(value); break;
    default: *(u32 *)(at + 4 * channel) = value;
  }
}

__device__ __noinline__ void zluda_store_texel(u64 handle, u32 layer, i32 x, i32 y, i32 z, u32 mode, uint4 v) {
  const Descriptor *t = __zluda_descriptor(handle);
  u64 at = zluda_place_in_surface(t, layer, x, y, z, 0, mode);
  if (!at) return;
  store_channel(t, at, v.x, 0);
  if (t->channels > 1) store_channel(t, at, v.y, 1);
  if (t->channels > 2) store_channel(t, at, v.z, 2), store_channel(t, at, v.w, 3);
}

ENTRY void __zluda_sust_1d(u64 t, i32 x, u32 mode, u32 r, u32 g, u32 b, u32 a) {
  zluda_store_texel(t, 0, x, 0, 0, mode, make_uint4(r, g, b, a));
}

ENTRY void __zluda_sust_2d(u64 t, i32 x, i32 y, u32 mode, u32 r, u32 g, u32 b, u32 a) {
  zluda_store_texel(t, 0, x, y, 0, mode, make_uint4(r, g, b, a));
}

ENTRY void __zluda_sust_3d(u64 t, i32 x, i32 y, i32 z, u32 mode, u32 r, u32 g, u32 b, u32 a) {
  zluda_store_texel(t, 0, x, y, z, mode, make_uint4(r, g, b, a));
}

ENTRY void __zluda_sust_a1d(u64 t, u32 layer, i32 x, u32 mode, u32 r, u32 g, u32 b, u32 a) {
  zluda_store_texel(t, layer, x, 0, 0, mode, make_uint4(r, g, b, a));
}

ENTRY void __zluda_sust_a2d(u64 t, u32 layer, i32 x, i32 y, u32 mode, u32 r, u32 g, u32 b, u32 a) {
  zluda_store_texel(t, layer, x, y, 0, mode, make_uint4(r, g, b, a));
}

// --- queries ---------------------------------------------------------------------------------------------

// Numbers of channel types and orders as OpenCL has them (PTX ISA 5.3.2).
static __device__ u32 channel_type(const Descriptor *t) {
  bool normalized = t->flags & READ_NORMALIZED;
  switch (t->format) {
    case S8: return normalized ? 0x10d0 : 0x10d7;
    case S16: return normalized ? 0x10d1 : 0x10d8;
    case S32: return 0x10d9;
    case U8: return normalized ? 0x10d2 : 0x10da;
    case U16: return normalized ? 0x10d3 : 0x10db;
    case U32: return 0x10dc;
    case HALF: return 0x10dd;
    default: return 0x10de;
  }
}

// wrap, mirror, clamp_ogl, clamp_to_edge, clamp_to_border count from 0 (PTX ISA 5.3).
static __device__ u32 address_number(u32 mode) {
  return mode == WRAP ? 0 : mode == MIRROR ? 1 : mode == CLAMP ? 3 : 4;
}

enum Query {
  WIDTH, HEIGHT, DEPTH, ARRAY_SIZE, MIPMAP_LEVELS, SAMPLES, CHANNEL_TYPE, CHANNEL_ORDER, NORMALIZED_COORDINATES,
  FORCE_UNNORMALIZED, FILTER_MODE, ADDRESS_MODE_0, ADDRESS_MODE_1, ADDRESS_MODE_2, MEMORY_LAYOUT
};

// What expand.py's QUERIES are: the first three of a level, the others of the whole.
ENTRY u32 __zluda_query(u64 handle, u32 what, u32 level, u32 of_surface) {
  const Descriptor *t = __zluda_descriptor(handle);
  u32 dimensions = t->geometry & DIMENSIONS;
  bool layered = t->geometry & LAYERED;
  switch (what) {
    case ARRAY_SIZE: return layered ? t->layers : 0;
    case MIPMAP_LEVELS: return t->levels > 1 ? t->levels : 0;
    case SAMPLES: return 0;  // of an array of several
    case CHANNEL_TYPE: return channel_type(t);
    case CHANNEL_ORDER: return t->channels == 1 ? 0x10b0 : t->channels == 2 ? 0x10b2 : 0x10b5;
    case NORMALIZED_COORDINATES: return t->flags & NORMALIZED ? 1 : 0;
    case FORCE_UNNORMALIZED: return t->kind == SAMPLER && !(t->flags & NORMALIZED);
    case FILTER_MODE: return t->filter;
    case ADDRESS_MODE_0: return address_number(t->address[0]);
    case ADDRESS_MODE_1: return address_number(t->address[1]);
    case ADDRESS_MODE_2: return address_number(t->address[2]);
    case MEMORY_LAYOUT: return t->geometry & BUFFER ? 1 : 0;
  }
  if (level >= t->levels) return 0;
  const Level *of = &t->level[level];
  if (what == WIDTH) return of->width;
  if (what == HEIGHT && dimensions > 1) return of->height;
  if (what == HEIGHT) return layered ? t->layers : of_surface || t->geometry & BUFFER ? 0 : 1;
  return dimensions > 2 ? of->depth : layered && dimensions > 1 ? t->layers : 0;
}

ENTRY u32 __zluda_istypep(u64 handle, u32 kind) {
  const Descriptor *t = look_up(handle);
  return t && handle >> 32 && t->kind == kind;  // of a variable, by its address: objects' handles are small
}
