#include "unpack.h"

#include <array>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace espalier {
namespace {

static_assert(std::endian::native == std::endian::little, "model files are little endian");

struct KindInfo {
  std::string_view name;
  int block_elements;
  int block_bytes;
};

constexpr std::array<KindInfo, 11> kKinds = {{
    {"F32", 1, 4},
    {"F16", 1, 2},
    {"BF16", 1, 2},
    {"Q8_0", 32, 34},
    {"Q4_0", 32, 18},
    {"Q4_1", 32, 20},
    {"Q5_0", 32, 22},
    {"Q5_1", 32, 24},
    {"Q4_K", 256, 144},
    {"Q5_K", 256, 176},
    {"Q6_K", 256, 210},
}};

const KindInfo& info(TensorKind kind) {
  const auto index = static_cast<size_t>(kind);
  if (index >= kKinds.size()) {
    throw std::invalid_argument("unknown tensor kind " + std::to_string(static_cast<int>(kind)));
  }
  return kKinds[index];
}

uint16_t load_u16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

uint32_t load_u32(const uint8_t* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Exact for every half, also where the processor flushes subnormal floats to zero: a subnormal
// half becomes a normal float by way of an integer.
float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t magnitude = half & 0x7fff;
  const float subnormal = static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f;
  uint32_t bits = (magnitude << 13) + (uint32_t{112} << 23);
  if (magnitude >= 0x7c00) bits += uint32_t{112} << 23;  // infinity and NaN
  if (magnitude < 0x0400) bits = std::bit_cast<uint32_t>(subnormal);
  return std::bit_cast<float>(bits | sign);
}

float load_half(const uint8_t* bytes) { return from_half(load_u16(bytes)); }

void unpack_f16(const uint8_t* data, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = load_half(data + 2 * i);
}

void unpack_bf16(const uint8_t* data, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = std::bit_cast<float>(static_cast<uint32_t>(load_u16(data + 2 * i)) << 16);
  }
}

// [scale: half] [32 x int8]
void block_q8_0(const uint8_t* block, float* out) {
  const float scale = load_half(block);
  const auto* quants = reinterpret_cast<const int8_t*>(block + 2);
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(quants[i]) * scale;
}

// [scale: half] [16 bytes: element i in the low, element i + 16 in the high half of byte i]
void block_q4_0(const uint8_t* block, float* out) {
  const float scale = load_half(block);
  const uint8_t* nibbles = block + 2;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>((nibbles[i] & 15) - 8);
    out[i + 16] = scale * static_cast<float>((nibbles[i] >> 4) - 8);
  }
}

// [scale: half] [minimum: half] [16 bytes as in Q4_0]
void block_q4_1(const uint8_t* block, float* out) {
  const float scale = load_half(block);
  const float minimum = load_half(block + 2);
  const uint8_t* nibbles = block + 4;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(nibbles[i] & 15) + minimum;
    out[i + 16] = scale * static_cast<float>(nibbles[i] >> 4) + minimum;
  }
}

int with_fifth_bit(int nibble, uint32_t high_bits, int element) {
  return nibble | static_cast<int>((high_bits >> element & 1) << 4);
}

// [scale: half] [32 fifth bits] [16 bytes as in Q4_0]
void block_q5_0(const uint8_t* block, float* out) {
  const float scale = load_half(block);
  const uint32_t high_bits = load_u32(block + 2);
  const uint8_t* nibbles = block + 6;
  for (int i = 0; i < 16; ++i) {
    out[i] = scale * static_cast<float>(with_fifth_bit(nibbles[i] & 15, high_bits, i) - 16);
    out[i + 16] =
        scale * static_cast<float>(with_fifth_bit(nibbles[i] >> 4, high_bits, i + 16) - 16);
  }
}

// [scale: half] [minimum: half] [32 fifth bits] [16 bytes as in Q4_0]
void block_q5_1(const uint8_t* block, float* out) {
  const float scale = load_half(block);
  const float minimum = load_half(block + 2);
  const uint32_t high_bits = load_u32(block + 4);
  const uint8_t* nibbles = block + 8;
  for (int i = 0; i < 16; ++i) {
    const int low = with_fifth_bit(nibbles[i] & 15, high_bits, i);
    const int high = with_fifth_bit(nibbles[i] >> 4, high_bits, i + 16);
    out[i] = scale * static_cast<float>(low) + minimum;
    out[i + 16] = scale * static_cast<float>(high) + minimum;
  }
}

// Scale and minimum of the eight groups of 32 in a Q4_K or Q5_K block: 6 bits each in 12 bytes.
// Groups 0 to 3 lie in the low 6 bits of bytes 0 to 3 (scales) and 4 to 7 (minimums); groups 4 to 7
// take their low 4 bits from bytes 8 to 11 and their top 2 bits from the top of bytes 0 to 7.
struct GroupScales {
  float scale[8];
  float minimum[8];
};

GroupScales load_group_scales(const uint8_t* block) {
  const float scale = load_half(block);
  const float minimum = load_half(block + 2);
  const uint8_t* packed = block + 4;
  GroupScales groups;
  for (int i = 0; i < 4; ++i) {
    const int high_scale = (packed[i + 8] & 15) | (packed[i] >> 6) << 4;
    const int high_minimum = (packed[i + 8] >> 4) | (packed[i + 4] >> 6) << 4;
    groups.scale[i] = scale * static_cast<float>(packed[i] & 63);
    groups.minimum[i] = minimum * static_cast<float>(packed[i + 4] & 63);
    groups.scale[i + 4] = scale * static_cast<float>(high_scale);
    groups.minimum[i + 4] = minimum * static_cast<float>(high_minimum);
  }
  return groups;
}

// [scale: half] [minimum: half] [12 bytes of group scales] [4 x 32 bytes: groups 2j and 2j + 1 in
// the low and high halves of bytes 32 j to 32 j + 31]
void block_q4_k(const uint8_t* block, float* out) {
  const GroupScales groups = load_group_scales(block);
  const uint8_t* nibbles = block + 16;
  for (int group = 0; group < 8; ++group) {
    const uint8_t* bytes = nibbles + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const auto quant = static_cast<float>(bytes[i] >> shift & 15);
      out[32 * group + i] = groups.scale[group] * quant - groups.minimum[group];
    }
  }
}

// As Q4_K with 32 bytes of fifth bits before the nibbles: bit g of byte i belongs to element i of
// group g.
void block_q5_k(const uint8_t* block, float* out) {
  const GroupScales groups = load_group_scales(block);
  const uint8_t* high_bits = block + 16;
  const uint8_t* nibbles = block + 48;
  for (int group = 0; group < 8; ++group) {
    const uint8_t* bytes = nibbles + 32 * (group / 2);
    const int shift = 4 * (group % 2);
    for (int i = 0; i < 32; ++i) {
      const int quant = (bytes[i] >> shift & 15) | (high_bits[i] >> group & 1) << 4;
      out[32 * group + i] = groups.scale[group] * static_cast<float>(quant) - groups.minimum[group];
    }
  }
}

// [128 bytes of low nibbles] [64 bytes of top 2 bits] [16 x int8 scales, one for 16 elements]
// [scale: half]. Each half of the block (128 elements) has four runs of 32: runs 0 and 1 in the low
// nibbles of its 64 bytes, runs 2 and 3 in the high ones; run r has its top bits at bit 2 r.
void block_q6_k(const uint8_t* block, float* out) {
  const auto* group_scales = reinterpret_cast<const int8_t*>(block + 192);
  const float scale = load_half(block + 208);
  for (int half = 0; half < 2; ++half) {
    for (int run = 0; run < 4; ++run) {
      const uint8_t* nibbles = block + 64 * half + 32 * (run % 2);
      const uint8_t* top_bits = block + 128 + 32 * half;
      const int first = 128 * half + 32 * run;
      for (int i = 0; i < 32; ++i) {
        const int low = nibbles[i] >> 4 * (run / 2) & 15;
        const int quant = (low | (top_bits[i] >> 2 * run & 3) << 4) - 32;
        const float group = scale * static_cast<float>(group_scales[(first + i) / 16]);
        out[first + i] = group * static_cast<float>(quant);
      }
    }
  }
}

template <void (*Block)(const uint8_t*, float*)>
void unpack_blocks(const KindInfo& kind, const uint8_t* data, int64_t count, float* out) {
  for (int64_t done = 0; done < count; done += kind.block_elements) {
    Block(data, out + done);
    data += kind.block_bytes;
  }
}

}  // namespace

TensorKind tensor_kind(std::string_view name) {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    if (kKinds[i].name == name) return static_cast<TensorKind>(i);
  }
  throw std::invalid_argument("unknown tensor kind " + std::string(name));
}

int64_t block_elements(TensorKind kind) { return info(kind).block_elements; }

int64_t packed_bytes(TensorKind kind, int64_t count) {
  const KindInfo& entry = info(kind);
  if (count < 0 || count % entry.block_elements != 0) {
    throw std::invalid_argument(std::to_string(count) + " elements are not whole blocks of " +
                                std::to_string(entry.block_elements) + " (" +
                                std::string(entry.name) + ")");
  }
  return count / entry.block_elements * entry.block_bytes;
}

void unpack(TensorKind kind, const uint8_t* data, int64_t count, float* out) {
  const int64_t num_bytes = packed_bytes(kind, count);
  const KindInfo& entry = info(kind);
  switch (kind) {
    case TensorKind::F32:
      if (num_bytes > 0) std::memcpy(out, data, static_cast<size_t>(num_bytes));
      return;
    case TensorKind::F16:
      return unpack_f16(data, count, out);
    case TensorKind::BF16:
      return unpack_bf16(data, count, out);
    case TensorKind::Q8_0:
      return unpack_blocks<block_q8_0>(entry, data, count, out);
    case TensorKind::Q4_0:
      return unpack_blocks<block_q4_0>(entry, data, count, out);
    case TensorKind::Q4_1:
      return unpack_blocks<block_q4_1>(entry, data, count, out);
    case TensorKind::Q5_0:
      return unpack_blocks<block_q5_0>(entry, data, count, out);
    case TensorKind::Q5_1:
      return unpack_blocks<block_q5_1>(entry, data, count, out);
    case TensorKind::Q4_K:
      return unpack_blocks<block_q4_k>(entry, data, count, out);
    case TensorKind::Q5_K:
      return unpack_blocks<block_q5_k>(entry, data, count, out);
    case TensorKind::Q6_K:
      return unpack_blocks<block_q6_k>(entry, data, count, out);
  }
}

bool is_four_bit(TensorKind kind) {
  return kind == TensorKind::Q4_0 || kind == TensorKind::Q4_1 || kind == TensorKind::Q4_K;
}

void unpack_four_bit(TensorKind kind, const uint8_t* data, int64_t count, FourBitGroup* out) {
  const int64_t num_blocks = packed_bytes(kind, count) / info(kind).block_bytes;
  for (int64_t i = 0; i < num_blocks; ++i, data += info(kind).block_bytes) {
    if (kind == TensorKind::Q4_K) {
      const GroupScales groups = load_group_scales(data);
      for (int group = 0; group < 8; ++group, ++out) {
        out->scale = groups.scale[group];
        out->minimum = -groups.minimum[group];
        const uint8_t* bytes = data + 16 + 32 * (group / 2);
        for (int j = 0; j < 32; ++j) out->q[j] = bytes[j] >> 4 * (group % 2) & 15;
      }
      continue;
    }
    const bool has_minimum = kind == TensorKind::Q4_1;
    const uint8_t* nibbles = data + (has_minimum ? 4 : 2);
    out->scale = load_half(data);
    out->minimum = has_minimum ? load_half(data + 2) : -8 * out->scale;
    for (int j = 0; j < 16; ++j) {
      out->q[j] = nibbles[j] & 15;
      out->q[j + 16] = nibbles[j] >> 4;
    }
    ++out;
  }
}

}  // namespace espalier
