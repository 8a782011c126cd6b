#include "machine_peak.h"

namespace espalier {

// Multiplications and additions of four lanes, which compilers put into vectors where there are
// any. The sums themselves are multiplied, since a product of the same x would be computed once.
int64_t multiply_f32_portable(int64_t rounds) {
  using Four = float __attribute__((vector_size(16)));
  constexpr int kSums = 10;  // enough to hide the latency
  const volatile float half = 0.5f;
  Four sums[kSums];
  for (Four& sum : sums) sum = Four{half, half, half, half};  // each might be another
  const Four x = {half, half, half, half};
  for (int64_t i = 0; i < rounds; ++i) {
    for (Four& sum : sums) sum = sum * x + x;
  }
  Four total = sums[0];
  for (int i = 1; i < kSums; ++i) total += sums[i];
  asm volatile("" : "+m"(total));
  return rounds * kSums * 4;
}

}  // namespace espalier
