// Pairs of states: intersections and differences as products that are explored where they are
// needed. What is dead in them is found by searching for a way to acceptance.
#include <algorithm>

#include "lazy_dfa.h"

namespace espalier {

// Decides whether a pair is live, and with it every pair that the search meets: components that
// were left without a way to acceptance are dead (Tarjan, "Depth-first search and linear graph
// algorithms", 1972); once a way is found, all pairs that are still open can go it.
class LivenessSearch {
 public:
  explicit LivenessSearch(LazyDfa& dfa) : dfa_(dfa), search_(++dfa.num_searches_) {}

  void run(uint32_t pair) {
    enter(pair);
    while (!path_.empty()) {
      if (!is_found_) advance();
      if (!is_found_) continue;
      for (const uint32_t open : open_) dfa_.pairs_[open].liveness = Liveness::kLive;
      return;
    }
  }

 private:
  struct Visit {
    uint32_t pair, next_edge;
  };

  void enter(uint32_t index) {
    dfa_.spend(1);
    Pair& entered = dfa_.pairs_[index];
    entered.search = search_;
    entered.order = entered.lowest = num_entered_++;
    path_.push_back({index, 0});
    open_.push_back(index);
    is_found_ = entered.is_accepting;
    if (is_found_) return;
    dfa_.expand(index);
    const Pair& pair = dfa_.pairs_[index];
    for (uint32_t i = 0; i < pair.num_edges; ++i) {
      const Pair& next = dfa_.pairs_[dfa_.pairs_.edge(pair.first_edge + i).pair];
      is_found_ = is_found_ || next.is_accepting || next.liveness == Liveness::kLive;
    }
  }

  void advance() {
    Visit& visit = path_.back();
    Pair& pair = dfa_.pairs_[visit.pair];
    if (visit.next_edge == pair.num_edges) return leave();
    const uint32_t next = dfa_.pairs_.edge(pair.first_edge + visit.next_edge++).pair;
    const Pair& to = dfa_.pairs_[next];
    if (to.liveness == Liveness::kDead) return;
    if (to.search == search_) {
      pair.lowest = std::min(pair.lowest, to.order);
    } else {
      enter(next);
    }
  }

  void leave() {
    const uint32_t left = path_.back().pair;
    const Pair& pair = dfa_.pairs_[left];
    path_.pop_back();
    if (!path_.empty()) {
      Pair& before = dfa_.pairs_[path_.back().pair];
      before.lowest = std::min(before.lowest, pair.lowest);
    }
    if (pair.lowest != pair.order) return;
    uint32_t closed;
    do {
      closed = open_.back();
      open_.pop_back();
      dfa_.pairs_[closed].liveness = Liveness::kDead;
    } while (closed != left);
  }

  LazyDfa& dfa_;
  const uint32_t search_;
  uint32_t num_entered_ = 0;
  bool is_found_ = false;
  std::vector<Visit> path_;
  std::vector<uint32_t> open_;
};

void LazyDfa::decide_node(uint32_t index) {
  const PatternNode& node = program_.nodes[index];
  const std::span<const uint32_t> sides = program_.children_of(node);
  const auto start_of = [&](uint32_t side) {
    return program_.nodes[side].is_empty ? kDead : close_node(side);
  };
  const PairKind kind = node.kind == PatternKind::kBoth ? PairKind::kBoth : PairKind::kWithout;
  const uint32_t left = start_of(sides[0]), right = start_of(sides[1]);
  PatternNode& decided = program_.nodes[index];
  decided.is_empty = true;
  if (left == kDead || (kind == PairKind::kBoth && right == kDead)) return;
  const uint32_t pair = pair_of(kind, static_cast<uint8_t>(decided.depth), left, right);
  settle(pair);
  decided.low = pair;
  decided.is_empty = pairs_[pair].liveness == Liveness::kDead;
  decided.is_nullable = pairs_[pair].is_accepting;
}

uint32_t LazyDfa::pair_of(PairKind kind, uint8_t level, uint32_t left, uint32_t right) {
  const bool is_both = kind == PairKind::kBoth;
  Pair pair{.kind = kind, .level = level, .left = left, .right = right};
  pair.is_accepting = is_accepting(left) && is_accepting(right) == is_both;
  if (pair.is_accepting || right == kDead) pair.liveness = Liveness::kLive;
  return pairs_.intern(pair);
}

// Finds the pairs that a byte leads to, dead ones among them.
void LazyDfa::expand(uint32_t index) {
  if (pairs_[index].is_expanded) return;
  const Pair pair = pairs_[index];
  fill(pair.left);
  fill(pair.right);
  check_size();
  spend(num_classes_);
  const uint32_t *const left = states_.row(pair.left), *const right = states_.row(pair.right);
  const bool is_both = pair.kind == PairKind::kBoth;
  const uint32_t first_edge = pairs_.num_edges();
  for (int i = 0; i < num_classes_;) {
    int end = i + 1;
    while (end < num_classes_ && left[end] == left[i] && right[end] == right[i]) ++end;
    if (left[i] != kDead && (!is_both || right[i] != kDead)) {
      const uint32_t to = pair_of(pair.kind, pair.level, left[i], right[i]);
      pairs_.add_edge({static_cast<uint8_t>(i), static_cast<uint8_t>(end - 1), to});
    }
    i = end;
  }
  Pair& expanded = pairs_[index];
  expanded.first_edge = first_edge;
  expanded.num_edges = pairs_.num_edges() - first_edge;
  expanded.is_expanded = true;
}

bool LazyDfa::is_live(uint32_t pair) {
  if (pairs_[pair].liveness == Liveness::kUnknown) LivenessSearch(*this).run(pair);
  return pairs_[pair].liveness == Liveness::kLive;
}

void LazyDfa::settle(uint32_t index) {
  if (pairs_[index].is_settled) return;
  bool can_go_on = false;
  if (is_live(index)) {
    expand(index);
    for (uint32_t i = 0; i < pairs_[index].num_edges; ++i) {
      can_go_on |= is_live(pairs_.edge(pairs_[index].first_edge + i).pair);
    }
  }
  pairs_[index].can_go_on = can_go_on;
  pairs_[index].is_settled = true;
}

}  // namespace espalier
