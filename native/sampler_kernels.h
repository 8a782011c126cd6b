// The loops of the sampler that touch every token of the vocabulary, one set per instruction set.
// All sets give the same bits: elements are computed by IEEE additions and multiplications without
// contraction, maxima and quantised sums are exact, and other sums run in a fixed order.
#pragma once

#include <cstddef>
#include <cstdint>

namespace espalier {

enum class Isa : int;  // cpu.h

// Tokens per block: the unit in which whole stretches of the vocabulary are skipped.
inline constexpr size_t kSamplerBlock = 64;

// Blocks that are weighed in one go, at most.
inline constexpr size_t kSamplerGroup = 16;

// exp(x) rounds to no weight below it: exp(-24) is less than half of 2^-33.
inline constexpr float kLeastExponent = -24.0f;

struct SamplerKernels {
  // Writes the largest value of each block of x[0..n) and returns false if any value is NaN.
  bool (*block_maxima)(const float* x, size_t n, float* maxima);
  // out[i] = x[i], or -infinity where bit i of `excluded` is set, for a block. They may be one.
  void (*exclude)(const float* x, uint64_t excluded, float* out);
  // w = exp((x - largest) * inv_temperature), rounded to multiples of 2^-33, for each x of `count`
  // <= kSamplerGroup whole blocks, one after the other; per block the exact sum and the largest of
  // them. `largest` is finite and no x exceeds it.
  void (*weights)(const float* const* blocks, size_t count, float largest, float inv_temperature,
                  float* w, double* sums, float* maxima);
  // Sum of exp(x[i] - largest), in an order that depends on n alone.
  double (*exp_sum)(const float* x, size_t n, float largest);
};

// The set for an available instruction set: of the fastest one that it includes.
const SamplerKernels& sampler_kernels_for(Isa isa);

const SamplerKernels& sampler_kernels_portable();
const SamplerKernels& sampler_kernels_avx2();
const SamplerKernels& sampler_kernels_avx512();

}  // namespace espalier
