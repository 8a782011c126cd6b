// Cuts the attention of a step into units of work that fill all threads.
//
// A unit is some rows of one sequence with one key head, over all segments of positions that they
// see, or over one of them where there are too few units for the threads. The cut never changes a
// result: each segment is summed up by itself, and segments are folded in order, by whomever.
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

  // Scratch that a schedule takes, but for partials kept between threads.
  static int64_t num_bytes(int64_t head_dim, int64_t heads_per_kv, int num_threads);
  int64_t shared_bytes() const { return static_cast<int64_t>(shared_.size()); }

 private:
  struct RowTile {
    int64_t sequence, first_row, num_rows;
  };
  // What the kernels of one unit work on.
  struct Work {
    AttentionUnit unit;
    int64_t num_queries;
    Range segments;
    float* out;  // first row, first head
  };

  const RowTile& tile_of(int64_t unit) const;
  Range segments_of(int64_t unit, int64_t window) const;
  Work work_of(int64_t unit, const AttentionShape& shape, const Rows& q, const RowsOut& out) const;
  bool split_segments(int64_t window, const ThreadPool& pool);
  void attend(const Kernels& kernels, const AttentionShape& shape, const Work& work,
              int64_t out_stride, int thread);
  void finish(const Kernels& kernels, const Work& work, const float* totals,
              int64_t out_stride) const;
  float* thread_scratch(int thread) const { return scratch_.as<float>() + thread * thread_floats_; }

  int64_t head_dim_, num_kv_heads_, heads_per_kv_;
  int64_t rows_per_tile_;
  int64_t thread_floats_;  // scratch of one thread
  Memory scratch_;
  const Step* step_ = nullptr;
  std::vector<RowTile> tiles_;

  // Where segments are split: the unit and the segment of each piece, and its partials' place.
  struct Piece {
    int64_t unit, segment, offset;
  };
  std::vector<Piece> pieces_;
  std::vector<int64_t> first_piece_;  // of each unit, and the end
  Memory shared_;
};

}  // namespace espalier
