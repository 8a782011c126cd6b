#define ESPALIER_ISA isa_avx512amx
#include "amx.h"
#include "machine_peak.h"

namespace espalier {

int64_t multiply_int8_avx512amx(int64_t rounds) {
  isa_avx512amx::TileShapes shapes;
  for (int tile = 0; tile < 8; ++tile) shapes.set(tile, 16, 64);
  const isa_avx512amx::Tiles tiles(shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (int64_t i = 0; i < rounds; ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  return rounds * 4 * 16 * 16 * 64;
}

}  // namespace espalier
