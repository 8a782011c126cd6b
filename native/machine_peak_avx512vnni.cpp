#include <immintrin.h>

#include "machine_peak.h"

namespace espalier {

int64_t multiply_int16_avx512vnni(int64_t rounds) {
  constexpr int kSums = 12;  // enough to hide the latency
  __m512i sums[kSums], x = _mm512_set1_epi16(3);
  for (__m512i& sum : sums) sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(x));
    for (__m512i& sum : sums) sum = _mm512_dpwssd_epi32(sum, x, x);
  }
  for (__m512i& sum : sums) asm volatile("" : "+v"(sum));
  return rounds * kSums * 32;
}

}  // namespace espalier
