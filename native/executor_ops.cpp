// What Executor does for each operation of a graph but products.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "executor.h"
#include "stopwatch.h"

namespace espalier {
namespace {

// Rows that go through a segment together: their buffers stay in the L2 cache. With fewer, reading
// and expanding the weights would cost more than it saves.
constexpr int64_t kMostChunkRows = 128, kLeastChunkRows = 64;

}  // namespace

Rows Executor::rows_of(int buffer, const RowChunk& chunk) const {
  const RowsOut rows = rows_out(buffer, chunk);
  return {rows.data, rows.stride};
}

RowsOut Executor::rows_out(int buffer, const RowChunk& chunk) const {
  const auto index = static_cast<size_t>(buffer);
  const int64_t stride = padded_to_lanes(width_of(buffer));
  const bool is_moved = chunk.is_local != nullptr && (*chunk.is_local)[index];
  return {buffers_[index].as<float>() - (is_moved ? chunk.moved * stride : 0), stride};
}

const float* Executor::vector_of(int weight) const {
  return vectors_[static_cast<size_t>(weight)].as<float>();
}

void Executor::run_stages(const Segment& segment) {
  for (size_t i = segment.begin; i < segment.end; ++i) {
    const Stage& stage = plan_.stages()[i];
    const auto run = [&] { std::visit([&](const auto& op) { apply(op, stage); }, *stage.op); };
    if (!profile_) {
      run();
      continue;
    }
    const Stopwatch watch;
    run();
    profile_stage(i, watch.seconds());
  }
}

int64_t Executor::rows_per_chunk() const {
  const int64_t threads = pool_.num_threads();
  if (num_rows_ < threads * kLeastChunkRows) return 0;
  const int64_t per_thread = chunks_of(num_rows_, threads * kMostChunkRows);
  const int64_t chunks = threads * per_thread;
  const int64_t rows = padded_to_lanes(chunks_of(num_rows_, chunks));
  return threads * rows <= options_.max_rows ? rows : 0;
}

void Executor::run_in_chunks(const Segment& segment, int64_t rows_per_chunk) {
  const int64_t num_chunks = chunks_of(num_rows_, rows_per_chunk);
  const auto run = [&](const auto& run_stage) {
    pool_.run(num_chunks, [&](int64_t index, int thread) {
      const int64_t begin = index * rows_per_chunk;
      const RowChunk chunk{{begin, std::min(begin + rows_per_chunk, num_rows_)},
                           thread,
                           begin - thread * rows_per_chunk,
                           &segment.is_local};
      for (size_t i = segment.begin; i < segment.end; ++i) run_stage(i, chunk);
    });
  };
  if (!profile_) {
    run([&](size_t i, const RowChunk& chunk) { compute_stage(plan_.stages()[i], chunk); });
    return;
  }
  // Threads work side by side, and may wait for the last one: stages share all of the time.
  const size_t num_stages = segment.end - segment.begin;
  std::vector<double> seconds(num_stages * static_cast<size_t>(pool_.num_threads()));
  const Stopwatch watch;
  run([&](size_t i, const RowChunk& chunk) {
    const Stopwatch stage_watch;
    compute_stage(plan_.stages()[i], chunk);
    const size_t row = static_cast<size_t>(chunk.thread) * num_stages;
    seconds[row + i - segment.begin] += stage_watch.seconds();
  });
  const double all_s = watch.seconds();
  const double sum_s = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  for (size_t i = 0; i < num_stages; ++i) {
    double stage_s = 0;
    for (size_t at = i; at < seconds.size(); at += num_stages) stage_s += seconds[at];
    profile_stage(segment.begin + i, sum_s > 0 ? all_s * stage_s / sum_s : 0);
  }
}

void Executor::compute_stage(const Stage& stage, const RowChunk& chunk) const {
  std::visit(
      [&](const auto& op) {
        if constexpr (kIsRowByRow<std::decay_t<decltype(op)>>) compute(op, stage, chunk);
      },
      *stage.op);
}

template <typename RowOp>
void Executor::apply(const RowOp& op, const Stage& stage) {
  each_chunk(elements_of(op), [&](const RowChunk& chunk) { compute(op, stage, chunk); });
}

void Executor::compute(const EmbedOp& op, const Stage&, const RowChunk& chunk) const {
  const RawTensor& table = graph_->weights()[static_cast<size_t>(op.table)].raw;
  const RowsOut out = rows_out(op.out, chunk);
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    float* x = out.data + row * out.stride;
    table.unpack_row(step_->token_ids[static_cast<size_t>(row)], x);
    if (op.scale != 1.0f) kernels_.scale(x, table.num_columns, op.scale);
  }
}

void Executor::norm_row(const RmsNormOp& op, int64_t row, const RowChunk& chunk) const {
  const Rows x = rows_of(op.x, chunk);
  const RowsOut out = rows_out(op.out, chunk);
  kernels_.rms_norm(x.data + row * x.stride, vector_of(op.weight), out.data + row * out.stride,
                    width_of(op.x), op.eps);
}

void Executor::compute(const RmsNormOp& op, const Stage& stage, const RowChunk& chunk) const {
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    norm_row(op, row, chunk);
    if (stage.prepared) prepare_row(*stage.prepared, row, chunk);
  }
}

void Executor::compute(const GateOp& op, const Stage& stage, const RowChunk& chunk) const {
  const Rows gate = rows_of(op.gate, chunk), up = rows_of(op.up, chunk);
  const RowsOut out = rows_out(op.out, chunk);
  const auto kernel = op.activation == Activation::Silu ? kernels_.silu_gate : kernels_.gelu_gate;
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    kernel(gate.data + row * gate.stride, up.data + row * up.stride, out.data + row * out.stride,
           width_of(op.out));
    if (stage.prepared) prepare_row(*stage.prepared, row, chunk);
  }
}

void Executor::compute(const AddOp& op, const Stage& stage, const RowChunk& chunk) const {
  const Rows x = rows_of(op.x, chunk), y = rows_of(op.y, chunk);
  const RowsOut out = rows_out(op.out, chunk);
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    kernels_.add(x.data + row * x.stride, y.data + row * y.stride, out.data + row * out.stride,
                 width_of(op.out));
    if (stage.norm != nullptr) norm_row(*stage.norm, row, chunk);
    if (stage.prepared) prepare_row(*stage.prepared, row, chunk);
  }
}

void Executor::apply(const AttentionOp& op, const Stage&) {
  const Geometry& g = graph_->geometry();
  const KvPool& pool = kv_pools_[static_cast<size_t>(op.layer)];
  const AttentionShape shape{
      .head_dim = g.head_dim,
      .num_kv_heads = g.num_kv_heads,
      .heads_per_kv = g.num_heads / g.num_kv_heads,
      .num_slots = options_.num_slots,
      .scale = op.scale,
      .window = op.window,
      .soft_cap = op.soft_cap,
      .format = options_.kv_format,
      .keys = pool.keys,
      .values = pool.values,
      .key_scales = pool.key_scales,
      .value_scales = pool.value_scales,
  };
  attention_.run(kernels_, shape, rows_of(op.q, all_rows()), rows_out(op.out, all_rows()), pool_);
}

void Executor::apply(const SelectOp& op, const Stage&) {
  const Rows x = rows_of(op.x, all_rows());
  const RowsOut out = rows_out(op.out, all_rows());
  const size_t bytes = static_cast<size_t>(width_of(op.x)) * sizeof(float);
  const std::vector<int32_t>& order = head_rows_.order();
  num_rows_ = head_rows_.num_rows();
  num_whole_rows_ = head_rows_.num_whole();
  for (int64_t row = 0; row < num_rows_; ++row) {
    const int64_t from = step_->logit_rows[static_cast<size_t>(order[static_cast<size_t>(row)])];
    std::memcpy(out.data + row * out.stride, x.data + from * x.stride, bytes);
  }
}

}  // namespace espalier
