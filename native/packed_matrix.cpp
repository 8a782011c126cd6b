#include "packed_matrix.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

namespace espalier {
namespace {

constexpr float kLargest = 127.0f;
constexpr float kTiny = 1e-30f;  // below it a group is all zeros

int64_t num_steps(int64_t in_features) { return padded_to_step(in_features) / kStep; }

int64_t steps_per_group(WeightFormat format, int64_t in_features) {
  if (format != WeightFormat::Int4) return 1;
  const int64_t steps = num_steps(in_features);
  return steps % 3 == 0 ? 3 : steps % 2 == 0 ? 2 : 1;
}

int64_t num_groups(WeightFormat format, int64_t in_features) {
  return num_steps(in_features) / steps_per_group(format, in_features);
}

int64_t padded_to_pairs(int64_t in_features) {
  return (in_features + Bf16Matrix::kStep - 1) / Bf16Matrix::kStep * Bf16Matrix::kStep;
}

bool has_scales(WeightFormat format) {
  return format == WeightFormat::Int8 || format == WeightFormat::Int4;
}

// Bytes of the weights of 16 outputs, without scales.
int64_t tile_bytes(WeightFormat format, int64_t in_features) {
  const int64_t padded = padded_to_step(in_features);
  switch (format) {
    case WeightFormat::Int8:
      return checked_product({padded, kLanes});
    case WeightFormat::Int4:
      return checked_product({padded / kNibbleGroup, Int4Matrix::kRecord});
    case WeightFormat::Bf16:
      return checked_product({padded_to_pairs(in_features), kLanes, 2});
    default:
      return checked_product({in_features, kLanes, 4});
  }
}

[[noreturn]] void fail_not_finite(const std::string& name) {
  throw std::invalid_argument("tensor of " + name +
                              " holds an infinity or a NaN; the file is damaged");
}

// Largest magnitude, found among the bits, whose order is that of the numbers; what is not finite
// comes last.
float largest_magnitude(const float* x, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t size = std::bit_cast<int32_t>(x[i]) & 0x7FFFFFFF;
    largest = size > largest ? size : largest;
  }
  return std::bit_cast<float>(largest);
}

// Nearest whole numbers, ties to even, without a library call: exact for magnitudes below 2^22.
void round_to_int8(const float* x, int64_t n, float factor, int8_t* out) {
  constexpr float kMagic = 12582912.0f;
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<int8_t>(static_cast<int32_t>((x[i] * factor + kMagic) - kMagic));
  }
}

// Nearest bfloat16, ties to even; subnormal numbers, which AMX takes for zero, are zero. Numbers
// next to the largest float stay finite.
uint16_t to_bf16(float x) {
  if (std::fabs(x) < 0x1p-126f) return 0;
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((rounded & 0x7F80) == 0x7F80 ? bits >> 16 : rounded);
}

// 32 floats as 4-bit integers between their least and largest.
FourBitGroup nearest_four_bit(const float* x, int64_t count) {
  FourBitGroup group{};
  const auto [least, most] = std::minmax_element(x, x + count);
  group.minimum = *least;
  group.scale = (*most - *least) / 15;
  const float factor = group.scale > 0 ? 1 / group.scale : 0;
  for (int64_t i = 0; i < count; ++i) {
    const float q = std::nearbyint((x[i] - group.minimum) * factor);
    group.q[i] = static_cast<uint8_t>(std::clamp(q, 0.0f, 15.0f));
  }
  return group;
}

// The groups of a row, padded with zeros: those of the file where it holds 4 bits, else the
// nearest.
void four_bit_groups(const Weight& weight, int64_t row, std::vector<FourBitGroup>& out) {
  const RawTensor& raw = weight.raw;
  const int64_t columns = raw.num_columns;
  std::fill(out.begin(), out.end(), FourBitGroup{});
  if (is_four_bit(raw.kind) && raw.offset == 0) {
    unpack_four_bit(raw.kind, raw.data + row * raw.row_bytes(), columns, out.data());
    return;
  }
  std::vector<float> x(static_cast<size_t>(columns));
  raw.unpack_row(row, x.data());
  if (!std::isfinite(largest_magnitude(x.data(), columns))) fail_not_finite(weight.name);
  for (int64_t begin = 0; begin < columns; begin += kNibbleGroup) {
    out[static_cast<size_t>(begin / kNibbleGroup)] =
        nearest_four_bit(x.data() + begin, std::min<int64_t>(kNibbleGroup, columns - begin));
  }
}

float largest_of(const FourBitGroup& group) {
  float x[kNibbleGroup];
  for (int i = 0; i < kNibbleGroup; ++i) {
    x[i] = group.scale * static_cast<float>(group.q[i]) + group.minimum;
  }
  return largest_magnitude(x, kNibbleGroup);
}

// One column of a record: nibbles, and factor and offset in 8.8 bits modulo 2^16. The half that is
// added makes the shift by 8 bits round.
void store_column(const FourBitGroup& group, float inverse_scale, int64_t column, uint8_t* record) {
  constexpr int kPlaces[8] = {0, 1, 4, 5, 2, 3, 6, 7};  // input of each nibble of a word
  for (int64_t line = 0; line < 4; ++line) {
    uint32_t word = 0;
    for (int i = 0; i < 8; ++i) word |= uint32_t{group.q[8 * line + kPlaces[i]]} << 4 * i;
    std::memcpy(record + line * Int4Matrix::kLine + 4 * column, &word, sizeof word);
  }
  const auto fixed = [inverse_scale](float x, int64_t added) {
    const double value = std::nearbyint(256.0 * static_cast<double>(x) * inverse_scale);
    return static_cast<uint16_t>(static_cast<uint64_t>(static_cast<int64_t>(value) + added));
  };
  const uint16_t factor = fixed(group.scale, 0), offset = fixed(group.minimum, 128);
  uint8_t* factors = record + 4 * Int4Matrix::kLine;
  std::memcpy(factors + 2 * column, &factor, sizeof factor);
  std::memcpy(factors + 2 * (kLanes + column), &offset, sizeof offset);
}

}  // namespace

int64_t packed_matrix_bytes(WeightFormat format, int64_t out_features, int64_t in_features) {
  const int64_t tiles = padded_to_lanes(out_features) / kLanes;
  const int64_t weights = Arena::padded(checked_product({tiles, tile_bytes(format, in_features)}));
  if (!has_scales(format)) return weights;
  return weights + checked_product({tiles, kLanes, num_groups(format, in_features), 4});
}

PackedMatrix::PackedMatrix(const Weight& weight, WeightFormat format, Arena& arena,
                           ThreadPool& pool)
    : format_(format), out_features_(weight.raw.num_rows), in_features_(weight.raw.num_columns) {
  tiles_ = arena.take(checked_product({num_tiles(), tile_bytes(format, in_features_)}));
  if (has_scales(format)) {
    scales_ = static_cast<float*>(
        arena.take(checked_product({num_tiles(), kLanes, num_groups(format, in_features_), 4})));
  }
  const RawTensor& raw = weight.raw;
  std::vector<std::vector<float>> scratch(static_cast<size_t>(pool.num_threads()));
  pool.run(num_tiles(), [&](int64_t tile, int thread) {
    if (format_ == WeightFormat::Int4) return pack_int4(weight, tile);
    std::vector<float>& rows = scratch[static_cast<size_t>(thread)];
    rows.assign(static_cast<size_t>(kLanes * in_features_), 0.0f);
    const int64_t first = tile * kLanes, count = std::min<int64_t>(kLanes, out_features_ - first);
    for (int64_t i = 0; i < count; ++i) raw.unpack_row(first + i, rows.data() + i * in_features_);
    if (format_ == WeightFormat::Int8) {
      pack_int8(rows.data(), tile, weight.name);
    } else if (format_ == WeightFormat::Bf16) {
      pack_bf16(rows.data(), tile, weight.name);
    } else {
      pack_f32(rows.data(), tile, weight.name);
    }
  });
}

void PackedMatrix::pack_int8(const float* rows, int64_t tile, const std::string& name) {
  const int64_t groups = num_groups(format_, in_features_);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = group * kStep, count = std::min<int64_t>(kStep, in_features_ - begin);
    int8_t* lines = tiles<int8_t>() + (tile * groups + group) * kStep * kLanes;
    float* scales = scales_ + (tile * groups + group) * kLanes;
    for (int64_t column = 0; column < kLanes; ++column) {
      const float* x = rows + column * in_features_ + begin;
      const float largest = largest_magnitude(x, count);
      if (!std::isfinite(largest)) fail_not_finite(name);
      if (largest < kTiny) continue;  // the memory holds zeros
      scales[column] = largest / kLargest;
      int8_t rounded[kStep] = {};
      round_to_int8(x, count, kLargest / largest, rounded);
      for (int64_t quad = 0; quad < kStep / 4; ++quad) {
        std::memcpy(lines + (quad * kLanes + column) * 4, rounded + quad * 4, 4);
      }
    }
  }
}

void PackedMatrix::pack_int4(const Weight& weight, int64_t tile) {
  const int64_t records = padded_to_step(in_features_) / kNibbleGroup;
  const int64_t groups = num_groups(format_, in_features_);
  std::vector<FourBitGroup> found(static_cast<size_t>(records));
  uint8_t* first_record = tiles<uint8_t>() + tile * records * Int4Matrix::kRecord;
  for (int64_t column = 0; column < kLanes; ++column) {
    const int64_t row = tile * kLanes + column;
    if (row >= out_features_) break;
    four_bit_groups(weight, row, found);
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = group * records / groups, end = (group + 1) * records / groups;
      float largest = 0;
      for (int64_t i = begin; i < end; ++i) {
        const float found_here = largest_of(found[static_cast<size_t>(i)]);
        if (!std::isfinite(found_here)) fail_not_finite(weight.name);
        largest = std::max(largest, found_here);
      }
      if (largest < kTiny) continue;
      scales_[(tile * groups + group) * kLanes + column] = largest / kLargest;
      for (int64_t i = begin; i < end; ++i) {
        store_column(found[static_cast<size_t>(i)], kLargest / largest, column,
                     first_record + i * Int4Matrix::kRecord);
      }
    }
  }
}

void PackedMatrix::pack_bf16(const float* rows, int64_t tile, const std::string& name) {
  const int64_t padded = padded_to_pairs(in_features_);
  uint16_t* out = tiles<uint16_t>() + tile * padded * kLanes;
  for (int64_t column = 0; column < kLanes; ++column) {
    const float* x = rows + column * in_features_;
    if (!std::isfinite(largest_magnitude(x, in_features_))) fail_not_finite(name);
    for (int64_t k = 0; k < in_features_; ++k) {
      out[(k / 2 * kLanes + column) * 2 + k % 2] = to_bf16(x[k]);
    }
  }
}

void PackedMatrix::pack_f32(const float* rows, int64_t tile, const std::string& name) {
  float* out = tiles<float>() + tile * in_features_ * kLanes;
  for (int64_t column = 0; column < kLanes; ++column) {
    const float* x = rows + column * in_features_;
    if (!std::isfinite(largest_magnitude(x, in_features_))) fail_not_finite(name);
    for (int64_t k = 0; k < in_features_; ++k) out[k * kLanes + column] = x[k];
  }
}

Int8Matrix PackedMatrix::int8(const float* bias) const {
  return {tiles<int8_t>(),
          scales_,
          bias,
          num_steps(in_features_),
          steps_per_group(format_, in_features_),
          out_features_};
}

Int4Matrix PackedMatrix::int4(const float* bias) const {
  return {tiles<uint8_t>(),
          scales_,
          bias,
          num_steps(in_features_),
          steps_per_group(format_, in_features_),
          out_features_};
}

Bf16Matrix PackedMatrix::bf16(const float* bias) const {
  return {tiles<uint16_t>(), bias, padded_to_pairs(in_features_) / Bf16Matrix::kStep,
          out_features_};
}

F32Matrix PackedMatrix::f32(const float* bias) const {
  return {tiles<float>(), bias, in_features_, out_features_};
}

Memory unpack_vector(const Weight& weight) {
  const int64_t length = weight.raw.num_columns;
  Memory out(static_cast<size_t>(padded_to_lanes(length)) * sizeof(float));
  weight.raw.unpack_row(0, out.as<float>());
  if (!std::isfinite(largest_magnitude(out.as<float>(), length))) fail_not_finite(weight.name);
  return out;
}

}  // namespace espalier
