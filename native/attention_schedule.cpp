#include "attention_schedule.h"

#include <algorithm>
#include <cstring>

namespace espalier {
namespace {

constexpr int64_t kQueriesPerTile = 64;  // share each gathered block of keys and values

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

AttentionUnit AttentionSchedule::unit(const RowTile& tile, int64_t kv_head,
                                      const AttentionShape& shape, const Rows& q) const {
  const int32_t first_slot = step_->slot_starts[static_cast<size_t>(tile.sequence)];
  return {
      .slots = step_->slot_ids.data() + first_slot,
      .positions = step_->positions.data() + tile.first_row,
      .q = q.data + tile.first_row * q.stride + kv_head * shape.heads_per_kv * shape.head_dim,
      .q_stride = q.stride,
      .num_rows = tile.num_rows,
      .kv_head = kv_head,
  };
}

void AttentionSchedule::run(const Kernels& kernels, const AttentionShape& shape, const Rows& q,
                            const RowsOut& out, ThreadPool& pool) {
  const int64_t num_units = static_cast<int64_t>(tiles_.size()) * num_kv_heads_;
  pool.run(num_units, [&](int64_t index, int thread) {
    const RowTile& tile = tiles_[static_cast<size_t>(index / num_kv_heads_)];
    const int64_t kv_head = index % num_kv_heads_;
    float* first = out.data + tile.first_row * out.stride + kv_head * heads_per_kv_ * head_dim_;
    attend(kernels, shape, unit(tile, kv_head, shape, q), first, out.stride, thread);
  });
}

void AttentionSchedule::attend(const Kernels& kernels, const AttentionShape& shape,
                               const AttentionUnit& unit, float* out, int64_t out_stride,
                               int thread) {
  const int64_t stride = partial_stride(head_dim_), queries = unit.num_rows * heads_per_kv_;
  float* blocks = scratch_.as<float>() + thread * thread_floats_;
  float* totals = blocks + attention_scratch(head_dim_);
  float* partials = totals + rows_per_tile_ * heads_per_kv_ * stride;
  std::memset(totals, 0, static_cast<size_t>(queries * stride) * sizeof(float));
  const int64_t last = unit.positions[unit.num_rows - 1];
  const int64_t first =
      shape.window > 0 ? std::max<int64_t>(0, unit.positions[0] - shape.window + 1) : 0;
  for (int64_t segment = first / kSegment; segment <= last / kSegment; ++segment) {
    kernels.attend_segment(shape, unit, segment, partials, blocks);
    for (int64_t i = 0; i < queries; ++i) {
      kernels.fold_partial(totals + i * stride, partials + i * stride, head_dim_);
    }
  }
  for (int64_t i = 0; i < queries; ++i) {
    float* head = out + i / heads_per_kv_ * out_stride + i % heads_per_kv_ * head_dim_;
    kernels.finish_partial(totals + i * stride, head, head_dim_);
  }
}

}  // namespace espalier
