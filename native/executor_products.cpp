// Products of rows with packed weights, and what is done to their inputs before.
#include <algorithm>

#include "executor.h"

namespace espalier {
namespace {

constexpr int64_t kRowsPerBlock = 192;  // rows whose inputs stay in the cache
constexpr int64_t kRowsForTiles = 256;  // the same where AMX takes 16 of them at a time
constexpr int64_t kTilesAtOnce = 8;     // that a float kernel takes at once, at most
constexpr int64_t kMostTilesPerChunk = 64;
constexpr int64_t kLeastWantedBlocks = 8;  // fewer are not worth waking another thread

}  // namespace

const PackedMatrix& Executor::matrix_of(int weight) const {
  return *matrices_[static_cast<size_t>(weight)];
}

void Executor::apply(const LinearOp& op, const Stage& stage) {
  prepare_input(stage, op.x);
  multiply(stage, op.x, {0, num_whole_rows_}, 0.0f);
  multiply(stage, op.x, {num_whole_rows_, num_rows_}, 0.0f);
}

void Executor::apply(const LmHeadOp& op, const Stage& stage) {
  prepare_input(stage, op.x);
  multiply(stage, op.x, {0, num_whole_rows_}, op.soft_cap);
  multiply_wanted(stage, op.x, op.soft_cap);
}

void Executor::compute(const LinearOp& op, const Stage& stage, const RowChunk& chunk) const {
  if (stage.prepares_input) prepare_rows(op.x, chunk);
  for (const StageProduct& product : stage.products) {
    const int64_t num_tiles = product.tiles.end - product.tiles.begin;
    // The float kernel takes all tiles for a few rows at a time: these stay in the cache.
    const bool is_f32 = matrix_of(product.weight).format() == WeightFormat::F32;
    const int64_t at_once = is_f32 ? kTilesAtOnce : num_tiles;
    for (int64_t tile = 0; tile < num_tiles; tile += at_once) {
      const Range tiles{tile, std::min(tile + at_once, num_tiles)};
      multiply_tiles(product, op.x, tiles, 0.0f, chunk);
    }
  }
}

void Executor::make_logits(int64_t num_rows) {
  const int64_t bytes = checked_product(
      {std::max<int64_t>(num_rows, 1), graph_->geometry().vocab_size, sizeof(float)});
  if (!logits_ || logits_->size() < static_cast<size_t>(bytes)) {
    logits_.reset();
    logits_ = std::make_shared<Memory>(static_cast<size_t>(bytes));
  }
}

RowsOut Executor::logit_rows() const {
  const int32_t* places = head_rows_.is_in_order() ? nullptr : head_rows_.order().data();
  return {logits_->as<float>(), graph_->geometry().vocab_size, places};
}

// Both forms take 2 bytes for an input. Threads may be at products of different widths, so that
// each has room for the widest.
uint16_t* Executor::prepared_rows(int x, const RowChunk& chunk) const {
  auto* rows = quantized_.as<uint16_t>();
  if (chunk.is_local == nullptr) return rows;
  const int64_t first = chunk.rows.begin, width = padded_to_step(width_of(x));
  return rows + (first - chunk.moved) * widest_input_ - first * width;
}

bool Executor::is_paired(int64_t row) const {
  return row >= num_whole_rows_ || num_whole_rows_ <= kernels_.most_paired_rows;
}

// Rows with a part of the head lie behind the last block of the others.
QuantizedRows Executor::quantized_rows(int x, int64_t row, const RowChunk& chunk) const {
  const int64_t width = padded_to_step(width_of(x));
  uint16_t* rows = prepared_rows(x, chunk);
  float* scales = row_scales_.as<float>() - chunk.moved;
  if (row >= num_whole_rows_) {
    const int64_t unused = padded_to_lanes(num_whole_rows_) - num_whole_rows_;
    rows += unused * width;
    scales += unused;
  }
  return {reinterpret_cast<uint8_t*>(rows), scales, width / kStep, is_paired(row)};
}

Bf16Rows Executor::rounded_rows(int x, const RowChunk& chunk) const {
  return {prepared_rows(x, chunk), padded_to_step(width_of(x))};
}

void Executor::prepare_row(int x, int64_t row, const RowChunk& chunk) const {
  const Rows rows = rows_of(x, chunk);
  const float* values = rows.data + row * rows.stride;
  if (options_.weights == WeightChoice::Bf16) {
    const int64_t width = padded_to_step(width_of(x));
    kernels_.round_bf16(values, width_of(x), prepared_rows(x, chunk) + row * width);
  } else {
    kernels_.quantize(values, width_of(x), quantized_rows(x, row, chunk), row);
  }
}

void Executor::prepare_rows(int x, const RowChunk& chunk) const {
  for (int64_t row = chunk.rows.begin; row < chunk.rows.end; ++row) prepare_row(x, row, chunk);
}

// Few rows: threads share the weights, which are what must be read. Many rows in AMX tiles: they
// share the rows, so that each chunk reads its inputs once for as many weights as there are.
Executor::ProductCut Executor::product_cut(int64_t num_tiles, Range range) const {
  const int64_t num_rows = range.end - range.begin;
  const int64_t threads = pool_.num_threads();
  const bool is_f32 = options_.weights == WeightChoice::F32;
  const bool has_tiles = !is_f32 && !is_paired(range.begin);
  if (has_tiles && num_rows >= kRowsForTiles) {
    const int64_t most = std::clamp(num_rows / threads, kRowsForTiles, 2 * kRowsForTiles);
    const int64_t rows = chunks_of(num_rows, chunks_of(num_rows, most));
    const int64_t row_chunks = chunks_of(num_rows, rows);
    return {padded_to_lanes(rows), chunks_of(num_tiles, chunks_of(4 * threads, row_chunks))};
  }
  const int64_t rows = has_tiles ? kRowsForTiles : kRowsPerBlock;
  int64_t tiles = num_tiles * chunks_of(num_rows, rows) / (6 * threads);
  tiles = std::clamp<int64_t>(tiles, 1, kMostTilesPerChunk);
  return {rows, is_f32 ? chunks_of(tiles, kTilesAtOnce) * kTilesAtOnce : tiles};
}

void Executor::prepare_input(const Stage& stage, int x) {
  if (!stage.prepares_input || num_rows_ == 0) return;
  each_chunk(width_of(x), [&](const RowChunk& chunk) { prepare_rows(x, chunk); });
}

void Executor::multiply(const Stage& stage, int x, Range rows, float soft_cap) {
  if (rows.begin == rows.end) return;
  const int64_t num_tiles = stage.num_tiles();
  const ProductCut cut = product_cut(num_tiles, rows);
  const int64_t row_chunks = chunks_of(rows.end - rows.begin, cut.rows);
  const int64_t tile_chunks = chunks_of(num_tiles, cut.tiles);
  pool_.run(row_chunks * tile_chunks, [&](int64_t index, int thread) {
    const int64_t row = rows.begin + index / tile_chunks * cut.rows;
    const int64_t tile = index % tile_chunks * cut.tiles;
    const RowChunk chunk{{row, std::min(row + cut.rows, rows.end)}, thread};
    for (const StageProduct& product : stage.products) {
      const Range tiles{std::max(tile, product.tiles.begin) - product.tiles.begin,
                        std::min(tile + cut.tiles, product.tiles.end) - product.tiles.begin};
      if (tiles.begin < tiles.end) multiply_tiles(product, x, tiles, soft_cap, chunk);
    }
  });
}

void Executor::multiply_wanted(const Stage& stage, int x, float soft_cap) {
  const std::vector<HeadBlock>& blocks = head_rows_.blocks();
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t at_once = std::max(kLeastWantedBlocks, chunks_of(count, 4 * pool_.num_threads()));
  pool_.run(chunks_of(count, at_once), [&](int64_t index, int thread) {
    const int64_t end = std::min((index + 1) * at_once, count);
    for (int64_t i = index * at_once; i < end; ++i) {
      const HeadBlock& block = blocks[static_cast<size_t>(i)];
      multiply_tiles(stage.products.front(), x, block.tiles, soft_cap, {block.rows, thread});
    }
  });
}

void Executor::multiply_tiles(const StageProduct& product, int x, Range tiles, float soft_cap,
                              const RowChunk& chunk) const {
  const PackedMatrix& matrix = matrix_of(product.weight);
  const float* bias = product.bias ? vector_of(*product.bias) : nullptr;
  const RowsOut out = product.out ? rows_out(*product.out, chunk) : logit_rows();
  const Range rows = chunk.rows;
  switch (matrix.format()) {
    case WeightFormat::F32:
      kernels_.linear_f32(matrix.f32(bias), rows_of(x, chunk), out, rows, tiles);
      break;
    case WeightFormat::Bf16:
      kernels_.linear_bf16(matrix.bf16(bias), rounded_rows(x, chunk), out, rows, tiles);
      break;
    case WeightFormat::Int8:
      kernels_.linear_int8(matrix.int8(bias), quantized_rows(x, rows.begin, chunk), out, rows,
                           tiles);
      break;
    case WeightFormat::Int4:
      kernels_.linear_int4(matrix.int4(bias), quantized_rows(x, rows.begin, chunk), out, rows,
                           tiles, tile_buffers_.as<int8_t>() + chunk.thread * tile_buffer_bytes_);
      break;
  }
  if (soft_cap == 0.0f) return;
  const int64_t first = tiles.begin * kLanes;
  const int64_t last = std::min(tiles.end * kLanes, graph_->geometry().vocab_size);
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    kernels_.soft_cap(place_of(out, row) + first, last - first, soft_cap);
  }
}

}  // namespace espalier
