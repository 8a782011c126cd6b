#include <immintrin.h>

#include "machine_peak.h"

namespace espalier {

int64_t multiply_f32_avx512(int64_t rounds) {
  constexpr int kSums = 12;  // enough to hide the latency
  __m512 sums[kSums], x = _mm512_set1_ps(0.5f);
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+v"(x));
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(x, x, sum);
  }
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
  return rounds * kSums * 16;
}

}  // namespace espalier
