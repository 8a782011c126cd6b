#include "compressed_edges.h"

namespace espalier {

std::string_view CompressedEdges::find(LazyDfa& dfa, uint32_t state, size_t max_bytes) {
  const int first_byte = dfa.only_byte(state);
  if (first_byte < 0) return {};
  const auto known = edges_.find(state);
  if (known != edges_.end()) return {pool_.data() + known->second.first, known->second.count};
  if (pool_.size() > kMaxPoolBytes) {
    pool_.clear();
    edges_.clear();
  }
  const size_t first = pool_.size();
  uint32_t at = state;
  for (int byte = first_byte; byte >= 0 && pool_.size() - first < max_bytes;
       byte = dfa.only_byte(at)) {
    pool_.push_back(static_cast<char>(byte));
    at = dfa.next(at, static_cast<uint8_t>(byte));
  }
  const Edge found{first, pool_.size() - first};
  edges_.emplace(state, found);
  return {pool_.data() + found.first, found.count};
}

size_t CompressedEdges::num_bytes() const {
  constexpr size_t kHashNodeBytes = 48;
  return pool_.capacity() + edges_.size() * kHashNodeBytes;
}

}  // namespace espalier
