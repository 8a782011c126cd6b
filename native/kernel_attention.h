// Attention over slots with an online softmax (Milakov and Gimelshein 2018; blocked as in Flash-
// Attention, Dao et al. 2022), in vectors. Blocks of 64 positions are counted from position 0, and
// are summed up in segments of 512: borders are absolute, so that a query's operations depend on
// its position alone, never on the queries beside it.
//
// With keys and values in bfloat16 or int8, products are summed up in the order of the AMX
// instruction TDPBF16PS (Intel's Software Developer's Manual, volume 2): queries and exponentials
// are rounded to bfloat16; of each 32 products the even ones form one chain of fused operations
// and the odd ones another; the chains are added, and their sum is added to the total. The sum of
// exponentials is that of a column of values that are all 1.
#pragma once

#include "attention_softmax.h"
#include "flush_subnormals.h"
#include "kernel_linear.h"

namespace espalier::ESPALIER_ISA {

constexpr int kBlockVectors = kBlock / kLanes;

ESPALIER_INLINE Vec load_kv(const float* p, int64_t lanes) {
  return lanes >= kLanes ? load(p) : load_partial(p, lanes);
}
ESPALIER_INLINE Vec load_kv(const uint16_t* p, int64_t lanes) {
  return lanes >= kLanes ? load_bf16(p) : load_bf16_partial(p, lanes);
}
ESPALIER_INLINE Vec load_kv(const int8_t* p, int64_t lanes) {
  if (lanes >= kLanes) return load_int8(p);
  int8_t padded[kLanes] = {};
  std::memcpy(padded, p, static_cast<size_t>(lanes));
  return load_int8(padded);
}

// The keys and values of a block as floats, zero where no row of the unit sees them.
struct GatheredBlock {
  float* keys;          // [head_dim][kBlock]
  float* values;        // [kBlock][padded_to_lanes(head_dim) + kLanes], a 1 behind each row
  float* key_scales;    // [kBlock]
  float* value_scales;  // [kBlock]
};

// out[i][key] = element first + i of 16 keys.
template <typename Element>
ESPALIER_INLINE void transpose_keys(const Element* const (&rows)[kLanes], int64_t first,
                                    int64_t count, float* out) {
  Vec tile[kLanes];
  for (int j = 0; j < kLanes; ++j) {
    tile[j] = rows[j] == nullptr ? zero() : load_kv(rows[j] + first, count);
  }
  transpose(tile);
  for (int64_t j = 0; j < smaller(count, kLanes); ++j) store(out + j * kBlock, tile[j]);
}

template <typename Element>
static void gather(const AttentionShape& shape, const AttentionUnit& unit, int64_t block,
                   Range range, const GatheredBlock& out) {
  const int64_t dim = shape.head_dim, padded = padded_to_lanes(dim);
  const Element* keys = static_cast<const Element*>(shape.keys);
  const Element* values = static_cast<const Element*>(shape.values);
  for (int64_t first = 0; first < kBlock; first += kLanes) {
    const Element* rows[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) {
      const int64_t i = first + j;
      const bool is_seen = i >= range.begin && i < range.end;
      const int64_t row = is_seen ? kv_row(shape, unit, block + i) : 0;
      rows[j] = is_seen ? keys + row * dim : nullptr;
      float* value = out.values + i * (padded + kLanes);
      for (int64_t d = 0; d < padded; d += kLanes) {
        store(value + d, is_seen ? load_kv(values + row * dim + d, dim - d) : zero());
      }
      store(value + padded, splat(1.0f));
      if (shape.format != KvFormat::Int8) continue;
      out.key_scales[i] = is_seen ? shape.key_scales[row] : 0.0f;
      out.value_scales[i] = is_seen ? shape.value_scales[row] : 0.0f;
    }
    for (int64_t d = 0; d < dim; d += kLanes) {
      transpose_keys(rows, d, dim - d, out.keys + d * kBlock + first);
    }
  }
}

ESPALIER_INLINE void gather_block(const AttentionShape& shape, const AttentionUnit& unit,
                                  int64_t block, Range range, const GatheredBlock& out) {
  if (shape.format == KvFormat::F32) {
    gather<float>(shape, unit, block, range, out);
  } else if (shape.format == KvFormat::Bf16) {
    gather<uint16_t>(shape, unit, block, range, out);
  } else {
    gather<int8_t>(shape, unit, block, range, out);
  }
}

// The chain of every second k of a range, from its first.
template <int R, int C>
ESPALIER_INLINE void chain_products(const float* const (&a)[R], const float* b, int64_t b_step,
                                    Range k_range, Vec (&chains)[R][C]) {
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) chains[r][c] = zero();
  }
  for (int64_t k = k_range.begin; k < k_range.end; k += 2) {
    accumulate<R, C>(a, b, b_step, kLanes, {k, k + 1}, chains);
  }
}

// sums[r][c] += a[r][k] * b[k][c] for k from 0 to count - 1, in the order described above.
template <int R, int C>
ESPALIER_INLINE void add_products(const float* const (&a)[R], const float* b, int64_t b_step,
                                  int64_t count, float* const (&sums)[R]) {
  for (int64_t first = 0; first < count; first += kChain) {
    const int64_t end = smaller(first + kChain, count);
    Vec even[R][C], odd[R][C];
    chain_products<R, C>(a, b, b_step, {first, end}, even);
    chain_products<R, C>(a, b, b_step, {first + 1, end}, odd);
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        float* sum = sums[r] + c * kLanes;
        store(sum, add(load(sum), add(even[r][c], odd[r][c])));
      }
    }
  }
}

// One query's scores of a block become its weights.
struct Weights {
  float* values;  // exponentials, with the values' scales in int8
  float* sum;     // exponentials alone; the same array in other formats
};

// `stats` holds the sum of exponentials and the largest score so far. Returns what the query's
// earlier sums are scaled by.
ESPALIER_INLINE float soften(const AttentionShape& shape, const Softness& soft, Range seen,
                             const GatheredBlock& block, const Weights& weights, float* stats) {
  const bool is_int8 = shape.format == KvFormat::Int8, is_f32 = shape.format == KvFormat::F32;
  const Vec least = splat(-__builtin_inff());
  Vec s[kBlockVectors];
  for (int i = 0; i < kBlockVectors; ++i) {
    s[i] = load(weights.values + i * kLanes);
    if (is_int8) s[i] = mul(s[i], load(block.key_scales + i * kLanes));
    if (shape.soft_cap > 0) s[i] = soft_capped(shape, s[i]);
    s[i] = select_lanes(seen.begin - i * kLanes, seen.end - i * kLanes, s[i], least);
  }
  const float block_top = reduce_max(max(max(s[0], s[1]), max(s[2], s[3])));
  const float old_top = stats[1];
  const float slack = is_f32 ? 0.0f : soft.slack;
  const float top = old_top + slack < block_top ? block_top : old_top;
  const float base = top == -__builtin_inff() ? 0.0f : top;
  stats[1] = top;
  for (int i = 0; i < kBlockVectors; ++i) {
    if (is_f32) {
      store(weights.values + i * kLanes, exp(mul(sub(s[i], splat(base)), splat(soft.natural))));
      continue;
    }
    const Vec p = short_exp2(mul(sub(s[i], splat(base)), splat(soft.power)));
    const Vec rounded = round_to_bf16(mul(p, splat(1.0f)));  // the product flushes
    store(weights.sum + i * kLanes, rounded);
    if (!is_int8) continue;
    const Vec scaled = mul(p, load(block.value_scales + i * kLanes));
    store(weights.values + i * kLanes, round_to_bf16(scaled));
  }
  if (top == old_top) return 1.0f;
  float kept[kLanes];
  if (is_f32) {
    store(kept, exp(splat((old_top - top) * soft.natural)));
  } else {
    store(kept, short_exp2(mul(splat(old_top - top), splat(soft.power))));
  }
  return kept[0];
}

template <int R, int C>
ESPALIER_INLINE void add_values(const float* const (&weights)[R], const float (&kept)[R],
                                const float* values, int64_t step, float* const (&sums)[R]) {
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      store(sums[r] + c * kLanes, mul(load(sums[r] + c * kLanes), splat(kept[r])));
    }
  }
  add_products<R, C>(weights, values, step, kBlock, sums);
}

// R queries over a gathered block.
template <int R>
static void attend_block(const AttentionShape& shape, const Softness& soft,
                         const float* const (&q)[R], const Range (&seen)[R],
                         float* const (&partials)[R], const GatheredBlock& block) {
  const int64_t dim = shape.head_dim, padded = padded_to_lanes(dim), step = padded + kLanes;
  float scores[R][kBlock], plain[R][kBlock], totals[R][kLanes];
  const float* weights[R];
  const float* sum_weights[R];
  float *sums[R], *columns[R], *total[R];
  float kept[R];
  for (int i = 0; i < kBlockVectors; i += kScoreVectors) {
    for (int r = 0; r < R; ++r) {
      columns[r] = &scores[r][i * kLanes];
      for (int c = 0; c < kScoreVectors; ++c) store(columns[r] + c * kLanes, zero());
    }
    add_products<R, kScoreVectors>(q, block.keys + i * kLanes, kBlock, dim, columns);
  }
  for (int r = 0; r < R; ++r) {
    const Weights out{scores[r], shape.format == KvFormat::Int8 ? plain[r] : scores[r]};
    float* stats = partials[r] + padded;
    kept[r] = soften(shape, soft, seen[r], block, out, stats);
    weights[r] = out.values;
    sum_weights[r] = out.sum;
    sums[r] = partials[r];
    total[r] = totals[r];
    store(totals[r], splat(stats[0]));
  }
  add_values<R, 1>(sum_weights, kept, block.values + padded, step, total);
  for (int r = 0; r < R; ++r) partials[r][padded] = totals[r][0];
  int64_t d = 0;
  for (; d + kScoreVectors * kLanes <= padded; d += kScoreVectors * kLanes) {
    add_values<R, kScoreVectors>(weights, kept, block.values + d, step, sums);
    for (int r = 0; r < R; ++r) sums[r] += kScoreVectors * kLanes;
  }
  for (; d < padded; d += kLanes) {
    add_values<R, 1>(weights, kept, block.values + d, step, sums);
    for (int r = 0; r < R; ++r) sums[r] += kLanes;
  }
}

// All queries of a unit over one gathered block.
static void attend_queries(const AttentionShape& shape, const AttentionUnit& unit,
                           const Softness& soft, int64_t first, const float* queries,
                           const GatheredBlock& block, float* partials) {
  const int64_t group = shape.heads_per_kv, stride = partial_stride(shape.head_dim);
  each_row_block<kFloatRows>({0, unit.num_rows * group}, [&](int64_t query, int count) {
    with_row_count<kFloatRows>(count, [&](auto rows) {
      constexpr int R = decltype(rows)::value;
      const float* q[R];
      float* parts[R];
      Range seen[R];
      bool sees_any = false;
      for (int r = 0; r < R; ++r) {
        const int64_t position = unit.positions[unit.rows[(query + r) / group]];
        q[r] = queries + (query + r) * shape.head_dim;
        parts[r] = partials + (query + r) * stride;
        seen[r] = in_block(seen_by(position, shape.window), first);
        sees_any = sees_any || seen[r].begin < seen[r].end;
      }
      if (sees_any) attend_block<R>(shape, soft, q, seen, parts, block);
    });
  });
}

// Copies the unit's queries, rounded as the format asks for.
static void take_queries(const AttentionShape& shape, const AttentionUnit& unit, float* out) {
  const int64_t dim = shape.head_dim;
  const Vec sign = splat(shape.scale < 0 ? -1.0f : 1.0f);
  for (int64_t i = 0; i < unit.num_rows; ++i) {
    const float* row = unit.q + unit.rows[i] * unit.q_stride;
    const int64_t width = shape.heads_per_kv * dim;
    for (int64_t d = 0; d < width; d += kLanes) {
      const Vec signed_q = mul(load_kv(row + d, width - d), sign);
      const Vec q = shape.format == KvFormat::F32 ? signed_q : round_to_bf16(signed_q);
      store_tile(out + i * width + d, q, width - d);
    }
  }
}

static void clear_partials(const AttentionShape& shape, const AttentionUnit& unit,
                           float* partials) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = partial_stride(shape.head_dim);
  for (int64_t query = 0; query < unit.num_rows * shape.heads_per_kv; ++query) {
    float* partial = partials + query * stride;
    for (int64_t d = 0; d < stride; d += kLanes) store(partial + d, zero());
    partial[padded + 1] = -__builtin_inff();
  }
}

static __attribute__((noinline)) void attend_flushed(const AttentionShape& shape,
                                                     const AttentionUnit& unit, float* partials,
                                                     float* scratch) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = partial_stride(shape.head_dim);
  const Softness soft = softness_of(shape);
  const GatheredBlock block{scratch, scratch + kBlock * padded,
                            scratch + kBlock * (padded + stride),
                            scratch + kBlock * (padded + stride + 1)};
  float* queries = scratch + kBlock * (padded + stride + 2);
  take_queries(shape, unit, queries);
  if (unit.is_fresh) clear_partials(shape, unit, partials);
  const Range seen = seen_by_unit(shape, unit);
  Prefetcher prefetcher(shape, unit);
  for (int64_t index = unit.blocks.begin; index < unit.blocks.end; ++index) {
    const int64_t first = index * kBlock;
    const Range range = in_block(seen, first);
    if (range.begin >= range.end) continue;
    gather_block(shape, unit, first, range, block);
    prefetcher.begin_after(index, seen);
    prefetcher.advance(kBlock);
    attend_queries(shape, unit, soft, first, queries, block, partials);
  }
  // A sum that was flushed may be a negative zero, which depends on products with masked values.
  for (int64_t query = 0; query < unit.num_rows * shape.heads_per_kv; ++query) {
    float* partial = partials + query * stride;
    for (int64_t d = 0; d < padded; d += kLanes) store(partial + d, add(load(partial + d), zero()));
  }
}

static void attend_in_vectors(const AttentionShape& shape, const AttentionUnit& unit,
                              float* partials, float* scratch) {
  const FlushSubnormals scope;
  attend_flushed(shape, unit, partials, scratch);
}

}  // namespace espalier::ESPALIER_ISA
