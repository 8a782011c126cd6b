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

int64_t num_groups(int64_t in_features) { return padded_to_group(in_features) / kGroup; }

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

}  // namespace

int64_t packed_matrix_bytes(WeightFormat format, int64_t out_features, int64_t in_features) {
  const int64_t outputs = padded_to_lanes(out_features);
  if (format == WeightFormat::F32) return checked_product({outputs, in_features, 4});
  return checked_product({outputs, num_groups(in_features), kGroup + 4});
}

PackedMatrix::PackedMatrix(const Weight& weight, WeightFormat format, ThreadPool& pool)
    : format_(format), out_features_(weight.raw.num_rows), in_features_(weight.raw.num_columns) {
  const int64_t groups = num_groups(in_features_), outputs = padded_to_lanes(out_features_);
  if (format == WeightFormat::Int8) {
    tiles_ = Memory(static_cast<size_t>(checked_product({outputs, groups, kGroup})));
    scales_ = Memory(static_cast<size_t>(checked_product({outputs, groups, 4})));
  } else {
    tiles_ = Memory(static_cast<size_t>(checked_product({outputs, in_features_, 4})));
  }
  const RawTensor& raw = weight.raw;
  std::vector<std::vector<float>> scratch(static_cast<size_t>(pool.num_threads()));
  pool.run(num_tiles(), [&](int64_t tile, int thread) {
    std::vector<float>& rows = scratch[static_cast<size_t>(thread)];
    rows.assign(static_cast<size_t>(kLanes * in_features_), 0.0f);
    const int64_t first = tile * kLanes, count = std::min<int64_t>(kLanes, out_features_ - first);
    for (int64_t i = 0; i < count; ++i) raw.unpack_row(first + i, rows.data() + i * in_features_);
    if (format_ == WeightFormat::Int8) {
      pack_int8(rows.data(), tile, weight.name);
    } else {
      pack_f32(rows.data(), tile, weight.name);
    }
  });
}

void PackedMatrix::pack_int8(const float* rows, int64_t tile, const std::string& name) {
  const int64_t groups = num_groups(in_features_);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t begin = group * kGroup, count = std::min<int64_t>(kGroup, in_features_ - begin);
    int8_t* lines = tiles_.as<int8_t>() + (tile * groups + group) * kGroup * kLanes;
    float* scales = scales_.as<float>() + (tile * groups + group) * kLanes;
    for (int64_t column = 0; column < kLanes; ++column) {
      const float* x = rows + column * in_features_ + begin;
      const float largest = largest_magnitude(x, count);
      if (!std::isfinite(largest)) fail_not_finite(name);
      if (largest < kTiny) continue;  // the memory holds zeros
      scales[column] = largest / kLargest;
      int8_t rounded[kGroup] = {};
      round_to_int8(x, count, kLargest / largest, rounded);
      for (int64_t quad = 0; quad < kGroup / 4; ++quad) {
        std::memcpy(lines + (quad * kLanes + column) * 4, rounded + quad * 4, 4);
      }
    }
  }
}

void PackedMatrix::pack_f32(const float* rows, int64_t tile, const std::string& name) {
  float* out = tiles_.as<float>() + tile * in_features_ * kLanes;
  for (int64_t column = 0; column < kLanes; ++column) {
    const float* x = rows + column * in_features_;
    if (!std::isfinite(largest_magnitude(x, in_features_))) fail_not_finite(name);
    for (int64_t k = 0; k < in_features_; ++k) out[k * kLanes + column] = x[k];
  }
}

Int8Matrix PackedMatrix::int8(const float* bias) const {
  return {tiles_.as<int8_t>(), scales_.as<float>(), bias, num_groups(in_features_), out_features_};
}

F32Matrix PackedMatrix::f32(const float* bias) const {
  return {tiles_.as<float>(), bias, in_features_, out_features_};
}

Memory unpack_vector(const Weight& weight) {
  const int64_t length = weight.raw.num_columns;
  Memory out(static_cast<size_t>(padded_to_lanes(length)) * sizeof(float));
  weight.raw.unpack_row(0, out.as<float>());
  if (!std::isfinite(largest_magnitude(out.as<float>(), length))) fail_not_finite(weight.name);
  return out;
}

}  // namespace espalier
