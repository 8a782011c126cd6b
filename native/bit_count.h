// How many bits of a mask are set. std::popcount is a call and a table where the instruction set
// has no such instruction for sure; this loop is compiled to vectors.
#pragma once

#include <cstdint>
#include <span>

namespace espalier {

inline uint32_t bit_count(std::span<const uint32_t> words) {
  uint32_t total = 0;
  for (uint32_t bits : words) {
    bits -= bits >> 1 & 0x55555555;
    bits = (bits & 0x33333333) + (bits >> 2 & 0x33333333);
    bits = (bits + (bits >> 4)) & 0x0f0f0f0f;
    bits += bits >> 8;
    total += (bits + (bits >> 16)) & 0x3f;
  }
  return total;
}

}  // namespace espalier
