#include "attention_schedule.h"

#include <algorithm>
#include <cmath>

namespace espalier {
namespace {

constexpr int64_t kQueriesPerRun = 192;  // share each block of keys and values
constexpr int64_t kPiecesPerThread = 4;  // with fewer some threads would end early
constexpr int64_t kMostResultBytes = int64_t{64} << 20;

int64_t rows_per_run(int64_t heads_per_kv) {
  return std::max<int64_t>(1, kQueriesPerRun / heads_per_kv);
}

int64_t run_floats(int64_t head_dim, int64_t heads_per_kv) {
  return rows_per_run(heads_per_kv) * heads_per_kv * partial_stride(head_dim);
}

// Of one thread: what a kernel needs, and a total and a partial for each query.
int64_t thread_floats(int64_t head_dim, int64_t heads_per_kv) {
  return attention_scratch(head_dim, rows_per_run(heads_per_kv) * heads_per_kv) +
         2 * run_floats(head_dim, heads_per_kv);
}

AttentionLimits limits_for(int64_t row_floats, int64_t num_kv_heads, int64_t heads_per_kv,
                           int num_threads) {
  const int64_t pieces = num_threads == 1 ? 1 : kPiecesPerThread * num_threads;
  return {.rows_per_run = rows_per_run(heads_per_kv),
          .enough_pieces = chunks_of(pieces, num_kv_heads),
          .most_results = kMostResultBytes / (4 * row_floats * num_kv_heads)};
}

}  // namespace

AttentionSchedule::AttentionSchedule(int64_t head_dim, int64_t num_kv_heads, int64_t heads_per_kv,
                                     int num_threads)
    : head_dim_(head_dim),
      num_kv_heads_(num_kv_heads),
      heads_per_kv_(heads_per_kv),
      row_floats_(heads_per_kv * partial_stride(head_dim)),
      thread_floats_(thread_floats(head_dim, heads_per_kv)),
      limits_(limits_for(row_floats_, num_kv_heads, heads_per_kv, num_threads)),
      scratch_(static_cast<size_t>(num_bytes(head_dim, heads_per_kv, num_threads))) {}

int64_t AttentionSchedule::num_bytes(int64_t head_dim, int64_t heads_per_kv, int num_threads) {
  return checked_product({thread_floats(head_dim, heads_per_kv), num_threads, 4});
}

void AttentionSchedule::begin(const Step& step) {
  step_ = &step;
  for (Planned& planned : plans_) planned.is_made = false;
}

AttentionSchedule::Planned& AttentionSchedule::planned_for(int64_t window) {
  auto found = std::find_if(plans_.begin(), plans_.end(), [&](const Planned& planned) {
    return planned.plan.window() == window;
  });
  if (found == plans_.end()) {
    plans_.push_back({AttentionPlan(window, limits_), false, nullptr, 0});
    found = plans_.end() - 1;
  }
  if (found->is_made) return *found;
  found->plan.make(*step_);
  count_pending(*found);
  found->is_made = true;
  const int64_t bytes = checked_product({found->plan.num_results(), num_kv_heads_, row_floats_, 4});
  if (static_cast<int64_t>(results_.size()) < bytes) {
    results_ = Memory();
    results_ = Memory(static_cast<size_t>(std::min(2 * bytes, std::max(bytes, kMostResultBytes))));
  }
  return *found;
}

void AttentionSchedule::count_pending(Planned& planned) const {
  const size_t count = planned.plan.rows().size() * static_cast<size_t>(num_kv_heads_);
  if (planned.num_pending < count) {
    planned.pending = std::make_unique<std::atomic<int32_t>[]>(2 * count);
    planned.num_pending = 2 * count;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto pieces = planned.plan.pieces_of(static_cast<int64_t>(i) / num_kv_heads_);
    planned.pending[i].store(static_cast<int32_t>(pieces.size()), std::memory_order_relaxed);
  }
}

void AttentionSchedule::run(const Kernels& kernels, const AttentionShape& shape, const Rows& q,
                            const RowsOut& out, ThreadPool& pool) {
  Planned& planned = planned_for(shape.window);
  const float factor = shape.soft_cap > 0 ? 1.0f : std::fabs(shape.scale);
  const Layer layer{kernels, shape, q, out, planned, factor};
  const auto pieces = planned.plan.pieces();
  pool.run(static_cast<int64_t>(pieces.size()) * num_kv_heads_, [&](int64_t index, int thread) {
    const AttentionPiece& piece = pieces[static_cast<size_t>(index / num_kv_heads_)];
    if (piece.is_lone) {
      attend_lone(layer, piece, index % num_kv_heads_, thread);
    } else {
      attend_piece(layer, piece, index % num_kv_heads_, thread);
    }
  });
}

void AttentionSchedule::attend_run(const Layer& layer, const AttentionPiece& piece, int64_t index,
                                   int64_t kv_head, float* partials, float* scratch) const {
  const AttentionRun& run = layer.planned.plan.runs()[static_cast<size_t>(index)];
  AttentionUnit unit{
      .slots = run.slots,
      .rows = layer.planned.plan.rows().data() + run.rows.begin,
      .positions = step_->positions.data(),
      .q = layer.q.data + kv_head * heads_per_kv_ * head_dim_,
      .q_stride = layer.q.stride,
      .num_rows = run.rows.end - run.rows.begin,
      .kv_head = kv_head,
      .blocks = run.blocks,
      .is_fresh = run.is_fresh,
      .next_slots = nullptr,
      .next_positions = {0, 0},
      .next_kv_head = 0,
  };
  expect_next(layer, piece, index, unit);
  layer.kernels.attend_run(layer.shape, unit, partials, scratch);
}

// A thread takes chunks one after the other, so that it will most likely go on with the piece's
// next run, the next key head or the next piece.
void AttentionSchedule::expect_next(const Layer& layer, const AttentionPiece& piece, int64_t index,
                                    AttentionUnit& unit) const {
  const auto runs = layer.planned.plan.runs();
  int64_t next = index + 1, kv_head = unit.kv_head;
  if (next == piece.runs.end && ++kv_head < num_kv_heads_) next = piece.runs.begin;
  if (kv_head == num_kv_heads_) kv_head = 0;
  if (next == static_cast<int64_t>(runs.size())) return;
  const AttentionRun& run = runs[static_cast<size_t>(next)];
  const int64_t first = run.blocks.begin * kBlock;
  unit.next_slots = run.slots;
  unit.next_positions = {first, std::min(first + kBlock, run.end)};
  unit.next_kv_head = kv_head;
}

void AttentionSchedule::attend_lone(const Layer& layer, const AttentionPiece& piece,
                                    int64_t kv_head, int thread) {
  float* scratch = scratch_.as<float>() + thread * thread_floats_;
  float* totals = scratch + thread_floats_ - 2 * run_floats(head_dim_, heads_per_kv_);
  float* partials = totals + run_floats(head_dim_, heads_per_kv_);
  const int64_t stride = partial_stride(head_dim_);
  const int64_t num_rows = piece.rows.end - piece.rows.begin;
  for (int64_t i = piece.runs.begin; i < piece.runs.end; ++i) {
    const bool is_first = i == piece.runs.begin;
    attend_run(layer, piece, i, kv_head, is_first ? totals : partials, scratch);
    for (int64_t query = 0; !is_first && query < num_rows * heads_per_kv_; ++query) {
      layer.kernels.fold_partial(totals + query * stride, partials + query * stride, head_dim_,
                                 layer.score_factor);
    }
  }
  for (int64_t i = 0; i < num_rows; ++i) {
    finish_row(layer, piece.rows.begin + i, kv_head, totals + i * row_floats_);
  }
}

float* AttentionSchedule::results_of(const AttentionPiece& piece, int64_t kv_head) const {
  const int64_t num_rows = piece.rows.end - piece.rows.begin;
  return results_.as<float>() +
         (piece.first_result * num_kv_heads_ + kv_head * num_rows) * row_floats_;
}

void AttentionSchedule::attend_piece(const Layer& layer, const AttentionPiece& piece,
                                     int64_t kv_head, int thread) {
  float* results = results_of(piece, kv_head);
  float* scratch = scratch_.as<float>() + thread * thread_floats_;
  const auto runs = layer.planned.plan.runs();
  for (int64_t i = piece.runs.begin; i < piece.runs.end; ++i) {
    const AttentionRun& run = runs[static_cast<size_t>(i)];
    const int64_t before = run.rows.begin - piece.rows.begin;
    attend_run(layer, piece, i, kv_head, results + before * row_floats_, scratch);
  }
  end_piece(layer, piece, kv_head);
}

// Whoever ends the last piece of a row folds the row, and sets the count for the next layer.
void AttentionSchedule::end_piece(const Layer& layer, const AttentionPiece& piece,
                                  int64_t kv_head) {
  for (int64_t place = piece.rows.begin; place < piece.rows.end; ++place) {
    const auto count = static_cast<int32_t>(layer.planned.plan.pieces_of(place).size());
    std::atomic<int32_t>& pending =
        layer.planned.pending[static_cast<size_t>(place * num_kv_heads_ + kv_head)];
    if (count > 1 && pending.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    pending.store(count, std::memory_order_relaxed);
    fold_row(layer, place, kv_head);
  }
}

void AttentionSchedule::fold_row(const Layer& layer, int64_t place, int64_t kv_head) {
  float* totals = nullptr;
  for (const int32_t index : layer.planned.plan.pieces_of(place)) {
    const AttentionPiece& piece = layer.planned.plan.pieces()[static_cast<size_t>(index)];
    float* partials = results_of(piece, kv_head) + (place - piece.rows.begin) * row_floats_;
    if (totals == nullptr) {
      totals = partials;
      continue;
    }
    for (int64_t i = 0; i < row_floats_; i += partial_stride(head_dim_)) {
      layer.kernels.fold_partial(totals + i, partials + i, head_dim_, layer.score_factor);
    }
  }
  finish_row(layer, place, kv_head, totals);
}

void AttentionSchedule::finish_row(const Layer& layer, int64_t place, int64_t kv_head,
                                   const float* totals) const {
  const int64_t row = layer.planned.plan.rows()[static_cast<size_t>(place)];
  float* out = layer.out.data + row * layer.out.stride + kv_head * heads_per_kv_ * head_dim_;
  for (int64_t head = 0; head < heads_per_kv_; ++head) {
    layer.kernels.finish_partial(totals + head * partial_stride(head_dim_), out + head * head_dim_,
                                 head_dim_);
  }
}

}  // namespace espalier
