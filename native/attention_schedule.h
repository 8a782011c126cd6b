// Cuts the attention of a step into units of work that fill all threads.
//
// A unit is some rows of one sequence with one key head, over all segments of positions that they
// see or over one of them. The cut never changes a result: segments are summed up in order.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels.h"
#include "memory.h"
#include "step.h"
#include "thread_pool.h"

namespace espalier {

class AttentionSchedule {
 public:
  AttentionSchedule(int64_t head_dim, int64_t num_kv_heads, int64_t heads_per_kv, int num_threads);

  // Once per step, for all its layers.
  void plan(const Step& step);

  void run(const Kernels& kernels, const AttentionShape& shape, const Rows& q, const RowsOut& out,
           ThreadPool& pool);

  // Scratch that a schedule takes.
  static int64_t num_bytes(int64_t head_dim, int64_t heads_per_kv, int num_threads);

 private:
  struct RowTile {
    int64_t sequence, first_row, num_rows;
  };

  AttentionUnit unit(const RowTile& tile, int64_t kv_head, const AttentionShape& shape,
                     const Rows& q) const;
  void attend(const Kernels& kernels, const AttentionShape& shape, const AttentionUnit& unit,
              float* out, int64_t out_stride, int thread);

  int64_t head_dim_, num_kv_heads_, heads_per_kv_;
  int64_t rows_per_tile_;
  int64_t thread_floats_;  // scratch of one thread
  Memory scratch_;
  const Step* step_ = nullptr;
  std::vector<RowTile> tiles_;
};

}  // namespace espalier
