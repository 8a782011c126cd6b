// Weights in the layout of the kernels, made once from a raw tensor.
#pragma once

#include <cstddef>
#include <cstdint>

#include "graph.h"
#include "kernels.h"
#include "memory.h"
#include "thread_pool.h"
#include "weight_format.h"

namespace espalier {

// Bytes that a matrix takes once it is packed.
int64_t packed_matrix_bytes(WeightFormat format, int64_t out_features, int64_t in_features);

// A weight as the kernels read it (see kernels.h for the layouts). Integer weights are symmetric:
// the scale of a group is its largest magnitude / 127. Groups of int8 weights are 64 inputs; those
// of int4 weights 192, 128 or 64, the largest of these that divides all inputs, since AMX sums up
// integers for free and each group costs a conversion.
class PackedMatrix {
 public:
  // Throws std::invalid_argument where an element is not finite. A few rows at a time are floats.
  // The matrix lies in `arena`, which outlives it, and takes packed_matrix_bytes of it.
  PackedMatrix(const Weight& weight, WeightFormat format, Arena& arena, ThreadPool& pool);

  WeightFormat format() const { return format_; }
  int64_t num_tiles() const { return padded_to_lanes(out_features_) / kLanes; }
  int64_t in_features() const { return in_features_; }
  int64_t num_bytes() const { return packed_matrix_bytes(format_, out_features_, in_features_); }

  // `bias` is [out_features, padded to 16] or null, and stays the caller's.
  Int8Matrix int8(const float* bias) const;
  Int4Matrix int4(const float* bias) const;
  Bf16Matrix bf16(const float* bias) const;
  F32Matrix f32(const float* bias) const;

 private:
  void pack_int8(const float* rows, int64_t tile, const std::string& name);
  void pack_int4(const Weight& weight, int64_t tile);
  void pack_bf16(const float* rows, int64_t tile, const std::string& name);
  void pack_f32(const float* rows, int64_t tile, const std::string& name);

  WeightFormat format_;
  int64_t out_features_, in_features_;
  template <typename Element>
  Element* tiles() const {
    return static_cast<Element*>(tiles_);
  }

  void* tiles_;
  float* scales_ = nullptr;
};

// A vector in float32, padded with zeros to 16.
Memory unpack_vector(const Weight& weight);

}  // namespace espalier
