// Vectors in plain C++ (with the vector extension of GCC and Clang); the definition that the other
// files must match bit for bit.
#pragma once

namespace espalier::ESPALIER_ISA {

constexpr int kInt8Rows = 4;      // rows that the int8 kernel takes at once
constexpr int kInt8Tiles = 1;     // and tiles
constexpr int kInt8Sums = 8;      // vectors of integer sums that it keeps in registers
constexpr int kInt4Sums = 8;      // the same for the int4 kernel
constexpr int kBf16Rows = 4;      // rows that the bfloat16 kernel takes at once
constexpr int kAccumulators = 6;  // vectors that the float kernels keep in registers
constexpr int kFloatRows = 3;     // rows that they take at once
constexpr int kScoreVectors = 2;  // vectors of scores or head elements that attention takes

typedef float Vec __attribute__((vector_size(64)));
typedef int32_t IVec __attribute__((vector_size(64)));
typedef uint32_t UVec __attribute__((vector_size(64)));

ESPALIER_INLINE Vec splat(float x) { return x - Vec{}; }
ESPALIER_INLINE Vec zero() { return Vec{}; }

ESPALIER_INLINE Vec load(const float* p) {
  Vec out;
  std::memcpy(&out, p, sizeof out);
  return out;
}
// 16 words of any kind and alignment.
ESPALIER_INLINE Vec load_words(const void* p) {
  Vec out;
  std::memcpy(&out, p, sizeof out);
  return out;
}
ESPALIER_INLINE void store(float* p, Vec x) { std::memcpy(p, &x, sizeof x); }
// The first n lanes, 1 to 16; the others are zero, and are not written.
ESPALIER_INLINE Vec load_partial(const float* p, int64_t n) {
  Vec out{};
  std::memcpy(&out, p, static_cast<size_t>(n) * sizeof(float));
  return out;
}
ESPALIER_INLINE void store_partial(float* p, Vec x, int64_t n) {
  std::memcpy(p, &x, static_cast<size_t>(n) * sizeof(float));
}

ESPALIER_INLINE Vec add(Vec x, Vec y) { return x + y; }
ESPALIER_INLINE Vec sub(Vec x, Vec y) { return x - y; }
ESPALIER_INLINE Vec mul(Vec x, Vec y) { return x * y; }
ESPALIER_INLINE Vec div(Vec x, Vec y) { return x / y; }
ESPALIER_INLINE Vec fma(Vec x, Vec y, Vec z) {
  for (int i = 0; i < kLanes; ++i) z[i] = __builtin_fmaf(x[i], y[i], z[i]);
  return z;
}

ESPALIER_INLINE IVec bits(Vec x) {
  IVec out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
ESPALIER_INLINE Vec from_bits(IVec x) {
  Vec out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}
ESPALIER_INLINE Vec select(IVec mask, Vec x, Vec y) {
  return from_bits((mask & bits(x)) | (~mask & bits(y)));
}

// As on x86: the second where either is not a number.
ESPALIER_INLINE Vec min(Vec x, Vec y) { return select(x < y, x, y); }
ESPALIER_INLINE Vec max(Vec x, Vec y) { return select(x > y, x, y); }
ESPALIER_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) { return select(a < b, x, y); }
ESPALIER_INLINE Vec abs(Vec x) { return from_bits(bits(x) & 0x7FFFFFFF); }
ESPALIER_INLINE Vec with_sign_of(Vec x, Vec sign) {
  return from_bits((bits(x) & 0x7FFFFFFF) | (bits(sign) & INT32_MIN));
}
// 2^n where x = 1.5 * 2^23 + n.
ESPALIER_INLINE Vec power_of_two(Vec x) {
  UVec word;
  std::memcpy(&word, &x, sizeof word);
  word = (word << 23) + 0x3F800000u;
  std::memcpy(&x, &word, sizeof x);
  return x;
}
// t = whole + rest with |rest| <= 0.5, and x * 2^whole. t below -127 counts as -127; a result that
// would be subnormal is an unspecified subnormal or zero (see FlushSubnormals).
ESPALIER_INLINE void split_whole(Vec t, Vec& whole, Vec& rest) {
  t = max(splat(-127.0f), t);
  whole = (t + 12582912.0f) - 12582912.0f;
  rest = t - whole;
}
ESPALIER_INLINE Vec times_power_of_two(Vec x, Vec whole) {
  const Vec shifted = whole + 12582912.0f;
  UVec word, power;
  std::memcpy(&word, &x, sizeof word);
  std::memcpy(&power, &shifted, sizeof power);
  word += power << 23;
  std::memcpy(&x, &word, sizeof x);
  return x;
}
// Lanes from `begin` up to, not including, `end` of x, and those of y elsewhere.
ESPALIER_INLINE Vec select_lanes(int64_t begin, int64_t end, Vec x, Vec y) {
  for (int64_t i = 0; i < kLanes; ++i) y[i] = i >= begin && i < end ? x[i] : y[i];
  return y;
}
ESPALIER_INLINE Vec swap_neighbours(Vec x) {
  return Vec{x[1], x[0], x[3],  x[2],  x[5],  x[4],  x[7],  x[6],
             x[9], x[8], x[11], x[10], x[13], x[12], x[15], x[14]};
}

// Lane i with i + 8, then i + 4, i + 2, i + 1.
ESPALIER_INLINE float reduce_add(Vec x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] = x[i] + x[i + width];
  }
  return x[0];
}
ESPALIER_INLINE float reduce_max(Vec x) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) x[i] = x[i] > x[i + width] ? x[i] : x[i + width];
  }
  return x[0];
}

ESPALIER_INLINE IVec izero() { return IVec{}; }
ESPALIER_INLINE Vec to_float(IVec x) { return __builtin_convertvector(x, Vec); }
ESPALIER_INLINE IVec iadd(IVec x, IVec y) { return x + y; }
ESPALIER_INLINE IVec imax(IVec x, IVec y) { return (x & (x > y)) | (y & ~(x > y)); }
ESPALIER_INLINE int32_t reduce_imax(IVec x) {
  int32_t out = x[0];
  for (int i = 1; i < kLanes; ++i) out = x[i] > out ? x[i] : out;
  return out;
}

// Nearest whole numbers (ties to even) of |x| < 2^22 as int16, each quad in the order 0, 2, 1, 3.
ESPALIER_INLINE void store_quads(int32_t* pairs, Vec x) {
  const Vec whole = (x + 12582912.0f) - 12582912.0f;
  int16_t out[kLanes];
  for (int i = 0; i < kLanes; i += 4) {
    out[i] = static_cast<int16_t>(whole[i]);
    out[i + 1] = static_cast<int16_t>(whole[i + 2]);
    out[i + 2] = static_cast<int16_t>(whole[i + 1]);
    out[i + 3] = static_cast<int16_t>(whole[i + 3]);
  }
  std::memcpy(pairs, out, sizeof out);
}

ESPALIER_INLINE IVec load_bf16_bits(const uint16_t* p, int64_t n) {
  IVec out{};
  for (int64_t i = 0; i < n; ++i) out[i] = static_cast<int32_t>(static_cast<uint32_t>(p[i]) << 16);
  return out;
}
ESPALIER_INLINE Vec load_bf16(const uint16_t* p) { return from_bits(load_bf16_bits(p, kLanes)); }
ESPALIER_INLINE Vec load_bf16_partial(const uint16_t* p, int64_t n) {
  return from_bits(load_bf16_bits(p, n));
}
// The first and second bfloat16 of each word.
ESPALIER_INLINE Vec low_bf16(Vec x) { return from_bits(bits(x) << 16); }
ESPALIER_INLINE Vec high_bf16(Vec x) { return from_bits(bits(x) & -65536); }
// Nearest bfloat16, ties to even.
ESPALIER_INLINE void store_bf16_partial(uint16_t* p, Vec x, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t word = static_cast<uint32_t>(bits(x)[i]);
    p[i] = static_cast<uint16_t>((word + 0x7FFF + (word >> 16 & 1)) >> 16);
  }
}
ESPALIER_INLINE void store_bf16(uint16_t* p, Vec x) { store_bf16_partial(p, x, kLanes); }

// Nearest whole numbers (ties to even) of |x| < 2^22.
ESPALIER_INLINE IVec round(Vec x) {
  return __builtin_convertvector((x + 12582912.0f) - 12582912.0f, IVec);
}
ESPALIER_INLINE IVec shift_right(IVec x, int count) { return x >> count; }
ESPALIER_INLINE IVec iand(IVec x, int32_t mask) { return x & mask; }
// The low byte of each lane.
ESPALIER_INLINE void store_bytes(uint8_t* p, IVec x) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(x[i]);
}

ESPALIER_INLINE Vec round_to_bf16(Vec x) {
  UVec word;
  std::memcpy(&word, &x, sizeof word);
  word = (word + 0x7FFFu + (word >> 16 & 1u)) & 0xFFFF0000u;
  std::memcpy(&x, &word, sizeof x);
  return x;
}
ESPALIER_INLINE Vec load_int8(const int8_t* p) {
  Vec out;
  for (int i = 0; i < kLanes; ++i) out[i] = p[i];
  return out;
}
// Nearest whole numbers (ties to even) of |x| <= 127.
ESPALIER_INLINE void store_int8(int8_t* p, Vec x) {
  const Vec whole = (x + 12582912.0f) - 12582912.0f;
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(whole[i]);
}

// Two int16 of each of 16 columns.
struct Pairs {
  IVec low, high;
};
// Factors and offsets of 16 columns.
struct NibbleScale {
  IVec factor, offset;
};
ESPALIER_INLINE NibbleScale load_nibble_scale(const uint8_t* p) {
  uint16_t factors[kLanes];
  int16_t offsets[kLanes];
  std::memcpy(factors, p, sizeof factors);
  std::memcpy(offsets, p + sizeof factors, sizeof offsets);
  NibbleScale scale{};
  for (int i = 0; i < kLanes; ++i) {
    scale.factor[i] = factors[i];
    scale.offset[i] = offsets[i];
  }
  return scale;
}
// factor * q + offset of the nibbles `J` of both halves of a column's word, in 8.8 bits.
template <int J>
ESPALIER_INLINE Pairs scaled_nibbles(const uint8_t* line, const NibbleScale& scale) {
  Pairs q{};
  for (int i = 0; i < kLanes; ++i) {
    q.low[i] = line[4 * i + J / 2] >> 4 * (J % 2) & 0x0F;
    q.high[i] = line[4 * i + 2 + J / 2] >> 4 * (J % 2) & 0x0F;
  }
  return {q.low * scale.factor + scale.offset, q.high * scale.factor + scale.offset};
}
// The sums wrap around at 16 bits, and are within them in the end.
ESPALIER_INLINE IVec whole(IVec scaled) { return scaled << 16 >> 24; }
ESPALIER_INLINE Pairs whole_pairs(const Pairs& scaled) {
  return {whole(scaled.low), whole(scaled.high)};
}
// A quad of int8 for each column from the pairs (x0, x2) and (x1, x3).
ESPALIER_INLINE void store_whole_quads(int8_t* out, const Pairs& even, const Pairs& odd) {
  const Pairs x = whole_pairs(even), y = whole_pairs(odd);
  for (int i = 0; i < kLanes; ++i) {
    out[4 * i] = static_cast<int8_t>(x.low[i]);
    out[4 * i + 1] = static_cast<int8_t>(y.low[i]);
    out[4 * i + 2] = static_cast<int8_t>(x.high[i]);
    out[4 * i + 3] = static_cast<int8_t>(y.high[i]);
  }
}
// From 16 columns of 4 int8: the pairs (k0, k2) and (k1, k3).
ESPALIER_INLINE void split_quads(const int8_t* line, Pairs& even, Pairs& odd) {
  for (int i = 0; i < kLanes; ++i) {
    even.low[i] = line[4 * i];
    odd.low[i] = line[4 * i + 1];
    even.high[i] = line[4 * i + 2];
    odd.high[i] = line[4 * i + 3];
  }
}
// sum + low * (low half of x) + high * (high half of x).
ESPALIER_INLINE IVec dot_pairs(IVec sum, const Pairs& w, int32_t x) {
  return sum + w.low * static_cast<int16_t>(x & 0xFFFF) + w.high * (x >> 16);
}

ESPALIER_INLINE void transpose(Vec (&rows)[kLanes]) {
  for (int i = 0; i < kLanes; ++i) {
    for (int j = 0; j < i; ++j) {
      const float upper = rows[j][i];
      rows[j][i] = rows[i][j];
      rows[i][j] = upper;
    }
  }
}

}  // namespace espalier::ESPALIER_ISA
