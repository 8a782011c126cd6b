// What all attention kernels share: which positions a row sees, how scores become exponents, and
// the folding of segments.
#pragma once

#include "kernel_linear.h"
#include "simd.h"
#include "vector_math.h"

namespace espalier::ESPALIER_ISA {

constexpr int kChain = 32;  // products that are summed up by themselves, as TDPBF16PS does

// Positions that a row sees.
ESPALIER_INLINE Range seen_by(int64_t position, int64_t window) {
  return {window > 0 ? larger(0, position - window + 1) : 0, position + 1};
}

// Positions that any row of the unit may see.
ESPALIER_INLINE Range seen_by_unit(const AttentionShape& shape, const AttentionUnit& unit) {
  Range seen = seen_by(unit.positions[unit.rows[0]], shape.window);
  for (int64_t i = 1; i < unit.num_rows; ++i) {
    const Range one = seen_by(unit.positions[unit.rows[i]], shape.window);
    seen = {smaller(seen.begin, one.begin), larger(seen.end, one.end)};
  }
  return seen;
}

// The part of a range that lies in the block at `first`, counted from there.
ESPALIER_INLINE Range in_block(Range positions, int64_t first) {
  return {larger(0, positions.begin - first), smaller(kBlock, positions.end - first)};
}

// How scores become exponents: e^(score * natural) is 2^(score * power). A query's largest score is
// replaced only by one that is larger by `slack`, so that its sums are seldom scaled; an
// exponential is then at most 2^8.
struct Softness {
  float natural, power, slack;
};

ESPALIER_INLINE Softness softness_of(const AttentionShape& shape) {
  constexpr float kLog2E = 1.44269504f, kMostBits = 8.0f;
  // A soft cap takes the scale into account before; a negative scale is the queries' sign.
  const float natural = shape.soft_cap > 0 ? 1.0f : __builtin_fabsf(shape.scale);
  const float power = natural * kLog2E;
  return {natural, power, kMostBits / power};
}

ESPALIER_INLINE Vec soft_capped(const AttentionShape& shape, Vec score) {
  const Vec scaled = mul(score, splat(__builtin_fabsf(shape.scale)));
  return mul(tanh(div(scaled, splat(shape.soft_cap))), splat(shape.soft_cap));
}

ESPALIER_INLINE int64_t kv_row(const AttentionShape& shape, const AttentionUnit& unit,
                               int64_t position) {
  return unit.kv_head * shape.num_slots + unit.slots[position];
}

// Whether the slots of a block follow each other.
ESPALIER_INLINE bool is_run(const int32_t* slots) {
  int32_t differences = 0;
  for (int i = 1; i < kBlock; ++i) differences |= slots[i] ^ (slots[0] + i);
  return differences == 0;
}

// Starts to load keys and values that are needed soon, a few at a time: slots lie anywhere, so the
// hardware cannot guess, and many loads at once would hold up the work that they should overlap.
class Prefetcher {
 public:
  Prefetcher(const AttentionShape& shape, const AttentionUnit& unit) : shape_(shape), unit_(unit) {
    row_bytes_ = shape.head_dim * element_bytes(shape.format);
  }

  // What comes after a block: the unit's next one, or what comes after the unit.
  void begin_after(int64_t block, Range seen) {
    const int64_t first = (block + 1) * kBlock;
    if (block + 1 < unit_.blocks.end) {
      const Range next = in_block(seen, first);
      begin(unit_.slots, {first + next.begin, first + next.end}, unit_.kv_head);
    } else if (unit_.next_slots != nullptr) {
      begin(unit_.next_slots, unit_.next_positions, unit_.next_kv_head);
    }
  }

  void advance(int64_t count) {
    const int64_t end = smaller(next_ + count, end_);
    if (is_run_) {
      const int64_t first = first_row_ + slots_[end_ - kBlock] + kBlock - end_;
      fetch((first + next_) * row_bytes_, (first + end) * row_bytes_);
      next_ = end;
    }
    for (; next_ < end; ++next_) {
      const int64_t row = (first_row_ + slots_[next_]) * row_bytes_;
      fetch(row, row + row_bytes_);
    }
  }

 private:
  // Slots that follow each other are one stretch of memory.
  void begin(const int32_t* slots, Range positions, int64_t kv_head) {
    slots_ = slots;
    first_row_ = kv_head * shape_.num_slots;
    next_ = positions.begin;
    end_ = positions.end;
    is_run_ = end_ - next_ == kBlock && is_run(slots + next_);
  }

  void fetch(int64_t begin, int64_t end) const {
    constexpr int64_t kLine = 64;
    const char* keys = static_cast<const char*>(shape_.keys);
    const char* values = static_cast<const char*>(shape_.values);
    for (; begin < end; begin += kLine) {
      __builtin_prefetch(keys + begin);
      __builtin_prefetch(values + begin);
    }
  }

  const AttentionShape& shape_;
  const AttentionUnit& unit_;
  const int32_t* slots_ = nullptr;
  int64_t row_bytes_, first_row_ = 0, next_ = 0, end_ = 0;
  bool is_run_ = false;
};

static void fold_partial(float* total, const float* partial, int64_t head_dim, float score_factor) {
  const int64_t padded = padded_to_lanes(head_dim);
  float* stats = total + padded;
  const float* new_stats = partial + padded;
  if (new_stats[0] == 0.0f) return;
  if (stats[0] == 0.0f) {
    for (int64_t d = 0; d < padded + kLanes; d += kLanes) store(total + d, load(partial + d));
    return;
  }
  const float top = stats[1] > new_stats[1] ? stats[1] : new_stats[1];
  const Vec kept = exp(splat((stats[1] - top) * score_factor));
  const Vec added = exp(splat((new_stats[1] - top) * score_factor));
  for (int64_t d = 0; d < padded; d += kLanes) {
    store(total + d, add(mul(load(total + d), kept), mul(load(partial + d), added)));
  }
  float kept_lanes[kLanes], added_lanes[kLanes];
  store(kept_lanes, kept);
  store(added_lanes, added);
  stats[0] = stats[0] * kept_lanes[0] + new_stats[0] * added_lanes[0];
  stats[1] = top;
}

static void finish_partial(const float* total, float* out, int64_t head_dim) {
  const Vec inverse = splat(1.0f / total[padded_to_lanes(head_dim)]);
  for (int64_t d = 0; d < head_dim; d += kLanes) {
    store_tile(out + d, mul(load(total + d), inverse), head_dim - d);
  }
}

}  // namespace espalier::ESPALIER_ISA
