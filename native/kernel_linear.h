// Products of rows with packed weights. A tile (16 outputs) is computed for a few rows at once, in
// registers; which rows go together never changes the order of operations of one of them.
#pragma once

#include "simd.h"

namespace espalier::ESPALIER_ISA {

constexpr int64_t kBytesAhead = 4096;  // how far a row's weights are fetched in advance

// Calls block(first_row, integral constant of the number of rows) for blocks of nearly equal size,
// at most `Most` rows each.
template <int R>
struct RowCount {
  static constexpr int value = R;
};

template <int Most, typename Block>
ESPALIER_INLINE void with_row_count(int rows, Block block) {
  if (rows == Most) {
    block(RowCount<Most>{});
  } else if constexpr (Most > 1) {
    with_row_count<Most - 1>(rows, block);
  }
}

template <int Most, typename Block>
ESPALIER_INLINE void each_row_block(Range rows, Block block) {
  const int64_t count = rows.end - rows.begin;
  const int64_t blocks = chunks_of(count, Most);
  int64_t row = rows.begin;
  for (int64_t i = 0; i < blocks; ++i) {
    const int64_t next = rows.begin + count * (i + 1) / blocks;
    block(row, static_cast<int>(next - row));
    row = next;
  }
}

ESPALIER_INLINE int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
ESPALIER_INLINE int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

ESPALIER_INLINE void store_tile(float* out, Vec x, int64_t columns) {
  if (columns >= kLanes) {
    store(out, x);
  } else {
    store_partial(out, x, columns);
  }
}

ESPALIER_INLINE float bf16_to_float(uint16_t x) {
  const uint32_t word = static_cast<uint32_t>(x) << 16;
  float out;
  std::memcpy(&out, &word, sizeof out);
  return out;
}

// Writes the sums of a row in one tile, with the bias where there is one.
template <typename Matrix>
ESPALIER_INLINE void add_bias(const Matrix& w, int64_t tile, Vec y, const RowsOut& out,
                              int64_t row) {
  const int64_t column = tile * kLanes;
  if (w.bias != nullptr) y = add(y, load(w.bias + column));
  store_tile(place_of(out, row) + column, y, w.out_features - column);
}

// Turns the sums of a quantised row into its outputs in one tile.
template <typename Matrix>
ESPALIER_INLINE void finish_tile(const Matrix& w, int64_t tile, Vec sums, float row_scale,
                                 const RowsOut& out, int64_t row) {
  add_bias(w, tile, mul(sums, splat(row_scale)), out, row);
}

// sums[r][c] += a[r][k] * b[k][c] for k in order; b is k * b_step + c * b_column floats on.
template <int R, int C>
ESPALIER_INLINE void accumulate(const float* const (&a)[R], const float* b, int64_t b_step,
                                int64_t b_column, Range k_range, Vec (&sums)[R][C]) {
  for (int64_t k = k_range.begin; k < k_range.end; ++k) {
    Vec columns[C];
#pragma GCC unroll 8
    for (int c = 0; c < C; ++c) columns[c] = load(b + k * b_step + c * b_column);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const Vec factor = splat(a[r][k]);
#pragma GCC unroll 8
      for (int c = 0; c < C; ++c) sums[r][c] = fma(factor, columns[c], sums[r][c]);
    }
  }
}

// A row of quantised inputs as int16 pairs.
ESPALIER_INLINE const int32_t* pairs_of(const QuantizedRows& x, int64_t row) {
  return reinterpret_cast<const int32_t*>(x.data) + row * x.num_steps * kStep / 2;
}

// C tiles for R rows: exact integer sums per group of inputs, then floats, group by group. Tile c
// is `tile_bytes` behind the one before.
template <int R, int C>
static void int8_block(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out, int64_t row,
                       int64_t tile) {
  // Two integer sums per output hide the latency of the products where there are few outputs.
  constexpr int kChains = 2 * R * C <= kInt8Sums ? 2 : 1;
  const int64_t tile_bytes = w.num_steps * kStep * kLanes, stride = x.num_steps * kStep / 2;
  const int64_t num_groups = w.num_steps / w.steps_per_group;
  const int64_t quads = w.steps_per_group * kStep / 4;
  const int8_t* line = w.tiles + tile * tile_bytes;
  const float* scales = w.scales + tile * num_groups * kLanes;
  const int32_t* pairs = pairs_of(x, row);
  Vec sums[R][C];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) sums[r][c] = zero();
  }
  for (int64_t group = 0; group < num_groups; ++group, scales += kLanes) {
    IVec whole[R][C][kChains];
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        for (int chain = 0; chain < kChains; ++chain) whole[r][c][chain] = izero();
      }
    }
#pragma GCC unroll 1
    for (int64_t quad = 0; quad < quads; ++quad, line += 4 * kLanes, pairs += 2) {
      Pairs even[C], odd[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) {
        if constexpr (R <= 4) __builtin_prefetch(line + c * tile_bytes + kBytesAhead);
        split_quads(line + c * tile_bytes, even[c], odd[c]);
      }
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        const int32_t* pair = pairs + r * stride;
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          whole[r][c][0] = dot_pairs(whole[r][c][0], even[c], pair[0]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          whole[r][c][kChains - 1] = dot_pairs(whole[r][c][kChains - 1], odd[c], pair[1]);
        }
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) {
      const Vec scale = load(scales + c * num_groups * kLanes);
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
        IVec sum = whole[r][c][0];
        if constexpr (kChains == 2) sum = iadd(sum, whole[r][c][1]);
        sums[r][c] = fma(to_float(sum), scale, sums[r][c]);
      }
    }
  }
  for (int c = 0; c < C; ++c) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      finish_tile(w, tile + c, sums[r][c], x.scales[row + r], out, row + r);
    }
  }
}

template <int C>
static void int8_tiles(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out, Range rows,
                       int64_t tile) {
  each_row_block<kInt8Rows>(rows, [&](int64_t row, int count) {
    with_row_count<kInt8Rows>(
        count, [&](auto r) { int8_block<decltype(r)::value, C>(w, x, out, row, tile); });
  });
}

static void linear_int8(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out, Range rows,
                        Range tiles) {
  int64_t tile = tiles.begin;
  for (; tile + kInt8Tiles <= tiles.end; tile += kInt8Tiles) {
    int8_tiles<kInt8Tiles>(w, x, out, rows, tile);
  }
  for (; tile < tiles.end; ++tile) int8_tiles<1>(w, x, out, rows, tile);
}

// C tiles for R rows; each output is one chain of fused products over the inputs in order.
template <int R, int C>
static void f32_block(const F32Matrix& w, const Rows& x, const RowsOut& out, int64_t row,
                      int64_t tile) {
  const int64_t tile_size = w.in_features * kLanes;
  const float* a[R];
  Vec sums[R][C];
  for (int r = 0; r < R; ++r) {
    a[r] = x.data + (row + r) * x.stride;
    for (int c = 0; c < C; ++c) sums[r][c] = zero();
  }
  accumulate<R, C>(a, w.tiles + tile * tile_size, kLanes, tile_size, {0, w.in_features}, sums);
  for (int c = 0; c < C; ++c) {
    for (int r = 0; r < R; ++r) add_bias(w, tile + c, sums[r][c], out, row + r);
  }
}

// Tiles that fit beside R rows.
template <int R>
constexpr int tiles_at_once() {
  int tiles = 1;
  while (tiles < 8 && R * tiles * 2 <= kAccumulators) tiles *= 2;
  return tiles;
}

static void linear_f32(const F32Matrix& w, const Rows& x, const RowsOut& out, Range rows,
                       Range tiles) {
  each_row_block<kFloatRows>(rows, [&](int64_t row, int count) {
    with_row_count<kFloatRows>(count, [&](auto r) {
      constexpr int kRows = decltype(r)::value, kTiles = tiles_at_once<kRows>();
      int64_t tile = tiles.begin;
      for (; tile + kTiles <= tiles.end; tile += kTiles) {
        f32_block<kRows, kTiles>(w, x, out, row, tile);
      }
      for (; tile < tiles.end; ++tile) f32_block<kRows, 1>(w, x, out, row, tile);
    });
  });
}

}  // namespace espalier::ESPALIER_ISA
