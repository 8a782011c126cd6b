#include "packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <vector>

namespace espalier {
namespace {

constexpr float kLargest = 127.0f;
constexpr float kTiny = 1e-30f;  // below it a group is all zeros

int64_t num_groups(int64_t in_features) { return (in_features + kGroup - 1) / kGroup; }

[[noreturn]] void fail_not_finite(const std::string& name) {
  throw std::invalid_argument("tensor of " + name +
                              " holds an infinity or a NaN; the file is damaged");
}

// Largest magnitude, or something not finite where there is one.
float largest_magnitude(const float* x, int64_t n) {
  float largest = 0, poison = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i]);
    largest = size > largest ? size : largest;
    poison += x[i] * 0.0f;  // 0, or not a number
  }
  return largest + poison;
}

// Nearest whole number, ties to even, without a library call: exact for |x| < 2^22.
int8_t to_int8(float x) {
  constexpr float kMagic = 12582912.0f;
  return static_cast<int8_t>(static_cast<int>((x + kMagic) - kMagic));
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
      const float inverse = kLargest / largest;
      for (int64_t k = 0; k < count; ++k) {
        lines[k / 4 * 4 * kLanes + column * 4 + k % 4] = to_int8(x[k] * inverse);
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
