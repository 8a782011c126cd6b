// The tokens of a vocabulary as a tree of their bytes, in depth-first order. Knows no grammar.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace espalier {

class TokenTrie {
 public:
  static constexpr uint32_t kMaxTokens = 1 << 24;
  static constexpr uint32_t kMaxTokenBytes = UINT16_MAX - 1;

  // A byte behind another; the children of a node follow it.
  struct Node {
    uint32_t skip;   // index behind the last of its descendants
    uint32_t token;  // that ends here; num_tokens() where none does
    uint16_t depth;  // of its byte in its tokens
    uint8_t byte;
  };

  // Bytes of tokens by id; a token without bytes is no text. Throws LimitReached.
  explicit TokenTrie(std::span<const std::string_view> tokens);

  std::span<const Node> nodes() const { return nodes_; }
  // Tokens with the bytes of a token (second) that is in the tree in their stead (first).
  std::span<const std::pair<uint32_t, uint32_t>> twins() const { return twins_; }
  std::span<const uint8_t> bytes_of(uint32_t token) const {
    return {bytes_.data() + starts_[token], starts_[token + 1] - starts_[token]};
  }
  uint32_t num_tokens() const { return static_cast<uint32_t>(starts_.size() - 1); }
  uint32_t max_token_bytes() const { return max_token_bytes_; }
  // By byte: there is a token of this byte alone.
  const bool (&is_spelled() const)[256] { return is_spelled_; }
  size_t num_bytes() const;

 private:
  void add(uint32_t token, std::vector<uint32_t>& path);

  std::vector<Node> nodes_;
  std::vector<std::pair<uint32_t, uint32_t>> twins_;
  std::vector<uint8_t> bytes_;
  std::vector<uint32_t> starts_;
  uint32_t max_token_bytes_ = 0;
  bool is_spelled_[256] = {};
};

}  // namespace espalier
