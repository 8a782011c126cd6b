// The compressed automaton: maximal chains of singular transitions as one edge (SGLang paper,
// section 5, with bytes for characters).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lazy_dfa.h"

namespace espalier {

// Remembers the edges that were asked for. Not thread-safe.
class CompressedEdges {
 public:
  // The bytes with which every text from the state begins, at most `max_bytes` (always the same
  // number) of them; none where the text may end. Valid until the next call. Throws LimitReached.
  std::string_view find(LazyDfa& dfa, uint32_t state, size_t max_bytes);

  size_t num_bytes() const;

 private:
  static constexpr size_t kMaxPoolBytes = 1 << 20;  // of all edges; beyond it all are forgotten

  struct Edge {
    size_t first, count;
  };
  std::vector<char> pool_;
  std::unordered_map<uint32_t, Edge> edges_;
};

}  // namespace espalier
