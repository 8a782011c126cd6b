// Vectors in AVX-512 (F, BW, VL, DQ; dot products also in VNNI).
#pragma once

#include <immintrin.h>

#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 warns of its own header, whose "undefined" vectors are meant to be so (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

namespace espalier::ESPALIER_ISA {

constexpr int kInt8Rows = 8;   // rows that the int8 kernel takes at once
constexpr int kInt8Tiles = 2;  // and tiles
constexpr int kInt8Sums = 16;
constexpr int kInt4Sums = 8;
constexpr int kBf16Rows = 4;
constexpr int kAccumulators = 24;
constexpr int kFloatRows = 6;
constexpr int kScoreVectors = 4;

typedef __m512 Vec;
typedef __m512i IVec;
typedef __m512i Pairs;

ESPALIER_INLINE __mmask16 first_lanes(int64_t n) {
  return static_cast<__mmask16>(_bzhi_u32(0xFFFF, static_cast<unsigned>(n)));
}

ESPALIER_INLINE Vec splat(float x) { return _mm512_set1_ps(x); }
ESPALIER_INLINE Vec zero() { return _mm512_setzero_ps(); }

ESPALIER_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
// 16 words of any kind and alignment.
ESPALIER_INLINE Vec load_words(const void* p) { return _mm512_castsi512_ps(_mm512_loadu_si512(p)); }
ESPALIER_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x); }
ESPALIER_INLINE Vec load_partial(const float* p, int64_t n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
ESPALIER_INLINE void store_partial(float* p, Vec x, int64_t n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x);
}

ESPALIER_INLINE Vec add(Vec x, Vec y) { return _mm512_add_ps(x, y); }
ESPALIER_INLINE Vec sub(Vec x, Vec y) { return _mm512_sub_ps(x, y); }
ESPALIER_INLINE Vec mul(Vec x, Vec y) { return _mm512_mul_ps(x, y); }
ESPALIER_INLINE Vec div(Vec x, Vec y) { return _mm512_div_ps(x, y); }
ESPALIER_INLINE Vec fma(Vec x, Vec y, Vec z) { return _mm512_fmadd_ps(x, y, z); }
ESPALIER_INLINE Vec min(Vec x, Vec y) { return _mm512_min_ps(x, y); }
ESPALIER_INLINE Vec max(Vec x, Vec y) { return _mm512_max_ps(x, y); }
ESPALIER_INLINE IVec bits(Vec x) { return _mm512_castps_si512(x); }
ESPALIER_INLINE Vec from_bits(IVec x) { return _mm512_castsi512_ps(x); }
ESPALIER_INLINE Vec select_less(Vec a, Vec b, Vec x, Vec y) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
ESPALIER_INLINE Vec abs(Vec x) { return _mm512_andnot_ps(splat(-0.0f), x); }
ESPALIER_INLINE Vec with_sign_of(Vec x, Vec sign) {
  return _mm512_or_ps(abs(x), _mm512_and_ps(splat(-0.0f), sign));
}
ESPALIER_INLINE Vec power_of_two(Vec x) {
  return from_bits(_mm512_add_epi32(_mm512_slli_epi32(bits(x), 23), _mm512_set1_epi32(0x3F800000)));
}
// t = whole + rest with |rest| <= 0.5.
ESPALIER_INLINE void split_whole(Vec t, Vec& whole, Vec& rest) {
  rest = _mm512_reduce_ps(t, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  whole = sub(t, rest);
}
ESPALIER_INLINE Vec times_power_of_two(Vec x, Vec whole) { return _mm512_scalef_ps(x, whole); }
ESPALIER_INLINE Vec select_lanes(int64_t begin, int64_t end, Vec x, Vec y) {
  begin = begin < 0 ? 0 : begin > kLanes ? kLanes : begin;
  end = end < 0 ? 0 : end > kLanes ? kLanes : end;
  const __mmask16 mask = _kandn_mask16(first_lanes(begin), first_lanes(end));
  return _mm512_mask_blend_ps(mask, y, x);
}
ESPALIER_INLINE Vec swap_neighbours(Vec x) { return _mm512_permute_ps(x, 0xB1); }

ESPALIER_INLINE float reduce_add(Vec x) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
ESPALIER_INLINE float reduce_max(Vec x) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  four = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

ESPALIER_INLINE IVec izero() { return _mm512_setzero_si512(); }
ESPALIER_INLINE Vec to_float(IVec x) { return _mm512_cvtepi32_ps(x); }
ESPALIER_INLINE IVec iadd(IVec x, IVec y) { return _mm512_add_epi32(x, y); }
ESPALIER_INLINE IVec imax(IVec x, IVec y) { return _mm512_max_epi32(x, y); }
ESPALIER_INLINE int32_t reduce_imax(IVec x) { return _mm512_reduce_max_epi32(x); }

ESPALIER_INLINE void store_quads(int32_t* pairs, Vec x) {
  const IVec whole = _mm512_shuffle_epi32(_mm512_cvtps_epi32(x), _MM_PERM_DBCA);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(pairs), _mm512_cvtepi32_epi16(whole));
}

ESPALIER_INLINE Vec widen_bf16(__m256i x) {
  return from_bits(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
}
ESPALIER_INLINE Vec load_bf16(const uint16_t* p) {
  return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
ESPALIER_INLINE Vec load_bf16_partial(const uint16_t* p, int64_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
ESPALIER_INLINE Vec low_bf16(Vec x) { return from_bits(_mm512_slli_epi32(bits(x), 16)); }
ESPALIER_INLINE Vec high_bf16(Vec x) {
  return from_bits(_mm512_and_si512(bits(x), _mm512_set1_epi32(-65536)));
}
ESPALIER_INLINE __m256i narrow_bf16(Vec x) {
  const IVec word = bits(x);
  const IVec even = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
  const IVec rounded = _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7FFF)), even);
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}
ESPALIER_INLINE void store_bf16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(x));
}
ESPALIER_INLINE void store_bf16_partial(uint16_t* p, Vec x, int64_t n) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(x));
}

// Nearest whole numbers, ties to even.
ESPALIER_INLINE IVec round(Vec x) { return _mm512_cvtps_epi32(x); }
ESPALIER_INLINE IVec shift_right(IVec x, int count) {
  return _mm512_srai_epi32(x, static_cast<unsigned>(count));
}
ESPALIER_INLINE IVec iand(IVec x, int32_t mask) {
  return _mm512_and_si512(x, _mm512_set1_epi32(mask));
}
// The low byte of each lane.
ESPALIER_INLINE void store_bytes(uint8_t* p, IVec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x));
}

// Factors and offsets of 16 columns, each in both halves of its column's word.
struct NibbleScale {
  IVec factor, offset;
};
ESPALIER_INLINE NibbleScale load_nibble_scale(const uint8_t* p) {
  const IVec both = _mm512_loadu_si512(p);
  const IVec twice =
      _mm512_srli_epi16(_mm512_set_epi16(31, 31, 29, 29, 27, 27, 25, 25, 23, 23, 21, 21, 19, 19, 17,
                                         17, 15, 15, 13, 13, 11, 11, 9, 9, 7, 7, 5, 5, 3, 3, 1, 1),
                        1);
  return {_mm512_permutexvar_epi16(twice, both),
          _mm512_permutexvar_epi16(_mm512_add_epi16(twice, _mm512_set1_epi16(16)), both)};
}
// factor * q + offset of the nibbles `J` of both halves, in 8.8 bits.
template <int J>
ESPALIER_INLINE IVec scaled_nibbles(const uint8_t* line, const NibbleScale& scale) {
  IVec q = _mm512_loadu_si512(line);
  if constexpr (J > 0) q = _mm512_srli_epi16(q, 4 * J);
  if constexpr (J < 3) q = _mm512_and_si512(q, _mm512_set1_epi16(0x0F));
  return _mm512_add_epi16(_mm512_mullo_epi16(q, scale.factor), scale.offset);
}
ESPALIER_INLINE Pairs whole_pairs(IVec scaled) { return _mm512_srai_epi16(scaled, 8); }
// A quad of int8 for each column from the pairs (x0, x2) and (x1, x3).
ESPALIER_INLINE void store_whole_quads(int8_t* out, IVec even, IVec odd) {
  const IVec low = _mm512_srli_epi16(even, 8);
  // low | (odd & 0xFF00)
  const IVec quads =
      _mm512_ternarylogic_epi32(low, odd, _mm512_set1_epi16(static_cast<int16_t>(0xFF00)), 0xF8);
  _mm512_storeu_si512(out, quads);
}

ESPALIER_INLINE Vec round_to_bf16(Vec x) {
  const IVec word = bits(x);
  const IVec even = _mm512_and_si512(_mm512_srli_epi32(word, 16), _mm512_set1_epi32(1));
  const IVec rounded = _mm512_add_epi32(_mm512_add_epi32(word, _mm512_set1_epi32(0x7FFF)), even);
  return high_bf16(from_bits(rounded));
}
ESPALIER_INLINE Vec load_int8(const int8_t* p) {
  return to_float(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
ESPALIER_INLINE void store_int8(int8_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(x)));
}

ESPALIER_INLINE void split_quads(const int8_t* line, Pairs& even, Pairs& odd) {
  const __m512i quads = _mm512_loadu_si512(line);
  even = _mm512_srai_epi16(_mm512_slli_epi16(quads, 8), 8);
  odd = _mm512_srai_epi16(quads, 8);
}
ESPALIER_INLINE IVec dot_pairs(IVec sum, Pairs w, int32_t x) {
#if defined(__AVX512VNNI__)
  return _mm512_dpwssd_epi32(sum, w, _mm512_set1_epi32(x));
#else
  return _mm512_add_epi32(sum, _mm512_madd_epi16(w, _mm512_set1_epi32(x)));
#endif
}

ESPALIER_INLINE Vec pairs_low(Vec x, Vec y) {
  return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}
ESPALIER_INLINE Vec pairs_high(Vec x, Vec y) {
  return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(x), _mm512_castps_pd(y)));
}
// Transposes 4 x 4 within each quarter, then the quarters.
ESPALIER_INLINE void transpose(Vec (&rows)[kLanes]) {
  Vec quads[kLanes];
  for (int i = 0; i < kLanes; i += 4) {
    const Vec low_a = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
    const Vec high_a = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
    const Vec low_b = _mm512_unpacklo_ps(rows[i + 2], rows[i + 3]);
    const Vec high_b = _mm512_unpackhi_ps(rows[i + 2], rows[i + 3]);
    quads[i] = pairs_low(low_a, low_b);
    quads[i + 1] = pairs_high(low_a, low_b);
    quads[i + 2] = pairs_low(high_a, high_b);
    quads[i + 3] = pairs_high(high_a, high_b);
  }
  for (int i = 0; i < 4; ++i) {
    const Vec even_a = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0x88);
    const Vec odd_a = _mm512_shuffle_f32x4(quads[i], quads[i + 4], 0xDD);
    const Vec even_b = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0x88);
    const Vec odd_b = _mm512_shuffle_f32x4(quads[i + 8], quads[i + 12], 0xDD);
    rows[i] = _mm512_shuffle_f32x4(even_a, even_b, 0x88);
    rows[i + 8] = _mm512_shuffle_f32x4(even_a, even_b, 0xDD);
    rows[i + 4] = _mm512_shuffle_f32x4(odd_a, odd_b, 0x88);
    rows[i + 12] = _mm512_shuffle_f32x4(odd_a, odd_b, 0xDD);
  }
}

}  // namespace espalier::ESPALIER_ISA
