#include "executor.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <utility>

#include "stopwatch.h"

namespace espalier {
namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr size_t kKeptLogitsBytes = size_t{64} << 20;  // a larger buffer lives for one step

const ExecutorOptions& checked(const ExecutorOptions& options) {
  if (options.num_slots < 1 || options.num_slots > kMaxInt32 - 1) {
    throw std::invalid_argument("num_slots is " + std::to_string(options.num_slots) +
                                "; 1 to 2^31 - 2 are allowed");
  }
  if (options.max_rows < 1 || options.max_rows > kMaxInt32 - 1) {
    throw std::invalid_argument("max_rows is " + std::to_string(options.max_rows) +
                                "; 1 to 2^31 - 2 are allowed");
  }
  ThreadPool::check_num_threads(options.num_threads);
  return options;
}

// Room in which a thread expands 4-bit weights.
int64_t tile_buffer_bytes(const Graph& graph) {
  return 2 * std::max(kTileBufferBytes, padded_to_step(graph.widest_input()) * kLanes);
}

// Rows that have a form for products: those with a part of the head begin a block of their own.
int64_t prepared_rows_needed(int64_t max_rows) { return padded_to_lanes(max_rows) + kRowBlock; }

// Bytes of all packed matrices.
int64_t packed_bytes(const Graph& graph, WeightChoice choice) {
  int64_t sum = 0;
  for (size_t i = 0; i < graph.weights().size(); ++i) {
    const auto index = static_cast<int>(i);
    const Weight& weight = graph.weights()[i];
    if (!weight.is_matrix || !graph.is_multiplied(index)) continue;
    sum += packed_matrix_bytes(weight_format(graph, index, choice), weight.raw.num_rows,
                               weight.raw.num_columns);
  }
  return sum;
}

}  // namespace

Executor::Executor(std::shared_ptr<const Graph> graph, const ExecutorOptions& options)
    : graph_(std::move(graph)),
      options_(checked(options)),
      plan_(*graph_, options.weights),
      kernels_(kernels_for(options.isa)),
      checker_({options.max_rows, options.num_slots, graph_->geometry().vocab_size,
                graph_->geometry().max_context}),
      head_rows_(graph_->geometry().vocab_size, kernels_.most_paired_rows),
      attention_(graph_->geometry().head_dim, graph_->geometry().num_kv_heads,
                 graph_->geometry().num_heads / graph_->geometry().num_kv_heads,
                 options.num_threads),
      shared_pool_(std::make_shared<ThreadPool>(options.num_threads, options.num_processors)),
      pool_(*shared_pool_) {
  graph_->check_complete();
  pack_weights();
  make_pool();
  make_buffers();
}

void Executor::pack_weights() {
  const ThreadPool::Awake awake(pool_);
  const std::vector<Weight>& weights = graph_->weights();
  weights_ = Arena(packed_bytes(*graph_, options_.weights));
  matrices_.resize(weights.size());
  vectors_.resize(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    if (!weights[i].is_matrix) {
      vectors_[i] = unpack_vector(weights[i]);
    } else if (graph_->is_multiplied(static_cast<int>(i))) {
      const auto index = static_cast<int>(i);
      matrices_[i].emplace(weights[i], weight_format(*graph_, index, options_.weights), weights_,
                           pool_);
    }
  }
}

void Executor::make_pool() {
  kv_pool_ = Memory(static_cast<size_t>(
      kv_pool_bytes(graph_->geometry(), options_.num_slots, options_.kv_format)));
  const Geometry& g = graph_->geometry();
  for (int64_t layer = 0; layer < g.num_layers; ++layer) {
    const int64_t layer_bytes = static_cast<int64_t>(kv_pool_.size()) / g.num_layers;
    kv_pools_.emplace_back(kv_pool_.as<uint8_t>() + layer * layer_bytes, g, options_.num_slots,
                           options_.kv_format);
  }
}

void Executor::make_buffers() {
  for (const int64_t width : graph_->buffer_widths()) {
    const int64_t bytes = checked_product({options_.max_rows, padded_to_lanes(width), 4});
    buffers_.emplace_back(static_cast<size_t>(bytes));
  }
  for (const Rope& rope : graph_->ropes()) {
    const int64_t values = 4 * static_cast<int64_t>(rope.inv_freq.size());
    rope_tables_.emplace_back(static_cast<size_t>(checked_product({options_.max_rows, values, 4})));
  }
  if (options_.weights == WeightChoice::F32) return;
  const int64_t rows = prepared_rows_needed(options_.max_rows);
  widest_input_ = padded_to_step(graph_->widest_input());
  quantized_ = Memory(static_cast<size_t>(checked_product({rows, widest_input_, 2})));
  row_scales_ = Memory(static_cast<size_t>(checked_product({rows, 4})));
  tile_buffer_bytes_ = tile_buffer_bytes(*graph_);
  tile_buffers_ =
      Memory(static_cast<size_t>(checked_product({options_.num_threads, tile_buffer_bytes_})));
}

Logits Executor::run(const Step& step) {
  if (pool_.is_foreign()) {
    throw std::runtime_error(
        "the process was forked after the executor was made, and its threads are not in the "
        "child; make the engine in the process that uses it");
  }
  checker_.check(step, row_slots_);
  const ThreadPool::Awake awake(pool_);
  begin_step(step);
  const int64_t rows = rows_per_chunk();
  for (const Segment& segment : plan_.segments()) {
    if (segment.is_row_by_row && rows > 0) {
      run_in_chunks(segment, rows);
    } else {
      run_stages(segment);
    }
  }
  step_ = nullptr;
  Logits out{logits_, num_rows_, graph_->geometry().vocab_size};
  if (logits_->size() > kKeptLogitsBytes) logits_.reset();
  return out;
}

void Executor::reserve_for(const Step& step) {
  try {
    make_logits(static_cast<int64_t>(step.logit_rows.size()));
  } catch (const std::bad_alloc&) {
    throw StepMemoryError(
        "there is no memory for the logits; ask for the logits of fewer rows at once");
  }
  try {
    head_rows_.begin(step);
  } catch (const std::bad_alloc&) {
    throw StepMemoryError("there is no memory for the wanted tokens; want fewer of them");
  }
  attention_.begin(step);
  try {
    for (const Stage& stage : plan_.stages()) {
      if (const auto* op = std::get_if<AttentionOp>(stage.op)) attention_.make_plan(op->window);
    }
  } catch (const std::bad_alloc&) {
    throw StepMemoryError(
        "there is no memory for the partial results of attention; run fewer rows in one step");
  }
}

void Executor::begin_step(const Step& step) {
  const Stopwatch watch;
  reserve_for(step);
  step_ = &step;
  num_rows_ = num_whole_rows_ = step.num_rows();
  constexpr int64_t kRowsPerChunk = 8;
  const int64_t chunks = chunks_of(num_rows_, kRowsPerChunk);
  for (size_t rope = 0; rope < rope_tables_.size(); ++rope) {
    pool_.run(chunks, [&](int64_t chunk, int) {
      const int64_t begin = chunk * kRowsPerChunk;
      fill_rope(rope, {begin, std::min(begin + kRowsPerChunk, num_rows_)});
    });
  }
  if (profile_) profile_->add_step(watch.seconds());
}

// Angles in double: at position 100,000 a float angle would be off by 0.004.
void Executor::fill_rope(size_t index, Range rows) {
  const Rope& rope = graph_->ropes()[index];
  const size_t pairs = rope.inv_freq.size(), width = rope.is_interleaved ? 2 * pairs : pairs;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    float* cos = rope_tables_[index].as<float>() + static_cast<size_t>(row) * 4 * pairs;
    float* sin = cos + width;
    const double position = step_->positions[static_cast<size_t>(row)];
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = position * rope.inv_freq[i];
      const auto c = static_cast<float>(std::cos(angle) * rope.attention_factor);
      const auto s = static_cast<float>(std::sin(angle) * rope.attention_factor);
      if (rope.is_interleaved) {
        cos[2 * i] = cos[2 * i + 1] = c;
        sin[2 * i] = -s;
        sin[2 * i + 1] = s;
      } else {
        cos[i] = c;
        sin[i] = s;
      }
    }
  }
}

MemoryUse memory_needed(const Graph& graph, const ExecutorOptions& options) {
  const Geometry& g = graph.geometry();
  MemoryUse use{0, 0, 0};
  use.weights = packed_bytes(graph, options.weights);
  for (const Weight& weight : graph.weights()) {
    if (!weight.is_matrix) use.weights += padded_to_lanes(weight.raw.num_columns) * 4;
  }
  use.kv_pool = kv_pool_bytes(g, options.num_slots, options.kv_format);
  int64_t row_bytes = 0;
  if (options.weights != WeightChoice::F32) {
    const int64_t quantized = padded_to_step(graph.widest_input()) * 2 + 4;
    use.scratch = checked_product({prepared_rows_needed(options.max_rows), quantized}) +
                  checked_product({options.num_threads, tile_buffer_bytes(graph)});
  }
  for (const int64_t width : graph.buffer_widths()) row_bytes += padded_to_lanes(width) * 4;
  for (const Rope& rope : graph.ropes()) {
    row_bytes += 16 * static_cast<int64_t>(rope.inv_freq.size());
  }
  use.scratch +=
      checked_product({options.max_rows, row_bytes}) +
      AttentionSchedule::num_bytes(g.head_dim, g.num_heads / g.num_kv_heads, options.num_threads);
  return use;
}

MemoryUse Executor::memory_use() const {
  MemoryUse use = memory_needed(*graph_, options_);
  use.scratch += attention_.shared_bytes() + head_rows_.num_bytes();
  if (logits_) use.scratch += static_cast<int64_t>(logits_->size());
  return use;
}

}  // namespace espalier
