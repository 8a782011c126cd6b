// Attention of at most four queries in tiles of AMX: one row, and heads that share a key head.
//
// What costs time in kernel_attention_amx.h are the values, which it transposes, and lanes without
// queries. Here lanes are four positions of four queries, outputs are O = P V, whose operand V only
// interleaves neighbouring positions, and P is small. The sums are the same, bit for bit.
#pragma once

#include "attention_tiles.h"

namespace espalier::ESPALIER_ISA {

constexpr int kFewQueries = 4;
constexpr int kFewVectors = kBlock * kFewQueries / kLanes;

struct FewScratch {
  int64_t num_queries, key_tiles, value_tiles;  // tiles of 32 and 16 head elements, whole pairs
  TileBlock block;                              // values: [value_tiles][chain][16 pairs][16]
  float* scores;                                // [kBlock][4 queries]
  uint32_t *weights, *sum_weights;              // [chain][4 queries][16 pairs]
  uint32_t *queries, *ones;                     // [key_tiles][16 pairs][4 queries]; a tile of ones
  float *sums, *totals;                         // [4][value_tiles][16], elements unpacked; [4][16]
  float *tops, *kept;                           // [16], each query four times
};

static FewScratch few_scratch(const AttentionShape& shape, const AttentionUnit& unit, float* from) {
  FewScratch out;
  out.num_queries = unit.num_rows * shape.heads_per_kv;
  out.key_tiles = chunks_of(shape.head_dim, 2 * kLanes);
  out.value_tiles = 2 * out.key_tiles;
  const auto take = [&](int64_t words) {
    float* taken = from;
    from += words;
    return taken;
  };
  const auto take_words = [&](int64_t words) { return reinterpret_cast<uint32_t*>(take(words)); };
  out.block.keys = take_words(kBlock * out.key_tiles * kLanes);
  out.block.values = take_words(out.value_tiles * kLanes * kBlock / 2);
  out.block.key_scales = take(kBlock);
  out.block.value_scales = take(kBlock);
  out.scores = take(kBlock * kFewQueries);
  out.weights = take_words(kBlock / 2 * kFewQueries);
  out.sum_weights =
      shape.format == KvFormat::Int8 ? take_words(kBlock / 2 * kFewQueries) : out.weights;
  out.queries = take_words(out.key_tiles * kLanes * kFewQueries);
  out.ones = take_words(kTileWords);
  out.sums = take(kFewQueries * out.value_tiles * kLanes);
  out.totals = take(kFewQueries * kLanes);
  out.tops = take(kLanes);
  out.kept = take(kLanes);
  return out;
}

static void take_few_queries(const AttentionShape& shape, const AttentionUnit& unit,
                             const FewScratch& to) {
  const Vec sign = splat(shape.scale < 0 ? -1.0f : 1.0f);
  for (int64_t query = 0; query < kFewQueries; ++query) {
    const bool is_there = query < to.num_queries;
    const int64_t row = unit.rows[is_there ? query / shape.heads_per_kv : 0];
    const float* q = unit.q + row * unit.q_stride + query % shape.heads_per_kv * shape.head_dim;
    for (int64_t tile = 0; tile < to.key_tiles; ++tile) {
      uint32_t words[kLanes] = {};
      const int64_t first = tile * 2 * kLanes;
      if (is_there) _mm512_storeu_si512(words, load_pairs(q + first, shape.head_dim - first, sign));
      uint32_t* out = to.queries + tile * kLanes * kFewQueries + query;
      for (int i = 0; i < kLanes; ++i) out[i * kFewQueries] = words[i];
    }
  }
  for (int i = 0; i < kLanes; ++i) {
    _mm512_store_si512(to.ones + i * kLanes, _mm512_set1_epi32(0x3F803F80));
  }
}

// Picks 32 elements anew: those of the first vector, and those `step` further for the second.
ESPALIER_INLINE void pick(Vec& low, Vec& high, IVec places, int step) {
  const Vec first = _mm512_permutex2var_ps(low, places, high);
  high = _mm512_permutex2var_ps(low, _mm512_add_epi32(places, _mm512_set1_epi32(step)), high);
  low = first;
}

// The elements of 32 in the order of two unpacked vectors, and back.
ESPALIER_INLINE void unpack_order(Vec& low, Vec& high) {
  pick(low, high, _mm512_setr_epi32(0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27), 4);
}
ESPALIER_INLINE void pack_order(Vec& low, Vec& high) {
  pick(low, high, _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23), 8);
}

static void load_few_partials(const AttentionShape& shape, const AttentionUnit& unit,
                              const float* partials, const FewScratch& to) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = partial_stride(shape.head_dim);
  const int64_t width = to.value_tiles * kLanes;
  float tops[kFewQueries];
  for (int64_t query = 0; query < kFewQueries; ++query) {
    const bool is_there = query < to.num_queries && !unit.is_fresh;
    const float* from = partials + query * stride;
    for (int64_t d = 0; d < width; d += 2 * kLanes) {
      Vec low = is_there ? load(from + d) : zero();
      Vec high = is_there && d + kLanes < padded ? load(from + d + kLanes) : zero();
      unpack_order(low, high);
      store(to.sums + query * width + d, low);
      store(to.sums + query * width + d + kLanes, high);
    }
    store(to.totals + query * kLanes, is_there ? splat(from[padded]) : zero());
    tops[query] = is_there ? from[padded + 1] : -__builtin_inff();
  }
  for (int i = 0; i < kLanes; ++i) to.tops[i] = tops[i % kFewQueries];
}

static void store_few_partials(const AttentionShape& shape, const FewScratch& from,
                               float* partials) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = partial_stride(shape.head_dim);
  const int64_t width = from.value_tiles * kLanes;
  for (int64_t query = 0; query < from.num_queries; ++query) {
    float* to = partials + query * stride;
    for (int64_t d = 0; d < width; d += 2 * kLanes) {
      Vec low = load(from.sums + query * width + d);
      Vec high = load(from.sums + query * width + d + kLanes);
      pack_order(low, high);
      // A sum that was flushed may be a negative zero, which depends on masked values.
      store(to + d, add(low, zero()));
      if (d + kLanes < padded) store(to + d + kLanes, add(high, zero()));
    }
    store(to + padded, zero());
    to[padded] = from.totals[query * kLanes];
    to[padded + 1] = from.tops[query];
  }
}

// Values with neighbouring positions interleaved, zero where no row of the unit sees them.
template <typename Element>
static void interleave_values(const AttentionShape& shape, const AttentionUnit& unit, Range range,
                              const FewScratch& to, Prefetcher& prefetcher) {
  const int64_t dim = shape.head_dim, first = to.block.first;
  const Element* values = static_cast<const Element*>(shape.values);
  const bool is_whole = range.begin == 0 && range.end == kBlock && is_run(unit.slots + first);
  const int64_t first_row = is_whole ? kv_row(shape, unit, first) : 0;
  const auto row_of = [&](int64_t i) -> const Element* {
    if (is_whole) return values + (first_row + i) * dim;
    if (i < range.begin || i >= range.end) return nullptr;
    return values + kv_row(shape, unit, first + i) * dim;
  };
  for (int64_t pair = 0; pair < kBlock / 2; ++pair) {
    prefetcher.advance(1);
    const Element *even = row_of(2 * pair), *odd = row_of(2 * pair + 1);
    uint32_t* out = to.block.values + pair * kLanes;  // of chain pair / 16
    for (int64_t d = 0; d < dim; d += 2 * kLanes, out += 2 * kLanes * kBlock / 2) {
      const __m512i none = _mm512_setzero_si512();
      const __m512i x = even == nullptr ? none : load_pairs(even + d, dim - d);
      const __m512i y = odd == nullptr ? none : load_pairs(odd + d, dim - d);
      _mm512_store_si512(out, _mm512_unpacklo_epi16(x, y));
      _mm512_store_si512(out + kLanes * kBlock / 2, _mm512_unpackhi_epi16(x, y));
    }
  }
}

static void score_few(const FewScratch& scratch) {
  const KeyRows(&keys)[kBlockTiles] = scratch.block.key_rows;
  for (int64_t i = 0; i < kBlockTiles; i += 2) {
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t tile = 0; tile < scratch.key_tiles; ++tile) {
      _tile_loadd(3, scratch.queries + tile * kLanes * kFewQueries, 16);
      _tile_loadd(2, static_cast<const char*>(keys[i].data) + tile * 64, keys[i].stride);
      _tile_dpbf16ps(0, 2, 3);
      _tile_loadd(2, static_cast<const char*>(keys[i + 1].data) + tile * 64, keys[i + 1].stride);
      _tile_dpbf16ps(1, 2, 3);
    }
    _tile_stored(0, scratch.scores + i * kLanes * kFewQueries, 16);
    _tile_stored(1, scratch.scores + (i + 1) * kLanes * kFewQueries, 16);
  }
}

// First and last position that each lane's query sees.
struct FewSeen {
  IVec first, last;
};

static FewSeen few_seen(const AttentionShape& shape, const AttentionUnit& unit) {
  alignas(64) int32_t first[kLanes], last[kLanes];
  for (int i = 0; i < kLanes; ++i) {
    const int64_t row = i % kFewQueries / shape.heads_per_kv;
    const int64_t place = row < unit.num_rows ? row : 0;
    const Range seen = seen_by(unit.positions[unit.rows[place]], shape.window);
    first[i] = static_cast<int32_t>(seen.begin);
    last[i] = static_cast<int32_t>(seen.end - 1);
  }
  return {_mm512_load_si512(first), _mm512_load_si512(last)};
}

// Whether some query does not see all of a block.
ESPALIER_INLINE bool is_partial(const FewSeen& seen, int64_t block_first) {
  const IVec first = _mm512_set1_epi32(static_cast<int32_t>(block_first));
  const IVec last = _mm512_set1_epi32(static_cast<int32_t>(block_first + kBlock - 1));
  return (_mm512_cmpgt_epi32_mask(seen.first, first) | _mm512_cmplt_epi32_mask(seen.last, last)) !=
         0;
}

// A number for each position, four times each, for vector i of scores.
ESPALIER_INLINE Vec spread(const float* x, int i) {
  const IVec lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(lanes, _mm512_castps128_ps512(_mm_loadu_ps(x + 4 * i)));
}

ESPALIER_INLINE Vec largest_of_positions(Vec x) {
  x = max(x, _mm512_shuffle_f32x4(x, x, 0x4E));
  return max(x, _mm512_shuffle_f32x4(x, x, 0xB1));
}

// [position][query] of 32 positions becomes [query][position], in bfloat16.
ESPALIER_INLINE void store_few_weights(uint32_t* out, const Vec (&p)[kFewVectors / 2]) {
  // Words of a vector: positions 8 i to 8 i + 3, then 4 more, four queries each.
  const IVec by_query = _mm512_setr_epi32(
      0x040000, 0x0C0008, 0x140010, 0x1C0018, 0x050001, 0x0D0009, 0x150011, 0x1D0019, 0x060002,
      0x0E000A, 0x160012, 0x1E001A, 0x070003, 0x0F000B, 0x170013, 0x1F001B);
  __m512i eight[4];  // [query][8 positions] each
  for (int i = 0; i < 4; ++i) {
    eight[i] = _mm512_permutexvar_epi16(by_query, narrow_pairs(p[2 * i], p[2 * i + 1]));
  }
  const __m512i low_a = _mm512_shuffle_i32x4(eight[0], eight[1], 0x44);
  const __m512i high_a = _mm512_shuffle_i32x4(eight[0], eight[1], 0xEE);
  const __m512i low_b = _mm512_shuffle_i32x4(eight[2], eight[3], 0x44);
  const __m512i high_b = _mm512_shuffle_i32x4(eight[2], eight[3], 0xEE);
  _mm512_store_si512(out, _mm512_shuffle_i32x4(low_a, low_b, 0x88));
  _mm512_store_si512(out + kLanes, _mm512_shuffle_i32x4(low_a, low_b, 0xDD));
  _mm512_store_si512(out + 2 * kLanes, _mm512_shuffle_i32x4(high_a, high_b, 0x88));
  _mm512_store_si512(out + 3 * kLanes, _mm512_shuffle_i32x4(high_a, high_b, 0xDD));
}

static void scale_few(const FewScratch& scratch) {
  const int64_t width = scratch.value_tiles * kLanes;
  for (int64_t query = 0; query < scratch.num_queries; ++query) {
    const Vec kept = splat(scratch.kept[query]);
    float* sums = scratch.sums + query * width;
    for (int64_t d = 0; d < width; d += kLanes) store(sums + d, mul(load(sums + d), kept));
    float* totals = scratch.totals + query * kLanes;
    store(totals, mul(load(totals), kept));
  }
}

// The largest scores so far, four times each; returns what scores are counted from.
static Vec raise_few_tops(const FewScratch& scratch, const Softness& soft,
                          const Vec (&s)[kFewVectors]) {
  Vec tops = s[0];
  for (int i = 1; i < kFewVectors; ++i) tops = max(tops, s[i]);
  const RaisedTops raised = raise(load(scratch.tops), largest_of_positions(tops), soft);
  if (raised.is_any_new) {
    store(scratch.tops, raised.tops);
    store(scratch.kept, raised.kept);
    scale_few(scratch);
  }
  return raised.base;
}

// Minus infinity where a lane's query does not see a position.
static void hide_unseen(const FewScratch& scratch, const FewSeen& seen, Vec (&s)[kFewVectors]) {
  const IVec lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  for (int i = 0; i < kFewVectors; ++i) {
    const auto first = static_cast<int32_t>(scratch.block.first) + 4 * i;
    const IVec position = _mm512_add_epi32(lanes, _mm512_set1_epi32(first));
    const __mmask16 is_seen = _kand_mask16(_mm512_cmple_epi32_mask(seen.first, position),
                                           _mm512_cmple_epi32_mask(position, seen.last));
    s[i] = _mm512_mask_blend_ps(is_seen, splat(-__builtin_inff()), s[i]);
  }
}

static void soften_few(const AttentionShape& shape, const FewScratch& scratch, const Softness& soft,
                       const FewSeen& seen) {
  const bool is_int8 = shape.format == KvFormat::Int8;
  Vec s[kFewVectors];
  for (int i = 0; i < kFewVectors; ++i) {
    s[i] = load(scratch.scores + i * kLanes);
    if (is_int8) s[i] = mul(s[i], spread(scratch.block.key_scales, i));
    if (shape.soft_cap > 0) s[i] = soft_capped(shape, s[i]);
  }
  if (is_partial(seen, scratch.block.first)) hide_unseen(scratch, seen, s);
  const Vec base = raise_few_tops(scratch, soft, s), power = splat(soft.power);
  for (int chain = 0; chain < kBlockChains; ++chain) {
    Vec p[kFewVectors / 2], scaled[kFewVectors / 2];
    for (int i = 0; i < kFewVectors / 2; ++i) {
      const int vector = chain * kFewVectors / 2 + i;
      p[i] = short_exp2(mul(sub(s[vector], base), power));
      if (is_int8) scaled[i] = mul(p[i], spread(scratch.block.value_scales, vector));
    }
    const int64_t offset = chain * kFewQueries * kLanes;
    store_few_weights(scratch.sum_weights + offset, p);
    if (is_int8) store_few_weights(scratch.weights + offset, scaled);
  }
}

static void add_few_values(const FewScratch& scratch) {
  const int64_t row_bytes = scratch.value_tiles * 64;
  const uint32_t *weights = scratch.weights, *sum_weights = scratch.sum_weights;
  constexpr int64_t kNextChain = kFewQueries * kLanes;
  _tile_loadd(7, scratch.totals, 64);
  _tile_loadd(6, scratch.ones, 64);
  _tile_loadd(5, sum_weights, 64);
  _tile_dpbf16ps(7, 5, 6);
  _tile_loadd(5, sum_weights + kNextChain, 64);
  _tile_dpbf16ps(7, 5, 6);
  _tile_stored(7, scratch.totals, 64);
  for (int64_t tile = 0; tile < scratch.value_tiles; ++tile) {
    const uint32_t* values = scratch.block.values + tile * kLanes * kBlock / 2;
    float* sums = scratch.sums + tile * kLanes;
    _tile_loadd(4, sums, row_bytes);
    _tile_loadd(5, weights, 64);
    _tile_loadd(6, values, 64);
    _tile_dpbf16ps(4, 5, 6);
    _tile_loadd(5, weights + kNextChain, 64);
    _tile_loadd(6, values + kTileWords, 64);
    _tile_dpbf16ps(4, 5, 6);
    _tile_stored(4, sums, row_bytes);
  }
}

static void attend_few_block(const AttentionShape& shape, const AttentionUnit& unit,
                             const Softness& soft, const FewSeen& seen, Range range,
                             FewScratch& scratch, Prefetcher& prefetcher) {
  if (shape.format == KvFormat::Int8) {
    gather_keys<int8_t>(shape, unit, range, scratch.key_tiles, scratch.block);
    gather_scales(shape, unit, range, scratch.block);
    finish_stores();
    score_few(scratch);
    interleave_values<int8_t>(shape, unit, range, scratch, prefetcher);
  } else {
    gather_keys<uint16_t>(shape, unit, range, scratch.key_tiles, scratch.block);
    finish_stores();
    score_few(scratch);
    interleave_values<uint16_t>(shape, unit, range, scratch, prefetcher);
  }
  prefetcher.advance(kBlock / 4);
  soften_few(shape, scratch, soft, seen);
  prefetcher.advance(kBlock);
  finish_stores();
  add_few_values(scratch);
}

static __attribute__((noinline)) void attend_few_flushed(const AttentionShape& shape,
                                                         const AttentionUnit& unit, float* partials,
                                                         float* memory) {
  FewScratch scratch = few_scratch(shape, unit, memory);
  const Softness soft = softness_of(shape);
  const Range seen = seen_by_unit(shape, unit);
  Prefetcher prefetcher(shape, unit);
  const FewSeen by_lane = few_seen(shape, unit);
  take_few_queries(shape, unit, scratch);
  load_few_partials(shape, unit, partials, scratch);
  for (int64_t index = unit.blocks.begin; index < unit.blocks.end; ++index) {
    scratch.block.first = index * kBlock;
    const Range range = in_block(seen, scratch.block.first);
    if (range.begin >= range.end) continue;
    prefetcher.begin_after(index, seen);
    attend_few_block(shape, unit, soft, by_lane, range, scratch, prefetcher);
  }
  store_few_partials(shape, scratch, partials);
}

static void attend_few(const AttentionShape& shape, const AttentionUnit& unit, float* partials,
                       float* scratch) {
  const FlushSubnormals scope;
  TileShapes shapes;
  const int queries = static_cast<int>(unit.num_rows * shape.heads_per_kv);
  shapes.set(0, kLanes, kFewQueries * 4);
  shapes.set(1, kLanes, kFewQueries * 4);
  shapes.set(3, kLanes, kFewQueries * 4);
  shapes.set(2, kLanes, 64);
  shapes.set(4, queries, 64);
  shapes.set(5, queries, 64);
  shapes.set(6, kLanes, 64);
  shapes.set(7, queries, 64);
  const Tiles tiles(shapes);
  attend_few_flushed(shape, unit, partials, scratch);
}

}  // namespace espalier::ESPALIER_ISA
