#include "token_trie.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "limit_reached.h"

namespace espalier {

TokenTrie::TokenTrie(std::span<const std::string_view> tokens) : starts_{0} {
  if (tokens.size() > kMaxTokens) {
    throw LimitReached("more than " + std::to_string(kMaxTokens) + " tokens");
  }
  for (const std::string_view token : tokens) {
    if (token.size() > kMaxTokenBytes || token.size() > UINT32_MAX - bytes_.size()) {
      throw LimitReached("a token of more than " + std::to_string(kMaxTokenBytes) + " bytes");
    }
    bytes_.insert(bytes_.end(), token.begin(), token.end());
    starts_.push_back(static_cast<uint32_t>(bytes_.size()));
    max_token_bytes_ = std::max(max_token_bytes_, static_cast<uint32_t>(token.size()));
    if (token.size() == 1) is_spelled_[static_cast<uint8_t>(token[0])] = true;
  }
  std::vector<uint32_t> order(tokens.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::stable_sort(order, {}, [&](uint32_t token) { return tokens[token]; });
  std::vector<uint32_t> path;  // nodes from the root to the last token's
  for (const uint32_t token : order) {
    if (!tokens[token].empty()) add(token, path);
  }
  for (const uint32_t node : path) nodes_[node].skip = static_cast<uint32_t>(nodes_.size());
  nodes_.shrink_to_fit();
}

// Tokens come in the order of their bytes.
void TokenTrie::add(uint32_t token, std::vector<uint32_t>& path) {
  const std::span<const uint8_t> bytes = bytes_of(token);
  size_t shared = 0;
  while (shared < path.size() && shared < bytes.size() &&
         nodes_[path[shared]].byte == bytes[shared]) {
    ++shared;
  }
  for (; path.size() > shared; path.pop_back()) {
    nodes_[path.back()].skip = static_cast<uint32_t>(nodes_.size());
  }
  if (shared == bytes.size()) {
    twins_.emplace_back(nodes_[path.back()].token, token);
    return;
  }
  for (size_t depth = shared; depth < bytes.size(); ++depth) {
    path.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.push_back({0, num_tokens(), static_cast<uint16_t>(depth), bytes[depth]});
  }
  nodes_.back().token = token;
}

size_t TokenTrie::num_bytes() const {
  return nodes_.capacity() * sizeof(Node) + twins_.capacity() * sizeof(twins_[0]) +
         bytes_.capacity() + starts_.capacity() * sizeof(uint32_t);
}

}  // namespace espalier
