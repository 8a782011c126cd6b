// Tile registers of AMX: their configuration for as long as a scope lives.
//
// Only for files compiled with -mamx-tile. Tile names are numbers in the instructions, so kernels
// write them out.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "simd.h"

namespace espalier::ESPALIER_ISA {

// Shapes of the eight tiles, as ldtilecfg reads them.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void set(int tile, int num_rows, int num_bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(num_bytes);
  }
};

// Tile instructions of GCC 12 do not say that they read memory: stores must not move behind them.
ESPALIER_INLINE void finish_stores() { asm volatile("" ::: "memory"); }

// Configures the tiles of this thread and releases them at the end: a thread that sleeps with live
// tiles costs the system 8 KB to save.
class Tiles {
 public:
  explicit Tiles(const TileShapes& shapes) {
    // GCC 12 does not see that the instruction reads memory and drops the stores before it.
    asm volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
  }
  ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

}  // namespace espalier::ESPALIER_ISA
