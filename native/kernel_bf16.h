// Products of bfloat16 rows with bfloat16 weights in the order that AMX has (Intel SDM, TDPBF16PS):
// for each 32 inputs two chains of fused products, of the even and of the odd ones, whose sum is
// added to the output. Subnormal numbers are zeros, before and after each operation. So every
// instruction set gives the same bits.
#pragma once

#include "flush_subnormals.h"
#include "kernel_linear.h"
#include "simd.h"

namespace espalier::ESPALIER_ISA {

template <int R>
static void bf16_block(const Bf16Matrix& w, const Bf16Rows& x, const RowsOut& out, int64_t row,
                       int64_t tile) {
  constexpr int kPairs = Bf16Matrix::kStep / 2;
  const uint16_t* weights = w.tiles + tile * w.num_steps * Bf16Matrix::kStep * kLanes;
  const uint16_t* inputs = x.data + row * x.stride;
  Vec sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = zero();
  for (int64_t step = 0; step < w.num_steps; ++step, inputs += Bf16Matrix::kStep) {
    Vec even[R], odd[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) even[r] = odd[r] = zero();
    for (int pair = 0; pair < kPairs; ++pair, weights += 2 * kLanes) {
      const Vec words = load_words(weights);
      const Vec low = low_bf16(words), high = high_bf16(words);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        const uint16_t* x_pair = inputs + r * x.stride + 2 * pair;
        even[r] = fma(splat(bf16_to_float(x_pair[0])), low, even[r]);
        odd[r] = fma(splat(bf16_to_float(x_pair[1])), high, odd[r]);
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = add(sums[r], add(even[r], odd[r]));
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) add_bias(w, tile, sums[r], out, row + r);
}

static __attribute__((noinline)) void linear_bf16_flushed(const Bf16Matrix& w, const Bf16Rows& x,
                                                          const RowsOut& out, Range rows,
                                                          Range tiles) {
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    each_row_block<kBf16Rows>(rows, [&](int64_t row, int count) {
      with_row_count<kBf16Rows>(
          count, [&](auto r) { bf16_block<decltype(r)::value>(w, x, out, row, tile); });
    });
  }
}

static void linear_bf16(const Bf16Matrix& w, const Bf16Rows& x, const RowsOut& out, Range rows,
                        Range tiles) {
  const FlushSubnormals scope;
  linear_bf16_flushed(w, x, out, rows, tiles);
}

}  // namespace espalier::ESPALIER_ISA
