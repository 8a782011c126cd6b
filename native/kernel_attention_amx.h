// Attention in tiles of AMX: the sums of kernel_attention.h, bit for bit.
//
// Scores are computed transposed, S^T = K Q^T, and so are outputs, O^T = V^T P^T: keys are tile
// rows as they lie in the pool, lanes of vectors are 16 queries, and what the softmax leaves is the
// second product's operand once neighbouring positions are interleaved. Only values are transposed.
#pragma once

#include "attention_tiles.h"
#include "kernel_attention_few.h"

namespace espalier::ESPALIER_ISA {

// S^T, [kBlock][16].
static void score_group(const TileScratch& scratch, int64_t group) {
  const uint32_t* queries = scratch.queries + group * scratch.key_tiles * kTileWords;
  const KeyRows(&keys)[kBlockTiles] = scratch.block.key_rows;
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  for (int64_t tile = 0; tile < scratch.key_tiles; ++tile) {
    const auto at = [&](int i) { return static_cast<const char*>(keys[i].data) + tile * 64; };
    _tile_loadd(6, queries + tile * kTileWords, 64);
    _tile_loadd(5, at(0), keys[0].stride);
    _tile_dpbf16ps(0, 5, 6);
    _tile_loadd(5, at(1), keys[1].stride);
    _tile_dpbf16ps(1, 5, 6);
    _tile_loadd(5, at(2), keys[2].stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(5, at(3), keys[3].stride);
    _tile_dpbf16ps(3, 5, 6);
  }
  float* scores = scratch.scores;
  _tile_stored(0, scores, 64);
  _tile_stored(1, scores + kTileWords, 64);
  _tile_stored(2, scores + 2 * kTileWords, 64);
  _tile_stored(3, scores + 3 * kTileWords, 64);
}

// O^T += V^T P^T for up to four tiles of 16 head elements.
static void add_values(const TileScratch& scratch, int64_t group, int64_t tile) {
  const int64_t count = smaller(4, scratch.value_tiles - tile);
  float* sums = scratch.sums + (group * scratch.value_tiles + tile) * kTileWords;
  const uint32_t* values = scratch.block.values + tile * kLanes * kBlock / 2;
  constexpr int64_t kStride = kBlock * 2, kStep = kLanes * kBlock / 2;
  _tile_loadd(0, sums, 64);
  if (count > 1) _tile_loadd(1, sums + kTileWords, 64);
  if (count > 2) _tile_loadd(2, sums + 2 * kTileWords, 64);
  if (count > 3) _tile_loadd(3, sums + 3 * kTileWords, 64);
  for (int64_t chain = 0; chain < kBlockChains; ++chain, values += kLanes) {
    _tile_loadd(6, scratch.weights + chain * kTileWords, 64);
    _tile_loadd(5, values, kStride);
    _tile_dpbf16ps(0, 5, 6);
    if (count > 1) {
      _tile_loadd(5, values + kStep, kStride);
      _tile_dpbf16ps(1, 5, 6);
    }
    if (count > 2) {
      _tile_loadd(5, values + 2 * kStep, kStride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (count > 3) {
      _tile_loadd(5, values + 3 * kStep, kStride);
      _tile_dpbf16ps(3, 5, 6);
    }
  }
  _tile_stored(0, sums, 64);
  if (count > 1) _tile_stored(1, sums + kTileWords, 64);
  if (count > 2) _tile_stored(2, sums + 2 * kTileWords, 64);
  if (count > 3) _tile_stored(3, sums + 3 * kTileWords, 64);
}

static void add_totals(const TileScratch& scratch, int64_t group) {
  float* totals = scratch.totals + group * kLanes;
  _tile_loadd(4, totals, 64);
  for (int64_t chain = 0; chain < kBlockChains; ++chain) {
    _tile_loadd(6, scratch.sum_weights + chain * kTileWords, 64);
    _tile_dpbf16ps(4, 7, 6);
  }
  _tile_stored(4, totals, 64);
}

// Scales and soft cap, and minus infinity where a lane does not see a position.
static void adjust_scores(const AttentionShape& shape, const TileScratch& scratch, int64_t group,
                          bool is_partial) {
  const IVec start = _mm512_set1_epi32(static_cast<int32_t>(scratch.block.first));
  const int64_t lanes = group * kLanes;
  const IVec first_seen = _mm512_sub_epi32(_mm512_load_si512(scratch.first_seen + lanes), start);
  const IVec last_seen = _mm512_sub_epi32(_mm512_load_si512(scratch.last_seen + lanes), start);
  for (int i = 0; i < kBlock; ++i) {
    float* scores = scratch.scores + i * kLanes;
    Vec s = load(scores);
    if (shape.format == KvFormat::Int8) s = mul(s, splat(scratch.block.key_scales[i]));
    if (shape.soft_cap > 0) s = soft_capped(shape, s);
    if (is_partial) {
      const IVec position = _mm512_set1_epi32(i);
      const __mmask16 seen = _kand_mask16(_mm512_cmple_epi32_mask(first_seen, position),
                                          _mm512_cmple_epi32_mask(position, last_seen));
      s = _mm512_mask_blend_ps(seen, splat(-__builtin_inff()), s);
    }
    store(scores, s);
  }
}

static void scale_sums(const TileScratch& scratch, int64_t group, Vec kept) {
  float* sums = scratch.sums + group * scratch.value_tiles * kTileWords;
  for (int64_t i = 0; i < scratch.value_tiles * kTileWords; i += kLanes) {
    store(sums + i, mul(load(sums + i), kept));
  }
  float* totals = scratch.totals + group * kLanes;
  store(totals, mul(load(totals), kept));
}

// Raises the largest scores so far; returns what scores are counted from.
static Vec raise_tops(const TileScratch& scratch, const Softness& soft, int64_t group) {
  const float* scores = scratch.scores;
  Vec tops[4];
  for (int i = 0; i < 4; ++i) tops[i] = load(scores + i * kLanes);
  for (int i = 4; i < kBlock; i += 4) {
    for (int j = 0; j < 4; ++j) tops[j] = max(tops[j], load(scores + (i + j) * kLanes));
  }
  const Vec block_tops = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
  const RaisedTops raised = raise(load(scratch.tops + group * kLanes), block_tops, soft);
  if (raised.is_any_new) {
    store(scratch.tops + group * kLanes, raised.tops);
    scale_sums(scratch, group, raised.kept);
  }
  return raised.base;
}

// Words (even, odd) of each lane.
ESPALIER_INLINE void store_weights(uint32_t* out, Vec even, Vec odd) {
  const IVec lanes = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                                       0x160006, 0x170007, 0x180008, 0x190009, 0x1A000A, 0x1B000B,
                                       0x1C000C, 0x1D000D, 0x1E000E, 0x1F000F);
  _mm512_store_si512(out, _mm512_permutexvar_epi16(lanes, narrow_pairs(even, odd)));
}

static void soften_group(const AttentionShape& shape, const TileScratch& scratch,
                         const Softness& soft, int64_t group) {
  const bool is_int8 = shape.format == KvFormat::Int8;
  const Vec base = raise_tops(scratch, soft, group), power = splat(soft.power);
#pragma GCC unroll 8
  for (int i = 0; i < kBlock; i += 2) {
    const float* scores = scratch.scores + i * kLanes;
    const Vec even = short_exp2(mul(sub(load(scores), base), power));
    const Vec odd = short_exp2(mul(sub(load(scores + kLanes), base), power));
    store_weights(scratch.sum_weights + i / 2 * kLanes, even, odd);
    if (!is_int8) continue;
    const float* scales = scratch.block.value_scales + i;
    store_weights(scratch.weights + i / 2 * kLanes, mul(even, splat(scales[0])),
                  mul(odd, splat(scales[1])));
  }
}

static void attend_tile_block(const AttentionShape& shape, const TileScratch& scratch,
                              const Softness& soft, Prefetcher& prefetcher) {
  const int64_t first = scratch.block.first, last = first + kBlock - 1;
  const int64_t prefetched = chunks_of(kBlock, scratch.num_groups);
  for (int64_t group = 0; group < scratch.num_groups; ++group) {
    prefetcher.advance(prefetched);
    const GroupRange seen = range_of(scratch, group);
    if (seen.latest_last < first || seen.earliest_first > last) continue;
    const bool is_partial = seen.earliest_last < last || seen.latest_first > first;
    score_group(scratch, group);
    if (is_partial || shape.format == KvFormat::Int8 || shape.soft_cap > 0) {
      adjust_scores(shape, scratch, group, is_partial);
    }
    soften_group(shape, scratch, soft, group);
    finish_stores();
    for (int64_t tile = 0; tile < scratch.value_tiles; tile += 4) add_values(scratch, group, tile);
    add_totals(scratch, group);
  }
}

static __attribute__((noinline)) void attend_tiles_flushed(const AttentionShape& shape,
                                                           const AttentionUnit& unit,
                                                           float* partials, float* memory) {
  TileScratch scratch = lay_out(shape, unit, memory);
  for (int64_t group = 0; group < scratch.num_groups; ++group) {
    take_group(shape, unit, group, scratch);
    load_partials(shape, unit, group, partials, scratch);
  }
  _mm512_store_si512(scratch.ones, _mm512_set1_epi32(0x3F803F80));
  finish_stores();
  _tile_loadd(7, scratch.ones, 64);
  const Softness soft = softness_of(shape);
  const Range seen = seen_by_unit(shape, unit);
  Prefetcher prefetcher(shape, unit);
  for (int64_t index = unit.blocks.begin; index < unit.blocks.end; ++index) {
    TileBlock& block = scratch.block;
    block.first = index * kBlock;
    const Range range = in_block(seen, block.first);
    if (range.begin >= range.end) continue;
    prefetcher.begin_after(index, seen);
    gather_tiles(shape, unit, range, scratch.key_tiles, block);
    finish_stores();
    attend_tile_block(shape, scratch, soft, prefetcher);
  }
  for (int64_t group = 0; group < scratch.num_groups; ++group) {
    store_partials(shape, unit, group, scratch, partials);
  }
}

static void attend_in_tiles(const AttentionShape& shape, const AttentionUnit& unit, float* partials,
                            float* scratch) {
  if (shape.format == KvFormat::F32) {
    attend_in_vectors(shape, unit, partials, scratch);
    return;
  }
  if (unit.num_rows * shape.heads_per_kv <= kFewQueries) {
    attend_few(shape, unit, partials, scratch);
    return;
  }
  const FlushSubnormals scope;
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, tile == 4 || tile == 7 ? 1 : kLanes, 64);
  const Tiles tiles(shapes);
  attend_tiles_flushed(shape, unit, partials, scratch);
}

}  // namespace espalier::ESPALIER_ISA
