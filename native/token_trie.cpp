#include "token_trie.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "limit_reached.h"

namespace espalier {

class TokenTrie::NodeWriter {
 public:
  explicit NodeWriter(const TokenTrie& trie)
      : trie_(trie), first_scratch_(static_cast<uint32_t>(32 * trie.num_token_words())) {}

  // False where the token before has the same bytes; nothing is added then.
  bool add(uint32_t token) {
    const std::span<const uint8_t> bytes = trie_.bytes_of(token);
    size_t shared = 0;
    while (shared < path_.size() && shared < bytes.size() &&
           nodes_[path_[shared]].byte == bytes[shared]) {
      ++shared;
    }
    if (shared == bytes.size()) return false;
    leave(shared);
    for (size_t depth = shared; depth < bytes.size(); ++depth) {
      const auto index = static_cast<uint32_t>(nodes_.size());
      const uint32_t scratch = first_scratch_ + 32 * (index % kScratchWords);
      path_.push_back(index);
      nodes_.push_back({0, scratch, static_cast<uint16_t>(depth), bytes[depth]});
    }
    nodes_.back().token = token;
    return true;
  }

  uint32_t last_token() const { return nodes_[path_.back()].token; }

  std::vector<TrieNode> end() {
    leave(0);
    nodes_.shrink_to_fit();
    return std::move(nodes_);
  }

 private:
  void leave(size_t depth) {
    for (; path_.size() > depth; path_.pop_back()) {
      nodes_[path_.back()].skip = static_cast<uint32_t>(nodes_.size());
    }
  }

  const TokenTrie& trie_;
  const uint32_t first_scratch_;
  std::vector<TrieNode> nodes_;
  std::vector<uint32_t> path_;  // nodes from the root to the last token's
};

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
  std::vector<uint32_t> sorted(tokens.size());
  std::iota(sorted.begin(), sorted.end(), 0u);
  std::erase_if(sorted, [&](uint32_t token) { return tokens[token].empty(); });
  std::ranges::stable_sort(sorted, {}, [&](uint32_t token) { return tokens[token]; });
  NodeWriter writer(*this);
  for (const uint32_t token : sorted) {
    if (writer.add(token)) {
      order_.push_back(token);
    } else {
      twins_.emplace_back(writer.last_token(), token);
    }
  }
  nodes_ = writer.end();
  for (const TrieNode& node : nodes_) ++byte_counts_[node.byte];
}

std::shared_ptr<const TokenSlice> TokenTrie::slice(const ByteSet& bytes) const {
  const std::scoped_lock lock(mutex_);
  const auto found =
      std::ranges::find(slices_, bytes, [](const auto& slice) { return slice->bytes; });
  if (found != slices_.end()) {
    slices_.splice(slices_.begin(), slices_, found);
  } else {
    slices_.push_front(std::make_shared<const TokenSlice>(slice_of(bytes)));
    if (slices_.size() > kMaxSlices) slices_.pop_back();
  }
  return slices_.front();
}

TokenSlice TokenTrie::slice_of(const ByteSet& bytes) const {
  TokenSlice slice;
  slice.bytes = bytes;
  slice.words.resize(num_words());
  NodeWriter writer(*this);
  for (const uint32_t token : order_) {
    const bool is_inside =
        std::ranges::all_of(bytes_of(token), [&](uint8_t byte) { return bytes[byte]; });
    if (is_inside) {
      slice.words[token / 32] |= 1u << token % 32;
      slice.tokens.push_back(token);
    } else {
      writer.add(token);
    }
  }
  slice.nodes = writer.end();
  const auto length_of = [this](uint32_t token) { return bytes_of(token).size(); };
  std::ranges::sort(slice.tokens, {}, length_of);
  slice.length_starts.resize(1);
  for (size_t i = 0; i < slice.tokens.size(); ++i) {
    slice.length_starts.resize(length_of(slice.tokens[i]) + 1, static_cast<uint32_t>(i));
  }
  slice.length_starts.push_back(static_cast<uint32_t>(slice.tokens.size()));
  return slice;
}

size_t TokenTrie::num_bytes() const {
  const std::scoped_lock lock(mutex_);
  size_t total = nodes_.capacity() * sizeof(TrieNode) + twins_.capacity() * sizeof(twins_[0]) +
                 bytes_.capacity() + (starts_.capacity() + order_.capacity()) * sizeof(uint32_t);
  for (const auto& slice : slices_) {
    total += slice->nodes.capacity() * sizeof(TrieNode) +
             (slice->tokens.capacity() + slice->words.size()) * sizeof(uint32_t);
  }
  return total;
}

}  // namespace espalier
