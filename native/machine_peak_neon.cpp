#include <arm_neon.h>

#include "machine_peak.h"
#include "machine_peak_loop.h"

namespace espalier {

int64_t multiply_f32_neon(int64_t rounds) {
  return multiply_add<16>(
      rounds, 4, vdupq_n_f32(0.5f), vdupq_n_f32(0.0f),
      [](const float32x4_t& sum, const float32x4_t& x) { return vfmaq_f32(sum, x, x); });
}

}  // namespace espalier
