// Elementary functions of a vector, in explicit operations so that every instruction set rounds
// alike. Errors are below 3 units in the last place (tests/exec/test_kernels.py).
#pragma once

#include "simd.h"

namespace espalier::ESPALIER_ISA {

// e^x = power * (1 + fraction), with power a power of two.
struct Exponential {
  Vec power, fraction;
};

// x = n ln 2 + r with |r| <= 0.35, then the Taylor series of e^r - 1 to degree 7, whose rest is
// below 1e-8 there. Exact at 0. x must not be above 88.
ESPALIER_INLINE Exponential exponential(Vec x) {
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440e-4f;  // the high part is short
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to whole numbers
  constexpr float kCoefficients[] = {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 1.0f / 2};
  const Vec shifted = fma(x, splat(kLog2E), splat(kMagic));
  const Vec n = sub(shifted, splat(kMagic));
  const Vec r = fma(n, splat(-kLn2Low), fma(n, splat(-kLn2High), x));
  Vec series = splat(1.0f / 5040);
  for (const float coefficient : kCoefficients) series = fma(series, r, splat(coefficient));
  return {power_of_two(shifted), fma(mul(r, r), series, r)};
}

// 0 below -87.3, where the result would be subnormal; at most e^88. Not a number stays so.
ESPALIER_INLINE Vec exp(Vec x) {
  const Exponential e = exponential(min(splat(88.0f), x));
  return select_less(x, splat(-87.3f), zero(), fma(e.power, e.fraction, e.power));
}

// 2^t within 1.1e-4 of itself, which is a twentieth of what rounding it to bfloat16 costs; exact
// for whole t, 0 for minus infinity. To be used while subnormal numbers are flushed, t at most 127.
ESPALIER_INLINE Vec short_exp2(Vec t) {
  constexpr float kFirst = 0.6932829022407532f, kSecond = 0.2422109693288803f;
  constexpr float kThird = 0.055008918046951294f;
  Vec whole, r;
  split_whole(t, whole, r);
  Vec series = fma(splat(kThird), r, splat(kSecond));
  series = fma(series, r, splat(kFirst));
  return times_power_of_two(fma(series, r, splat(1.0f)), whole);
}

// (e^2|x| - 1) / (e^2|x| + 1), with the difference taken before it can cancel.
ESPALIER_INLINE Vec tanh(Vec x) {
  const Vec size = abs(x);
  const Exponential e = exponential(min(splat(40.0f), add(size, size)));
  const Vec minus_one = fma(e.power, e.fraction, sub(e.power, splat(1.0f)));
  return with_sign_of(div(minus_one, add(minus_one, splat(2.0f))), x);
}

}  // namespace espalier::ESPALIER_ISA
