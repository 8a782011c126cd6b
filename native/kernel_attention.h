// Attention over slots with an online softmax (Milakov and Gimelshein 2018; blocked as in Flash-
// Attention, Dao et al. 2022). Scores are taken in blocks of 64 positions counted from position 0,
// and blocks are summed up in segments of 512: borders are absolute, so that a query's operations
// depend on its position alone, never on the queries beside it.
#pragma once

#include "kernel_linear.h"
#include "simd.h"
#include "vector_math.h"

namespace espalier::ESPALIER_ISA {

constexpr int kBlockVectors = kBlock / kLanes;

ESPALIER_INLINE Vec load_kv(const float* p, int64_t lanes) {
  return lanes >= kLanes ? load(p) : load_partial(p, lanes);
}
ESPALIER_INLINE Vec load_kv(const uint16_t* p, int64_t lanes) {
  return lanes >= kLanes ? load_bf16(p) : load_bf16_partial(p, lanes);
}

// Positions that a row at `position` sees in the block that starts at `block`, counted from there.
ESPALIER_INLINE Range seen_in_block(int64_t position, int64_t window, int64_t block) {
  const int64_t first = window > 0 ? larger(0, position - window + 1) : 0;
  return {larger(0, first - block), smaller(kBlock, position + 1 - block)};
}

// out[i][key] = element first + i of 16 keys; neighbours in bfloat16 travel as one word.
ESPALIER_INLINE void transpose_keys(const uint16_t* const (&rows)[kLanes], int64_t first,
                                    int64_t count, float* out) {
  Vec tile[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    if (rows[j] == nullptr) {
      tile[j] = zero();
    } else if (count == 2 * kLanes) {
      tile[j] = load_words(rows[j] + first);
    } else {
      uint16_t padded[2 * kLanes] = {};
      std::memcpy(padded, rows[j] + first, static_cast<size_t>(count) * sizeof(uint16_t));
      tile[j] = load_words(padded);
    }
  }
  transpose(tile);
  for (int64_t j = 0; j < count; ++j) {
    const Vec pair = tile[j / 2];
    store(out + j * kBlock, j % 2 == 0 ? low_bf16(pair) : high_bf16(pair));
  }
}
ESPALIER_INLINE void transpose_keys(const float* const (&rows)[kLanes], int64_t first,
                                    int64_t count, float* out) {
  Vec tile[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    tile[j] = rows[j] == nullptr ? zero() : load_kv(rows[j] + first, count);
  }
  transpose(tile);
  for (int64_t j = 0; j < count; ++j) store(out + j * kBlock, tile[j]);
}

// Keys of the positions in `range`, transposed: out[element][position in block].
template <typename Element>
static void gather_keys(const Element* keys, const AttentionShape& shape, const AttentionUnit& unit,
                        int64_t block, Range range, float* out) {
  constexpr int64_t kColumns = sizeof(Element) == 2 ? 2 * kLanes : kLanes;
  const int64_t dim = shape.head_dim;
  for (int64_t first = range.begin / kLanes * kLanes; first < range.end; first += kLanes) {
    const Element* rows[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      const int64_t i = first + j;
      rows[j] = nullptr;
      if (i >= range.begin && i < range.end) {
        rows[j] = keys + (unit.slots[block + i] * shape.num_kv_heads + unit.kv_head) * dim;
      }
    }
    for (int64_t d = 0; d < dim; d += kColumns) {
      transpose_keys(rows, d, smaller(kColumns, dim - d), out + d * kBlock + first);
    }
  }
}

// Values of the positions in `range`: out[position in block][element, padded].
template <typename Element>
static void gather_values(const Element* values, const AttentionShape& shape,
                          const AttentionUnit& unit, int64_t block, Range range, float* out) {
  const int64_t dim = shape.head_dim, padded = padded_to_lanes(dim);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const Element* row = values + (unit.slots[block + i] * shape.num_kv_heads + unit.kv_head) * dim;
    for (int64_t d = 0; d < dim; d += kLanes)
      store(out + i * padded + d, load_kv(row + d, dim - d));
  }
}

ESPALIER_INLINE void gather(const AttentionShape& shape, const AttentionUnit& unit, int64_t block,
                            Range range, float* keys, float* values) {
  if (shape.kv_is_bf16) {
    gather_keys(static_cast<const uint16_t*>(shape.keys), shape, unit, block, range, keys);
    gather_values(static_cast<const uint16_t*>(shape.values), shape, unit, block, range, values);
  } else {
    gather_keys(static_cast<const float*>(shape.keys), shape, unit, block, range, keys);
    gather_values(static_cast<const float*>(shape.values), shape, unit, block, range, values);
  }
}

// Starts to load the keys and values of a block: slots lie anywhere, so the hardware cannot guess.
ESPALIER_INLINE void prefetch(const AttentionShape& shape, const AttentionUnit& unit, int64_t block,
                              Range range) {
  constexpr int64_t kLine = 64;
  const int64_t row_bytes = shape.head_dim * (shape.kv_is_bf16 ? 2 : 4);
  const char* keys = static_cast<const char*>(shape.keys);
  const char* values = static_cast<const char*>(shape.values);
  for (int64_t i = range.begin; i < range.end; ++i) {
    const int64_t row = (unit.slots[block + i] * shape.num_kv_heads + unit.kv_head) * row_bytes;
    for (int64_t byte = 0; byte < row_bytes; byte += kLine) {
      __builtin_prefetch(keys + row + byte, 0, 2);
      __builtin_prefetch(values + row + byte, 0, 2);
    }
  }
}

// Scores of one query become exponentials, in place; returns what its earlier sums are scaled by.
// `stats` holds the largest score and the sum of exponentials so far.
ESPALIER_INLINE float soften(const AttentionShape& shape, Range range, float* scores,
                             float* stats) {
  Vec s[kBlockVectors];
  for (int i = 0; i < kBlockVectors; ++i) {
    s[i] = mul(load(scores + i * kLanes), splat(shape.scale));
    if (shape.soft_cap > 0) {
      s[i] = mul(tanh(div(s[i], splat(shape.soft_cap))), splat(shape.soft_cap));
    }
    s[i] = select_lanes(range.begin - i * kLanes, range.end - i * kLanes, s[i],
                        splat(-__builtin_inff()));
  }
  const float block_top = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
  const float top = stats[0] > block_top ? stats[0] : block_top;
  for (int i = 0; i < kBlockVectors; ++i) {
    s[i] = exp(sub(s[i], splat(top)));
    store(scores + i * kLanes, s[i]);
  }
  const float sum = reduce_add(add(add(s[0], s[1]), add(s[2], s[3])));
  float kept[kLanes];
  store(kept, exp(splat(stats[0] - top)));
  stats[0] = top;
  stats[1] = stats[1] * kept[0] + sum;
  return kept[0];
}

template <int R, int C>
ESPALIER_INLINE void add_values(const float* const (&weights)[R], const float (&kept)[R],
                                const float* values, int64_t padded, Range range,
                                float* const (&sums)[R]) {
  Vec tile[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) tile[r][c] = mul(load(sums[r] + c * kLanes), splat(kept[r]));
  }
  accumulate<R, C>(weights, values, padded, kLanes, range, tile);
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) store(sums[r] + c * kLanes, tile[r][c]);
  }
}

// R queries that see the same positions of a block.
template <int R>
static void attend_block(const AttentionShape& shape, const float* const (&q)[R],
                         float* const (&partials)[R], const float* keys, const float* values,
                         Range range) {
  const int64_t dim = shape.head_dim, padded = padded_to_lanes(dim);
  float scores[R][kBlock];
  for (int i = 0; i < kBlockVectors; i += kScoreVectors) {
    Vec tile[R][kScoreVectors];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kScoreVectors; ++c) tile[r][c] = zero();
    }
    accumulate<R, kScoreVectors>(q, keys + i * kLanes, kBlock, kLanes, {0, dim}, tile);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < kScoreVectors; ++c) store(&scores[r][(i + c) * kLanes], tile[r][c]);
    }
  }
  const float* weights[R];
  float* sums[R];
  float kept[R];
  for (int r = 0; r < R; ++r) {
    weights[r] = scores[r];
    sums[r] = partials[r];
    kept[r] = soften(shape, range, scores[r], partials[r] + padded);
  }
  int64_t d = 0;
  for (; d + kScoreVectors * kLanes <= padded; d += kScoreVectors * kLanes) {
    add_values<R, kScoreVectors>(weights, kept, values + d, padded, range, sums);
    for (int r = 0; r < R; ++r) sums[r] += kScoreVectors * kLanes;
  }
  for (; d < padded; d += kLanes) {
    add_values<R, 1>(weights, kept, values + d, padded, range, sums);
    for (int r = 0; r < R; ++r) sums[r] += kLanes;
  }
}

// All queries of a unit over one gathered block; neighbours that see the same go together.
static void attend_queries(const AttentionShape& shape, const AttentionUnit& unit, int64_t block,
                           const float* keys, const float* values, float* partials) {
  const int64_t group = shape.heads_per_kv, stride = partial_stride(shape.head_dim);
  const int64_t num_queries = unit.num_rows * group;
  const auto seen = [&](int64_t query) {
    return seen_in_block(unit.positions[query / group], shape.window, block);
  };
  for (int64_t query = 0; query < num_queries;) {
    const Range range = seen(query);
    int count = 1;
    while (count < kFloatRows && query + count < num_queries) {
      const Range next = seen(query + count);
      if (next.begin != range.begin || next.end != range.end) break;
      ++count;
    }
    if (range.begin < range.end) {
      with_row_count<kFloatRows>(count, [&](auto rows) {
        constexpr int R = decltype(rows)::value;
        const float* q[R];
        float* parts[R];
        for (int r = 0; r < R; ++r) {
          q[r] =
              unit.q + (query + r) / group * unit.q_stride + (query + r) % group * shape.head_dim;
          parts[r] = partials + (query + r) * stride;
        }
        attend_block<R>(shape, q, parts, keys, values, range);
      });
    }
    query += count;
  }
}

static void attend_segment(const AttentionShape& shape, const AttentionUnit& unit, int64_t segment,
                           float* partials, float* scratch) {
  const int64_t padded = padded_to_lanes(shape.head_dim);
  const int64_t stride = partial_stride(shape.head_dim);
  for (int64_t query = 0; query < unit.num_rows * shape.heads_per_kv; ++query) {
    float* partial = partials + query * stride;
    for (int64_t d = 0; d < padded; d += kLanes) store(partial + d, zero());
    partial[padded] = -__builtin_inff();
    partial[padded + 1] = 0.0f;
  }
  const int64_t last = unit.positions[unit.num_rows - 1];
  const int64_t first = shape.window > 0 ? larger(0, unit.positions[0] - shape.window + 1) : 0;
  const int64_t end = smaller((segment + 1) * kSegment, last + 1);
  const auto range_of = [&](int64_t block) {
    return Range{larger(0, first - block), smaller(kBlock, end - block)};
  };
  float* keys = scratch;
  float* values = scratch + kBlock * shape.head_dim;
  int64_t block = larger(segment * kSegment, first / kBlock * kBlock);
  prefetch(shape, unit, block, range_of(block));
  for (; block < end; block += kBlock) {
    if (block + kBlock < end) prefetch(shape, unit, block + kBlock, range_of(block + kBlock));
    gather(shape, unit, block, range_of(block), keys, values);
    attend_queries(shape, unit, block, keys, values, partials);
  }
}

static void fold_partial(float* total, const float* partial, int64_t head_dim) {
  const int64_t padded = padded_to_lanes(head_dim);
  float* stats = total + padded;
  const float* new_stats = partial + padded;
  if (new_stats[1] == 0.0f) return;
  if (stats[1] == 0.0f) {
    for (int64_t d = 0; d < padded + kLanes; d += kLanes) store(total + d, load(partial + d));
    return;
  }
  const float top = stats[0] > new_stats[0] ? stats[0] : new_stats[0];
  const Vec kept = exp(splat(stats[0] - top)), added = exp(splat(new_stats[0] - top));
  for (int64_t d = 0; d < padded; d += kLanes) {
    store(total + d, add(mul(load(total + d), kept), mul(load(partial + d), added)));
  }
  float kept_lanes[kLanes], added_lanes[kLanes];
  store(kept_lanes, kept);
  store(added_lanes, added);
  stats[0] = top;
  stats[1] = stats[1] * kept_lanes[0] + new_stats[1] * added_lanes[0];
}

static void finish_partial(const float* total, float* out, int64_t head_dim) {
  const Vec inverse = splat(1.0f / total[padded_to_lanes(head_dim) + 1]);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    store_tile(out + d, mul(load(total + d), inverse), head_dim - d);
  }
}

}  // namespace espalier::ESPALIER_ISA
