// The tokens of a vocabulary as a tree of their bytes, in depth-first order. Knows no grammar.
#pragma once

#include <bitset>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

using ByteSet = std::bitset<256>;

// A byte behind another; the children of a node follow it.
struct TrieNode {
  uint32_t skip;   // index behind the last of its descendants
  uint32_t token;  // that ends here; a bit of scratch memory where none does, see TokenTrie
  uint16_t depth;  // of its byte in its tokens
  uint8_t byte;
};

// A vocabulary without what a set of bytes decides.
struct TokenSlice {
  ByteSet bytes;
  std::vector<TrieNode> nodes;          // of the tokens that have other bytes too
  std::vector<uint32_t> tokens;         // the others, the shortest first
  std::vector<uint32_t> length_starts;  // of the tokens of so many bytes; up to one beyond the last
  std::vector<uint32_t> words;          // all of them: bit i % 32 of word i / 32
};

// Safe to use from several threads.
class TokenTrie {
 public:
  static constexpr uint32_t kMaxTokens = 1 << 24;
  static constexpr uint32_t kMaxTokenBytes = UINT16_MAX - 1;

  // Bytes of tokens by id; a token without bytes is no text. Throws LimitReached.
  explicit TokenTrie(std::span<const std::string_view> tokens);

  std::span<const TrieNode> nodes() const { return nodes_; }
  // Tokens with the bytes of a token (second) that is in the tree in their stead (first).
  std::span<const std::pair<uint32_t, uint32_t>> twins() const { return twins_; }
  std::span<const uint8_t> bytes_of(uint32_t token) const {
    return {bytes_.data() + starts_[token], starts_[token + 1] - starts_[token]};
  }
  uint32_t num_tokens() const { return static_cast<uint32_t>(starts_.size() - 1); }
  uint32_t max_token_bytes() const { return max_token_bytes_; }
  // By byte: there is a token of this byte alone.
  const bool (&is_spelled() const)[256] { return is_spelled_; }
  // By byte: how many nodes have it.
  const uint32_t (&byte_counts() const)[256] { return byte_counts_; }

  // The vocabulary without the tokens of these bytes alone; kept for the next time.
  std::shared_ptr<const TokenSlice> slice(const ByteSet& bytes) const;

  // A mask of tokens with scratch memory behind it. Nodes where no token ends name a bit of that,
  // spread over its words, so that neither a branch nor a chain of writes to one word is needed.
  size_t num_words() const { return num_token_words() + kScratchWords; }
  size_t num_token_words() const { return (num_tokens() + 31) / 32; }
  size_t num_bytes() const;

 private:
  static constexpr uint32_t kScratchWords = 32;
  static constexpr size_t kMaxSlices = 16;

  // Adds tokens in the order of their bytes; end() gives the nodes.
  class NodeWriter;

  TokenSlice slice_of(const ByteSet& bytes) const;

  std::vector<TrieNode> nodes_;
  std::vector<std::pair<uint32_t, uint32_t>> twins_;
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> starts_;
  std::vector<uint32_t> order_;  // tokens of the tree, by their bytes
  uint32_t max_token_bytes_ = 0;
  bool is_spelled_[256] = {};
  uint32_t byte_counts_[256] = {};

  mutable std::mutex mutex_;                                     // of the slices
  mutable std::list<std::shared_ptr<const TokenSlice>> slices_;  // the last used one first
};

}  // namespace espalier
