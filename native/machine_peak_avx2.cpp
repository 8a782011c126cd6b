#include <immintrin.h>

#include "machine_peak.h"
#include "machine_peak_loop.h"

namespace espalier {

int64_t multiply_f32_avx2(int64_t rounds) {
  return multiply_add<12>(
      rounds, 8, _mm256_set1_ps(0.5f), _mm256_setzero_ps(),
      [](const __m256& sum, const __m256& x) { return _mm256_fmadd_ps(x, x, sum); });
}

}  // namespace espalier
