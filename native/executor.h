// Runs the steps of one graph: owns packed weights, the KV pool, row buffers and threads.
//
// Knows graphs and steps; no requests, no text, no files. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention_schedule.h"
#include "cpu.h"
#include "graph.h"
#include "kernels.h"
#include "kv_pool.h"
#include "memory.h"
#include "packed_matrix.h"
#include "step.h"
#include "step_profile.h"
#include "thread_pool.h"

namespace espalier {

struct ExecutorOptions {
  int64_t num_slots, max_rows;
  WeightChoice weights;
  KvFormat kv_format;
  int num_threads;
  Isa isa;
};

struct MemoryUse {
  int64_t weights, kv_pool, scratch;
};

// What an executor will hold, before any of it is taken.
MemoryUse memory_needed(const Graph& graph, const ExecutorOptions& options);

// [num_rows, vocab_size]; shared with whoever still looks at it.
struct Logits {
  std::shared_ptr<const Memory> memory;
  int64_t num_rows, vocab_size;
};

class Executor {
 public:
  // Throws std::invalid_argument where graph or options do not fit, std::bad_alloc.
  Executor(std::shared_ptr<const Graph> graph, const ExecutorOptions& options);

  // Throws std::invalid_argument for a bad step (nothing has happened then), std::runtime_error in
  // a process forked from the one that made the executor.
  Logits run(const Step& step);

  MemoryUse memory_use() const;

  // From now on the time of each operation is taken, which is free where nobody asks for it.
  void start_profile();
  // Ends that; null where none was started.
  std::unique_ptr<StepProfile> take_profile();

  // For whoever computes between two steps; never at the same time as a step.
  const std::shared_ptr<ThreadPool>& thread_pool() const { return shared_pool_; }

 private:
  // A matrix of a joined product, its output and its place among all tiles of the product.
  struct Product {
    const PackedMatrix* matrix;
    const float* bias;
    RowsOut out;
    Range tiles;
  };

  void pack_weights();
  void make_pool();
  void make_buffers();

  void begin_step(const Step& step);
  void fill_rope(size_t rope, Range rows);

  void run_profiled(const Op& op);
  template <typename RowOp>
  OpCost cost_of(const RowOp&) const {
    return {};
  }
  OpCost cost_of(const LinearOp& op) const;
  OpCost cost_of(const LmHeadOp& op) const;
  OpCost cost_of(const EmbedOp& op) const;
  OpCost cost_of(const AttentionOp& op) const;
  OpCost cost_of_product(int weight) const;

  void apply(const EmbedOp& op);
  void apply(const RmsNormOp& op);
  void apply(const LinearOp& op);
  void apply(const HeadsOp& op);
  void apply(const AttentionOp& op);
  void apply(const GateOp& op);
  void apply(const AddOp& op);
  void apply(const SelectOp& op);
  void apply(const LmHeadOp& op);

  void apply_to_row(const HeadNormOp& op, int64_t row) const;
  void apply_to_row(const RopeOp& op, int64_t row) const;
  void apply_to_row(const KvWriteOp& op, int64_t row) const;
  int64_t elements_of(const HeadStep& step) const;

  // Rows and column tiles that one thread takes at a time.
  struct ProductCut {
    int64_t rows, tiles;
  };
  ProductCut product_cut(int64_t num_tiles) const;

  // Computes `products_` for the current rows of buffer x; soft_cap 0 is none.
  void multiply(int x, float soft_cap);
  void multiply_tiles(const Product& product, int x, Range rows, Range tiles, int thread) const;

  void norm_row(const RmsNormOp& op, int64_t row);
  // Quantises one row of buffer x, or rounds it to bfloat16.
  void quantize_row(int x, int64_t row);
  QuantizedRows quantized_rows(int x) const;
  Bf16Rows rounded_rows(int x) const;
  // Whether the operation after the one that runs multiplies buffer x in a form of its own.
  bool is_multiplied_next(int x, size_t distance = 1) const;

  // Calls function(row) for all rows, on many threads where there is enough to do.
  template <typename Function>
  void each_row(int64_t num_rows, int64_t elements_per_row, Function function);

  Rows rows_of(int buffer) const;
  RowsOut rows_out(int buffer) const;
  int64_t width_of(int buffer) const {
    return graph_->buffer_widths()[static_cast<size_t>(buffer)];
  }
  const float* vector_of(int weight) const;
  const PackedMatrix& matrix_of(int weight) const;
  KvPool pool_of(int64_t layer) const;
  float* logits_of(int64_t num_rows);

  std::shared_ptr<const Graph> graph_;
  ExecutorOptions options_;
  const Kernels& kernels_;
  StepChecker checker_;
  Arena weights_;
  std::vector<std::optional<PackedMatrix>> matrices_;  // by weight
  std::vector<Memory> vectors_;                        // by weight
  Memory kv_pool_;
  std::vector<Memory> buffers_, rope_tables_;
  Memory quantized_, row_scales_;
  Memory tile_buffers_;  // for each thread
  int64_t tile_buffer_bytes_ = 0;
  std::shared_ptr<Memory> logits_;

  // The step that runs.
  const Step* step_ = nullptr;
  int64_t num_rows_ = 0;  // of the buffers: all rows, or those selected
  std::vector<int32_t> row_slots_;
  std::vector<Product> products_;
  size_t op_index_ = 0;  // of the operation that runs
  bool is_quantized_ =
      false;  // the operation before has quantised what the product that runs reads
  AttentionSchedule attention_;
  std::unique_ptr<StepProfile> profile_;  // null while nobody asks
  std::shared_ptr<ThreadPool> shared_pool_;
  ThreadPool& pool_;
};

}  // namespace espalier
