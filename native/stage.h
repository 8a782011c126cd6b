// The operations of a graph as an executor runs them: what is done to a row while it is at hand is
// joined, and runs of operations that work on each row by itself are found, since some rows can go
// through all of such a run while their buffers stay in the cache.
//
// Knows graphs and formats of weights; no memory, no steps.
#pragma once

#include <cstddef>
#include <optional>
#include <type_traits>
#include <vector>

#include "graph.h"
#include "kernels.h"
#include "weight_format.h"

namespace espalier {

// Whether an operation does the same to each row, whatever the other rows are.
template <typename Operation>
constexpr bool kIsRowByRow =
    !std::is_same_v<Operation, AttentionOp> && !std::is_same_v<Operation, SelectOp> &&
    !std::is_same_v<Operation, LmHeadOp>;

// A matrix of a product and its place among all tiles of the product.
struct StageProduct {
  int weight;
  std::optional<int> out;  // none: the logits
  std::optional<int> bias;
  Range tiles;
};

struct Stage {
  const Op* op;
  const RmsNormOp* norm = nullptr;     // of the sum that op adds up, taken along with it
  std::optional<int> prepared{};       // buffer that the next product reads in a form of its own
  bool prepares_input = false;         // a product whose input no stage before has prepared
  std::vector<StageProduct> products;  // of a Linear or LmHead

  int64_t num_tiles() const { return products.back().tiles.end; }
};

// Stages [begin, end) of a plan.
struct Segment {
  size_t begin, end;
  bool is_row_by_row;          // each row goes through all stages by itself
  std::vector<bool> is_local;  // by buffer: nothing that it holds is read outside of the segment
};

class StagePlan {
 public:
  StagePlan(const Graph& graph, WeightChoice choice);

  const std::vector<Stage>& stages() const { return stages_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  void add_stages(const Graph& graph);
  void find_prepared(const Graph& graph, WeightChoice choice);
  void add_segments();
  std::vector<bool> local_buffers(const Segment& segment, size_t num_buffers) const;

  std::vector<Stage> stages_;
  std::vector<Segment> segments_;
};

}  // namespace espalier
