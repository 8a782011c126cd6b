// Runs the steps of one graph: owns packed weights, the KV pool, row buffers and threads.
//
// Knows graphs and steps; no requests, no text, no files. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "attention_schedule.h"
#include "cpu.h"
#include "graph.h"
#include "head_rows.h"
#include "kernels.h"
#include "kv_pool.h"
#include "memory.h"
#include "packed_matrix.h"
#include "stage.h"
#include "step.h"
#include "step_profile.h"
#include "thread_pool.h"

namespace espalier {

struct ExecutorOptions {
  int64_t num_slots, max_rows;
  WeightChoice weights;
  KvFormat kv_format;
  int num_threads;
  int num_processors;  // that the process may keep busy
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

// There is no memory for what a step needs besides the executor's own buffers; what() says for
// what, and what to ask less of.
class StepMemoryError : public std::bad_alloc {
 public:
  explicit StepMemoryError(const char* message) : message_(message) {}
  const char* what() const noexcept override { return message_; }

 private:
  const char* message_;  // a literal
};

class Executor {
 public:
  // Throws std::invalid_argument where graph or options do not fit, std::bad_alloc.
  Executor(std::shared_ptr<const Graph> graph, const ExecutorOptions& options);

  // Throws std::invalid_argument for a bad step and StepMemoryError (nothing has happened then),
  // std::runtime_error in a process forked from the one that made the executor.
  Logits run(const Step& step);

  MemoryUse memory_use() const;

  // From now on the time of each operation is taken, which is free where nobody asks for it.
  void start_profile();
  // Ends that; null where none was started.
  std::unique_ptr<StepProfile> take_profile();

  // For whoever computes between two steps; never at the same time as a step.
  const std::shared_ptr<ThreadPool>& thread_pool() const { return shared_pool_; }

 private:
  // Some rows of a step, in the hands of one thread. Buffers that nobody else reads have them
  // `moved` rows before their place, so that one thread uses the same memory for all its chunks.
  struct RowChunk {
    Range rows;
    int thread;
    int64_t moved = 0;
    const std::vector<bool>* is_local = nullptr;  // by buffer
  };

  void pack_weights();
  void make_pool();
  void make_buffers();

  // Takes all memory that a step needs, so that it ends before it begins or not at all.
  void reserve_for(const Step& step);
  void begin_step(const Step& step);
  void fill_rope(size_t rope, Range rows);

  // Runs stages one after the other, each on all threads.
  void run_stages(const Segment& segment);
  // Runs chunks of rows through all stages of a segment, each on one thread.
  void run_in_chunks(const Segment& segment, int64_t rows_per_chunk);
  // 0 where stages are better run one after the other.
  int64_t rows_per_chunk() const;

  template <typename RowOp>
  OpCost cost_of(const RowOp&) const {
    return {};
  }
  OpCost cost_of(const LinearOp& op) const;
  OpCost cost_of(const LmHeadOp& op) const;
  OpCost cost_of(const EmbedOp& op) const;
  OpCost cost_of(const AttentionOp& op) const;
  OpCost cost_of_product(int weight, int64_t num_rows) const;
  void profile_stage(size_t stage, double seconds);

  // On all threads.
  template <typename RowOp>
  void apply(const RowOp& op, const Stage& stage);
  void apply(const LinearOp& op, const Stage& stage);
  void apply(const AttentionOp& op, const Stage& stage);
  void apply(const SelectOp& op, const Stage& stage);
  void apply(const LmHeadOp& op, const Stage& stage);

  // On one thread, for some rows.
  void compute_stage(const Stage& stage, const RowChunk& chunk) const;
  void compute(const EmbedOp& op, const Stage& stage, const RowChunk& chunk) const;
  void compute(const RmsNormOp& op, const Stage& stage, const RowChunk& chunk) const;
  void compute(const LinearOp& op, const Stage& stage, const RowChunk& chunk) const;
  void compute(const HeadsOp& op, const Stage& stage, const RowChunk& chunk) const;
  void compute(const GateOp& op, const Stage& stage, const RowChunk& chunk) const;
  void compute(const AddOp& op, const Stage& stage, const RowChunk& chunk) const;

  void apply_to_row(const HeadNormOp& op, int64_t row, const RowChunk& chunk) const;
  void apply_to_row(const RopeOp& op, int64_t row, const RowChunk& chunk) const;
  void apply_to_row(const KvWriteOp& op, int64_t row, const RowChunk& chunk) const;

  // What a row costs, in elements.
  int64_t elements_of(const EmbedOp& op) const { return width_of(op.out); }
  int64_t elements_of(const RmsNormOp& op) const { return width_of(op.out); }
  int64_t elements_of(const HeadsOp& op) const;
  int64_t elements_of(const GateOp& op) const { return 4 * width_of(op.out); }
  int64_t elements_of(const AddOp& op) const { return 2 * width_of(op.out); }
  // Calls function(chunk of rows) for all rows, on many threads where there is enough to do.
  template <typename Function>
  void each_chunk(int64_t elements_per_row, const Function& function) {
    constexpr int64_t kElements = 8192;  // fewer are not worth waking another thread
    const int64_t rows = std::max<int64_t>(1, kElements / elements_per_row);
    pool_.run(chunks_of(num_rows_, rows), [&](int64_t index, int thread) {
      function(RowChunk{{index * rows, std::min((index + 1) * rows, num_rows_)}, thread});
    });
  }

  // Rows and column tiles that one thread takes at a time.
  struct ProductCut {
    int64_t rows, tiles;
  };
  ProductCut product_cut(int64_t num_tiles, Range rows) const;

  // Products of rows of buffer x on all threads; num_whole_rows_ is not inside of `rows`.
  void multiply(const Stage& stage, int x, Range rows, float soft_cap);
  // Products of some rows of buffer x with some tiles of the head.
  void multiply_wanted(const Stage& stage, int x, float soft_cap);
  // On all threads, where a stage does it itself.
  void prepare_input(const Stage& stage, int x);
  void multiply_tiles(const StageProduct& product, int x, Range tiles, float soft_cap,
                      const RowChunk& chunk) const;

  void norm_row(const RmsNormOp& op, int64_t row, const RowChunk& chunk) const;
  // Quantises rows of buffer x, or rounds them to bfloat16.
  void prepare_rows(int x, const RowChunk& chunk) const;
  void prepare_row(int x, int64_t row, const RowChunk& chunk) const;
  uint16_t* prepared_rows(int x, const RowChunk& chunk) const;
  // See QuantizedRows. Rows with a part of the head always are.
  bool is_paired(int64_t row) const;
  // The rows of buffer x that are kept in the same form as `row`.
  QuantizedRows quantized_rows(int x, int64_t row, const RowChunk& chunk) const;
  Bf16Rows rounded_rows(int x, const RowChunk& chunk) const;

  Rows rows_of(int buffer, const RowChunk& chunk) const;
  RowsOut rows_out(int buffer, const RowChunk& chunk) const;
  RowChunk all_rows() const { return {{0, num_rows_}, 0}; }
  int64_t width_of(int buffer) const {
    return graph_->buffer_widths()[static_cast<size_t>(buffer)];
  }
  const float* vector_of(int weight) const;
  const PackedMatrix& matrix_of(int weight) const;
  // Makes room for the logits of all rows.
  void make_logits(int64_t num_rows);
  RowsOut logit_rows() const;

  std::shared_ptr<const Graph> graph_;
  ExecutorOptions options_;
  StagePlan plan_;
  const Kernels& kernels_;
  StepChecker checker_;
  Arena weights_;
  std::vector<std::optional<PackedMatrix>> matrices_;  // by weight
  std::vector<Memory> vectors_;                        // by weight
  Memory kv_pool_;
  std::vector<KvPool> kv_pools_;  // by layer, in that memory
  std::vector<Memory> buffers_, rope_tables_;
  Memory quantized_, row_scales_;
  int64_t widest_input_ = 0;  // padded to a whole step
  Memory tile_buffers_;       // for each thread
  int64_t tile_buffer_bytes_ = 0;
  std::shared_ptr<Memory> logits_;

  // The step that runs.
  const Step* step_ = nullptr;
  int64_t num_rows_ = 0;        // of the buffers: all rows, or those selected
  int64_t num_whole_rows_ = 0;  // the first ones, which go through whole matrices
  HeadRows head_rows_;
  std::vector<int32_t> row_slots_;
  AttentionSchedule attention_;
  std::unique_ptr<StepProfile> profile_;  // null while nobody asks
  std::shared_ptr<ThreadPool> shared_pool_;
  ThreadPool& pool_;
};

}  // namespace espalier
