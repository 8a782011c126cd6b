// Runs the attention of a step on all threads, as its plan cuts it.
//
// A row's segments may be summed up by different threads; the one that ends last folds them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "attention_plan.h"
#include "kernels.h"
#include "memory.h"
#include "step.h"
#include "thread_pool.h"

namespace espalier {

class AttentionSchedule {
 public:
  AttentionSchedule(int64_t head_dim, int64_t num_kv_heads, int64_t heads_per_kv, int num_threads);

  // Once per step, for all its layers.
  void begin(const Step& step);

  // Makes the plan of a step's layers with that window and room for their results, unless it is
  // made; what `run` does otherwise. Throws std::bad_alloc.
  void make_plan(int64_t window) { (void)planned_for(window); }

  void run(const Kernels& kernels, const AttentionShape& shape, const Rows& q, const RowsOut& out,
           ThreadPool& pool);

  // Scratch that a schedule takes, but for results kept between threads.
  static int64_t num_bytes(int64_t head_dim, int64_t heads_per_kv, int num_threads);
  int64_t shared_bytes() const { return static_cast<int64_t>(results_.size()); }

 private:
  // A plan and how many pieces of each row have yet to end.
  struct Planned {
    AttentionPlan plan;
    bool is_made = false;
    std::unique_ptr<std::atomic<int32_t>[]> pending;  // [place][kv_head]
    size_t num_pending = 0;
  };
  struct Layer {
    const Kernels& kernels;
    const AttentionShape& shape;
    const Rows& q;
    const RowsOut& out;
    Planned& planned;
    float score_factor;
  };

  Planned& planned_for(int64_t window);
  void count_pending(Planned& planned) const;
  void attend_run(const Layer& layer, const AttentionPiece& piece, int64_t index, int64_t kv_head,
                  float* partials, float* scratch) const;
  void expect_next(const Layer& layer, const AttentionPiece& piece, int64_t index,
                   AttentionUnit& unit) const;
  void attend_lone(const Layer& layer, const AttentionPiece& piece, int64_t kv_head, int thread);
  void attend_piece(const Layer& layer, const AttentionPiece& piece, int64_t kv_head, int thread);
  void end_piece(const Layer& layer, const AttentionPiece& piece, int64_t kv_head);
  void fold_row(const Layer& layer, int64_t place, int64_t kv_head);
  void finish_row(const Layer& layer, int64_t place, int64_t kv_head, const float* totals) const;
  float* results_of(const AttentionPiece& piece, int64_t kv_head) const;

  const int64_t head_dim_, num_kv_heads_, heads_per_kv_;
  const int64_t row_floats_;     // partials of a row with one key head
  const int64_t thread_floats_;  // scratch of one thread
  const AttentionLimits limits_;
  Memory scratch_, results_;
  const Step* step_ = nullptr;
  std::vector<Planned> plans_;
};

}  // namespace espalier
