// Sets of characters as automata over the bytes of their UTF-8.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace espalier {

// Inclusive.
struct CodePointRange {
  uint32_t first, last;
};

// The bytes first to last lead to the state `next`.
struct ByteEdge {
  uint8_t first, last;
  uint32_t next;
  bool operator==(const ByteEdge&) const = default;
};

// States of all sets of one pattern; equal ones are one. Every state can be left, and its edges are
// sorted and disjoint.
class Utf8Classes {
 public:
  static constexpr uint32_t kComplete = 0;  // after the last byte of a character

  Utf8Classes();

  // The state before a character of the ranges, kComplete where there is none. The ranges are
  // sorted, disjoint and at most 0x10FFFF; surrogates in them are left out.
  uint32_t state_of(std::span<const CodePointRange> ranges);

  std::span<const ByteEdge> edges(uint32_t state) const {
    return {edges_.data() + starts_[state], starts_[state + 1] - starts_[state]};
  }
  uint32_t num_states() const { return static_cast<uint32_t>(starts_.size() - 1); }
  std::span<const ByteEdge> all_edges() const { return edges_; }
  size_t num_bytes() const;

 private:
  uint32_t intern(const std::vector<ByteEdge>& edges);
  uint32_t any_continuation(int num_bytes);
  void append(std::span<const CodePointRange> ranges, int num_more, uint32_t lead,
              std::vector<ByteEdge>& edges);

  std::vector<ByteEdge> edges_;
  std::vector<uint32_t> starts_;  // of a state's edges; one more than there are states
  std::unordered_multimap<uint64_t, uint32_t> states_by_hash_;
};

}  // namespace espalier
