// The loop of machine_peak_*.cpp: multiply-adds of one vector into sums that stay in registers.
//
// Included by files that are compiled for different instruction sets: what is here is theirs alone.
#pragma once

#include <cstdint>

// The registers of vectors, as inline assembly calls them.
#if defined(__AVX512F__)
#define ESPALIER_VECTOR "+v"
#elif defined(__x86_64__)
#define ESPALIER_VECTOR "+x"
#else
#define ESPALIER_VECTOR "+w"
#endif

namespace espalier {
namespace {

// Returns how many multiply-adds it has done. Enough sums hide the latency of one.
template <int Sums, typename Vector, typename MultiplyAdd>
inline int64_t multiply_add(int64_t rounds, int64_t lanes, Vector x, Vector zero,
                            MultiplyAdd multiply_add) {
  Vector sums[Sums];
  for (Vector& sum : sums) sum = zero;
  for (int64_t i = 0; i < rounds; ++i) {
    asm volatile("" : ESPALIER_VECTOR(x));
    for (Vector& sum : sums) sum = multiply_add(sum, x);
  }
  for (Vector& sum : sums) asm volatile("" : ESPALIER_VECTOR(sum));
  return rounds * Sums * lanes;
}

}  // namespace
}  // namespace espalier
