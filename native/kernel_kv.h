// Writes keys and values of one slot into the pool, in each of its formats.
#pragma once

#include "kernel_rows.h"

namespace espalier::ESPALIER_ISA {

static void store_int8_row(const float* x, float largest, int64_t n, int8_t* out, float* scale) {
  constexpr float kMost = 127.0f, kTiny = 1e-30f;
  const bool is_zero = largest < kTiny;
  *scale = is_zero ? 0.0f : largest / kMost;
  const Vec inverse = splat(is_zero ? 0.0f : kMost / largest);
  each_vector(
      n, [&](int64_t i) { store_int8(out + i, mul(load(x + i), inverse)); },
      [&](int64_t i, int64_t lanes) {
        int8_t whole[kLanes];
        store_int8(whole, mul(load_partial(x + i, lanes), inverse));
        std::memcpy(out + i, whole, static_cast<size_t>(lanes));
      });
}

static void store_row(KvFormat format, const float* x, float largest, int64_t n, void* out,
                      float* scale) {
  if (format == KvFormat::F32) {
    std::memcpy(out, x, static_cast<size_t>(n) * sizeof(float));
  } else if (format == KvFormat::Int8) {
    store_int8_row(x, largest, n, static_cast<int8_t*>(out), scale);
  } else {
    uint16_t* halves = static_cast<uint16_t*>(out);
    each_vector(
        n, [&](int64_t i) { store_bf16(halves + i, load(x + i)); },
        [&](int64_t i, int64_t lanes) {
          store_bf16_partial(halves + i, load_partial(x + i, lanes), lanes);
        });
  }
}

// Rows that see a slot which is not finite get scores that are not a number, whatever it is that
// is not finite; values stay finite, because attention multiplies those that a row doesn't see
// with 0.
static void write_kv(KvFormat format, const float* key, const float* value, int64_t head_dim,
                     const KvSlot& to) {
  const float most = format == KvFormat::Bf16 ? 3.3895313e38f : 3.4028234e38f;
  const float key_top = largest_magnitude(key, head_dim),
              value_top = largest_magnitude(value, head_dim);
  if (key_top <= most && value_top <= most) {
    store_row(format, key, key_top, head_dim, to.key, to.key_scale);
    store_row(format, value, value_top, head_dim, to.value, to.value_scale);
    return;
  }
  const int64_t bytes = head_dim * element_bytes(format);
  std::memset(to.value, 0, static_cast<size_t>(bytes));
  if (format == KvFormat::Int8) {
    std::memset(to.key, 0, static_cast<size_t>(bytes));
    *to.key_scale = __builtin_nanf("");
    *to.value_scale = 0.0f;
  } else {
    // Bytes 7F7F 7F7F are finite; all ones is not a number in both formats.
    std::memset(to.key, 0xFF, static_cast<size_t>(bytes));
  }
}

}  // namespace espalier::ESPALIER_ISA
