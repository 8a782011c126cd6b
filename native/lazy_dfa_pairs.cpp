// Pairs of states: intersections and differences as products that are explored where they are
// needed. What is dead in them is found by searching for a way to acceptance.
#include <algorithm>

#include "lazy_dfa.h"

namespace espalier {

// Decides whether a pair is live, and with it other pairs that it meets.
class LivenessSearch {
 public:
  explicit LivenessSearch(LazyDfa& dfa) : dfa_(dfa), search_(++dfa.num_searches_) {}

  // Breadth first: finds what is near where going deep would go on for long, as in long strings
  // that hold something. Decides nothing where it has met kMaxNear pairs.
  void run_near(uint32_t first) {
    struct Met {
      uint32_t pair, before;  // `before`: place of the pair that led here
    };
    std::vector<Met> met{{first, 0}};
    dfa_.pairs_[first].search = search_;
    for (uint32_t i = 0; i < met.size(); ++i) {
      if (met.size() > kMaxNear) return;
      const uint32_t pair = met[i].pair;
      if (expand(pair)) {
        for (uint32_t j = i; set(met[j].pair, Liveness::kLive), j != 0;) j = met[j].before;
        return;
      }
      for (uint32_t edge = 0; edge < dfa_.pairs_[pair].num_edges; ++edge) {
        const uint32_t next = successor(pair, edge);
        if (is_dead(next) || dfa_.pairs_[next].search == search_) continue;
        dfa_.pairs_[next].search = search_;
        met.push_back({next, i});
      }
    }
    for (const Met& one : met) set(one.pair, Liveness::kDead);
  }

  // Breadth first over the bytes that some token is: true where they surely lead to acceptance.
  bool finds_spelled(uint32_t first) {
    std::vector<uint32_t> met{first};
    dfa_.pairs_[first].search = search_;
    for (size_t i = 0; i < met.size() && met.size() <= kMaxNear; ++i) {
      const uint32_t pair = met[i];
      if (dfa_.pairs_[pair].is_accepting) return true;
      expand(pair);
      for (uint32_t edge = 0; edge < dfa_.pairs_[pair].num_edges; ++edge) {
        const uint32_t next = successor(pair, edge);
        if (dfa_.pairs_[next].search == search_ || !is_spelled(pair, edge)) continue;
        dfa_.pairs_[next].search = search_;
        met.push_back(next);
      }
    }
    return false;
  }

  // Depth first, to the end: components that were left without a way to acceptance are dead
  // (Tarjan, "Depth-first search and linear graph algorithms", 1972); once a way is found, all
  // pairs that are still open can go it.
  void run_deep(uint32_t first) {
    bool is_found = enter(first);
    while (!is_found && !path_.empty()) is_found = advance();
    if (!is_found) return;
    for (const uint32_t open : open_) set(open, Liveness::kLive);
  }

 private:
  static constexpr size_t kMaxNear = 500;

  struct Visit {
    uint32_t pair, next_edge;
  };

  void set(uint32_t pair, Liveness liveness) { dfa_.pairs_[pair].liveness = liveness; }
  bool is_dead(uint32_t pair) const { return dfa_.pairs_[pair].liveness == Liveness::kDead; }
  uint32_t successor(uint32_t pair, uint32_t edge) const {
    return dfa_.pairs_.edge(dfa_.pairs_[pair].first_edge + edge).pair;
  }

  bool is_spelled(uint32_t pair, uint32_t edge) const {
    const PairEdge& classes = dfa_.pairs_.edge(dfa_.pairs_[pair].first_edge + edge);
    return std::any_of(dfa_.is_spelled_class_ + classes.first,
                       dfa_.is_spelled_class_ + classes.last + 1,
                       [](bool spelled) { return spelled; });
  }

  // True where a live pair follows.
  bool expand(uint32_t pair) {
    dfa_.expand(pair);
    dfa_.spend(1);
    for (uint32_t edge = 0; edge < dfa_.pairs_[pair].num_edges; ++edge) {
      if (dfa_.pairs_[successor(pair, edge)].liveness == Liveness::kLive) return true;
    }
    return false;
  }

  bool enter(uint32_t index) {
    Pair& pair = dfa_.pairs_[index];
    pair.search = search_;
    pair.order = pair.lowest = num_entered_++;
    path_.push_back({index, 0});
    open_.push_back(index);
    return expand(index);
  }

  bool advance() {
    Visit& visit = path_.back();
    Pair& pair = dfa_.pairs_[visit.pair];
    if (visit.next_edge == pair.num_edges) {
      leave();
      return false;
    }
    const uint32_t next = successor(visit.pair, visit.next_edge++);
    if (is_dead(next)) return false;
    if (dfa_.pairs_[next].search != search_) return enter(next);
    pair.lowest = std::min(pair.lowest, dfa_.pairs_[next].order);
    return false;
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
      set(closed, Liveness::kDead);
    } while (closed != left);
  }

  LazyDfa& dfa_;
  const uint32_t search_;
  uint32_t num_entered_ = 0;
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
  decided.is_spelled = !decided.is_empty && LivenessSearch(*this).finds_spelled(pair);
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
  const auto is_unknown = [&] { return pairs_[pair].liveness == Liveness::kUnknown; };
  if (is_unknown()) LivenessSearch(*this).run_near(pair);
  if (is_unknown()) LivenessSearch(*this).run_deep(pair);
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
