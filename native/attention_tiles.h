// What attention in tiles works on: operands of a block and sums of groups of 16 queries, laid out
// for the tile registers of AMX.
#pragma once

#include "amx.h"
#include "kernel_attention.h"

namespace espalier::ESPALIER_ISA {

constexpr int kTileWords = kLanes * kLanes;  // 16 rows of 64 bytes
constexpr int kBlockTiles = kBlock / kLanes;
constexpr int kBlockChains = kBlock / kChain;

// Sixteen key rows as a tile: where they lie, or a copy if that is not one after the other.
struct KeyRows {
  const void* data;
  int64_t stride;  // bytes
};

// A block of positions.
struct TileBlock {
  int64_t first;
  KeyRows key_rows[kBlockTiles];
  uint32_t* keys;                    // [kBlock][key_tiles][16 pairs of elements]
  uint32_t* values;                  // [value_tiles][16 elements][kBlock / 2 pairs]
  float *key_scales, *value_scales;  // [kBlock]
};

// Scratch of a unit; queries stand in groups of 16, one a lane.
struct TileScratch {
  int64_t num_groups, key_tiles, value_tiles;  // tiles of 32 and 16 head elements
  TileBlock block;
  float* scores;                    // [kBlock][16 queries]
  uint32_t *weights, *sum_weights;  // [kBlock / 2 pairs][16 queries]
  uint32_t* ones;                   // [16]
  uint32_t* queries;                // [num_groups][key_tiles][16 pairs][16 queries]
  float* sums;                      // [num_groups][value_tiles][16 elements][16 queries]
  float *totals, *tops;             // [num_groups][16]
  int32_t *first_seen, *last_seen;  // [num_groups][16]
};

// Positions that the lanes of a group see, at least and at most.
struct GroupRange {
  int32_t earliest_first, latest_first, earliest_last, latest_last;
};

static TileScratch lay_out(const AttentionShape& shape, const AttentionUnit& unit, float* scratch) {
  TileScratch out;
  out.num_groups = padded_to_lanes(unit.num_rows * shape.heads_per_kv) / kLanes;
  out.key_tiles = chunks_of(shape.head_dim, 2 * kLanes);
  out.value_tiles = padded_to_lanes(shape.head_dim) / kLanes;
  const auto take = [&](int64_t words) {
    float* taken = scratch;
    scratch += words;
    return taken;
  };
  const auto take_words = [&](int64_t words) { return reinterpret_cast<uint32_t*>(take(words)); };
  TileBlock& block = out.block;
  block.keys = take_words(kBlock * out.key_tiles * kLanes);
  block.values = take_words(out.value_tiles * kLanes * kBlock / 2);
  block.key_scales = take(kBlock);
  block.value_scales = take(kBlock);
  const bool is_int8 = shape.format == KvFormat::Int8;
  out.scores = take(kBlock * kLanes);
  out.weights = take_words(kBlock / 2 * kLanes);
  out.sum_weights = is_int8 ? take_words(kBlock / 2 * kLanes) : out.weights;
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

// The largest scores so far once a block is seen, what scores are counted from, and what earlier
// sums are scaled by in the lanes whose top is new.
struct RaisedTops {
  Vec tops, base, kept;
  bool is_any_new;
};

ESPALIER_INLINE RaisedTops raise(Vec old_tops, Vec block_tops, const Softness& soft) {
  const Vec least = splat(-__builtin_inff()), slack = splat(soft.slack);
  const __mmask16 is_new = _mm512_cmp_ps_mask(add(old_tops, slack), block_tops, _CMP_LT_OQ);
  const Vec tops = _mm512_mask_blend_ps(is_new, old_tops, block_tops);
  const __mmask16 is_none = _mm512_cmp_ps_mask(tops, least, _CMP_EQ_OQ);
  RaisedTops out{tops, _mm512_mask_blend_ps(is_none, tops, zero()), splat(1.0f), is_new != 0};
  if (out.is_any_new) {
    const Vec scale = short_exp2(mul(sub(old_tops, tops), splat(soft.power)));
    out.kept = _mm512_mask_blend_ps(is_new, out.kept, scale);
  }
  return out;
}

// Partials of a group become lanes, or the other way round.
static void load_partials(const AttentionShape& shape, const AttentionUnit& unit, int64_t group,
                          const float* partials, const TileScratch& to) {
  const int64_t stride = partial_stride(shape.head_dim);
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
  const int64_t stride = partial_stride(shape.head_dim);
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

template <typename Element>
static void gather_keys(const AttentionShape& shape, const AttentionUnit& unit, Range range,
                        int64_t key_tiles, TileBlock& to) {
  const int64_t dim = shape.head_dim, first = to.first;
  const Element* keys = static_cast<const Element*>(shape.keys);
  const IVec steps = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int64_t tile = 0; tile < kBlockTiles; ++tile) {
    const int64_t begin = tile * kLanes;
    const bool is_whole = range.begin <= begin && begin + kLanes <= range.end;
    if (sizeof(Element) == 2 && is_whole && dim % (2 * kLanes) == 0) {
      const int32_t* slots = unit.slots + first + begin;
      const IVec expected = _mm512_add_epi32(_mm512_set1_epi32(slots[0]), steps);
      if (_mm512_cmpneq_epi32_mask(_mm512_loadu_si512(slots), expected) == 0) {
        to.key_rows[tile] = {keys + kv_row(shape, unit, first + begin) * dim,
                             dim * static_cast<int64_t>(sizeof(Element))};
        continue;
      }
    }
    uint32_t* out = to.keys + begin * key_tiles * kLanes;
    to.key_rows[tile] = {out, key_tiles * kLanes * 4};
    for (int64_t i = begin; i < begin + kLanes; ++i) {
      const bool is_seen = i >= range.begin && i < range.end;
      const Element* row = is_seen ? keys + kv_row(shape, unit, first + i) * dim : nullptr;
      for (int64_t d = 0; d < key_tiles * 2 * kLanes; d += 2 * kLanes, out += kLanes) {
        const __m512i pairs = is_seen ? load_pairs(row + d, dim - d) : _mm512_setzero_si512();
        _mm512_store_si512(out, pairs);
      }
    }
  }
}

// Neighbours of two rows as words (x, y), in the order in which unpacking leaves them: word i of
// the first result is of element unpacked(i), word i of the second one is of the element 4 later.
ESPALIER_INLINE int64_t unpacked(int64_t word) { return word / 4 * 8 + word % 4; }

// Values transposed, zero where no row of the unit sees them.
template <typename Element>
static void gather_values(const AttentionShape& shape, const AttentionUnit& unit, Range range,
                          const TileBlock& to) {
  const int64_t dim = shape.head_dim, padded = padded_to_lanes(dim), first = to.first;
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
        low[i] = from_bits(_mm512_unpacklo_epi16(even, odd));
        high[i] = from_bits(_mm512_unpackhi_epi16(even, odd));
      }
      transpose(low);
      transpose(high);
      uint32_t* out = to.values + d * kBlock / 2 + chain * kLanes;
      for (int64_t i = 0; i < kLanes; ++i) {
        const int64_t element = unpacked(i);
        if (d + element < padded) _mm512_store_si512(out + element * kBlock / 2, bits(low[i]));
        if (d + element + 4 < padded) {
          _mm512_store_si512(out + (element + 4) * kBlock / 2, bits(high[i]));
        }
      }
    }
  }
}

static void gather_scales(const AttentionShape& shape, const AttentionUnit& unit, Range range,
                          const TileBlock& to) {
  for (int64_t i = 0; i < kBlock; ++i) {
    const bool is_seen = i >= range.begin && i < range.end;
    const int64_t row = is_seen ? kv_row(shape, unit, to.first + i) : 0;
    to.key_scales[i] = is_seen ? shape.key_scales[row] : 0.0f;
    to.value_scales[i] = is_seen ? shape.value_scales[row] : 0.0f;
  }
}

static void gather_tiles(const AttentionShape& shape, const AttentionUnit& unit, Range range,
                         int64_t key_tiles, TileBlock& to) {
  if (shape.format == KvFormat::Int8) {
    gather_keys<int8_t>(shape, unit, range, key_tiles, to);
    gather_values<int8_t>(shape, unit, range, to);
    gather_scales(shape, unit, range, to);
  } else {
    gather_keys<uint16_t>(shape, unit, range, key_tiles, to);
    gather_values<uint16_t>(shape, unit, range, to);
  }
}

}  // namespace espalier::ESPALIER_ISA
