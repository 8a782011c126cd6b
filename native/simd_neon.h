// Vectors in NEON, as every 64-bit Arm processor has it: four registers each.
#pragma once

#include <arm_neon.h>

namespace espalier::ESPALIER_ISA {

constexpr int kInt8Rows = 4;   // rows that the int8 kernel takes at once
constexpr int kInt8Tiles = 1;  // and tiles
constexpr int kInt8Sums = 4;
constexpr int kInt4Sums = 2;
constexpr int kBf16Rows = 2;
constexpr int kAccumulators = 5;
constexpr int kFloatRows = 6;
constexpr int kScoreVectors = 1;

struct Vec {
  float32x4_t q[4];
};
struct IVec {
  int32x4_t q[4];
};
// Two int16 of each of 16 columns.
struct Pairs {
  int16x8_t low[2], high[2];
};

template <typename Function>
ESPALIER_INLINE Vec each(const Vec& x, Function f) {
  return {{f(x.q[0]), f(x.q[1]), f(x.q[2]), f(x.q[3])}};
}
template <typename Function>
ESPALIER_INLINE Vec each(const Vec& x, const Vec& y, Function f) {
  return {{f(x.q[0], y.q[0]), f(x.q[1], y.q[1]), f(x.q[2], y.q[2]), f(x.q[3], y.q[3])}};
}
template <typename Function>
ESPALIER_INLINE IVec each(const IVec& x, Function f) {
  return {{f(x.q[0]), f(x.q[1]), f(x.q[2]), f(x.q[3])}};
}
template <typename Function>
ESPALIER_INLINE IVec each(const IVec& x, const IVec& y, Function f) {
  return {{f(x.q[0], y.q[0]), f(x.q[1], y.q[1]), f(x.q[2], y.q[2]), f(x.q[3], y.q[3])}};
}

ESPALIER_INLINE float32x4_t as_floats(int32x4_t x) { return vreinterpretq_f32_s32(x); }
ESPALIER_INLINE int32x4_t as_words(float32x4_t x) { return vreinterpretq_s32_f32(x); }
ESPALIER_INLINE int32x4_t as_words(uint32x4_t x) { return vreinterpretq_s32_u32(x); }
ESPALIER_INLINE uint32x4_t as_unsigned(int32x4_t x) { return vreinterpretq_u32_s32(x); }

ESPALIER_INLINE Vec splat(float x) {
  const float32x4_t four = vdupq_n_f32(x);
  return {{four, four, four, four}};
}
ESPALIER_INLINE Vec zero() { return splat(0.0f); }
ESPALIER_INLINE IVec isplat(int32_t x) {
  const int32x4_t four = vdupq_n_s32(x);
  return {{four, four, four, four}};
}

ESPALIER_INLINE Vec load(const float* p) {
  return {{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}
// 16 words of any kind and alignment.
ESPALIER_INLINE Vec load_words(const void* p) {
  const uint8_t* bytes = static_cast<const uint8_t*>(p);
  const auto four = [](const uint8_t* word) { return vreinterpretq_f32_u8(vld1q_u8(word)); };
  return {{four(bytes), four(bytes + 16), four(bytes + 32), four(bytes + 48)}};
}
ESPALIER_INLINE void store(float* p, const Vec& x) {
  vst1q_f32(p, x.q[0]);
  vst1q_f32(p + 4, x.q[1]);
  vst1q_f32(p + 8, x.q[2]);
  vst1q_f32(p + 12, x.q[3]);
}
ESPALIER_INLINE Vec load_partial(const float* p, int64_t n) {
  if (n == kLanes) return load(p);
  float whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<size_t>(n) * sizeof(float));
  return load(whole);
}
ESPALIER_INLINE void store_partial(float* p, const Vec& x, int64_t n) {
  if (n == kLanes) return store(p, x);
  float whole[kLanes];
  store(whole, x);
  std::memcpy(p, whole, static_cast<size_t>(n) * sizeof(float));
}

ESPALIER_INLINE Vec add(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return vaddq_f32(a, b); });
}
ESPALIER_INLINE Vec sub(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return vsubq_f32(a, b); });
}
ESPALIER_INLINE Vec mul(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return vmulq_f32(a, b); });
}
ESPALIER_INLINE Vec div(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return vdivq_f32(a, b); });
}
ESPALIER_INLINE Vec fma(const Vec& x, const Vec& y, const Vec& z) {
  return {{vfmaq_f32(z.q[0], x.q[0], y.q[0]), vfmaq_f32(z.q[1], x.q[1], y.q[1]),
           vfmaq_f32(z.q[2], x.q[2], y.q[2]), vfmaq_f32(z.q[3], x.q[3], y.q[3])}};
}

// As on x86, unlike FMIN and FMAX: the second where either is not a number, or both are zeros.
ESPALIER_INLINE float32x4_t larger_of(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
ESPALIER_INLINE Vec min(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return vbslq_f32(vcltq_f32(a, b), a, b); });
}
ESPALIER_INLINE Vec max(const Vec& x, const Vec& y) {
  return each(x, y, [](float32x4_t a, float32x4_t b) { return larger_of(a, b); });
}
ESPALIER_INLINE IVec bits(const Vec& x) {
  return {{as_words(x.q[0]), as_words(x.q[1]), as_words(x.q[2]), as_words(x.q[3])}};
}
ESPALIER_INLINE Vec from_bits(const IVec& x) {
  return {{as_floats(x.q[0]), as_floats(x.q[1]), as_floats(x.q[2]), as_floats(x.q[3])}};
}
ESPALIER_INLINE Vec select(const IVec& mask, const Vec& x, const Vec& y) {
  return {{vbslq_f32(as_unsigned(mask.q[0]), x.q[0], y.q[0]),
           vbslq_f32(as_unsigned(mask.q[1]), x.q[1], y.q[1]),
           vbslq_f32(as_unsigned(mask.q[2]), x.q[2], y.q[2]),
           vbslq_f32(as_unsigned(mask.q[3]), x.q[3], y.q[3])}};
}
ESPALIER_INLINE Vec select_less(const Vec& a, const Vec& b, const Vec& x, const Vec& y) {
  const IVec mask = {{as_words(vcltq_f32(a.q[0], b.q[0])), as_words(vcltq_f32(a.q[1], b.q[1])),
                      as_words(vcltq_f32(a.q[2], b.q[2])), as_words(vcltq_f32(a.q[3], b.q[3]))}};
  return select(mask, x, y);
}
ESPALIER_INLINE Vec abs(const Vec& x) {
  return each(x, [](float32x4_t a) { return vabsq_f32(a); });
}
ESPALIER_INLINE Vec with_sign_of(const Vec& x, const Vec& sign) {
  return select(isplat(INT32_MIN), sign, x);
}
ESPALIER_INLINE Vec power_of_two(const Vec& x) {
  return each(x, [](float32x4_t a) {
    return as_floats(vaddq_s32(vshlq_n_s32(as_words(a), 23), vdupq_n_s32(0x3F800000)));
  });
}
// t = whole + rest with |rest| <= 0.5; t below -127 counts as -127.
ESPALIER_INLINE void split_whole(const Vec& t, Vec& whole, Vec& rest) {
  const Vec bounded = max(splat(-127.0f), t);
  whole = each(bounded, [](float32x4_t a) { return vrndnq_f32(a); });
  rest = sub(bounded, whole);
}
ESPALIER_INLINE Vec times_power_of_two(const Vec& x, const Vec& whole) {
  return each(x, whole, [](float32x4_t a, float32x4_t n) {
    return as_floats(vaddq_s32(as_words(a), vshlq_n_s32(vcvtnq_s32_f32(n), 23)));
  });
}
// Lanes from `begin` up to, not including, `end` of x, and those of y elsewhere.
ESPALIER_INLINE Vec select_lanes(int64_t begin, int64_t end, const Vec& x, const Vec& y) {
  begin = begin < 0 ? 0 : begin > kLanes ? kLanes : begin;
  end = end < 0 ? 0 : end > kLanes ? kLanes : end;
  const int32x4_t first = vdupq_n_s32(static_cast<int32_t>(begin));
  const int32x4_t last = vdupq_n_s32(static_cast<int32_t>(end));
  const IVec lanes = {{{0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}}};
  const IVec mask = each(lanes, [=](int32x4_t lane) {
    return as_words(vandq_u32(vcgeq_s32(lane, first), vcltq_s32(lane, last)));
  });
  return select(mask, x, y);
}
ESPALIER_INLINE Vec swap_neighbours(const Vec& x) {
  return each(x, [](float32x4_t a) { return vrev64q_f32(a); });
}

ESPALIER_INLINE float reduce_add(const Vec& x) {
  const float32x4_t four = vaddq_f32(vaddq_f32(x.q[0], x.q[2]), vaddq_f32(x.q[1], x.q[3]));
  const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
  return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
ESPALIER_INLINE float reduce_max(const Vec& x) {
  float32x4_t four = larger_of(larger_of(x.q[0], x.q[2]), larger_of(x.q[1], x.q[3]));
  four = larger_of(four, vextq_f32(four, four, 2));
  return vgetq_lane_f32(larger_of(four, vextq_f32(four, four, 1)), 0);
}

ESPALIER_INLINE IVec izero() { return isplat(0); }
ESPALIER_INLINE Vec to_float(const IVec& x) {
  return {
      {vcvtq_f32_s32(x.q[0]), vcvtq_f32_s32(x.q[1]), vcvtq_f32_s32(x.q[2]), vcvtq_f32_s32(x.q[3])}};
}
ESPALIER_INLINE IVec iadd(const IVec& x, const IVec& y) {
  return each(x, y, [](int32x4_t a, int32x4_t b) { return vaddq_s32(a, b); });
}
ESPALIER_INLINE IVec imax(const IVec& x, const IVec& y) {
  return each(x, y, [](int32x4_t a, int32x4_t b) { return vmaxq_s32(a, b); });
}
ESPALIER_INLINE int32_t reduce_imax(const IVec& x) {
  return vmaxvq_s32(vmaxq_s32(vmaxq_s32(x.q[0], x.q[2]), vmaxq_s32(x.q[1], x.q[3])));
}

// Nearest whole numbers, ties to even.
ESPALIER_INLINE IVec round(const Vec& x) {
  return {{vcvtnq_s32_f32(x.q[0]), vcvtnq_s32_f32(x.q[1]), vcvtnq_s32_f32(x.q[2]),
           vcvtnq_s32_f32(x.q[3])}};
}
ESPALIER_INLINE IVec shift_right(const IVec& x, int count) {
  return each(x, [=](int32x4_t a) { return vshlq_s32(a, vdupq_n_s32(-count)); });
}
ESPALIER_INLINE IVec iand(const IVec& x, int32_t mask) {
  return each(x, [=](int32x4_t a) { return vandq_s32(a, vdupq_n_s32(mask)); });
}
// The low half of each lane.
ESPALIER_INLINE int16x8_t low_halves(int32x4_t x, int32x4_t y) {
  return vuzp1q_s16(vreinterpretq_s16_s32(x), vreinterpretq_s16_s32(y));
}
// The low byte of each lane.
ESPALIER_INLINE uint8x16_t low_bytes(const IVec& x) {
  return vuzp1q_u8(vreinterpretq_u8_s16(low_halves(x.q[0], x.q[1])),
                   vreinterpretq_u8_s16(low_halves(x.q[2], x.q[3])));
}
ESPALIER_INLINE void store_bytes(uint8_t* p, const IVec& x) { vst1q_u8(p, low_bytes(x)); }

ESPALIER_INLINE void store_quads(int32_t* pairs, const Vec& x) {
  constexpr uint8_t kOrder[] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
  const uint8x16_t order = vld1q_u8(kOrder);
  const IVec whole = round(x);
  const int16x8_t low = low_halves(whole.q[0], whole.q[1]);
  const int16x8_t high = low_halves(whole.q[2], whole.q[3]);
  uint8_t* out = reinterpret_cast<uint8_t*>(pairs);
  vst1q_u8(out, vqtbl1q_u8(vreinterpretq_u8_s16(low), order));
  vst1q_u8(out + 16, vqtbl1q_u8(vreinterpretq_u8_s16(high), order));
}

ESPALIER_INLINE Vec load_bf16(const uint16_t* p) {
  const uint16x8_t none = vdupq_n_u16(0), low = vld1q_u16(p), high = vld1q_u16(p + 8);
  return {{vreinterpretq_f32_u16(vzip1q_u16(none, low)),
           vreinterpretq_f32_u16(vzip2q_u16(none, low)),
           vreinterpretq_f32_u16(vzip1q_u16(none, high)),
           vreinterpretq_f32_u16(vzip2q_u16(none, high))}};
}
ESPALIER_INLINE Vec load_bf16_partial(const uint16_t* p, int64_t n) {
  uint16_t whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bf16(whole);
}
ESPALIER_INLINE Vec low_bf16(const Vec& x) {
  return each(x, [](float32x4_t a) { return as_floats(vshlq_n_s32(as_words(a), 16)); });
}
ESPALIER_INLINE Vec high_bf16(const Vec& x) { return from_bits(iand(bits(x), -65536)); }
// The nearest bfloat16, ties to even, is the high half of each lane.
ESPALIER_INLINE int32x4_t rounded_to_high(float32x4_t x) {
  const uint32x4_t word = vreinterpretq_u32_f32(x);
  const uint32x4_t even = vandq_u32(vshrq_n_u32(word, 16), vdupq_n_u32(1));
  return vreinterpretq_s32_u32(vaddq_u32(vaddq_u32(word, vdupq_n_u32(0x7FFF)), even));
}
ESPALIER_INLINE uint16x8_t narrow_bf16(float32x4_t x, float32x4_t y) {
  return vuzp2q_u16(vreinterpretq_u16_s32(rounded_to_high(x)),
                    vreinterpretq_u16_s32(rounded_to_high(y)));
}
ESPALIER_INLINE void store_bf16(uint16_t* p, const Vec& x) {
  vst1q_u16(p, narrow_bf16(x.q[0], x.q[1]));
  vst1q_u16(p + 8, narrow_bf16(x.q[2], x.q[3]));
}
ESPALIER_INLINE void store_bf16_partial(uint16_t* p, const Vec& x, int64_t n) {
  uint16_t whole[kLanes];
  store_bf16(whole, x);
  std::memcpy(p, whole, static_cast<size_t>(n) * sizeof(uint16_t));
}
ESPALIER_INLINE Vec round_to_bf16(const Vec& x) {
  return high_bf16(each(x, [](float32x4_t a) { return as_floats(rounded_to_high(a)); }));
}
ESPALIER_INLINE Vec load_int8(const int8_t* p) {
  const int8x16_t bytes = vld1q_s8(p);
  const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
  return to_float({{vmovl_s16(vget_low_s16(low)), vmovl_high_s16(low),
                    vmovl_s16(vget_low_s16(high)), vmovl_high_s16(high)}});
}
// Nearest whole numbers (ties to even) of |x| <= 127.
ESPALIER_INLINE void store_int8(int8_t* p, const Vec& x) {
  vst1q_s8(p, vreinterpretq_s8_u8(low_bytes(round(x))));
}

// Factors and offsets of 16 columns.
struct NibbleScale {
  int16x8_t factor[2], offset[2];
};
ESPALIER_INLINE int16x8_t load_halves(const uint8_t* p) {
  return vreinterpretq_s16_u8(vld1q_u8(p));
}
// The halves of 16 words.
ESPALIER_INLINE Pairs split_halves(const uint8_t* p) {
  const int16x8_t a = load_halves(p), b = load_halves(p + 16);
  const int16x8_t c = load_halves(p + 32), d = load_halves(p + 48);
  return {{vuzp1q_s16(a, b), vuzp1q_s16(c, d)}, {vuzp2q_s16(a, b), vuzp2q_s16(c, d)}};
}
ESPALIER_INLINE NibbleScale load_nibble_scale(const uint8_t* p) {
  return {{load_halves(p), load_halves(p + 16)}, {load_halves(p + 32), load_halves(p + 48)}};
}
// factor * q + offset of the nibbles `J` of both halves of a column's word, in 8.8 bits.
template <int J>
ESPALIER_INLINE Pairs scaled_nibbles(const uint8_t* line, const NibbleScale& scale) {
  const auto scaled = [&](int16x8_t halves, int i) {
    uint16x8_t q = vreinterpretq_u16_s16(halves);
    if constexpr (J > 0) q = vshrq_n_u16(q, J > 0 ? 4 * J : 1);
    if constexpr (J < 3) q = vandq_u16(q, vdupq_n_u16(0x0F));
    return vmlaq_s16(scale.offset[i], vreinterpretq_s16_u16(q), scale.factor[i]);
  };
  const Pairs halves = split_halves(line);
  return {{scaled(halves.low[0], 0), scaled(halves.low[1], 1)},
          {scaled(halves.high[0], 0), scaled(halves.high[1], 1)}};
}
ESPALIER_INLINE Pairs whole_pairs(const Pairs& scaled) {
  return {{vshrq_n_s16(scaled.low[0], 8), vshrq_n_s16(scaled.low[1], 8)},
          {vshrq_n_s16(scaled.high[0], 8), vshrq_n_s16(scaled.high[1], 8)}};
}
// A quad of int8 for each column from the pairs (x0, x2) and (x1, x3).
ESPALIER_INLINE void store_whole_quads(int8_t* out, const Pairs& even, const Pairs& odd) {
  for (int i = 0; i < 2; ++i, out += 2 * kLanes) {
    const int16x8_t low = vsriq_n_s16(odd.low[i], even.low[i], 8);
    const int16x8_t high = vsriq_n_s16(odd.high[i], even.high[i], 8);
    vst1q_s8(out, vreinterpretq_s8_s16(vzip1q_s16(low, high)));
    vst1q_s8(out + kLanes, vreinterpretq_s8_s16(vzip2q_s16(low, high)));
  }
}

// From 16 columns of 4 int8: the pairs (k0, k2) and (k1, k3).
ESPALIER_INLINE void split_quads(const int8_t* line, Pairs& even, Pairs& odd) {
  const auto first = [](int16x8_t bytes) { return vshrq_n_s16(vshlq_n_s16(bytes, 8), 8); };
  const auto second = [](int16x8_t bytes) { return vshrq_n_s16(bytes, 8); };
  const Pairs quads = split_halves(reinterpret_cast<const uint8_t*>(line));
  even = {{first(quads.low[0]), first(quads.low[1])}, {first(quads.high[0]), first(quads.high[1])}};
  odd = {{second(quads.low[0]), second(quads.low[1])},
         {second(quads.high[0]), second(quads.high[1])}};
}
// sum + low * (low half of x) + high * (high half of x).
ESPALIER_INLINE IVec dot_pairs(const IVec& sum, const Pairs& w, int32_t x) {
  const int16x4_t pair = vreinterpret_s16_s32(vdup_n_s32(x));
  IVec low;
  low.q[0] = vmlal_lane_s16(sum.q[0], vget_low_s16(w.low[0]), pair, 0);
  low.q[1] = vmlal_high_lane_s16(sum.q[1], w.low[0], pair, 0);
  low.q[2] = vmlal_lane_s16(sum.q[2], vget_low_s16(w.low[1]), pair, 0);
  low.q[3] = vmlal_high_lane_s16(sum.q[3], w.low[1], pair, 0);
  return {{vmlal_lane_s16(low.q[0], vget_low_s16(w.high[0]), pair, 1),
           vmlal_high_lane_s16(low.q[1], w.high[0], pair, 1),
           vmlal_lane_s16(low.q[2], vget_low_s16(w.high[1]), pair, 1),
           vmlal_high_lane_s16(low.q[3], w.high[1], pair, 1)}};
}

// Transposes 4 x 4 of 16 rows and columns; the blocks change places on the way back.
ESPALIER_INLINE void transpose(Vec (&rows)[kLanes]) {
  Vec out[kLanes];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const float32x4_t a = rows[4 * i].q[j], b = rows[4 * i + 1].q[j];
      const float32x4_t c = rows[4 * i + 2].q[j], d = rows[4 * i + 3].q[j];
      const float64x2_t even_ab = vreinterpretq_f64_f32(vtrn1q_f32(a, b));
      const float64x2_t odd_ab = vreinterpretq_f64_f32(vtrn2q_f32(a, b));
      const float64x2_t even_cd = vreinterpretq_f64_f32(vtrn1q_f32(c, d));
      const float64x2_t odd_cd = vreinterpretq_f64_f32(vtrn2q_f32(c, d));
      out[4 * j].q[i] = vreinterpretq_f32_f64(vtrn1q_f64(even_ab, even_cd));
      out[4 * j + 1].q[i] = vreinterpretq_f32_f64(vtrn1q_f64(odd_ab, odd_cd));
      out[4 * j + 2].q[i] = vreinterpretq_f32_f64(vtrn2q_f64(even_ab, even_cd));
      out[4 * j + 3].q[i] = vreinterpretq_f32_f64(vtrn2q_f64(odd_ab, odd_cd));
    }
  }
  for (int i = 0; i < kLanes; ++i) rows[i] = out[i];
}

}  // namespace espalier::ESPALIER_ISA
