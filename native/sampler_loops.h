// Bodies of SamplerKernels as plain loops; each file that includes this compiles them for its own
// instruction set. Everything is in an unnamed namespace and calls nothing of the standard library,
// so that no function compiled for one instruction set can be linked into another's file.
#pragma once

#include <cstdint>

#include "sampler_kernels.h"

namespace espalier {
namespace {

constexpr size_t kLanes = 16;
constexpr auto kMinusInfinityBits = static_cast<int32_t>(0xFF800000u);

// exp(x) for -87 <= x <= 0: 2^n * exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. The polynomial is
// fitted for the least relative error; the result is within 2 units in the last place.
inline float exp_of(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const float n = (x * 1.44269504f + kRounder) - kRounder;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.38145400e-3f;
  p = p * r + 8.36874525e-3f;
  p = p * r + 4.16683908e-2f;
  p = p * r + 1.66665204e-1f;
  p = p * r + 4.99999934e-1f;
  const int32_t power_bits =
      static_cast<int32_t>(static_cast<uint32_t>(static_cast<int32_t>(n) + 127) << 23);
  float power;
  __builtin_memcpy(&power, &power_bits, sizeof(power));
  return ((p * (r * r) + r) + 1.0f) * power;
}

inline float at_least(float x, float floor) { return x > floor ? x : floor; }  // NaN -> floor

// The clamping stands in a loop of its own: together, GCC makes it a branch around the whole of exp
// and vectorises neither.
inline void weights_of_block(const float* x, float largest, float inv_temperature, float* w) {
  constexpr float kPin = 0x1p-10f;  // adding it leaves multiples of 2^-33
  float scaled[kSamplerBlock];
  for (size_t j = 0; j < kSamplerBlock; ++j) {
    scaled[j] = at_least((x[j] - largest) * inv_temperature, -30.0f);
  }
  for (size_t j = 0; j < kSamplerBlock; ++j) w[j] = (exp_of(scaled[j]) + kPin) - kPin;
}

inline void exps_of_block(const float* x, float largest, float* exps) {
  float shifted[kSamplerBlock];
  for (size_t j = 0; j < kSamplerBlock; ++j) shifted[j] = at_least(x[j] - largest, -87.0f);
  for (size_t j = 0; j < kSamplerBlock; ++j) exps[j] = exp_of(shifted[j]);
}

// The 64 values of a block are folded to kLanes, then halved: elementwise loops of fixed length,
// which compilers turn into vector instructions without leave to reorder anything.
static_assert(kSamplerBlock == 4 * kLanes);

inline float larger(float a, float b) { return a > b ? a : b; }

inline float max_of_lanes(float* lanes) {
  for (size_t j = 0; j < 8; ++j) lanes[j] = larger(lanes[j], lanes[j + 8]);
  for (size_t j = 0; j < 4; ++j) lanes[j] = larger(lanes[j], lanes[j + 4]);
  return larger(larger(lanes[0], lanes[2]), larger(lanes[1], lanes[3]));
}

inline float max_of_block(const float* x) {
  float lanes[kLanes];
  for (size_t j = 0; j < kLanes; ++j) {
    lanes[j] = larger(larger(x[j], x[j + kLanes]), larger(x[j + 2 * kLanes], x[j + 3 * kLanes]));
  }
  return max_of_lanes(lanes);
}

inline double sum_of_lanes(double* lanes) {
  for (size_t j = 0; j < 8; ++j) lanes[j] += lanes[j + 8];
  for (size_t j = 0; j < 4; ++j) lanes[j] += lanes[j + 4];
  return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3]);
}

inline void add_block(const float* x, double* lanes) {
  for (size_t j = 0; j < kLanes; ++j) {
    lanes[j] += (static_cast<double>(x[j]) + static_cast<double>(x[j + kLanes])) +
                (static_cast<double>(x[j + 2 * kLanes]) + static_cast<double>(x[j + 3 * kLanes]));
  }
}

inline double sum_of_block(const float* x) {
  double lanes[kLanes] = {};
  add_block(x, lanes);
  return sum_of_lanes(lanes);
}

// The last, shorter block of x[0..n), filled up to a whole one.
inline void fill_block(const float* x, size_t n, float filler, float* block) {
  for (size_t j = 0; j < kSamplerBlock; ++j) block[j] = j < n ? x[j] : filler;
}

bool block_maxima(const float* x, size_t n, float* maxima) {
  int32_t is_nan[kLanes] = {};
  const auto scan = [&is_nan](const float* block) {
    for (size_t i = 0; i < kSamplerBlock; i += kLanes) {
      for (size_t j = 0; j < kLanes; ++j) {
        is_nan[j] |= block[i + j] != block[i + j] ? -1 : 0;
      }
    }
    return max_of_block(block);
  };
  size_t i = 0;
  for (; i + kSamplerBlock <= n; i += kSamplerBlock) maxima[i / kSamplerBlock] = scan(x + i);
  if (i < n) {
    float block[kSamplerBlock];
    fill_block(x + i, n - i, x[i], block);
    maxima[i / kSamplerBlock] = scan(block);
  }
  int32_t any = 0;
  for (size_t j = 0; j < kLanes; ++j) any |= is_nan[j];
  return any == 0;
}

// Without a branch, which half of all masks would mispredict.
void exclude(const float* x, uint64_t excluded, float* out) {
  int32_t values[kSamplerBlock];
  __builtin_memcpy(values, x, sizeof(values));
  for (size_t piece = 0; piece < kSamplerBlock; piece += kLanes) {
    const auto bits = static_cast<int32_t>(excluded >> piece & 0xFFFF);
    for (int32_t i = 0; i < static_cast<int32_t>(kLanes); ++i) {
      const int32_t kept = -static_cast<int32_t>((bits & (1 << i)) == 0);
      int32_t& value = values[piece + static_cast<size_t>(i)];
      value = (value & kept) | (kMinusInfinityBits & ~kept);
    }
  }
  __builtin_memcpy(out, values, sizeof(values));
}

// Three passes: in one, each block's sum would wait for its weights to be stored and loaded again.
void weights(const float* const* blocks, size_t count, float largest, float inv_temperature,
             float* w, double* sums, float* maxima) {
  for (size_t i = 0; i < count; ++i) {
    weights_of_block(blocks[i], largest, inv_temperature, w + i * kSamplerBlock);
  }
  for (size_t i = 0; i < count; ++i) sums[i] = sum_of_block(w + i * kSamplerBlock);
  for (size_t i = 0; i < count; ++i) maxima[i] = max_of_block(w + i * kSamplerBlock);
}

double exp_sum(const float* x, size_t n, float largest) {
  double lanes[kLanes] = {};
  float block[kSamplerBlock];
  size_t i = 0;
  for (; i + kSamplerBlock <= n; i += kSamplerBlock) {
    exps_of_block(x + i, largest, block);
    add_block(block, lanes);
  }
  if (i < n) {
    float rest[kSamplerBlock];
    fill_block(x + i, n - i, largest, rest);
    exps_of_block(rest, largest, rest);
    fill_block(rest, n - i, 0.0f, block);
    add_block(block, lanes);
  }
  return sum_of_lanes(lanes);
}

constexpr SamplerKernels kKernels = {block_maxima, exclude, weights, exp_sum};

}  // namespace
}  // namespace espalier
