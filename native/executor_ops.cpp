// What Executor does for each operation of a graph.
#include <algorithm>
#include <cstring>

#include "executor.h"

namespace espalier {
namespace {

constexpr int64_t kElementsPerChunk = 8192;       // less is not worth waking another thread
constexpr int64_t kRowsPerBlock = 192;            // rows whose quantised inputs stay in the cache
constexpr int64_t kInt8Tiles = 2, kF32Tiles = 8;  // tiles that a kernel takes at once, at most
constexpr int64_t kMostTilesPerChunk = 64;

int64_t chunks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

}  // namespace

template <typename Function>
void Executor::each_row(int64_t num_rows, int64_t elements_per_row, Function function) {
  const int64_t rows_per_chunk = std::max<int64_t>(1, kElementsPerChunk / elements_per_row);
  pool_.run(chunks_of(num_rows, rows_per_chunk), [&](int64_t chunk, int) {
    const int64_t end = std::min(num_rows, (chunk + 1) * rows_per_chunk);
    for (int64_t row = chunk * rows_per_chunk; row < end; ++row) function(row);
  });
}

Rows Executor::rows_of(int buffer) const {
  return {buffers_[static_cast<size_t>(buffer)].as<float>(), padded_to_lanes(width_of(buffer))};
}

RowsOut Executor::rows_out(int buffer) const {
  return {buffers_[static_cast<size_t>(buffer)].as<float>(), padded_to_lanes(width_of(buffer))};
}

const float* Executor::vector_of(int weight) const {
  return vectors_[static_cast<size_t>(weight)].as<float>();
}

const PackedMatrix& Executor::matrix_of(int weight) const {
  return *matrices_[static_cast<size_t>(weight)];
}

KvPool Executor::pool_of(int64_t layer) const {
  const Geometry& g = graph_->geometry();
  const int64_t layer_bytes = static_cast<int64_t>(kv_pool_.size()) / g.num_layers;
  return KvPool(kv_pool_.as<uint8_t>() + layer * layer_bytes, g, options_.num_slots,
                options_.kv_format);
}

void Executor::apply(const EmbedOp& op) {
  const RawTensor& table = graph_->weights()[static_cast<size_t>(op.table)].raw;
  const RowsOut out = rows_out(op.out);
  each_row(num_rows_, table.num_columns, [&](int64_t row) {
    float* x = out.data + row * out.stride;
    table.unpack_row(step_->token_ids[static_cast<size_t>(row)], x);
    if (op.scale != 1.0f) kernels_.scale(x, table.num_columns, op.scale);
  });
}

void Executor::apply(const RmsNormOp& op) {
  const Rows x = rows_of(op.x);
  const RowsOut out = rows_out(op.out);
  const int64_t width = width_of(op.x);
  each_row(num_rows_, width, [&](int64_t row) {
    kernels_.rms_norm(x.data + row * x.stride, vector_of(op.weight), out.data + row * out.stride,
                      width, op.eps);
  });
}

void Executor::apply(const HeadNormOp& op) {
  const RowsOut x = rows_out(op.x);
  const int64_t width = width_of(op.x);
  each_row(num_rows_, width, [&](int64_t row) {
    for (int64_t i = 0; i < width; i += op.head_dim) {
      float* head = x.data + row * x.stride + i;
      kernels_.rms_norm(head, vector_of(op.weight), head, op.head_dim, op.eps);
    }
  });
}

void Executor::apply(const LinearOp& op) {
  products_.clear();
  int64_t first_tile = 0;
  for (const LinearOp::Part& part : op.parts) {
    const PackedMatrix& matrix = matrix_of(part.weight);
    const float* bias = part.bias ? vector_of(*part.bias) : nullptr;
    const Range tiles{first_tile, first_tile + matrix.num_tiles()};
    products_.push_back({&matrix, bias, rows_out(part.out), tiles});
    first_tile = tiles.end;
  }
  multiply(op.x, 0.0f);
}

void Executor::apply(const LmHeadOp& op) {
  const int64_t vocab_size = graph_->geometry().vocab_size;
  const PackedMatrix& matrix = matrix_of(op.weight);
  const RowsOut out{logits_of(num_rows_), vocab_size};
  products_.assign({{&matrix, nullptr, out, {0, matrix.num_tiles()}}});
  multiply(op.x, op.soft_cap);
}

float* Executor::logits_of(int64_t num_rows) {
  const int64_t bytes = checked_product(
      {std::max<int64_t>(num_rows, 1), graph_->geometry().vocab_size, sizeof(float)});
  if (!logits_ || logits_->size() < static_cast<size_t>(bytes)) {
    logits_.reset();
    logits_ = std::make_shared<Memory>(static_cast<size_t>(bytes));
  }
  return logits_->as<float>();
}

void Executor::quantize_rows(int x) {
  const Rows rows = rows_of(x);
  const int64_t width = width_of(x);
  each_row(num_rows_, width, [&](int64_t row) {
    kernels_.quantize(rows.data + row * rows.stride, width,
                      quantized_.as<int32_t>() + row * quantized_stride_,
                      row_scales_.as<float>() + row);
  });
}

void Executor::multiply(int x, float soft_cap) {
  if (num_rows_ == 0) return;
  if (options_.weights == WeightFormat::Int8) quantize_rows(x);
  const int64_t num_tiles = products_.back().tiles.end;
  const int64_t row_blocks = chunks_of(num_rows_, kRowsPerBlock);
  int64_t tiles_per_chunk = num_tiles * row_blocks / (6 * pool_.num_threads());
  tiles_per_chunk = std::clamp<int64_t>(tiles_per_chunk, 1, kMostTilesPerChunk);
  const int64_t at_once = options_.weights == WeightFormat::Int8 ? kInt8Tiles : kF32Tiles;
  tiles_per_chunk = chunks_of(tiles_per_chunk, at_once) * at_once;
  const int64_t tile_chunks = chunks_of(num_tiles, tiles_per_chunk);
  pool_.run(row_blocks * tile_chunks, [&](int64_t chunk, int) {
    const int64_t row = chunk / tile_chunks * kRowsPerBlock;
    const int64_t tile = chunk % tile_chunks * tiles_per_chunk;
    const Range rows{row, std::min(row + kRowsPerBlock, num_rows_)};
    for (const Product& product : products_) {
      const Range tiles{std::max(tile, product.tiles.begin) - product.tiles.begin,
                        std::min(tile + tiles_per_chunk, product.tiles.end) - product.tiles.begin};
      if (tiles.begin >= tiles.end) continue;
      multiply_tiles(product, x, rows, tiles);
      if (soft_cap == 0.0f) continue;
      const int64_t first = tiles.begin * kLanes;
      const int64_t last = std::min(tiles.end * kLanes, graph_->geometry().vocab_size);
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        kernels_.soft_cap(product.out.data + i * product.out.stride + first, last - first,
                          soft_cap);
      }
    }
  });
}

void Executor::multiply_tiles(const Product& product, int x, Range rows, Range tiles) const {
  if (options_.weights == WeightFormat::Int8) {
    const QuantizedRows inputs{quantized_.as<int32_t>(), row_scales_.as<float>(),
                               quantized_stride_};
    kernels_.linear_int8(product.matrix->int8(product.bias), inputs, product.out, rows, tiles);
  } else {
    kernels_.linear_f32(product.matrix->f32(product.bias), rows_of(x), product.out, rows, tiles);
  }
}

void Executor::apply(const RopeOp& op) {
  const auto index = static_cast<size_t>(op.rope);
  const Rope& rope = graph_->ropes()[index];
  const int64_t pairs = static_cast<int64_t>(rope.inv_freq.size()), width = width_of(op.x);
  const RowsOut x = rows_out(op.x);
  each_row(num_rows_, width, [&](int64_t row) {
    const float* cos = rope_tables_[index].as<float>() + row * 4 * pairs;
    for (int64_t i = 0; i < width; i += op.head_dim) {
      float* head = x.data + row * x.stride + i;
      if (rope.is_interleaved) {
        kernels_.rope_interleaved(head, cos, cos + 2 * pairs, 2 * pairs);
      } else {
        kernels_.rope_half(head, cos, cos + pairs, pairs);
      }
    }
  });
}

void Executor::apply(const KvWriteOp& op) {
  const Geometry& g = graph_->geometry();
  const KvPool pool = pool_of(op.layer);
  const Rows keys = rows_of(op.k), values = rows_of(op.v);
  each_row(num_rows_, 2 * width_of(op.k), [&](int64_t row) {
    const int64_t slot = row_slots_[static_cast<size_t>(row)];
    for (int64_t head = 0; head < g.num_kv_heads; ++head) {
      const float* key = keys.data + row * keys.stride + head * g.head_dim;
      const float* value = values.data + row * values.stride + head * g.head_dim;
      kernels_.write_kv(options_.kv_format, key, value, g.head_dim, pool.slot(head, slot));
    }
  });
}

void Executor::apply(const AttentionOp& op) {
  const Geometry& g = graph_->geometry();
  const KvPool pool = pool_of(op.layer);
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
  attention_.run(kernels_, shape, rows_of(op.q), rows_out(op.out), pool_);
}

void Executor::apply(const GateOp& op) {
  const Rows gate = rows_of(op.gate), up = rows_of(op.up);
  const RowsOut out = rows_out(op.out);
  const int64_t width = width_of(op.out);
  const auto kernel = op.activation == Activation::Silu ? kernels_.silu_gate : kernels_.gelu_gate;
  each_row(num_rows_, 4 * width, [&](int64_t row) {
    kernel(gate.data + row * gate.stride, up.data + row * up.stride, out.data + row * out.stride,
           width);
  });
}

void Executor::apply(const AddOp& op) {
  const Rows x = rows_of(op.x), y = rows_of(op.y);
  const RowsOut out = rows_out(op.out);
  const int64_t width = width_of(op.out);
  each_row(num_rows_, width, [&](int64_t row) {
    kernels_.add(x.data + row * x.stride, y.data + row * y.stride, out.data + row * out.stride,
                 width);
  });
}

void Executor::apply(const SelectOp& op) {
  const Rows x = rows_of(op.x);
  const RowsOut out = rows_out(op.out);
  const size_t bytes = static_cast<size_t>(width_of(op.x)) * sizeof(float);
  num_rows_ = static_cast<int64_t>(step_->logit_rows.size());
  for (int64_t row = 0; row < num_rows_; ++row) {
    const int64_t from = step_->logit_rows[static_cast<size_t>(row)];
    std::memcpy(out.data + row * out.stride, x.data + from * x.stride, bytes);
  }
}

}  // namespace espalier
