// What an executor's operations are called and what they cost, for its profile.
#include <algorithm>
#include <vector>

#include "executor.h"

namespace espalier {
namespace {

// "blk.7.attn_q.weight" is "attn_q": the same weight of each layer has one name.
std::string plain_name(std::string name) {
  if (name.ends_with(".weight")) name.resize(name.size() - 7);
  return name.substr(name.rfind('.') + 1);
}

struct OpName {
  const std::vector<Weight>& weights;

  std::string of_weight(int weight) const {
    return plain_name(weights[static_cast<size_t>(weight)].name);
  }
  std::string operator()(const EmbedOp&) const { return "embed"; }
  std::string operator()(const RmsNormOp&) const { return "rms_norm"; }
  std::string operator()(const LinearOp& op) const {
    std::string name = "linear";
    for (const LinearOp::Part& part : op.parts) name.append(1, ' ').append(of_weight(part.weight));
    return name;
  }
  std::string operator()(const HeadsOp& op) const {
    std::string name;
    for (const HeadStep& step : op.steps) {
      const std::string part = std::visit(*this, step);
      if (name.find(part) == std::string::npos) name += (name.empty() ? "" : " ") + part;
    }
    return name;
  }
  std::string operator()(const HeadNormOp&) const { return "head_norm"; }
  std::string operator()(const RopeOp&) const { return "rope"; }
  std::string operator()(const KvWriteOp&) const { return "kv_write"; }
  std::string operator()(const AttentionOp&) const { return "attention"; }
  std::string operator()(const GateOp&) const { return "gate"; }
  std::string operator()(const AddOp&) const { return "add"; }
  std::string operator()(const SelectOp&) const { return "select_rows"; }
  std::string operator()(const LmHeadOp& op) const {
    return std::string("lm_head ").append(of_weight(op.weight));
  }
};

}  // namespace

void Executor::start_profile() {
  std::vector<std::string> names;
  for (const Stage& stage : plan_.stages()) {
    names.push_back(std::visit(OpName{graph_->weights()}, *stage.op));
    if (stage.norm != nullptr) names.back() += " rms_norm";
  }
  profile_ = std::make_unique<StepProfile>(names);
}

std::unique_ptr<StepProfile> Executor::take_profile() { return std::move(profile_); }

void Executor::profile_stage(size_t stage, double seconds) {
  const Op& op = *plan_.stages()[stage].op;
  profile_->add(stage, seconds, std::visit([this](const auto& one) { return cost_of(one); }, op));
}

OpCost Executor::cost_of_product(int weight, int64_t num_rows) const {
  const PackedMatrix& matrix = matrix_of(weight);
  const int64_t out_features = graph_->weights()[static_cast<size_t>(weight)].raw.num_rows;
  return {num_rows > 0 ? matrix.num_bytes() : 0, num_rows * matrix.in_features() * out_features};
}

OpCost Executor::cost_of(const LinearOp& op) const {
  OpCost sum;
  for (const LinearOp::Part& part : op.parts) {
    const OpCost cost = cost_of_product(part.weight, num_rows_);
    sum.bytes += cost.bytes;
    sum.multiply_adds += cost.multiply_adds;
  }
  return sum;
}

// Tiles that several rows want are read once, and not again where all are.
OpCost Executor::cost_of(const LmHeadOp& op) const {
  OpCost cost = cost_of_product(op.weight, num_whole_rows_);
  const PackedMatrix& matrix = matrix_of(op.weight);
  const int64_t vocab_size = graph_->geometry().vocab_size;
  int64_t tiles_to = 0;
  for (const auto& [rows, tiles] : head_rows_.blocks()) {
    const int64_t columns = std::min(tiles.end * kLanes, vocab_size) - tiles.begin * kLanes;
    cost.multiply_adds += (rows.end - rows.begin) * columns * matrix.in_features();
    const int64_t num_new = tiles.end - std::max(tiles.begin, tiles_to);
    tiles_to = tiles.end;
    if (num_whole_rows_ == 0) cost.bytes += num_new * matrix.num_bytes() / matrix.num_tiles();
  }
  return cost;
}

OpCost Executor::cost_of(const EmbedOp& op) const {
  return {num_rows_ * graph_->weights()[static_cast<size_t>(op.table)].raw.row_bytes(), 0};
}

// A slot that several sequences see is read once, at best.
OpCost Executor::cost_of(const AttentionOp& op) const {
  const Geometry& g = graph_->geometry();
  std::vector<bool> is_seen(static_cast<size_t>(options_.num_slots));
  int64_t num_slots = 0, num_pairs = 0;
  for (size_t sequence = 0; sequence + 1 < step_->row_starts.size(); ++sequence) {
    const int32_t* slots = step_->slot_ids.data() + step_->slot_starts[sequence];
    int64_t seen_to = 0;
    for (int32_t row = step_->row_starts[sequence]; row < step_->row_starts[sequence + 1]; ++row) {
      const int64_t end = step_->positions[static_cast<size_t>(row)] + 1;
      const int64_t begin = op.window > 0 ? std::max<int64_t>(0, end - op.window) : 0;
      num_pairs += end - begin;
      for (int64_t i = std::max(begin, seen_to); i < end; ++i) {
        const auto slot = static_cast<size_t>(slots[i]);
        num_slots += is_seen[slot] ? 0 : 1;
        is_seen[slot] = true;
      }
      seen_to = end;
    }
  }
  const int64_t slot_bytes =
      static_cast<int64_t>(kv_pool_.size()) / (g.num_layers * options_.num_slots);
  return {num_slots * slot_bytes, num_pairs * g.num_heads * g.head_dim * 2};
}

}  // namespace espalier
