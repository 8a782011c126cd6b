// A model as operations over row buffers and weights: what src/espalier/exec/plan.py describes,
// with names resolved to indices and every width checked when it is added.
//
// Knows shapes and raw tensors. It holds no memory of its own and computes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "unpack.h"

namespace espalier {

struct Geometry {
  int64_t num_layers, num_heads, num_kv_heads, head_dim, vocab_size, max_context;
};

// A tensor as it lies in the file. `owner` keeps the bytes alive.
struct RawTensor {
  TensorKind kind = TensorKind::F32;
  const uint8_t* data = nullptr;
  int64_t num_rows = 0, num_columns = 0;
  float offset = 0;  // added to every element
  std::shared_ptr<const void> owner;

  int64_t row_bytes() const { return packed_bytes(kind, num_columns); }
  // Unpacks one row, [num_columns].
  void unpack_row(int64_t row, float* out) const;
};

struct Weight {
  std::string name;
  bool is_matrix = false;
  RawTensor raw;  // a vector is a matrix of one row
};

struct Rope {
  std::vector<double> inv_freq;
  bool is_interleaved = false;
  double attention_factor = 1;
};

enum class Activation : int { Silu, GeluTanh };

struct EmbedOp {
  int table, out;
  float scale;
};
struct RmsNormOp {
  int x, weight, out;
  float eps;
};
struct HeadNormOp {
  int x, weight;
  int64_t head_dim;
  float eps;
};
// Products of one input with one or more matrices: neighbours are joined as they are added.
struct LinearOp {
  struct Part {
    int weight, out;
    std::optional<int> bias;
  };
  int x;
  std::vector<Part> parts;
};
struct RopeOp {
  int x;
  int64_t head_dim;
  int rope;
};
struct KvWriteOp {
  int64_t layer;
  int k, v;
};
// What is done to the heads of a row before attention, in order: neighbours are joined as they are
// added, so that each row goes through all of it at once.
using HeadStep = std::variant<HeadNormOp, RopeOp, KvWriteOp>;
struct HeadsOp {
  std::vector<HeadStep> steps;
};
struct AttentionOp {
  int64_t layer;
  int q, out;
  float scale;
  int64_t window;
  float soft_cap;
};
struct GateOp {
  int gate, up, out;
  Activation activation;
};
struct AddOp {
  int x, y, out;
};
struct SelectOp {
  int x, out;
};
struct LmHeadOp {
  int x, weight;
  float soft_cap;
};

using Op = std::variant<EmbedOp, RmsNormOp, LinearOp, HeadsOp, AttentionOp, GateOp, AddOp, SelectOp,
                        LmHeadOp>;

// Every function throws std::invalid_argument where something does not fit, and adds nothing then.
class Graph {
 public:
  explicit Graph(const Geometry& geometry);

  int add_buffer(int64_t width);
  int add_rope(Rope rope);
  int add_weight(Weight weight, size_t num_bytes);

  void add(const EmbedOp& op);
  void add(const RmsNormOp& op);
  void add(const HeadNormOp& op);
  void add_linear(int x, const LinearOp::Part& part);
  void add(const RopeOp& op);
  void add(const KvWriteOp& op);
  void add(const AttentionOp& op);
  void add(const GateOp& op);
  void add(const AddOp& op);
  void add(const SelectOp& op);
  void add(const LmHeadOp& op);

  // Throws unless the operations end with the only LmHead and SelectRows came once before.
  void check_complete() const;

  const Geometry& geometry() const { return geometry_; }
  const std::vector<int64_t>& buffer_widths() const { return widths_; }
  const std::vector<Rope>& ropes() const { return ropes_; }
  const std::vector<Weight>& weights() const { return weights_; }
  const std::vector<Op>& ops() const { return ops_; }

  // How weights are used: packed for products, kept as rows to look up, or unpacked as vectors.
  bool is_multiplied(int weight) const;
  bool is_head(int weight) const;
  int64_t widest_input() const;

 private:
  int64_t width_of(int buffer) const;
  const Weight& weight(int index, bool is_matrix) const;
  void require_width(int buffer, int64_t width) const;
  void require_vector(int weight, int64_t length) const;
  void require_heads(int buffer, int64_t head_dim) const;
  void require_layer(int64_t layer) const;
  void read(int buffer) const;
  void append(Op op, std::initializer_list<int> written);
  void append_head_step(const HeadStep& step);

  Geometry geometry_;
  std::vector<int64_t> widths_;
  std::vector<Rope> ropes_;
  std::vector<Weight> weights_;
  std::vector<Op> ops_;
  std::vector<bool> is_written_;  // per buffer, since the start or since SelectRows
  bool is_selected_ = false, has_head_ = false;
};

}  // namespace espalier
