// Where the keys and values of one layer lie in memory that somebody else owns.
#pragma once

#include <cstdint>

#include "graph.h"
#include "kernels.h"

namespace espalier {

// Keys [kv_head][slot][head_dim], values alike, then for Int8 the scales [kv_head][slot] of both.
struct KvPool {
  KvPool(uint8_t* memory, const Geometry& geometry, int64_t num_slots, KvFormat format);

  KvSlot slot(int64_t kv_head, int64_t slot) const;

  uint8_t *keys, *values;
  float *key_scales, *value_scales;  // null but for Int8
  int64_t num_slots, row_bytes;
};

// Bytes of all layers; throws std::invalid_argument on overflow.
int64_t kv_pool_bytes(const Geometry& geometry, int64_t num_slots, KvFormat format);

}  // namespace espalier
