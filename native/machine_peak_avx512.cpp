#include <immintrin.h>

#include "machine_peak.h"
#include "machine_peak_loop.h"

namespace espalier {

int64_t multiply_f32_avx512(int64_t rounds) {
  return multiply_add<12>(
      rounds, 16, _mm512_set1_ps(0.5f), _mm512_setzero_ps(),
      [](const __m512& sum, const __m512& x) { return _mm512_fmadd_ps(x, x, sum); });
}

}  // namespace espalier
