// Products with 4-bit weights, which become the int8 weights that they stand for: in registers
// where there are few rows, else a tile at a time in a buffer that the int8 kernel reads.
#pragma once

#include "kernel_linear.h"
#include "simd.h"

namespace espalier::ESPALIER_ISA {

constexpr int kFewRows = 4;
constexpr int64_t kRecordsPerStep = kStep / kNibbleGroup;

// The int8 quads that records stand for.
ESPALIER_INLINE void expand_records(const uint8_t* record, int64_t count, int8_t* out) {
  for (int64_t i = 0; i < count; ++i, record += Int4Matrix::kRecord) {
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

// The tiles from `tile` on as an int8 matrix, whose weights lie expanded in `buffer`.
ESPALIER_INLINE Int8Matrix expanded_matrix(const Int4Matrix& w, int64_t tile,
                                           const int8_t* buffer) {
  const int64_t num_groups = w.num_steps / w.steps_per_group;
  return {buffer,
          w.scales + tile * num_groups * kLanes,
          w.bias == nullptr ? nullptr : w.bias + tile * kLanes,
          w.num_steps,
          w.steps_per_group,
          w.out_features - tile * kLanes};
}

// Integer sums of a row in one tile: up to four of them, so that no product waits for the one
// before where there are few rows.
template <int Chains>
struct PairSums {
  IVec chains[Chains];

  static inline PairSums zeros() {
    PairSums sums;
    for (int i = 0; i < Chains; ++i) sums.chains[i] = izero();
    return sums;
  }
};

// Inputs of one record for R rows.
template <int R, int Chains>
ESPALIER_INLINE void add_record(const uint8_t* record, const int32_t* pairs, int64_t stride,
                                PairSums<Chains> (&sums)[R]) {
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
      IVec(&chains)[Chains] = sums[r].chains;
      chains[0] = dot_pairs(chains[0], first_even, pair[0]);
      chains[1 % Chains] = dot_pairs(chains[1 % Chains], first_odd, pair[1]);
      chains[2 % Chains] = dot_pairs(chains[2 % Chains], second_even, pair[2]);
      chains[3 % Chains] = dot_pairs(chains[3 % Chains], second_odd, pair[3]);
    }
  }
}

template <int R>
static void int4_block(const Int4Matrix& w, const QuantizedRows& x, const RowsOut& out, int64_t row,
                       int64_t tile) {
  constexpr int kChains = 4 * R <= kInt4Sums ? 4 : 2 * R <= kInt4Sums ? 2 : 1;
  const int64_t records = w.steps_per_group * kRecordsPerStep, stride = x.num_steps * kStep / 2;
  const int64_t num_groups = w.num_steps / w.steps_per_group;
  const uint8_t* record = w.records + tile * num_groups * records * Int4Matrix::kRecord;
  const float* scales = w.scales + tile * num_groups * kLanes;
  const int32_t* pairs = pairs_of(x, row);
  Vec sums[R];
#pragma GCC unroll 4
  for (int r = 0; r < R; ++r) sums[r] = zero();
  for (int64_t group = 0; group < num_groups; ++group, scales += kLanes) {
    PairSums<kChains> whole[R];
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) whole[r] = PairSums<kChains>::zeros();
    for (int64_t i = 0; i < records; ++i) {
      add_record<R, kChains>(record, pairs, stride, whole);
      record += Int4Matrix::kRecord;
      pairs += kNibbleGroup / 2;
    }
    const Vec scale = load(scales);
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      IVec sum = whole[r].chains[0];
      for (int i = 1; i < kChains; ++i) sum = iadd(sum, whole[r].chains[i]);
      sums[r] = fma(to_float(sum), scale, sums[r]);
    }
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
      const RowsOut columns{out.data + tile * kLanes, out.stride, out.places};
      const int64_t records = w.num_steps * kRecordsPerStep;
      expand_records(w.records + tile * records * Int4Matrix::kRecord, records, buffer);
      int8_tiles<1>(expanded_matrix(w, tile, buffer), x, columns, rows, 0);
    }
  }
}

}  // namespace espalier::ESPALIER_ISA
