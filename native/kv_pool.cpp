#include "kv_pool.h"

#include "memory.h"

namespace espalier {
namespace {

int64_t row_bytes_of(const Geometry& geometry, KvFormat format) {
  return geometry.head_dim * element_bytes(format);
}

int64_t padded_to_line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Keys or values of a layer.
int64_t half_bytes(const Geometry& geometry, int64_t num_slots, KvFormat format) {
  return padded_to_line(
      checked_product({geometry.num_kv_heads, num_slots, row_bytes_of(geometry, format)}));
}

int64_t scale_bytes(const Geometry& geometry, int64_t num_slots, KvFormat format) {
  const bool has_scales = format == KvFormat::Int8;
  return has_scales ? padded_to_line(checked_product({geometry.num_kv_heads, num_slots, 4})) : 0;
}

}  // namespace

KvPool::KvPool(uint8_t* memory, const Geometry& geometry, int64_t slots, KvFormat format)
    : keys(memory),
      values(memory + half_bytes(geometry, slots, format)),
      key_scales(nullptr),
      value_scales(nullptr),
      num_slots(slots),
      row_bytes(row_bytes_of(geometry, format)) {
  if (format != KvFormat::Int8) return;
  uint8_t* scales = values + half_bytes(geometry, slots, format);
  key_scales = reinterpret_cast<float*>(scales);
  value_scales = reinterpret_cast<float*>(scales + scale_bytes(geometry, slots, format));
}

KvSlot KvPool::slot(int64_t kv_head, int64_t slot) const {
  const int64_t row = kv_head * num_slots + slot;
  const bool has_scales = key_scales != nullptr;
  return {keys + row * row_bytes, values + row * row_bytes, has_scales ? key_scales + row : nullptr,
          has_scales ? value_scales + row : nullptr};
}

int64_t kv_pool_bytes(const Geometry& geometry, int64_t num_slots, KvFormat format) {
  const int64_t layer_bytes =
      half_bytes(geometry, num_slots, format) + scale_bytes(geometry, num_slots, format);
  return checked_product({2, geometry.num_layers, layer_bytes});
}

}  // namespace espalier
