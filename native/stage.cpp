#include "stage.h"

#include <algorithm>
#include <variant>

namespace espalier {
namespace {

// Buffers that an operation reads and writes; what it changes in place is read first.
struct Access {
  std::vector<int> read{}, written{};
};

struct AccessOf {
  Access operator()(const EmbedOp& op) const { return {{}, {op.out}}; }
  Access operator()(const RmsNormOp& op) const { return {{op.x}, {op.out}}; }
  Access operator()(const LinearOp& op) const {
    Access access{{op.x}, {}};
    for (const LinearOp::Part& part : op.parts) access.written.push_back(part.out);
    return access;
  }
  Access operator()(const HeadsOp& op) const {
    Access access;
    for (const HeadStep& step : op.steps) {
      if (const HeadNormOp* norm = std::get_if<HeadNormOp>(&step)) {
        access.read.push_back(norm->x);
      } else if (const RopeOp* rope = std::get_if<RopeOp>(&step)) {
        access.read.push_back(rope->x);
      } else {
        const KvWriteOp& write = std::get<KvWriteOp>(step);
        access.read.insert(access.read.end(), {write.k, write.v});
      }
    }
    return access;
  }
  Access operator()(const AttentionOp& op) const { return {{op.q}, {op.out}}; }
  Access operator()(const GateOp& op) const { return {{op.gate, op.up}, {op.out}}; }
  Access operator()(const AddOp& op) const { return {{op.x, op.y}, {op.out}}; }
  Access operator()(const SelectOp& op) const { return {{op.x}, {op.out}}; }
  Access operator()(const LmHeadOp& op) const { return {{op.x}, {}}; }
};

Access access_of(const Stage& stage) {
  Access access = std::visit(AccessOf{}, *stage.op);
  // Its input is the sum, which was written just before.
  if (stage.norm != nullptr) access.written.push_back(stage.norm->out);
  return access;
}

bool is_row_by_row(const Op& op) {
  return std::visit([](const auto& one) { return kIsRowByRow<std::decay_t<decltype(one)>>; }, op);
}

std::vector<StageProduct> products_of(const Op& op) {
  std::vector<StageProduct> products;
  if (const auto* linear = std::get_if<LinearOp>(&op)) {
    for (const LinearOp::Part& part : linear->parts) {
      products.push_back({part.weight, part.out, part.bias, {}});
    }
  } else if (const auto* head = std::get_if<LmHeadOp>(&op)) {
    products.push_back({head->weight, std::nullopt, std::nullopt, {}});
  }
  return products;
}

std::optional<int> product_input(const Op& op) {
  if (const auto* linear = std::get_if<LinearOp>(&op)) return linear->x;
  if (const auto* head = std::get_if<LmHeadOp>(&op)) return head->x;
  return std::nullopt;
}

// What a stage leaves row by row, so that it can be prepared on the way.
std::optional<int> output_of(const Stage& stage) {
  if (stage.norm != nullptr) return stage.norm->out;
  if (const auto* norm = std::get_if<RmsNormOp>(stage.op)) return norm->out;
  if (const auto* gate = std::get_if<GateOp>(stage.op)) return gate->out;
  return std::nullopt;
}

bool holds(const std::vector<int>& buffers, int buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

}  // namespace

StagePlan::StagePlan(const Graph& graph, WeightChoice choice) {
  add_stages(graph);
  find_prepared(graph, choice);
  add_segments();
  for (Segment& segment : segments_) {
    segment.is_local = local_buffers(segment, graph.buffer_widths().size());
  }
}

void StagePlan::add_stages(const Graph& graph) {
  const std::vector<Op>& ops = graph.ops();
  for (size_t i = 0; i < ops.size(); ++i) {
    Stage stage{.op = &ops[i], .products = products_of(ops[i])};
    int64_t tile = 0;
    for (StageProduct& product : stage.products) {
      const int64_t rows = graph.weights()[static_cast<size_t>(product.weight)].raw.num_rows;
      product.tiles = {tile, tile + padded_to_lanes(rows) / kLanes};
      tile = product.tiles.end;
    }
    const auto* sum = std::get_if<AddOp>(&ops[i]);
    const auto* norm = i + 1 < ops.size() ? std::get_if<RmsNormOp>(&ops[i + 1]) : nullptr;
    if (sum != nullptr && norm != nullptr && norm->x == sum->out) {
      stage.norm = norm;
      ++i;
    }
    stages_.push_back(std::move(stage));
  }
}

void StagePlan::find_prepared(const Graph& graph, WeightChoice choice) {
  for (size_t i = 0; i < stages_.size(); ++i) {
    Stage& product = stages_[i];
    const bool is_prepared = std::any_of(
        product.products.begin(), product.products.end(), [&](const StageProduct& part) {
          return prepares_inputs(weight_format(graph, part.weight, choice));
        });
    if (!is_prepared) continue;
    const std::optional<int> input = product_input(*product.op);
    if (i > 0 && output_of(stages_[i - 1]) == input) {
      stages_[i - 1].prepared = input;
    } else {
      product.prepares_input = true;
    }
  }
}

// Behind SelectRows few rows are left as a rule, and what is prepared there is read by LmHead,
// which all threads share.
void StagePlan::add_segments() {
  bool is_selected = false;
  for (size_t i = 0; i < stages_.size(); ++i) {
    is_selected = is_selected || std::holds_alternative<SelectOp>(*stages_[i].op);
    const bool by_row = !is_selected && is_row_by_row(*stages_[i].op);
    if (by_row && !segments_.empty() && segments_.back().is_row_by_row) {
      segments_.back().end = i + 1;
    } else {
      segments_.push_back({i, i + 1, by_row, {}});
    }
  }
}

// A buffer is local where the segment writes it before it reads it, and whoever comes next to it
// behind the segment writes it again.
std::vector<bool> StagePlan::local_buffers(const Segment& segment, size_t num_buffers) const {
  enum class First { None, Read, Written };
  const auto first_access = [&](size_t begin, size_t end, int buffer) {
    for (size_t i = begin; i < end; ++i) {
      const Access access = access_of(stages_[i]);
      if (holds(access.read, buffer)) return First::Read;
      if (holds(access.written, buffer)) return First::Written;
    }
    return First::None;
  };
  std::vector<bool> is_local(num_buffers);
  for (size_t i = 0; i < num_buffers; ++i) {
    const int buffer = static_cast<int>(i);
    is_local[i] = first_access(segment.begin, segment.end, buffer) == First::Written &&
                  first_access(segment.end, stages_.size(), buffer) != First::Read;
  }
  return is_local;
}

}  // namespace espalier
