// Pairs of states of the automaton: how far a text is in both patterns of an intersection or
// difference.
#pragma once

#include <cstdint>
#include <vector>

#include "intern_index.h"

namespace espalier {

enum class PairKind : uint8_t { kBoth, kWithout };

// Whether some text leads from a pair to its acceptance.
enum class Liveness : uint8_t { kUnknown, kLive, kDead };

struct Pair {
  PairKind kind;
  uint8_t level;         // how deep pairs are inside pairs; a search meets pairs of its level only
  uint32_t left, right;  // states of the automaton; kDead = 0 on the right of kWithout only
  bool is_accepting = false;
  bool is_expanded = false;  // its edges are known
  bool is_settled = false;   // its liveness, that of its successors and can_go_on are known
  bool can_go_on = false;    // some byte leads to a live pair
  Liveness liveness = Liveness::kUnknown;
  uint32_t first_edge = 0, num_edges = 0;
  // Of the search that last met it (Tarjan's algorithm).
  uint32_t search = 0, order = 0, lowest = 0;
};

// Classes of bytes, inclusive, that lead to a pair.
struct PairEdge {
  uint8_t first, last;
  uint32_t pair;
};

// Equal pairs have one index. Pairs are never removed.
class PairTable {
 public:
  uint32_t intern(const Pair& pair) {
    const uint64_t key = uint64_t{pair.left} << 32 | pair.right;
    const uint64_t hash = mixed(static_cast<uint64_t>(pair.kind) << 8 | pair.level, key);
    const uint32_t found = index_.find(hash, [&](uint32_t i) {
      return pairs_[i].kind == pair.kind && pairs_[i].level == pair.level &&
             pairs_[i].left == pair.left && pairs_[i].right == pair.right;
    });
    if (found != InternIndex::kNone) return found;
    const auto index = static_cast<uint32_t>(pairs_.size());
    pairs_.push_back(pair);
    index_.insert(hash, index);
    return index;
  }

  // Valid until the next intern.
  Pair& operator[](uint32_t index) { return pairs_[index]; }
  const Pair& operator[](uint32_t index) const { return pairs_[index]; }
  const PairEdge& edge(uint32_t index) const { return edges_[index]; }

  // Edges of one pair are added in one go.
  void add_edge(const PairEdge& edge) { edges_.push_back(edge); }
  uint32_t num_edges() const { return static_cast<uint32_t>(edges_.size()); }
  size_t num_bytes() const {
    return pairs_.capacity() * sizeof(Pair) + edges_.capacity() * sizeof(PairEdge) +
           index_.num_bytes();
  }

 private:
  std::vector<Pair> pairs_;
  std::vector<PairEdge> edges_;
  InternIndex index_;
};

}  // namespace espalier
