// Vectors in AVX2 with FMA: two registers each.
#pragma once

#include <immintrin.h>

namespace espalier::ESPALIER_ISA {

constexpr int kInt8Rows = 4;   // rows that the int8 kernel takes at once
constexpr int kInt8Tiles = 1;  // and tiles
constexpr int kInt8Sums = 8;
constexpr int kInt4Sums = 8;
constexpr int kBf16Rows = 4;
constexpr int kAccumulators = 6;
constexpr int kFloatRows = 3;
constexpr int kScoreVectors = 2;

struct Vec {
  __m256 low, high;
};
struct IVec {
  __m256i low, high;
};
typedef IVec Pairs;

ESPALIER_INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
ESPALIER_INLINE Vec zero() { return splat(0.0f); }
ESPALIER_INLINE IVec isplat(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }

ESPALIER_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
// 16 words of any kind and alignment.
ESPALIER_INLINE Vec load_words(const void* p) {
  const __m256i* halves = static_cast<const __m256i*>(p);
  return {_mm256_castsi256_ps(_mm256_loadu_si256(halves)),
          _mm256_castsi256_ps(_mm256_loadu_si256(halves + 1))};
}
ESPALIER_INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}

// Lanes from `begin` up to, not including, `end`, all ones.
ESPALIER_INLINE IVec lane_mask(int64_t begin, int64_t end) {
  begin = begin < 0 ? 0 : begin > kLanes ? kLanes : begin;
  end = end < 0 ? 0 : end > kLanes ? kLanes : end;
  const IVec lane = {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
                     _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
  const __m256i first = _mm256_set1_epi32(static_cast<int>(begin) - 1);
  const __m256i last = _mm256_set1_epi32(static_cast<int>(end));
  return {
      _mm256_and_si256(_mm256_cmpgt_epi32(lane.low, first), _mm256_cmpgt_epi32(last, lane.low)),
      _mm256_and_si256(_mm256_cmpgt_epi32(lane.high, first), _mm256_cmpgt_epi32(last, lane.high))};
}
ESPALIER_INLINE Vec load_partial(const float* p, int64_t n) {
  const IVec mask = lane_mask(0, n);
  return {_mm256_maskload_ps(p, mask.low), _mm256_maskload_ps(p + 8, mask.high)};
}
ESPALIER_INLINE void store_partial(float* p, Vec x, int64_t n) {
  const IVec mask = lane_mask(0, n);
  _mm256_maskstore_ps(p, mask.low, x.low);
  _mm256_maskstore_ps(p + 8, mask.high, x.high);
}

ESPALIER_INLINE Vec add(Vec x, Vec y) {
  return {_mm256_add_ps(x.low, y.low), _mm256_add_ps(x.high, y.high)};
}
ESPALIER_INLINE Vec sub(Vec x, Vec y) {
  return {_mm256_sub_ps(x.low, y.low), _mm256_sub_ps(x.high, y.high)};
}
ESPALIER_INLINE Vec mul(Vec x, Vec y) {
  return {_mm256_mul_ps(x.low, y.low), _mm256_mul_ps(x.high, y.high)};
}
ESPALIER_INLINE Vec div(Vec x, Vec y) {
  return {_mm256_div_ps(x.low, y.low), _mm256_div_ps(x.high, y.high)};
}
ESPALIER_INLINE Vec fma(Vec x, Vec y, Vec z) {
  return {_mm256_fmadd_ps(x.low, y.low, z.low), _mm256_fmadd_ps(x.high, y.high, z.high)};
}
ESPALIER_INLINE Vec min(Vec x, Vec y) {
  return {_mm256_min_ps(x.low, y.low), _mm256_min_ps(x.high, y.high)};
}
ESPALIER_INLINE Vec max(Vec x, Vec y) {
  return {_mm256_max_ps(x.low, y.low), _mm256_max_ps(x.high, y.high)};
}
ESPALIER_INLINE IVec bits(Vec x) {
  return {_mm256_castps_si256(x.low), _mm256_castps_si256(x.high)};
}
ESPALIER_INLINE Vec from_bits(IVec x) {
  return {_mm256_castsi256_ps(x.low), _mm256_castsi256_ps(x.high)};
}
ESPALIER_INLINE Vec select(Vec mask, Vec x, Vec y) {
  return {_mm256_blendv_ps(y.low, x.low, mask.low), _mm256_blendv_ps(y.high, x.high, mask.high)};
}
ESPALIER_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  const Vec mask = {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ),
                    _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
  return select(mask, x, y);
}
ESPALIER_INLINE Vec abs(Vec x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.low), _mm256_andnot_ps(sign, x.high)};
}
ESPALIER_INLINE Vec with_sign_of(Vec x, Vec sign) {
  const __m256 mask = _mm256_set1_ps(-0.0f);
  const Vec size = abs(x);
  return {_mm256_or_ps(size.low, _mm256_and_ps(mask, sign.low)),
          _mm256_or_ps(size.high, _mm256_and_ps(mask, sign.high))};
}
ESPALIER_INLINE __m256 power_of_two(__m256 x) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(x), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32(0x3F800000)));
}
ESPALIER_INLINE Vec power_of_two(Vec x) { return {power_of_two(x.low), power_of_two(x.high)}; }
// t = whole + rest with |rest| <= 0.5; t below -127 counts as -127.
ESPALIER_INLINE void split_whole(Vec t, Vec& whole, Vec& rest) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  t = max(splat(-127.0f), t);
  whole = {_mm256_round_ps(t.low, kNearest), _mm256_round_ps(t.high, kNearest)};
  rest = sub(t, whole);
}
ESPALIER_INLINE __m256 times_power_of_two(__m256 x, __m256 whole) {
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(whole), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(x), exponent));
}
ESPALIER_INLINE Vec times_power_of_two(Vec x, Vec whole) {
  return {times_power_of_two(x.low, whole.low), times_power_of_two(x.high, whole.high)};
}
ESPALIER_INLINE Vec select_lanes(int64_t begin, int64_t end, Vec x, Vec y) {
  return select(from_bits(lane_mask(begin, end)), x, y);
}
ESPALIER_INLINE Vec swap_neighbours(Vec x) {
  return {_mm256_permute_ps(x.low, 0xB1), _mm256_permute_ps(x.high, 0xB1)};
}

ESPALIER_INLINE float reduce_add(Vec x) {
  const __m256 eight = _mm256_add_ps(x.low, x.high);
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
ESPALIER_INLINE float reduce_max(Vec x) {
  const __m256 eight = _mm256_max_ps(x.low, x.high);
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

ESPALIER_INLINE IVec izero() { return isplat(0); }
ESPALIER_INLINE Vec to_float(IVec x) {
  return {_mm256_cvtepi32_ps(x.low), _mm256_cvtepi32_ps(x.high)};
}
ESPALIER_INLINE IVec iadd(IVec x, IVec y) {
  return {_mm256_add_epi32(x.low, y.low), _mm256_add_epi32(x.high, y.high)};
}
ESPALIER_INLINE IVec imax(IVec x, IVec y) {
  return {_mm256_max_epi32(x.low, y.low), _mm256_max_epi32(x.high, y.high)};
}
ESPALIER_INLINE int32_t reduce_imax(IVec x) {
  const __m256i eight = _mm256_max_epi32(x.low, x.high);
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xB1)));
}

ESPALIER_INLINE void store_quads(int32_t* pairs, Vec x) {
  const __m256i low = _mm256_shuffle_epi32(_mm256_cvtps_epi32(x.low), 0xD8);
  const __m256i high = _mm256_shuffle_epi32(_mm256_cvtps_epi32(x.high), 0xD8);
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), packed);
}

ESPALIER_INLINE Vec load_bf16(const uint16_t* p) {
  const __m128i* halves = reinterpret_cast<const __m128i*>(p);
  return from_bits({_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(halves)), 16),
                    _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(halves + 1)), 16)});
}
ESPALIER_INLINE Vec load_bf16_partial(const uint16_t* p, int64_t n) {
  uint16_t whole[kLanes] = {};
  std::memcpy(whole, p, static_cast<size_t>(n) * sizeof(uint16_t));
  return load_bf16(whole);
}
ESPALIER_INLINE Vec low_bf16(Vec x) {
  const IVec words = bits(x);
  return from_bits({_mm256_slli_epi32(words.low, 16), _mm256_slli_epi32(words.high, 16)});
}
ESPALIER_INLINE Vec high_bf16(Vec x) {
  const IVec words = bits(x);
  const __m256i mask = _mm256_set1_epi32(-65536);
  return from_bits({_mm256_and_si256(words.low, mask), _mm256_and_si256(words.high, mask)});
}
ESPALIER_INLINE __m256i round_bf16(__m256i word) {
  const __m256i even = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7FFF)), even);
  return _mm256_srli_epi32(rounded, 16);
}
ESPALIER_INLINE void store_bf16(uint16_t* p, Vec x) {
  const IVec word = bits(x);
  const __m256i packed = _mm256_packus_epi32(round_bf16(word.low), round_bf16(word.high));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
}
ESPALIER_INLINE void store_bf16_partial(uint16_t* p, Vec x, int64_t n) {
  uint16_t whole[kLanes];
  store_bf16(whole, x);
  std::memcpy(p, whole, static_cast<size_t>(n) * sizeof(uint16_t));
}

// Nearest whole numbers, ties to even.
ESPALIER_INLINE IVec round(Vec x) {
  return {_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)};
}
ESPALIER_INLINE IVec shift_right(IVec x, int count) {
  return {_mm256_srai_epi32(x.low, count), _mm256_srai_epi32(x.high, count)};
}
ESPALIER_INLINE IVec iand(IVec x, int32_t mask) {
  const __m256i m = _mm256_set1_epi32(mask);
  return {_mm256_and_si256(x.low, m), _mm256_and_si256(x.high, m)};
}
// The low byte of each lane.
ESPALIER_INLINE void store_bytes(uint8_t* p, IVec x) {
  const IVec bytes = iand(x, 0xFF);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(bytes.low, bytes.high), 0xD8);
  _mm_storeu_si128(
      reinterpret_cast<__m128i*>(p),
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}

// Factors and offsets of 16 columns, each in both halves of its column's word.
struct NibbleScale {
  IVec factor, offset;
};
ESPALIER_INLINE IVec load_twice(const uint8_t* p) {
  const auto twice = [](const uint8_t* eight) {
    const __m256i words =
        _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(eight)));
    return _mm256_or_si256(words, _mm256_slli_epi32(words, 16));
  };
  return {twice(p), twice(p + 16)};
}
ESPALIER_INLINE NibbleScale load_nibble_scale(const uint8_t* p) {
  return {load_twice(p), load_twice(p + 2 * kLanes)};
}
// factor * q + offset of the nibbles `J` of both halves, in 8.8 bits.
template <int J>
ESPALIER_INLINE IVec scaled_nibbles(const uint8_t* line, const NibbleScale& scale) {
  const auto half = [](const uint8_t* p, __m256i factor, __m256i offset) {
    __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    if constexpr (J > 0) q = _mm256_srli_epi16(q, 4 * J);
    if constexpr (J < 3) q = _mm256_and_si256(q, _mm256_set1_epi16(0x0F));
    return _mm256_add_epi16(_mm256_mullo_epi16(q, factor), offset);
  };
  return {half(line, scale.factor.low, scale.offset.low),
          half(line + 32, scale.factor.high, scale.offset.high)};
}
ESPALIER_INLINE Pairs whole_pairs(IVec scaled) {
  return {_mm256_srai_epi16(scaled.low, 8), _mm256_srai_epi16(scaled.high, 8)};
}
// A quad of int8 for each column from the pairs (x0, x2) and (x1, x3).
ESPALIER_INLINE void store_whole_quads(int8_t* out, IVec even, IVec odd) {
  const auto quads = [](__m256i x, __m256i y) {
    const __m256i high = _mm256_set1_epi16(static_cast<int16_t>(0xFF00));
    return _mm256_or_si256(_mm256_srli_epi16(x, 8), _mm256_and_si256(y, high));
  };
  __m256i* halves = reinterpret_cast<__m256i*>(out);
  _mm256_storeu_si256(halves, quads(even.low, odd.low));
  _mm256_storeu_si256(halves + 1, quads(even.high, odd.high));
}

ESPALIER_INLINE Vec round_to_bf16(Vec x) {
  const IVec word = bits(x);
  return from_bits(
      {_mm256_slli_epi32(round_bf16(word.low), 16), _mm256_slli_epi32(round_bf16(word.high), 16)});
}
ESPALIER_INLINE Vec load_int8(const int8_t* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return to_float({_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))});
}
ESPALIER_INLINE void store_int8(int8_t* p, Vec x) {
  const __m256i pairs = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(_mm256_cvtps_epi32(x.low), _mm256_cvtps_epi32(x.high)), 0xD8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}

ESPALIER_INLINE void split_quads(const int8_t* line, Pairs& even, Pairs& odd) {
  const __m256i* halves = reinterpret_cast<const __m256i*>(line);
  const __m256i low = _mm256_loadu_si256(halves), high = _mm256_loadu_si256(halves + 1);
  even = {_mm256_srai_epi16(_mm256_slli_epi16(low, 8), 8),
          _mm256_srai_epi16(_mm256_slli_epi16(high, 8), 8)};
  odd = {_mm256_srai_epi16(low, 8), _mm256_srai_epi16(high, 8)};
}
ESPALIER_INLINE IVec dot_pairs(IVec sum, Pairs w, int32_t x) {
  const __m256i pair = _mm256_set1_epi32(x);
  return {_mm256_add_epi32(sum.low, _mm256_madd_epi16(w.low, pair)),
          _mm256_add_epi32(sum.high, _mm256_madd_epi16(w.high, pair))};
}

ESPALIER_INLINE void transpose_eight(__m256 (&rows)[8]) {
  __m256 quads[8];
  for (int i = 0; i < 8; i += 4) {
    const __m256 low_a = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    const __m256 high_a = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    const __m256 low_b = _mm256_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const __m256 high_b = _mm256_unpackhi_ps(rows[i + 2], rows[i + 3]);
    quads[i] = _mm256_shuffle_ps(low_a, low_b, 0x44);
    quads[i + 1] = _mm256_shuffle_ps(low_a, low_b, 0xEE);
    quads[i + 2] = _mm256_shuffle_ps(high_a, high_b, 0x44);
    quads[i + 3] = _mm256_shuffle_ps(high_a, high_b, 0xEE);
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}
ESPALIER_INLINE void transpose(Vec (&rows)[kLanes]) {
  __m256 parts[2][2][8];  // [rows / 8][columns / 8]
  for (int i = 0; i < kLanes; ++i) {
    parts[i / 8][0][i % 8] = rows[i].low;
    parts[i / 8][1][i % 8] = rows[i].high;
  }
  for (int i = 0; i < 4; ++i) transpose_eight(parts[i / 2][i % 2]);
  for (int i = 0; i < kLanes; ++i) {
    rows[i] = {parts[0][i / 8][i % 8], parts[1][i / 8][i % 8]};
  }
}

}  // namespace espalier::ESPALIER_ISA
