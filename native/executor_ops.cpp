// What Executor does for each operation of a graph.
#include <algorithm>
#include <cstring>

#include "executor.h"

namespace espalier {
namespace {

constexpr int64_t kElementsPerChunk = 8192;  // less is not worth waking another thread
constexpr int64_t kRowsPerBlock = 192;       // rows whose inputs stay in the cache
constexpr int64_t kTileRows = 256;           // the same where AMX takes 16 of them at a time
constexpr int64_t kTilesAtOnce = 8;          // that a float kernel takes at once, at most
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
  const bool is_quantized = is_multiplied_next(op.out);
  each_row(num_rows_, width_of(op.x), [&](int64_t row) {
    norm_row(op, row);
    if (is_quantized) quantize_row(op.out, row);
  });
  is_quantized_ = is_quantized;
}

void Executor::norm_row(const RmsNormOp& op, int64_t row) {
  const Rows x = rows_of(op.x);
  const RowsOut out = rows_out(op.out);
  kernels_.rms_norm(x.data + row * x.stride, vector_of(op.weight), out.data + row * out.stride,
                    width_of(op.x), op.eps);
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

QuantizedRows Executor::quantized_rows(int x) const {
  return {quantized_.as<uint8_t>(), row_scales_.as<float>(), padded_to_step(width_of(x)) / kStep,
          num_rows_ <= kernels_.most_paired_rows};
}

Bf16Rows Executor::rounded_rows(int x) const {
  return {quantized_.as<uint16_t>(), padded_to_step(width_of(x))};
}

void Executor::quantize_row(int x, int64_t row) {
  const Rows rows = rows_of(x);
  const float* values = rows.data + row * rows.stride;
  if (options_.weights == WeightChoice::Bf16) {
    const int64_t stride = rounded_rows(x).stride;
    kernels_.round_bf16(values, width_of(x), quantized_.as<uint16_t>() + row * stride);
  } else {
    kernels_.quantize(values, width_of(x), quantized_rows(x), row);
  }
}

bool Executor::is_multiplied_next(int x, size_t distance) const {
  const size_t index = op_index_ + distance;
  if (index >= graph_->ops().size()) return false;
  const auto is_prepared_for = [this](int weight) {
    return prepares_inputs(matrix_of(weight).format());
  };
  const Op& next = graph_->ops()[index];
  if (const auto* head = std::get_if<LmHeadOp>(&next)) {
    return head->x == x && is_prepared_for(head->weight);
  }
  const auto* linear = std::get_if<LinearOp>(&next);
  if (linear == nullptr || linear->x != x) return false;
  return std::any_of(linear->parts.begin(), linear->parts.end(),
                     [&](const LinearOp::Part& part) { return is_prepared_for(part.weight); });
}

// Few rows: threads share the weights, which are what must be read. Many rows in AMX tiles: they
// share the rows, so that each chunk reads its inputs once for as many weights as there are.
Executor::ProductCut Executor::product_cut(int64_t num_tiles) const {
  const int64_t threads = pool_.num_threads();
  const bool is_f32 = options_.weights == WeightChoice::F32;
  const bool has_tiles = !is_f32 && num_rows_ > kernels_.most_paired_rows;
  if (has_tiles && num_rows_ >= kTileRows) {
    const int64_t most = std::clamp(num_rows_ / threads, kTileRows, 2 * kTileRows);
    const int64_t rows = chunks_of(num_rows_, chunks_of(num_rows_, most));
    const int64_t row_chunks = chunks_of(num_rows_, rows);
    return {padded_to_lanes(rows), chunks_of(num_tiles, chunks_of(4 * threads, row_chunks))};
  }
  const int64_t rows = has_tiles ? kTileRows : kRowsPerBlock;
  int64_t tiles = num_tiles * chunks_of(num_rows_, rows) / (6 * threads);
  tiles = std::clamp<int64_t>(tiles, 1, kMostTilesPerChunk);
  return {rows, is_f32 ? chunks_of(tiles, kTilesAtOnce) * kTilesAtOnce : tiles};
}

void Executor::multiply(int x, float soft_cap) {
  if (num_rows_ == 0) return;
  if (!is_quantized_ && is_multiplied_next(x, 0)) {
    each_row(num_rows_, width_of(x), [&](int64_t row) { quantize_row(x, row); });
  }
  is_quantized_ = false;
  const int64_t num_tiles = products_.back().tiles.end;
  const ProductCut cut = product_cut(num_tiles);
  const int64_t row_chunks = chunks_of(num_rows_, cut.rows);
  const int64_t tile_chunks = chunks_of(num_tiles, cut.tiles);
  pool_.run(row_chunks * tile_chunks, [&](int64_t chunk, int thread) {
    const int64_t row = chunk / tile_chunks * cut.rows;
    const int64_t tile = chunk % tile_chunks * cut.tiles;
    const Range rows{row, std::min(row + cut.rows, num_rows_)};
    for (const Product& product : products_) {
      const Range tiles{std::max(tile, product.tiles.begin) - product.tiles.begin,
                        std::min(tile + cut.tiles, product.tiles.end) - product.tiles.begin};
      if (tiles.begin >= tiles.end) continue;
      multiply_tiles(product, x, rows, tiles, thread);
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

void Executor::multiply_tiles(const Product& product, int x, Range rows, Range tiles,
                              int thread) const {
  const PackedMatrix& matrix = *product.matrix;
  switch (matrix.format()) {
    case WeightFormat::F32:
      return kernels_.linear_f32(matrix.f32(product.bias), rows_of(x), product.out, rows, tiles);
    case WeightFormat::Bf16:
      return kernels_.linear_bf16(matrix.bf16(product.bias), rounded_rows(x), product.out, rows,
                                  tiles);
    case WeightFormat::Int8:
      return kernels_.linear_int8(matrix.int8(product.bias), quantized_rows(x), product.out, rows,
                                  tiles);
    case WeightFormat::Int4:
      return kernels_.linear_int4(matrix.int4(product.bias), quantized_rows(x), product.out, rows,
                                  tiles, tile_buffers_.as<int8_t>() + thread * tile_buffer_bytes_);
  }
}

void Executor::apply(const HeadsOp& op) {
  int64_t elements = 0;
  for (const HeadStep& step : op.steps) elements += elements_of(step);
  each_row(num_rows_, elements, [&](int64_t row) {
    for (const HeadStep& step : op.steps) {
      std::visit([&](const auto& one) { apply_to_row(one, row); }, step);
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
  const bool is_quantized = is_multiplied_next(op.out);
  each_row(num_rows_, 4 * width, [&](int64_t row) {
    kernel(gate.data + row * gate.stride, up.data + row * up.stride, out.data + row * out.stride,
           width);
    if (is_quantized) quantize_row(op.out, row);
  });
  is_quantized_ = is_quantized;
}

// A norm of the sum that comes next is taken while the row is at hand.
void Executor::apply(const AddOp& op) {
  const Rows x = rows_of(op.x), y = rows_of(op.y);
  const RowsOut out = rows_out(op.out);
  const int64_t width = width_of(op.out);
  const RmsNormOp* norm = nullptr;
  if (op_index_ + 1 < graph_->ops().size()) {
    norm = std::get_if<RmsNormOp>(&graph_->ops()[op_index_ + 1]);
  }
  if (norm != nullptr && norm->x != op.out) norm = nullptr;
  const bool is_quantized = norm != nullptr && is_multiplied_next(norm->out, 2);
  each_row(num_rows_, 2 * width, [&](int64_t row) {
    kernels_.add(x.data + row * x.stride, y.data + row * y.stride, out.data + row * out.stride,
                 width);
    if (norm != nullptr) norm_row(*norm, row);
    if (is_quantized) quantize_row(norm->out, row);
  });
  is_quantized_ = is_quantized;
  if (norm != nullptr) ++op_index_;
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
