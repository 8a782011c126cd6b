#include "graph.h"

#include <cmath>
#include <stdexcept>
#include <utility>

#include "memory.h"

namespace espalier {
namespace {

[[noreturn]] void fail(const std::string& message) { throw std::invalid_argument(message); }

void require(bool is_right, const std::string& message) {
  if (!is_right) fail(message);
}

// The scores of smaller ones would all be equal, and their slack infinite.
constexpr float kLeastScale = 1e-30f;

std::string shape_of(const Weight& weight) {
  std::string shape = "[";
  if (weight.is_matrix) shape += std::to_string(weight.raw.num_rows) + ", ";
  return shape + std::to_string(weight.raw.num_columns) + "]";
}

}  // namespace

void RawTensor::unpack_row(int64_t row, float* out) const {
  unpack(kind, data + row * row_bytes(), num_columns, out);
  if (offset != 0) {
    for (int64_t i = 0; i < num_columns; ++i) out[i] += offset;
  }
}

Graph::Graph(const Geometry& geometry) : geometry_(geometry) {
  const Geometry& g = geometry;
  require(g.num_layers >= 0 && g.num_layers <= 10000, "a plan has 0 to 10000 layers");
  require(g.num_kv_heads > 0 && g.num_heads > 0 && g.num_heads % g.num_kv_heads == 0,
          std::to_string(g.num_heads) + " heads do not share " + std::to_string(g.num_kv_heads) +
              " key heads evenly");
  require(g.head_dim > 0 && g.vocab_size > 0 && g.max_context > 0,
          "head_dim, vocab_size and max_context must be positive");
  checked_product({g.num_heads, g.head_dim, int64_t{1} << 20});
}

int Graph::add_buffer(int64_t width) {
  require(width > 0 && width <= INT32_MAX, "a buffer is 1 to 2^31 - 1 elements wide");
  widths_.push_back(width);
  is_written_.push_back(false);
  return static_cast<int>(widths_.size()) - 1;
}

int Graph::add_rope(Rope rope) {
  require(!rope.inv_freq.empty(), "a rotary table has at least one frequency");
  ropes_.push_back(std::move(rope));
  return static_cast<int>(ropes_.size()) - 1;
}

int Graph::add_weight(Weight weight, size_t num_bytes) {
  const RawTensor& raw = weight.raw;
  require(raw.num_rows > 0 && raw.num_columns > 0, weight.name + " is empty");
  const int64_t needed = checked_product({raw.num_rows, raw.row_bytes()});
  require(static_cast<size_t>(needed) == num_bytes,
          weight.name + " " + shape_of(weight) + " takes " + std::to_string(needed) +
              " bytes, its tensor has " + std::to_string(num_bytes));
  weights_.push_back(std::move(weight));
  return static_cast<int>(weights_.size()) - 1;
}

int64_t Graph::width_of(int buffer) const {
  require(buffer >= 0 && static_cast<size_t>(buffer) < widths_.size(), "no such buffer");
  return widths_[static_cast<size_t>(buffer)];
}

const Weight& Graph::weight(int index, bool is_matrix) const {
  require(index >= 0 && static_cast<size_t>(index) < weights_.size(), "no such weight");
  const Weight& found = weights_[static_cast<size_t>(index)];
  require(found.is_matrix == is_matrix, found.name + " " + shape_of(found) + " is used as a " +
                                            (is_matrix ? "matrix" : "vector"));
  return found;
}

void Graph::require_width(int buffer, int64_t width) const {
  require(width_of(buffer) == width, "buffer " + std::to_string(buffer) + " is " +
                                         std::to_string(width_of(buffer)) + " wide where " +
                                         std::to_string(width) + " is needed");
}

void Graph::require_vector(int index, int64_t length) const {
  const Weight& found = weight(index, false);
  require(found.raw.num_columns == length, found.name + " " + shape_of(found) + " is used where " +
                                               std::to_string(length) + " elements are needed");
}

void Graph::require_heads(int buffer, int64_t head_dim) const {
  require(head_dim > 0 && width_of(buffer) % head_dim == 0,
          "a buffer of width " + std::to_string(width_of(buffer)) + " has no whole heads of " +
              std::to_string(head_dim));
}

void Graph::require_layer(int64_t layer) const {
  require(layer >= 0 && layer < geometry_.num_layers,
          "layer " + std::to_string(layer) + " of " + std::to_string(geometry_.num_layers));
  require(!is_selected_, "an operation on the KV pool comes after SelectRows");
}

void Graph::read(int buffer) const {
  width_of(buffer);
  require(is_written_[static_cast<size_t>(buffer)],
          "buffer " + std::to_string(buffer) + " is read before it is written" +
              (is_selected_ ? " (after SelectRows, which leaves one buffer only)" : ""));
}

void Graph::append(Op op, std::initializer_list<int> written) {
  require(!has_head_, "an operation comes after LmHead");
  for (const int buffer : written) is_written_[static_cast<size_t>(buffer)] = true;
  ops_.push_back(std::move(op));
}

void Graph::append_head_step(const HeadStep& step) {
  HeadsOp* last = ops_.empty() ? nullptr : std::get_if<HeadsOp>(&ops_.back());
  if (last != nullptr) {
    last->steps.push_back(step);
  } else {
    append(HeadsOp{{step}}, {});
  }
}

void Graph::add(const EmbedOp& op) {
  const Weight& table = weight(op.table, true);
  require_width(op.out, table.raw.num_columns);
  require(table.raw.num_rows == geometry_.vocab_size,
          table.name + " " + shape_of(table) + " does not have one row for each of " +
              std::to_string(geometry_.vocab_size) + " tokens");
  require(!is_selected_, "Embed comes after SelectRows");
  append(op, {op.out});
}

void Graph::add(const RmsNormOp& op) {
  read(op.x);
  require_width(op.out, width_of(op.x));
  require_vector(op.weight, width_of(op.x));
  append(op, {op.out});
}

void Graph::add(const HeadNormOp& op) {
  read(op.x);
  require_heads(op.x, op.head_dim);
  require_vector(op.weight, op.head_dim);
  append_head_step(op);
}

void Graph::add_linear(int x, const LinearOp::Part& part) {
  read(x);
  const Weight& matrix = weight(part.weight, true);
  require_width(x, matrix.raw.num_columns);
  require_width(part.out, matrix.raw.num_rows);
  require(part.out != x, "Linear writes the buffer that it reads");
  if (part.bias) require_vector(*part.bias, matrix.raw.num_rows);
  LinearOp* last = ops_.empty() ? nullptr : std::get_if<LinearOp>(&ops_.back());
  bool joins = last != nullptr && last->x == x;
  for (size_t i = 0; joins && i < last->parts.size(); ++i) joins = last->parts[i].out != part.out;
  if (joins) {
    last->parts.push_back(part);
    is_written_[static_cast<size_t>(part.out)] = true;
  } else {
    append(LinearOp{x, {part}}, {part.out});
  }
}

void Graph::add(const RopeOp& op) {
  read(op.x);
  require_heads(op.x, op.head_dim);
  require(op.rope >= 0 && static_cast<size_t>(op.rope) < ropes_.size(), "no such rotary table");
  const size_t pairs = ropes_[static_cast<size_t>(op.rope)].inv_freq.size();
  require(2 * pairs <= static_cast<size_t>(op.head_dim),
          std::to_string(pairs) + " rotary frequencies are too many for heads of " +
              std::to_string(op.head_dim));
  require(!is_selected_, "ApplyRope comes after SelectRows");
  append_head_step(op);
}

void Graph::add(const KvWriteOp& op) {
  require_layer(op.layer);
  for (const int buffer : {op.k, op.v}) {
    read(buffer);
    require_width(buffer, geometry_.num_kv_heads * geometry_.head_dim);
  }
  append_head_step(op);
}

void Graph::add(const AttentionOp& op) {
  require_layer(op.layer);
  read(op.q);
  require_width(op.q, geometry_.num_heads * geometry_.head_dim);
  require_width(op.out, geometry_.num_heads * geometry_.head_dim);
  require(op.q != op.out, "Attention writes the buffer that it reads");
  require(std::isfinite(op.scale) && std::fabs(op.scale) >= kLeastScale,
          "the scale of scores is finite and at least 1e-30 from 0");
  require(op.window >= 0, "a window is 0 (none) or positive");
  require(op.soft_cap >= 0 && std::isfinite(op.soft_cap), "a soft cap is 0 (none) or positive");
  append(op, {op.out});
}

void Graph::add(const GateOp& op) {
  read(op.gate);
  read(op.up);
  require_width(op.up, width_of(op.gate));
  require_width(op.out, width_of(op.gate));
  append(op, {op.out});
}

void Graph::add(const AddOp& op) {
  read(op.x);
  read(op.y);
  require_width(op.y, width_of(op.x));
  require_width(op.out, width_of(op.x));
  append(op, {op.out});
}

void Graph::add(const SelectOp& op) {
  read(op.x);
  require_width(op.out, width_of(op.x));
  require(op.x != op.out, "SelectRows writes the buffer that it reads");
  require(!is_selected_, "SelectRows comes twice");
  is_selected_ = true;
  is_written_.assign(widths_.size(), false);
  append(op, {op.out});
}

void Graph::add(const LmHeadOp& op) {
  read(op.x);
  const Weight& matrix = weight(op.weight, true);
  require_width(op.x, matrix.raw.num_columns);
  require(matrix.raw.num_rows == geometry_.vocab_size,
          matrix.name + " " + shape_of(matrix) + " does not have one row for each of " +
              std::to_string(geometry_.vocab_size) + " tokens");
  require(op.soft_cap >= 0 && std::isfinite(op.soft_cap), "a soft cap is 0 (none) or positive");
  require(is_selected_, "LmHead comes before SelectRows");
  append(op, {});
  has_head_ = true;
}

void Graph::check_complete() const { require(has_head_, "a plan ends with LmHead"); }

bool Graph::is_multiplied(int weight) const {
  if (is_head(weight)) return true;
  for (const Op& op : ops_) {
    const LinearOp* linear = std::get_if<LinearOp>(&op);
    if (linear == nullptr) continue;
    for (const LinearOp::Part& part : linear->parts) {
      if (part.weight == weight) return true;
    }
  }
  return false;
}

bool Graph::is_head(int weight) const {
  for (const Op& op : ops_) {
    if (const LmHeadOp* head = std::get_if<LmHeadOp>(&op); head && head->weight == weight) {
      return true;
    }
  }
  return false;
}

int64_t Graph::widest_input() const {
  int64_t widest = 1;
  for (const Weight& weight : weights_) {
    if (weight.is_matrix && weight.raw.num_columns > widest) widest = weight.raw.num_columns;
  }
  return widest;
}

}  // namespace espalier
