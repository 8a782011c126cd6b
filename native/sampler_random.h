// Random numbers as a function of (seed, position): Philox 4x32-10, a counter-based generator
// (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011, section 3.3).
#pragma once

#include <array>
#include <cstdint>

namespace espalier {

inline std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t even = uint64_t{0xD2511F53} * c[0];
    const uint64_t odd = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(odd >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(odd),
         static_cast<uint32_t>(even >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(even)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return c;
}

// 53 bits in [0, 1).
inline double uniform(uint64_t seed, uint64_t position) {
  const auto words =
      philox({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
             static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace espalier
