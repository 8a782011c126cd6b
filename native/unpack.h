// Tensor types of model files: how many bytes they take and what numbers they hold.
//
// Knows blocks of bytes and nothing of files, shapes or kernels. All functions are pure, so that
// any number of threads may unpack different rows of one tensor at once.
#pragma once

#include <cstdint>
#include <string_view>

namespace espalier {

enum class TensorKind : int { F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K };

// The kind of that GGUF name ("Q4_K"); throws std::invalid_argument for any other name.
TensorKind tensor_kind(std::string_view name);

// Elements that are packed together; rows of a tensor are whole blocks.
int64_t block_elements(TensorKind kind);

// Bytes of `count` elements; throws std::invalid_argument unless they are whole blocks.
int64_t packed_bytes(TensorKind kind, int64_t count);

// Writes the `count` elements that `data` holds (`packed_bytes(kind, count)` bytes, any alignment)
// to `out`, each rounded to float32 once per operation of the format's definition. Throws like
// packed_bytes.
void unpack(TensorKind kind, const uint8_t* data, int64_t count, float* out);

// Whether the elements of that kind are 4-bit integers with a scale and a minimum for 32 of them.
bool is_four_bit(TensorKind kind);

// 32 elements as integers from 0 to 15: x = scale * q + minimum.
struct FourBitGroup {
  uint8_t q[32];
  float scale, minimum;
};

// The groups that a 4-bit kind holds, [count / 32]. Throws like packed_bytes.
void unpack_four_bit(TensorKind kind, const uint8_t* data, int64_t count, FourBitGroup* out);

}  // namespace espalier
