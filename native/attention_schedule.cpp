#include "attention_schedule.h"

#include <algorithm>

namespace espalier {
namespace {

constexpr int64_t kQueriesPerTile = 64;  // share each gathered block of keys and values
constexpr int64_t kUnitsPerThread = 4;   // fewer are cut into segments
constexpr size_t kMostSharedBytes = size_t{32} << 20;

int64_t rows_per_tile(int64_t heads_per_kv) {
  return std::max<int64_t>(1, kQueriesPerTile / heads_per_kv);
}

// Of one thread: a gathered block, and a total and a partial for each query.
int64_t thread_floats(int64_t head_dim, int64_t heads_per_kv) {
  const int64_t queries = rows_per_tile(heads_per_kv) * heads_per_kv;
  return attention_scratch(head_dim) + 2 * queries * partial_stride(head_dim);
}

}  // namespace

AttentionSchedule::AttentionSchedule(int64_t head_dim, int64_t num_kv_heads, int64_t heads_per_kv,
                                     int num_threads)
    : head_dim_(head_dim),
      num_kv_heads_(num_kv_heads),
      heads_per_kv_(heads_per_kv),
      rows_per_tile_(rows_per_tile(heads_per_kv)),
      thread_floats_(thread_floats(head_dim, heads_per_kv)),
      scratch_(static_cast<size_t>(num_bytes(head_dim, heads_per_kv, num_threads))) {}

int64_t AttentionSchedule::num_bytes(int64_t head_dim, int64_t heads_per_kv, int num_threads) {
  return checked_product({thread_floats(head_dim, heads_per_kv), num_threads, 4});
}

void AttentionSchedule::plan(const Step& step) {
  step_ = &step;
  tiles_.clear();
  for (int64_t sequence = 0; sequence < step.num_sequences(); ++sequence) {
    const int64_t begin = step.row_starts[static_cast<size_t>(sequence)];
    const int64_t end = step.row_starts[static_cast<size_t>(sequence) + 1];
    for (int64_t row = begin; row < end; row += rows_per_tile_) {
      tiles_.push_back({sequence, row, std::min(rows_per_tile_, end - row)});
    }
  }
}

const AttentionSchedule::RowTile& AttentionSchedule::tile_of(int64_t unit) const {
  return tiles_[static_cast<size_t>(unit / num_kv_heads_)];
}

Range AttentionSchedule::segments_of(int64_t unit, int64_t window) const {
  const RowTile& tile = tile_of(unit);
  const int32_t* positions = step_->positions.data() + tile.first_row;
  const int64_t first = window > 0 ? std::max<int64_t>(0, positions[0] - window + 1) : 0;
  return {first / kSegment, positions[tile.num_rows - 1] / kSegment + 1};
}

AttentionSchedule::Work AttentionSchedule::work_of(int64_t unit, const AttentionShape& shape,
                                                   const Rows& q, const RowsOut& out) const {
  const RowTile& tile = tile_of(unit);
  const int64_t kv_head = unit % num_kv_heads_;
  const int64_t first_head = kv_head * heads_per_kv_ * head_dim_;
  const int32_t first_slot = step_->slot_starts[static_cast<size_t>(tile.sequence)];
  return {
      .unit = {.slots = step_->slot_ids.data() + first_slot,
               .positions = step_->positions.data() + tile.first_row,
               .q = q.data + tile.first_row * q.stride + first_head,
               .q_stride = q.stride,
               .num_rows = tile.num_rows,
               .kv_head = kv_head},
      .num_queries = tile.num_rows * heads_per_kv_,
      .segments = segments_of(unit, shape.window),
      .out = out.data + tile.first_row * out.stride + first_head,
  };
}

// Makes pieces of one segment each, where whole units would leave threads idle; false elsewhere.
bool AttentionSchedule::split_segments(int64_t window, const ThreadPool& pool) {
  const int64_t num_units = static_cast<int64_t>(tiles_.size()) * num_kv_heads_;
  if (pool.num_threads() == 1 || num_units >= kUnitsPerThread * pool.num_threads()) return false;
  pieces_.clear();
  first_piece_.clear();
  int64_t offset = 0;
  for (int64_t unit = 0; unit < num_units; ++unit) {
    first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
    const Range segments = segments_of(unit, window);
    for (int64_t segment = segments.begin; segment < segments.end; ++segment) {
      pieces_.push_back({unit, segment, offset});
      offset += tile_of(unit).num_rows * heads_per_kv_ * partial_stride(head_dim_);
    }
  }
  first_piece_.push_back(static_cast<int64_t>(pieces_.size()));
  const size_t bytes = static_cast<size_t>(offset) * sizeof(float);
  if (static_cast<int64_t>(pieces_.size()) == num_units || bytes > kMostSharedBytes) return false;
  if (shared_.size() < bytes) shared_ = Memory(std::min(2 * bytes, kMostSharedBytes));
  return true;
}

void AttentionSchedule::run(const Kernels& kernels, const AttentionShape& shape, const Rows& q,
                            const RowsOut& out, ThreadPool& pool) {
  const int64_t num_units = static_cast<int64_t>(tiles_.size()) * num_kv_heads_;
  if (!split_segments(shape.window, pool)) {
    pool.run(num_units, [&](int64_t index, int thread) {
      attend(kernels, shape, work_of(index, shape, q, out), out.stride, thread);
    });
    return;
  }
  pool.run(static_cast<int64_t>(pieces_.size()), [&](int64_t index, int thread) {
    const Piece& piece = pieces_[static_cast<size_t>(index)];
    const Work work = work_of(piece.unit, shape, q, out);
    kernels.attend_segment(shape, work.unit, piece.segment, shared_.as<float>() + piece.offset,
                           thread_scratch(thread));
  });
  pool.run(num_units, [&](int64_t index, int) {
    const auto unit = static_cast<size_t>(index);
    const Work work = work_of(index, shape, q, out);
    float* totals = shared_.as<float>() + pieces_[static_cast<size_t>(first_piece_[unit])].offset;
    const int64_t floats = work.num_queries * partial_stride(head_dim_);
    for (int64_t piece = 1; piece < first_piece_[unit + 1] - first_piece_[unit]; ++piece) {
      for (int64_t i = 0; i < floats; i += partial_stride(head_dim_)) {
        kernels.fold_partial(totals + i, totals + piece * floats + i, head_dim_);
      }
    }
    finish(kernels, work, totals, out.stride);
  });
}

void AttentionSchedule::attend(const Kernels& kernels, const AttentionShape& shape,
                               const Work& work, int64_t out_stride, int thread) {
  const int64_t stride = partial_stride(head_dim_);
  float* blocks = thread_scratch(thread);
  float* totals = blocks + attention_scratch(head_dim_);
  float* partials = totals + rows_per_tile_ * heads_per_kv_ * stride;
  kernels.attend_segment(shape, work.unit, work.segments.begin, totals, blocks);
  for (int64_t segment = work.segments.begin + 1; segment < work.segments.end; ++segment) {
    kernels.attend_segment(shape, work.unit, segment, partials, blocks);
    for (int64_t i = 0; i < work.num_queries; ++i) {
      kernels.fold_partial(totals + i * stride, partials + i * stride, head_dim_);
    }
  }
  finish(kernels, work, totals, out_stride);
}

void AttentionSchedule::finish(const Kernels& kernels, const Work& work, const float* totals,
                               int64_t out_stride) const {
  for (int64_t i = 0; i < work.num_queries; ++i) {
    float* head = work.out + i / heads_per_kv_ * out_stride + i % heads_per_kv_ * head_dim_;
    kernels.finish_partial(totals + i * partial_stride(head_dim_), head, head_dim_);
  }
}

}  // namespace espalier
