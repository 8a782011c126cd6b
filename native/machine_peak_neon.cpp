#include <arm_neon.h>

#include "machine_peak.h"

namespace espalier {

int64_t multiply_f32_neon(int64_t rounds) {
  constexpr int kSums = 16;  // enough to hide the latency of four units
  float32x4_t sums[kSums], x = vdupq_n_f32(0.5f);
  for (float32x4_t& sum : sums) sum = vdupq_n_f32(0.0f);
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : "+w"(x));
    for (float32x4_t& sum : sums) sum = vfmaq_f32(sum, x, x);
  }
  for (float32x4_t& sum : sums) asm volatile("" : "+w"(sum));
  return rounds * kSums * 4;
}

}  // namespace espalier
