#include "utf8_classes.h"

#include <algorithm>

#include "intern_index.h"

namespace espalier {
namespace {

// Code points that take `num_bytes` bytes, and what is added to the first six bits of them.
struct Length {
  uint32_t first, last;
  int num_bytes;
  uint32_t lead;
};
// Surrogates are no characters: they lie between the two of three bytes.
constexpr Length kLengths[] = {{0x0, 0x7F, 1, 0x00},
                               {0x80, 0x7FF, 2, 0xC0},
                               {0x800, 0xD7FF, 3, 0xE0},
                               {0xE000, 0xFFFF, 3, 0xE0},
                               {0x10000, 0x10FFFF, 4, 0xF0}};

void append_merged(std::vector<ByteEdge>& edges, uint32_t first, uint32_t last, uint32_t next) {
  if (!edges.empty() && edges.back().next == next && edges.back().last + 1u == first) {
    edges.back().last = static_cast<uint8_t>(last);
  } else {
    edges.push_back({static_cast<uint8_t>(first), static_cast<uint8_t>(last), next});
  }
}

std::vector<CodePointRange> clipped(std::span<const CodePointRange> ranges, const Length& length) {
  std::vector<CodePointRange> inside;
  for (const CodePointRange& range : ranges) {
    const uint32_t first = std::max(range.first, length.first);
    const uint32_t last = std::min(range.last, length.last);
    if (first <= last) inside.push_back({first, last});
  }
  return inside;
}

}  // namespace

Utf8Classes::Utf8Classes() : starts_{0, 0} {}

uint32_t Utf8Classes::state_of(std::span<const CodePointRange> ranges) {
  std::vector<ByteEdge> edges;
  for (const Length& length : kLengths) {
    append(clipped(ranges, length), length.num_bytes - 1, length.lead, edges);
  }
  return edges.empty() ? kComplete : intern(edges);
}

// Adds edges for numbers of which `num_more` bytes of six bits each follow the first byte, which is
// `lead` plus the bits above these.
void Utf8Classes::append(std::span<const CodePointRange> ranges, int num_more, uint32_t lead,
                         std::vector<ByteEdge>& edges) {
  const int shift = 6 * num_more;
  const uint32_t low_bits = (1u << shift) - 1;
  std::vector<CodePointRange> part;  // of the numbers that begin with the byte `digit`
  uint32_t digit = 0;
  const auto flush = [&] {
    if (part.empty()) return;
    std::vector<ByteEdge> after;
    append(part, num_more - 1, 0x80, after);
    append_merged(edges, lead + digit, lead + digit, intern(after));
    part.clear();
  };
  for (auto [first, last] : ranges) {
    while (first <= last) {
      const uint32_t full_end = (last + 1) >> shift;  // digits before it have all their numbers
      if ((first >> shift) != digit) flush();
      digit = first >> shift;
      if ((first & low_bits) == 0 && digit < full_end) {
        append_merged(edges, lead + digit, lead + full_end - 1, any_continuation(num_more));
        first = full_end << shift;
      } else {
        const uint32_t end = std::min(last, first | low_bits);
        part.push_back({first & low_bits, end & low_bits});
        first = end + 1;
      }
    }
  }
  flush();
}

uint32_t Utf8Classes::any_continuation(int num_bytes) {
  uint32_t state = kComplete;
  for (int i = 0; i < num_bytes; ++i) state = intern({{0x80, 0xBF, state}});
  return state;
}

uint32_t Utf8Classes::intern(const std::vector<ByteEdge>& edges) {
  uint64_t hash = edges.size();
  for (const ByteEdge& edge : edges) {
    hash = mixed(hash, uint64_t{edge.next} << 16 | edge.first << 8 | edge.last);
  }
  const auto [begin, end] = states_by_hash_.equal_range(hash);
  for (auto found = begin; found != end; ++found) {
    if (std::ranges::equal(this->edges(found->second), edges)) return found->second;
  }
  const auto state = static_cast<uint32_t>(starts_.size() - 1);
  edges_.insert(edges_.end(), edges.begin(), edges.end());
  starts_.push_back(static_cast<uint32_t>(edges_.size()));
  states_by_hash_.emplace(hash, state);
  return state;
}

size_t Utf8Classes::num_bytes() const {
  constexpr size_t kHashNodeBytes = 48;
  return edges_.capacity() * sizeof(ByteEdge) +
         starts_.size() * (sizeof(uint32_t) + kHashNodeBytes);
}

}  // namespace espalier
