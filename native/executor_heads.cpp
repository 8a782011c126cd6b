// What Executor does to the heads of a row before attention.
#include "executor.h"

namespace espalier {

int64_t Executor::elements_of(const HeadsOp& op) const {
  int64_t elements = 0;
  for (const HeadStep& step : op.steps) {
    if (const HeadNormOp* norm = std::get_if<HeadNormOp>(&step)) {
      elements += width_of(norm->x);
    } else if (const RopeOp* rope = std::get_if<RopeOp>(&step)) {
      elements += width_of(rope->x);
    } else {
      elements += 2 * width_of(std::get<KvWriteOp>(step).k);
    }
  }
  return elements;
}

void Executor::compute(const HeadsOp& op, const Stage&, const RowChunk& chunk) const {
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) {
    for (const HeadStep& step : op.steps) {
      std::visit([&](const auto& one) { apply_to_row(one, row, chunk); }, step);
    }
  }
}

void Executor::apply_to_row(const HeadNormOp& op, int64_t row, const RowChunk& chunk) const {
  const RowsOut x = rows_out(op.x, chunk);
  const int64_t width = width_of(op.x);
  for (int64_t i = 0; i < width; i += op.head_dim) {
    float* head = x.data + row * x.stride + i;
    kernels_.rms_norm(head, vector_of(op.weight), head, op.head_dim, op.eps);
  }
}

void Executor::apply_to_row(const RopeOp& op, int64_t row, const RowChunk& chunk) const {
  const auto index = static_cast<size_t>(op.rope);
  const Rope& rope = graph_->ropes()[index];
  const int64_t pairs = static_cast<int64_t>(rope.inv_freq.size()), width = width_of(op.x);
  const RowsOut x = rows_out(op.x, chunk);
  const float* cos = rope_tables_[index].as<float>() + row * 4 * pairs;
  for (int64_t i = 0; i < width; i += op.head_dim) {
    float* head = x.data + row * x.stride + i;
    if (rope.is_interleaved) {
      kernels_.rope_interleaved(head, cos, cos + 2 * pairs, 2 * pairs);
    } else {
      kernels_.rope_half(head, cos, cos + pairs, pairs);
    }
  }
}

void Executor::apply_to_row(const KvWriteOp& op, int64_t row, const RowChunk& chunk) const {
  const Geometry& g = graph_->geometry();
  const KvPool& pool = kv_pools_[static_cast<size_t>(op.layer)];
  const Rows keys = rows_of(op.k, chunk), values = rows_of(op.v, chunk);
  const int64_t slot = row_slots_[static_cast<size_t>(row)];
  for (int64_t head = 0; head < g.num_kv_heads; ++head) {
    const float* key = keys.data + row * keys.stride + head * g.head_dim;
    const float* value = values.data + row * values.stride + head * g.head_dim;
    kernels_.write_kv(options_.kv_format, key, value, g.head_dim, pool.slot(head, slot));
  }
}

}  // namespace espalier
