// Kernels on one row: norms, activations, rotation, conversion.
#pragma once

#include "simd.h"
#include "vector_math.h"

namespace espalier::ESPALIER_ISA {

// Calls vector(i) for each whole vector and partial(i, lanes) for what is left.
template <typename Whole, typename Partial>
ESPALIER_INLINE void each_vector(int64_t n, Whole whole, Partial partial) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) whole(i);
  if (i < n) partial(i, n - i);
}

template <typename Function>
ESPALIER_INLINE void map_row(const float* x, float* out, int64_t n, Function f) {
  each_vector(
      n, [&](int64_t i) { store(out + i, f(load(x + i))); },
      [&](int64_t i, int64_t lanes) {
        store_partial(out + i, f(load_partial(x + i, lanes)), lanes);
      });
}

template <typename Function>
ESPALIER_INLINE void map_rows(const float* x, const float* y, float* out, int64_t n, Function f) {
  each_vector(
      n, [&](int64_t i) { store(out + i, f(load(x + i), load(y + i))); },
      [&](int64_t i, int64_t lanes) {
        store_partial(out + i, f(load_partial(x + i, lanes), load_partial(y + i, lanes)), lanes);
      });
}

static void scale_row(float* x, int64_t n, float factor) {
  map_row(x, x, n, [=](Vec v) { return mul(v, splat(factor)); });
}

static void add_rows(const float* x, const float* y, float* out, int64_t n) {
  map_rows(x, y, out, n, [](Vec a, Vec b) { return add(a, b); });
}

static void soft_cap(float* x, int64_t n, float cap) {
  map_row(x, x, n, [=](Vec v) { return mul(tanh(div(v, splat(cap))), splat(cap)); });
}

static void rms_norm(const float* x, const float* weight, float* out, int64_t n, float eps) {
  Vec squares = zero();
  each_vector(
      n,
      [&](int64_t i) {
        const Vec v = load(x + i);
        squares = fma(v, v, squares);
      },
      [&](int64_t i, int64_t lanes) {
        const Vec v = load_partial(x + i, lanes);
        squares = fma(v, v, squares);
      });
  const float mean = reduce_add(squares) / static_cast<float>(n);
  const Vec factor = splat(1.0f / __builtin_sqrtf(mean + eps));
  map_rows(x, weight, out, n, [=](Vec v, Vec w) { return mul(mul(v, factor), w); });
}

// x / (1 + e^t), and 0 where e^t is beyond the range of floats.
ESPALIER_INLINE Vec gated(Vec x, Vec t) {
  return select_less(splat(87.3f), t, zero(), div(x, add(splat(1.0f), exp(t))));
}

static void silu_gate(const float* gate, const float* up, float* out, int64_t n) {
  map_rows(gate, up, out, n, [](Vec x, Vec u) { return mul(gated(x, sub(zero(), x)), u); });
}

// GELU in its tanh form, which is x / (1 + e^-2y) with y = sqrt(2 / pi) (x + 0.044715 x^3).
static void gelu_gate(const float* gate, const float* up, float* out, int64_t n) {
  constexpr float kMinusTwoRoot = -1.59576912f;
  map_rows(gate, up, out, n, [](Vec x, Vec u) {
    const Vec cubic = fma(mul(mul(x, x), x), splat(0.044715f), x);
    return mul(gated(x, mul(cubic, splat(kMinusTwoRoot))), u);
  });
}

static void rope_half(float* x, const float* cos, const float* sin, int64_t pairs) {
  for (int64_t i = 0; i < pairs; i += kLanes) {
    const int64_t lanes = pairs - i < kLanes ? pairs - i : kLanes;
    const Vec first = load_partial(x + i, lanes), second = load_partial(x + pairs + i, lanes);
    const Vec c = load_partial(cos + i, lanes), s = load_partial(sin + i, lanes);
    store_partial(x + i, fma(first, c, sub(zero(), mul(second, s))), lanes);
    store_partial(x + pairs + i, fma(second, c, mul(first, s)), lanes);
  }
}

static void rope_interleaved(float* x, const float* cos, const float* sin, int64_t width) {
  for (int64_t i = 0; i < width; i += kLanes) {
    const int64_t lanes = width - i < kLanes ? width - i : kLanes;
    const Vec v = load_partial(x + i, lanes);
    const Vec c = load_partial(cos + i, lanes), s = load_partial(sin + i, lanes);
    store_partial(x + i, fma(v, c, mul(swap_neighbours(v), s)), lanes);
  }
}

// The largest |x| is found among the bits, whose order is that of the numbers; what is not finite
// comes last.
ESPALIER_INLINE float largest_magnitude(const float* x, int64_t n) {
  IVec top = izero();
  each_vector(
      n, [&](int64_t i) { top = imax(top, bits(abs(load(x + i)))); },
      [&](int64_t i, int64_t lanes) { top = imax(top, bits(abs(load_partial(x + i, lanes)))); });
  const int32_t largest_bits = reduce_imax(top);
  float largest;
  std::memcpy(&largest, &largest_bits, sizeof largest);
  return largest;
}

// What a row is multiplied by to become integers of at most `most`, and the scale that undoes it. A
// row of zeros has the scale 0; one that is not finite has the scale NaN, so that it is not lost.
struct RowScale {
  float factor, scale;
};
ESPALIER_INLINE RowScale row_scale(const float* x, int64_t n, float most) {
  constexpr float kTiny = 1e-30f;
  const float largest = largest_magnitude(x, n);
  if (!(largest < __builtin_inff())) return {0.0f, __builtin_nanf("")};
  if (largest < kTiny) return {0.0f, 0.0f};
  return {most / largest, largest / most};
}

// Scaled inputs i to i + 15; 0 from n on, and everywhere where the factor is 0.
ESPALIER_INLINE Vec scaled(const float* x, int64_t i, int64_t n, float factor) {
  if (factor == 0.0f || i >= n) return zero();
  const Vec v = n - i >= kLanes ? load(x + i) : load_partial(x + i, n - i);
  return mul(v, splat(factor));
}

// AMX takes subnormal numbers for zero, so all do.
static void round_bf16(const float* x, int64_t n, uint16_t* out) {
  constexpr int64_t kStep32 = Bf16Matrix::kStep;
  for (int64_t i = 0; i < (n + kStep32 - 1) / kStep32 * kStep32; i += kLanes) {
    const Vec v = scaled(x, i, n, 1.0f);
    store_bf16(out + i, select_less(abs(v), splat(0x1p-126f), zero(), v));
  }
}

static void quantize(const float* x, int64_t n, const QuantizedRows& out, int64_t row) {
  const RowScale found = row_scale(x, n, 16383.0f);
  out.scales[row] = found.scale;
  constexpr int64_t kPlane = kRowBlock * kStep;
  for (int64_t i = 0; i < out.num_steps * kStep; i += kLanes) {
    const Vec v = scaled(x, i, n, found.factor);
    if (out.is_paired) {
      store_quads(reinterpret_cast<int32_t*>(out.data) + (row * out.num_steps * kStep + i) / 2, v);
      continue;
    }
    const int64_t step = row / kRowBlock * out.num_steps + i / kStep;
    uint8_t* high = out.data + step * 2 * kPlane + row % kRowBlock * kStep + i % kStep;
    const IVec whole = round(v);
    store_bytes(high, shift_right(whole, 7));
    store_bytes(high + kPlane, iand(whole, 127));
  }
}

}  // namespace espalier::ESPALIER_ISA
