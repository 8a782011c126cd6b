// Products of rows with packed weights in AMX tiles, 16 rows by 16 outputs. Integer sums, and the
// order of operations on floats, are those of the vector kernels, hence the bits are the same.
#pragma once

#include "amx.h"
#include "flush_subnormals.h"
#include "kernel_int4.h"

namespace espalier::ESPALIER_ISA {

constexpr int kTileRows = kRowBlock;
constexpr int64_t kTileLine = 64;                      // bytes of a row of a tile
constexpr int64_t kTileBytes = kTileRows * kTileLine;  // 1 KB
constexpr int64_t kStepsAtOnce = 12;                   // whose inputs fit the L1 cache
constexpr int64_t kMostWaiting = 16;                   // tiles whose sums wait for more inputs

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

ESPALIER_INLINE int64_t parts_of(const Int8Matrix& w) {
  const int64_t groups = w.num_steps / w.steps_per_group;
  return smaller(groups, chunks_of(w.num_steps, kStepsAtOnce));
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

// Fetches the weights of the next tiles, some lines at a time.
struct FetchingFeed {
  const int8_t* weights;
  int64_t num_left, at_once;  // lines
};

ESPALIER_INLINE void advance(FetchingFeed& feed) {
  const int64_t count = smaller(feed.at_once, feed.num_left);
  feed.num_left -= count;
  for (int64_t i = 0; i < count; ++i, feed.weights += kTileLine) {
    __builtin_prefetch(feed.weights, 0, 2);
  }
}

// Expands the 4-bit weights of the next tiles, some records at a time.
struct ExpandingFeed {
  const uint8_t* record;
  int8_t* out;
  int64_t num_left, at_once;  // records
};

// `num_calls`: how often the feed advances before it is finished.
ESPALIER_INLINE ExpandingFeed feed_of(const Int4Matrix& w, Range tiles, int64_t num_calls,
                                      int8_t* out) {
  const int64_t of_tile = w.num_steps * kRecordsPerStep;
  const int64_t records = (tiles.end - tiles.begin) * of_tile;
  return {w.records + tiles.begin * of_tile * Int4Matrix::kRecord, out, records,
          chunks_of(records, num_calls)};
}

ESPALIER_INLINE void advance(ExpandingFeed& feed) {
  const int64_t count = smaller(feed.at_once, feed.num_left);
  feed.num_left -= count;
  expand_records(feed.record, count, feed.out);
  feed.record += count * Int4Matrix::kRecord;
  feed.out += count * kNibbleGroup * kLanes;
}

// Sums of some groups in one tile of outputs for 16 rows. While the products of a group run, the
// sums of the one before become floats.
template <typename Feed>
ESPALIER_INLINE void add_groups(const Int8Matrix& w, const QuantizedRows& x, int64_t row,
                                int64_t tile, Range groups, Vec (&sums)[kTileRows], Feed& feed) {
  const int64_t steps = w.steps_per_group;
  const uint8_t* inputs = x.data + row / kRowBlock * x.num_steps * 2 * kTileBytes;
  const int8_t* weights = w.tiles + tile * w.num_steps * kTileBytes;
  const float* scales = w.scales + tile * (w.num_steps / steps) * kLanes;
  PlaneSums planes[2];
  const auto multiply = [&](auto even, int64_t group) {
    constexpr bool kEven = decltype(even)::value;
    const int64_t first = group * steps;
    multiply_group<kEven>(inputs + first * 2 * kTileBytes, weights + first * kTileBytes, steps);
    advance(feed);
  };
  const auto finish = [&](const PlaneSums& plane, int64_t group) {
    add_group(plane, load(scales + group * kLanes), sums);
  };
  multiply(RowCount<1>{}, groups.begin);
  int64_t group = groups.begin + 1;
  for (; group + 1 < groups.end; group += 2) {
    multiply(RowCount<0>{}, group);
    store_group<true>(planes[0]);
    finish(planes[0], group - 1);
    multiply(RowCount<1>{}, group + 1);
    store_group<false>(planes[1]);
    finish(planes[1], group);
  }
  if (group < groups.end) {
    multiply(RowCount<0>{}, group);
    store_group<true>(planes[0]);
    finish(planes[0], group - 1);
    store_group<false>(planes[1]);
    finish(planes[1], group);
  } else {
    store_group<true>(planes[0]);
    finish(planes[0], groups.end - 1);
  }
}

ESPALIER_INLINE void finish_rows(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                                 int64_t row, int64_t count, int64_t tile,
                                 const Vec (&sums)[kTileRows]) {
  const bool is_plain = w.bias == nullptr && out.places == nullptr;
  if (count >= kTileRows && is_plain && (tile + 1) * kLanes <= w.out_features) {
    float* to = out.data + row * out.stride + tile * kLanes;
#pragma GCC unroll 16
    for (int r = 0; r < kTileRows; ++r) {
      store(to + r * out.stride, mul(sums[r], splat(x.scales[row + r])));
    }
    return;
  }
#pragma GCC unroll 16
  for (int r = 0; r < kTileRows; ++r) {
    if (r < count) finish_tile(w, tile, sums[r], x.scales[row + r], out, row + r);
  }
}

// Rows outside, tiles inside: the inputs of 16 rows stay in the L1 cache while the weights come
// from the L2 cache. Where there are more inputs than kStepsAtOnce they are taken in parts, and the
// sums of all tiles wait in between.
template <typename Feed>
ESPALIER_INLINE void multiply_tiles(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                                    Range rows, Range tiles, Feed& feed) {
  const int64_t groups = w.num_steps / w.steps_per_group, parts = parts_of(w);
  alignas(64) float waiting[kMostWaiting][kTileRows][kLanes];
  for (int64_t row = rows.begin; row < rows.end; row += kTileRows) {
    for (int64_t part = 0; part < parts; ++part) {
      const Range taken{groups * part / parts, groups * (part + 1) / parts};
      for (int64_t tile = tiles.begin; tile < tiles.end; ++tile) {
        float (&kept)[kTileRows][kLanes] = waiting[(tile - tiles.begin) % kMostWaiting];
        Vec sums[kTileRows];
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) sums[r] = part == 0 ? zero() : load(kept[r]);
        add_groups(w, x, row, tile, taken, sums, feed);
        if (part + 1 == parts) {
          finish_rows(w, x, out, row, rows.end - row, tile, sums);
          continue;
        }
#pragma GCC unroll 16
        for (int r = 0; r < kTileRows; ++r) store(kept[r], sums[r]);
      }
    }
  }
}

ESPALIER_INLINE int64_t blocks_of(Range rows) {
  return chunks_of(rows.end - rows.begin, kTileRows);
}

// Tiles whose weights stay in the L2 cache together.
ESPALIER_INLINE int64_t tiles_at_once(int64_t num_steps) {
  return larger(1, smaller(kMostWaiting, kTileBufferBytes / (num_steps * kTileBytes)));
}

static void linear_int8_amx(const Int8Matrix& w, const QuantizedRows& x, const RowsOut& out,
                            Range rows, Range tiles) {
  if (x.is_paired) {
    linear_int8(w, x, out, rows, tiles);
    return;
  }
  const TileShapes shapes = full_tiles();
  const Tiles scope(shapes);
  const int64_t blocks = blocks_of(rows), step = smaller(2 * blocks, tiles_at_once(w.num_steps));
  for (int64_t tile = tiles.begin; tile < tiles.end; tile += step) {
    const Range taken{tile, smaller(tile + step, tiles.end)};
    const int64_t num_next = smaller(step, tiles.end - taken.end);
    const int64_t lines = num_next * w.num_steps * kTileRows;
    const int64_t num_calls = blocks * (taken.end - taken.begin) * w.num_steps / w.steps_per_group;
    FetchingFeed feed{w.tiles + taken.end * w.num_steps * kTileBytes, lines,
                      chunks_of(lines, num_calls)};
    multiply_tiles(w, x, out, rows, taken, feed);
  }
}

// Some tiles are multiplied in one half of `buffer` while the next ones are expanded in the other.
static void linear_int4_amx(const Int4Matrix& w, const QuantizedRows& x, const RowsOut& out,
                            Range rows, Range tiles, int8_t* buffer) {
  if (x.is_paired) {
    linear_int4(w, x, out, rows, tiles, buffer);
    return;
  }
  const TileShapes shapes = full_tiles();
  const Tiles scope(shapes);
  const int64_t blocks = blocks_of(rows), step = smaller(2 * blocks, tiles_at_once(w.num_steps));
  int8_t *now = buffer, *next = buffer + step * w.num_steps * kTileBytes;
  Range taken{tiles.begin, smaller(tiles.begin + step, tiles.end)};
  ExpandingFeed first = feed_of(w, taken, 1, now);
  advance(first);
  finish_stores();
  while (taken.begin < taken.end) {
    const Range following{taken.end, smaller(taken.end + step, tiles.end)};
    const int64_t count = taken.end - taken.begin;
    const int64_t num_calls = blocks * count * (w.num_steps / w.steps_per_group);
    ExpandingFeed feed = feed_of(w, following, num_calls, next);
    const RowsOut columns{out.data + taken.begin * kLanes, out.stride, out.places};
    multiply_tiles(expanded_matrix(w, taken.begin, now), x, columns, rows, {0, count}, feed);
    finish_stores();
    int8_t* done = now;
    now = next;
    next = done;
    taken = following;
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

// Biases too are added while subnormal numbers are flushed.
static __attribute__((noinline)) void bf16_amx_flushed(const Bf16Matrix& w, const Bf16Rows& x,
                                                       const RowsOut& out, Range rows,
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

static void linear_bf16_amx(const Bf16Matrix& w, const Bf16Rows& x, const RowsOut& out, Range rows,
                            Range tiles) {
  const FlushSubnormals scope;
  bf16_amx_flushed(w, x, out, rows, tiles);
}

}  // namespace espalier::ESPALIER_ISA
