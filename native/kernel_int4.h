// Products with 4-bit weights, which become the int8 weights that they stand for: in registers
// where there are few rows, else a tile at a time in a buffer that the int8 kernel reads.
#pragma once

#include "kernel_linear.h"
#include "simd.h"

namespace espalier::ESPALIER_ISA {

constexpr int kFewRows = 4;
constexpr int64_t kRecordsPerStep = kStep / kNibbleGroup;

// The int8 quads of `num_steps` steps.
static void expand(const uint8_t* record, int64_t num_steps, int8_t* out) {
  for (int64_t i = 0; i < num_steps * kRecordsPerStep; ++i, record += Int4Matrix::kRecord) {
    const NibbleScale scale = load_nibble_scale(record + 4 * Int4Matrix::kLine);
    __builtin_prefetch(record + kBytesAhead + 4 * Int4Matrix::kLine);
#pragma GCC unroll 4
    for (int line = 0; line < 4; ++line, out += 8 * kLanes) {
      const uint8_t* nibbles = record + line * Int4Matrix::kLine;
      __builtin_prefetch(nibbles + kBytesAhead);
      store_whole_quads(out, scaled_nibbles<0>(nibbles, scale), scaled_nibbles<1>(nibbles, scale));
      store_whole_quads(out + 4 * kLanes, scaled_nibbles<2>(nibbles, scale),
                        scaled_nibbles<3>(nibbles, scale));
    }
  }
}

// An int8 matrix of `count` tiles from `tile` on, expanded to `buffer`.
ESPALIER_INLINE Int8Matrix expanded_tiles(const Int4Matrix& w, int64_t tile, int64_t count,
                                          int8_t* buffer) {
  expand(w.records + tile * w.num_steps * kRecordsPerStep * Int4Matrix::kRecord,
         count * w.num_steps, buffer);
  const int64_t num_groups = w.num_steps / w.steps_per_group;
  return {buffer,
          w.scales + tile * num_groups * kLanes,
          w.bias == nullptr ? nullptr : w.bias + tile * kLanes,
          w.num_steps,
          w.steps_per_group,
          w.out_features - tile * kLanes};
}

// Inputs of one record for R rows.
template <int R>
ESPALIER_INLINE void add_record(const uint8_t* record, const int32_t* pairs, int64_t stride,
                                IVec (&even)[R], IVec (&odd)[R]) {
  const NibbleScale scale = load_nibble_scale(record + 4 * Int4Matrix::kLine);
  __builtin_prefetch(record + kBytesAhead + 4 * Int4Matrix::kLine);
#pragma GCC unroll 4
  for (int line = 0; line < 4; ++line) {
    const uint8_t* nibbles = record + line * Int4Matrix::kLine;
    __builtin_prefetch(nibbles + kBytesAhead);
    const Pairs first_even = whole_pairs(scaled_nibbles<0>(nibbles, scale));
    const Pairs first_odd = whole_pairs(scaled_nibbles<1>(nibbles, scale));
    const Pairs second_even = whole_pairs(scaled_nibbles<2>(nibbles, scale));
    const Pairs second_odd = whole_pairs(scaled_nibbles<3>(nibbles, scale));
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      const int32_t* pair = pairs + r * stride + 4 * line;
      even[r] = dot_pairs(even[r], first_even, pair[0]);
      odd[r] = dot_pairs(odd[r], first_odd, pair[1]);
      even[r] = dot_pairs(even[r], second_even, pair[2]);
      odd[r] = dot_pairs(odd[r], second_odd, pair[3]);
    }
  }
}

template <int R>
static void int4_block(const Int4Matrix& w, const QuantizedRows& x, const RowsOut& out, int64_t row,
                       int64_t tile) {
  const int64_t records = w.steps_per_group * kRecordsPerStep, stride = x.num_steps * kStep / 2;
  const int64_t num_groups = w.num_steps / w.steps_per_group;
  const uint8_t* record = w.records + tile * num_groups * records * Int4Matrix::kRecord;
  const float* scales = w.scales + tile * num_groups * kLanes;
  const int32_t* pairs = pairs_of(x, row);
  Vec sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = zero();
  for (int64_t group = 0; group < num_groups; ++group, scales += kLanes) {
    IVec even[R], odd[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) even[r] = odd[r] = izero();
    for (int64_t i = 0; i < records; ++i) {
      add_record<R>(record, pairs, stride, even, odd);
      record += Int4Matrix::kRecord;
      pairs += kNibbleGroup / 2;
    }
    const Vec scale = load(scales);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) sums[r] = fma(to_float(iadd(even[r], odd[r])), scale, sums[r]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) finish_tile(w, tile, sums[r], x.scales[row + r], out, row + r);
}

static void linear_int4(const Int4Matrix& w, const QuantizedRows& x, const RowsOut& out, Range rows,
                        Range tiles, int8_t* buffer) {
  const int64_t num_rows = rows.end - rows.begin;
  for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
    if (num_rows <= kFewRows) {
      with_row_count<kFewRows>(static_cast<int>(num_rows), [&](auto r) {
        int4_block<decltype(r)::value>(w, x, out, rows.begin, tile);
      });
    } else {
      const RowsOut columns{out.data + tile * kLanes, out.stride};
      int8_tiles<1>(expanded_tiles(w, tile, 1, buffer), x, columns, rows, 0);
    }
  }
}

}  // namespace espalier::ESPALIER_ISA
