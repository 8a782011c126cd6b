// Products of quantised rows with int8 weights in AMX tiles, 16 rows by 16 outputs. The integers
// are those of the vector kernels and the float operations on them have the same order, hence the
// bits are the same.
#pragma once

#include "amx.h"
#include "kernel_int4.h"

namespace espalier::ESPALIER_ISA {

constexpr int kTileRows = kRowBlock;
constexpr int64_t kTileLine = 64;                      // bytes of a row of a tile
constexpr int64_t kTileBytes = kTileRows * kTileLine;  // 1 KB

ESPALIER_INLINE TileShapes full_tiles() {
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, kTileRows, kTileLine);
  return shapes;
}

// Where the sums of a group, of high and low bytes, are stored to be read as vectors.
struct alignas(64) PlaneSums {
  int32_t high[kTileRows][kLanes], low[kTileRows][kLanes];
};

// Sums over one group in the tiles 0 and 1, or 2 and 3: products that follow each other then wait
// for no store.
template <bool Even>
ESPALIER_INLINE void multiply_group(const uint8_t* inputs, const int8_t* weights, int64_t steps) {
  if constexpr (Even) {
    _tile_zero(0);
    _tile_zero(1);
  } else {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t step = 0; step < steps; ++step) {
    _tile_loadd(4, inputs, kTileLine);
    _tile_loadd(6, weights, kTileLine);
    _tile_loadd(5, inputs + kTileBytes, kTileLine);
    if constexpr (Even) {
      _tile_dpbssd(0, 4, 6);
      _tile_dpbssd(1, 5, 6);
    } else {
      _tile_dpbssd(2, 4, 6);
      _tile_dpbssd(3, 5, 6);
    }
    inputs += 2 * kTileBytes;
    weights += kTileBytes;
  }
}

template <bool Even>
ESPALIER_INLINE void store_group(PlaneSums& sums) {
  if constexpr (Even) {
    _tile_stored(0, sums.high, kTileLine);
    _tile_stored(1, sums.low, kTileLine);
  } else {
    _tile_stored(2, sums.high, kTileLine);
    _tile_stored(3, sums.low, kTileLine);
  }
}

ESPALIER_INLINE void add_group(const PlaneSums& planes, Vec scale, Vec (&sums)[kTileRows]) {
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    const IVec high = _mm512_slli_epi32(_mm512_load_si512(planes.high[r]), 7);
    const IVec whole = _mm512_add_epi32(high, _mm512_load_si512(planes.low[r]));
    sums[r] = fma(to_float(whole), scale, sums[r]);
  }
}

// One tile of outputs for 16 rows, of which `count` are wanted. While the products of a group run,
// the sums of the one before become floats.
ESPALIER_INLINE void int8_rows_amx(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                                   int64_t row, int64_t count, int64_t tile) {
  const int64_t steps = w.steps_per_group, groups = w.num_steps / steps;
  const uint8_t* inputs = x.data + row / kRowBlock * x.num_steps * 2 * kTileBytes;
  const int8_t* weights = w.tiles + tile * w.num_steps * kTileBytes;
  const float* scales = w.scales + tile * groups * kLanes;
  PlaneSums planes[2];
  Vec sums[kTileRows];
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) sums[r] = zero();
  const auto multiply = [&](auto even, int64_t group) {
    constexpr bool kEven = decltype(even)::value;
    const int64_t first = group * steps;
    multiply_group<kEven>(inputs + first * 2 * kTileBytes, weights + first * kTileBytes, steps);
  };
  const auto finish = [&](int64_t group) {
    add_group(planes[group & 1], load(scales + group * kLanes), sums);
  };
  multiply(RowCount<1>{}, 0);
  int64_t group = 1;
  for (; group + 1 < groups; group += 2) {
    multiply(RowCount<0>{}, group);
    store_group<true>(planes[0]);
    finish(group - 1);
    multiply(RowCount<1>{}, group + 1);
    store_group<false>(planes[1]);
    finish(group);
  }
  if (group < groups) {
    multiply(RowCount<0>{}, group);
    store_group<true>(planes[0]);
    finish(group - 1);
    store_group<false>(planes[1]);
    finish(group);
  } else {
    store_group<true>(planes[0]);
    finish(groups - 1);
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    if (r < count) finish_tile(w, tile, sums[r], x.scales[row + r], out, row + r);
  }
}

// Rows outside, tiles inside: the inputs of 16 rows stay in the L1 cache while the weights of
// `tiles` come from the L2 cache.
ESPALIER_INLINE void multiply_tiles(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                                    Range rows, Range tiles) {
  for (int64_t row = rows.begin; row < rows.end; row += kTileRows) {
    for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
      int8_rows_amx(w, x, out, row, rows.end - row, tile);
    }
  }
}

ESPALIER_INLINE int64_t tiles_at_once(int64_t num_steps) {
  return larger(1, kTileBufferBytes / (num_steps * kTileBytes));
}

static void linear_int8_amx(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                            Range rows, Range tiles) {
  if (x.is_paired) {
    linear_int8(w, x, out, rows, tiles);
    return;
  }
  const TileShapes shapes = full_tiles();
  const Tiles scope(shapes);
  const int64_t step = tiles_at_once(w.num_steps);
  for (int64_t tile = tiles.begin; tile < tiles.end; tile += step) {
    multiply_tiles(w, x, out, rows, {tile, smaller(tile + step, tiles.end)});
  }
}

static void linear_int4_amx(const Int4Matrix& w, const QuantizedRows& x, const RowsOut& out,
                            Range rows, Range tiles, int8_t* buffer) {
  if (x.is_paired) {
    linear_int4(w, x, out, rows, tiles, buffer);
    return;
  }
  const TileShapes shapes = full_tiles();
  const Tiles scope(shapes);
  const int64_t step = tiles_at_once(w.num_steps);
  for (int64_t tile = tiles.begin; tile < tiles.end; tile += step) {
    const int64_t count = smaller(step, tiles.end - tile);
    const Int8Matrix expanded = expanded_tiles(w, tile, count, buffer);
    const RowsOut columns{out.data + tile * kLanes, out.stride};
    multiply_tiles(expanded, x, columns, rows, {0, count});
  }
}

// Up to two tiles of weights for 16 rows, of which `count` are wanted.
template <int NumTiles>
ESPALIER_INLINE void bf16_rows_amx(const Bf16Matrix& w, const Bf16Rows& x, const RowsOut& out,
                                   int64_t row, int64_t count, int64_t tile) {
  const uint16_t* inputs = x.data + row * x.stride;
  const uint16_t* weights = w.tiles + tile * w.num_steps * Bf16Matrix::kStep * kLanes;
  const int64_t stride = x.stride * static_cast<int64_t>(sizeof(uint16_t));
  alignas(64) float sums[2][kTileRows][kLanes];
  _tile_zero(0);
  _tile_zero(1);
  for (int64_t step = 0; step < w.num_steps; ++step) {
    _tile_loadd(4, inputs, stride);
    _tile_loadd(6, weights, kTileLine);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (NumTiles == 2) {
      _tile_loadd(7, weights + w.num_steps * Bf16Matrix::kStep * kLanes, kTileLine);
      _tile_dpbf16ps(1, 4, 7);
    }
    inputs += Bf16Matrix::kStep;
    weights += Bf16Matrix::kStep * kLanes;
  }
  _tile_stored(0, sums[0], kTileLine);
  _tile_stored(1, sums[1], kTileLine);
  for (int i = 0; i < NumTiles; ++i) {
    for (int r = 0; r < kTileRows && r < count; ++r) {
      add_bias(w, tile + i, load(sums[i][r]), out, row + r);
    }
  }
}

static void linear_bf16_amx(const Bf16Matrix& w, const Bf16Rows& x, const RowsOut& out, Range rows,
                            Range tiles) {
  const TileShapes shapes = full_tiles();
  const Tiles scope(shapes);
  int64_t tile = tiles.begin;
  for (; tile + 2 <= tiles.end; tile += 2) {
    for (int64_t row = rows.begin; row < rows.end; row += kTileRows) {
      bf16_rows_amx<2>(w, x, out, row, rows.end - row, tile);
    }
  }
  for (; tile < tiles.end; ++tile) {
    for (int64_t row = rows.begin; row < rows.end; row += kTileRows) {
      bf16_rows_amx<1>(w, x, out, row, rows.end - row, tile);
    }
  }
}

}  // namespace espalier::ESPALIER_ISA
