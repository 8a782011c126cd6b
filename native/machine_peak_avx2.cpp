#include <immintrin.h>

#include "machine_peak.h"

namespace espalier {

int64_t multiply_f32_avx2(int64_t rounds) {
  constexpr int kSums = 12;  // enough to hide the latency
  __m256 sums[kSums], x = _mm256_set1_ps(0.5f);
  for (__m256& sum : sums) sum = _mm256_setzero_ps();
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+x"(x));
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(x, x, sum);
  }
  for (__m256& sum : sums) asm volatile("" : "+x"(sum));
  return rounds * kSums * 8;
}

}  // namespace espalier
