// Attention in tiles of AMX: the sums of kernel_attention.h, bit for bit.
//
// Scores are computed transposed, S^T = K Q^T, and so are outputs, O^T = V^T P^T: keys are tile
// rows as they lie in the pool, lanes of vectors are 16 queries, and what the softmax leaves is the
// second product's operand once neighbouring positions are interleaved. Only values are transposed.
#pragma once

#include "amx.h"
#include "kernel_attention.h"

namespace espalier::ESPALIER_ISA {

constexpr int kTileWords = kLanes * kLanes;  // 16 rows of 64 bytes
constexpr int kBlockTiles = kBlock / kLanes;
constexpr int kBlockChains = kBlock / kChain;

// Tile instructions of GCC 12 do not say that they read memory: stores must not move behind them.
ESPALIER_INLINE void finish_stores() { asm volatile("" ::: "memory"); }

// Scratch of a unit; queries stand in groups of 16, one a lane.
struct TileScratch {
  int64_t num_groups, key_tiles, value_tiles;  // tiles of 32 and 16 head elements
  uint32_t* keys;                              // [kBlock][key_tiles][16 pairs of elements]
  uint32_t* values;                            // [value_tiles][16 elements][kBlock / 2 pairs]
  float *key_scales, *value_scales;            // [kBlock]
  float* scores;                               // [kBlock][16 queries]
  uint32_t *weights, *sum_weights;             // [kBlock / 2 pairs][16 queries]
  uint32_t* ones;                              // [16]
  uint32_t* queries;                           // [num_groups][key_tiles][16 pairs][16 queries]
  float* sums;                                 // [num_groups][value_tiles][16 elements][16 queries]
  float *totals, *tops;                        // [num_groups][16]
  int32_t *first_seen, *last_seen;             // [num_groups][16]
};

// Positions that the lanes of a group see, at least and at most.
struct GroupRange {
  int32_t earliest_first, latest_first, earliest_last, latest_last;
};

static TileScratch lay_out(const AttentionShape& shape, const AttentionUnit& unit, float* scratch) {
  TileScratch out;
  out.num_groups = padded_to_lanes(unit.num_rows * shape.heads_per_kv) / kLanes;
  out.key_tiles = (shape.head_dim + 2 * kLanes - 1) / (2 * kLanes);
  out.value_tiles = padded_to_lanes(shape.head_dim) / kLanes;
  const auto take = [&](int64_t words) {
    float* taken = scratch;
    scratch += words;
    return taken;
  };
  const auto take_words = [&](int64_t words) { return reinterpret_cast<uint32_t*>(take(words)); };
  out.keys = take_words(kBlock * out.key_tiles * kLanes);
  out.values = take_words(out.value_tiles * kLanes * kBlock / 2);
  out.key_scales = take(kBlock);
  out.value_scales = take(kBlock);
  out.scores = take(kBlock * kLanes);
  out.weights = take_words(kBlock / 2 * kLanes);
  out.sum_weights = shape.format == KvFormat::Int8 ? take_words(kBlock / 2 * kLanes) : out.weights;
  out.ones = take_words(kLanes);
  out.queries = take_words(out.num_groups * out.key_tiles * kTileWords);
  out.sums = take(out.num_groups * out.value_tiles * kTileWords);
  out.totals = take(out.num_groups * kLanes);
  out.tops = take(out.num_groups * kLanes);
  out.first_seen = reinterpret_cast<int32_t*>(take(out.num_groups * kLanes));
  out.last_seen = reinterpret_cast<int32_t*>(take(out.num_groups * kLanes));
  return out;
}

// The first `count` (at most 32) elements at x, as bfloat16.
ESPALIER_INLINE __m512i load_pairs(const uint16_t* x, int64_t count) {
  return count >= 2 * kLanes
             ? _mm512_loadu_si512(x)
             : _mm512_maskz_loadu_epi16(_bzhi_u32(~0u, static_cast<unsigned>(count)), x);
}
ESPALIER_INLINE __m512i narrow_pairs(Vec low, Vec high) {
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}
ESPALIER_INLINE __m512i load_pairs(const int8_t* x, int64_t count) {
  const Vec low = load_kv(x, count);
  return narrow_pairs(low, count > kLanes ? load_kv(x + kLanes, count - kLanes) : zero());
}
ESPALIER_INLINE __m512i load_pairs(const float* x, int64_t count, Vec sign) {
  const Vec low = load_kv(x, count);
  const Vec high = count > kLanes ? load_kv(x + kLanes, count - kLanes) : zero();
  return narrow_pairs(mul(low, sign), mul(high, sign));
}

// The queries of a group as the second operand of scores, and what each of them sees.
static void take_group(const AttentionShape& shape, const AttentionUnit& unit, int64_t group,
                       const TileScratch& to) {
  const Vec sign = splat(shape.scale < 0 ? -1.0f : 1.0f);
  const int64_t heads = shape.heads_per_kv, num_queries = unit.num_rows * heads;
  const float* q[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int64_t query = group * kLanes + lane;
    const bool is_there = query < num_queries;
    const int64_t row = unit.rows[is_there ? query / heads : 0];
    q[lane] = is_there ? unit.q + row * unit.q_stride + query % heads * shape.head_dim : nullptr;
    const Range seen = seen_by(unit.positions[row], shape.window);
    to.first_seen[group * kLanes + lane] = static_cast<int32_t>(seen.begin);
    to.last_seen[group * kLanes + lane] = static_cast<int32_t>(seen.end - 1);
  }
  for (int64_t tile = 0; tile < to.key_tiles; ++tile) {
    const int64_t first = tile * 2 * kLanes;
    Vec pairs[kLanes];
    for (int lane = 0; lane < kLanes; ++lane) {
      pairs[lane] = zero();
      if (q[lane] == nullptr) continue;
      pairs[lane] = from_bits(load_pairs(q[lane] + first, shape.head_dim - first, sign));
    }
    transpose(pairs);
    uint32_t* out = to.queries + (group * to.key_tiles + tile) * kTileWords;
    for (int i = 0; i < kLanes; ++i) _mm512_store_si512(out + i * kLanes, bits(pairs[i]));
  }
}

ESPALIER_INLINE GroupRange range_of(const TileScratch& from, int64_t group) {
  const IVec first = _mm512_load_si512(from.first_seen + group * kLanes);
  const IVec last = _mm512_load_si512(from.last_seen + group * kLanes);
  return {_mm512_reduce_min_epi32(first), _mm512_reduce_max_epi32(first),
          _mm512_reduce_min_epi32(last), _mm512_reduce_max_epi32(last)};
}

// Partials of a group become lanes, or the other way round.
static void load_partials(const AttentionShape& shape, const AttentionUnit& unit, int64_t group,
                          const float* partials, const TileScratch& to) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = padded + kLanes;
  const int64_t left = unit.num_rows * shape.heads_per_kv - group * kLanes;
  float* totals = to.totals + group * kLanes;
  float* tops = to.tops + group * kLanes;
  const float* from = partials + group * kLanes * stride;
  for (int64_t tile = 0; tile <= to.value_tiles; ++tile) {
    Vec rows[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) {
      const bool is_there = i < left && !unit.is_fresh;
      rows[i] = is_there ? load(from + i * stride + tile * kLanes) : zero();
    }
    if (!unit.is_fresh) transpose(rows);
    if (tile == to.value_tiles) {
      store(totals, rows[0]);
      store(tops, unit.is_fresh ? splat(-__builtin_inff()) : rows[1]);
      continue;
    }
    float* out = to.sums + (group * to.value_tiles + tile) * kTileWords;
    for (int i = 0; i < kLanes; ++i) store(out + i * kLanes, rows[i]);
  }
}

static void store_partials(const AttentionShape& shape, const AttentionUnit& unit, int64_t group,
                           const TileScratch& from, float* partials) {
  const int64_t padded = padded_to_lanes(shape.head_dim), stride = padded + kLanes;
  const int64_t left = smaller(kLanes, unit.num_rows * shape.heads_per_kv - group * kLanes);
  float* to = partials + group * kLanes * stride;
  for (int64_t tile = 0; tile <= from.value_tiles; ++tile) {
    Vec rows[kLanes];
    const float* sums = from.sums + (group * from.value_tiles + tile) * kTileWords;
    const bool is_stats = tile == from.value_tiles;
    for (int i = 0; i < kLanes; ++i) {
      // A sum that was flushed may be a negative zero, which depends on masked values.
      rows[i] = is_stats ? zero() : add(load(sums + i * kLanes), zero());
    }
    if (is_stats) {
      rows[0] = load(from.totals + group * kLanes);
      rows[1] = load(from.tops + group * kLanes);
    }
    transpose(rows);
    for (int64_t i = 0; i < left; ++i) store(to + i * stride + tile * kLanes, rows[i]);
  }
}

// Sixteen key rows as a tile: where they lie, or a copy if that is not one after the other.
struct KeyRows {
  const void* data;
  int64_t stride;  // bytes
};

template <typename Element>
static void gather_keys(const AttentionShape& shape, const AttentionUnit& unit, int64_t first,
                        Range range, const TileScratch& to, KeyRows (&rows)[kBlockTiles]) {
  const int64_t dim = shape.head_dim;
  const Element* keys = static_cast<const Element*>(shape.keys);
  const IVec steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t tile = 0; tile < kBlockTiles; ++tile) {
    const int64_t begin = tile * kLanes;
    const bool is_whole = range.begin <= begin && begin + kLanes <= range.end;
    if (sizeof(Element) == 2 && is_whole && dim % (2 * kLanes) == 0) {
      const int32_t* slots = unit.slots + first + begin;
      const IVec expected = _mm512_add_epi32(_mm512_set1_epi32(slots[0]), steps);
      if (_mm512_cmpneq_epi32_mask(_mm512_loadu_si512(slots), expected) == 0) {
        rows[tile] = {keys + kv_row(shape, unit, first + begin) * dim,
                      dim * static_cast<int64_t>(sizeof(Element))};
        continue;
      }
    }
    uint32_t* out = to.keys + begin * to.key_tiles * kLanes;
    rows[tile] = {out, to.key_tiles * kLanes * 4};
    for (int64_t i = begin; i < begin + kLanes; ++i) {
      const bool is_seen = i >= range.begin && i < range.end;
      const Element* row = is_seen ? keys + kv_row(shape, unit, first + i) * dim : nullptr;
      for (int64_t d = 0; d < to.key_tiles * 2 * kLanes; d += 2 * kLanes, out += kLanes) {
        const __m512i pairs = is_seen ? load_pairs(row + d, dim - d) : _mm512_setzero_si512();
        _mm512_store_si512(out, pairs);
      }
    }
  }
}

// Words (x0, y0), (x1, y1), ... of the lower or the upper 16 elements of x and y.
ESPALIER_INLINE __m512i interleave(__m512i x, __m512i y, int first) {
  const __m512i words = _mm512_setr_epi32(
      0x200000, 0x210001, 0x220002, 0x230003, 0x240004, 0x250005, 0x260006, 0x270007, 0x280008,
      0x290009, 0x2A000A, 0x2B000B, 0x2C000C, 0x2D000D, 0x2E000E, 0x2F000F);
  const __m512i shift = _mm512_set1_epi16(static_cast<int16_t>(first));
  return _mm512_permutex2var_epi16(x, _mm512_add_epi16(words, shift), y);
}

// Values transposed, zero where no row of the unit sees them.
template <typename Element>
static void gather_values(const AttentionShape& shape, const AttentionUnit& unit, int64_t first,
                          Range range, const TileScratch& to) {
  const int64_t dim = shape.head_dim;
  const Element* values = static_cast<const Element*>(shape.values);
  const auto load_row = [&](int64_t i, int64_t d) {
    if (i < range.begin || i >= range.end) return _mm512_setzero_si512();
    return load_pairs(values + kv_row(shape, unit, first + i) * dim + d, dim - d);
  };
  for (int64_t chain = 0; chain < kBlockChains; ++chain) {
    for (int64_t d = 0; d < dim; d += 2 * kLanes) {
      Vec low[kLanes], high[kLanes];
      for (int64_t i = 0; i < kLanes; ++i) {
        const __m512i even = load_row(chain * kChain + 2 * i, d);
        const __m512i odd = load_row(chain * kChain + 2 * i + 1, d);
        low[i] = from_bits(interleave(even, odd, 0));
        high[i] = from_bits(interleave(even, odd, kLanes));
      }
      uint32_t* out = to.values + d * kBlock / 2 + chain * kLanes;
      transpose(low);
      for (int i = 0; i < kLanes; ++i) _mm512_store_si512(out + i * kBlock / 2, bits(low[i]));
      if (d + kLanes >= dim) continue;
      transpose(high);
      out += kLanes * kBlock / 2;
      for (int i = 0; i < kLanes; ++i) _mm512_store_si512(out + i * kBlock / 2, bits(high[i]));
    }
  }
}

static void gather_scales(const AttentionShape& shape, const AttentionUnit& unit, int64_t first,
                          Range range, const TileScratch& to) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const bool is_seen = i >= range.begin && i < range.end;
    const int64_t row = is_seen ? kv_row(shape, unit, first + i) : 0;
    to.key_scales[i] = is_seen ? shape.key_scales[row] : 0.0f;
    to.value_scales[i] = is_seen ? shape.value_scales[row] : 0.0f;
  }
}

// S^T of a group, [kBlock][16].
static void score_group(const TileScratch& scratch, int64_t group,
                        const KeyRows (&keys)[kBlockTiles]) {
  const uint32_t* queries = scratch.queries + group * scratch.key_tiles * kTileWords;
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
  _tile_stored(0, scratch.scores, 64);
  _tile_stored(1, scratch.scores + kTileWords, 64);
  _tile_stored(2, scratch.scores + 2 * kTileWords, 64);
  _tile_stored(3, scratch.scores + 3 * kTileWords, 64);
}

// Scales and soft cap, and minus infinity where a lane does not see a position.
static void adjust_scores(const AttentionShape& shape, const TileScratch& scratch, int64_t group,
                          int64_t first, bool is_partial) {
  const IVec start = _mm512_set1_epi32(static_cast<int32_t>(first));
  const IVec first_seen =
      _mm512_sub_epi32(_mm512_load_si512(scratch.first_seen + group * kLanes), start);
  const IVec last_seen =
      _mm512_sub_epi32(_mm512_load_si512(scratch.last_seen + group * kLanes), start);
  for (int i = 0; i < kBlock; ++i) {
    Vec s = load(scratch.scores + i * kLanes);
    if (shape.format == KvFormat::Int8) s = mul(s, splat(scratch.key_scales[i]));
    if (shape.soft_cap > 0) s = soft_capped(shape, s);
    if (is_partial) {
      const IVec position = _mm512_set1_epi32(i);
      const __mmask16 seen = _kand_mask16(_mm512_cmple_epi32_mask(first_seen, position),
                                          _mm512_cmple_epi32_mask(position, last_seen));
      s = _mm512_mask_blend_ps(seen, splat(-__builtin_inff()), s);
    }
    store(scratch.scores + i * kLanes, s);
  }
}

// Words (even, odd) of each lane.
ESPALIER_INLINE void store_weights(uint32_t* out, Vec even, Vec odd) {
  const IVec lanes = _mm512_setr_epi32(0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005,
                                       0x160006, 0x170007, 0x180008, 0x190009, 0x1A000A, 0x1B000B,
                                       0x1C000C, 0x1D000D, 0x1E000E, 0x1F000F);
  _mm512_store_si512(out, _mm512_permutexvar_epi16(lanes, narrow_pairs(even, odd)));
}

// The largest scores of a group so far, and what its exponents are reduced by. Sums are scaled
// where a largest score is replaced.
static Vec raise_tops(const TileScratch& scratch, int64_t group, const Softness& soft) {
  Vec tops[4];
  for (int i = 0; i < 4; ++i) tops[i] = load(scratch.scores + i * kLanes);
  for (int i = 4; i < kBlock; i += 4) {
    for (int j = 0; j < 4; ++j) tops[j] = max(tops[j], load(scratch.scores + (i + j) * kLanes));
  }
  const Vec block_top = max(max(tops[0], tops[1]), max(tops[2], tops[3]));
  const Vec old_top = load(scratch.tops + group * kLanes);
  const Vec least = splat(-__builtin_inff()), power = splat(soft.power);
  const __mmask16 is_new =
      _mm512_cmp_ps_mask(add(old_top, splat(soft.slack)), block_top, _CMP_LT_OQ);
  const Vec top = _mm512_mask_blend_ps(is_new, old_top, block_top);
  const Vec base = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(top, least, _CMP_EQ_OQ), top, zero());
  const Vec minus = sub(zero(), mul(base, power));
  if (is_new == 0) return minus;
  store(scratch.tops + group * kLanes, top);
  const Vec scaled = short_exp2(fma(old_top, power, sub(zero(), mul(top, power))));
  const Vec kept = _mm512_mask_blend_ps(is_new, splat(1.0f), scaled);
  float* sums = scratch.sums + group * scratch.value_tiles * kTileWords;
  for (int64_t i = 0; i < scratch.value_tiles * kTileWords; i += kLanes) {
    store(sums + i, mul(load(sums + i), kept));
  }
  float* totals = scratch.totals + group * kLanes;
  store(totals, mul(load(totals), kept));
  return minus;
}

static void soften_group(const AttentionShape& shape, const TileScratch& scratch,
                         const Softness& soft, Vec minus) {
  const Vec power = splat(soft.power);
  const bool is_int8 = shape.format == KvFormat::Int8;
  for (int i = 0; i < kBlock; i += 2) {
    const float* scores = scratch.scores + i * kLanes;
    const Vec even = short_exp2(fma(load(scores), power, minus));
    const Vec odd = short_exp2(fma(load(scores + kLanes), power, minus));
    store_weights(scratch.sum_weights + i / 2 * kLanes, even, odd);
    if (!is_int8) continue;
    store_weights(scratch.weights + i / 2 * kLanes, mul(even, splat(scratch.value_scales[i])),
                  mul(odd, splat(scratch.value_scales[i + 1])));
  }
}

// O^T += V^T P^T for up to four tiles of 16 head elements.
static void add_group_values(const TileScratch& scratch, int64_t group, int64_t tile) {
  const int64_t count = smaller(4, scratch.value_tiles - tile);
  float* sums = scratch.sums + (group * scratch.value_tiles + tile) * kTileWords;
  const uint32_t* values = scratch.values + tile * kLanes * kBlock / 2;
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

static void add_group_totals(const TileScratch& scratch, int64_t group) {
  float* totals = scratch.totals + group * kLanes;
  _tile_loadd(4, totals, 64);
  for (int64_t chain = 0; chain < kBlockChains; ++chain) {
    _tile_loadd(6, scratch.sum_weights + chain * kTileWords, 64);
    _tile_dpbf16ps(4, 7, 6);
  }
  _tile_stored(4, totals, 64);
}

static void attend_tile_block(const AttentionShape& shape, const AttentionUnit& unit,
                              const Softness& soft, int64_t first, Range range,
                              const TileScratch& scratch) {
  KeyRows keys[kBlockTiles];
  if (shape.format == KvFormat::Int8) {
    gather_keys<int8_t>(shape, unit, first, range, scratch, keys);
    gather_values<int8_t>(shape, unit, first, range, scratch);
    gather_scales(shape, unit, first, range, scratch);
  } else {
    gather_keys<uint16_t>(shape, unit, first, range, scratch, keys);
    gather_values<uint16_t>(shape, unit, first, range, scratch);
  }
  finish_stores();
  for (int64_t group = 0; group < scratch.num_groups; ++group) {
    const GroupRange seen = range_of(scratch, group);
    const int64_t last = first + kBlock - 1;
    if (seen.latest_last < first || seen.earliest_first > last) continue;
    score_group(scratch, group, keys);
    const bool is_partial = seen.earliest_last < last || seen.latest_first > first;
    if (is_partial || shape.soft_cap > 0 || shape.format == KvFormat::Int8) {
      adjust_scores(shape, scratch, group, first, is_partial);
    }
    soften_group(shape, scratch, soft, raise_tops(scratch, group, soft));
    finish_stores();
    for (int64_t tile = 0; tile < scratch.value_tiles; tile += 4) {
      add_group_values(scratch, group, tile);
    }
    add_group_totals(scratch, group);
  }
}

static __attribute__((noinline)) void attend_tiles_flushed(const AttentionShape& shape,
                                                           const AttentionUnit& unit,
                                                           float* partials, float* memory) {
  const TileScratch scratch = lay_out(shape, unit, memory);
  const Softness soft = softness_of(shape);
  for (int64_t group = 0; group < scratch.num_groups; ++group) {
    take_group(shape, unit, group, scratch);
    load_partials(shape, unit, group, partials, scratch);
  }
  _mm512_store_si512(scratch.ones, _mm512_set1_epi32(0x3F803F80));
  finish_stores();
  _tile_loadd(7, scratch.ones, 64);
  const Range seen = seen_by_unit(shape, unit);
  for (int64_t index = unit.blocks.begin; index < unit.blocks.end; ++index) {
    const int64_t first = index * kBlock;
    const Range range = in_block(seen, first);
    if (range.begin >= range.end) continue;
    if (index + 1 < unit.blocks.end) {
      const Range next = in_block(seen, first + kBlock);
      prefetch_rows(shape, unit, {first + kBlock + next.begin, first + kBlock + next.end});
    }
    attend_tile_block(shape, unit, soft, first, range, scratch);
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
  const FlushSubnormals scope;
  TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, tile == 4 || tile == 7 ? 1 : kLanes, 64);
  const Tiles tiles(shapes);
  attend_tiles_flushed(shape, unit, partials, scratch);
}

}  // namespace espalier::ESPALIER_ISA
