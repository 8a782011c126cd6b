#include <immintrin.h>

#include "machine_peak.h"
#include "machine_peak_loop.h"

namespace espalier {

int64_t multiply_int16_avx512vnni(int64_t rounds) {
  return multiply_add<12>(
      rounds, 32, _mm512_set1_epi16(3), _mm512_setzero_si512(),
      [](const __m512i& sum, const __m512i& x) { return _mm512_dpwssd_epi32(sum, x, x); });
}

}  // namespace espalier
