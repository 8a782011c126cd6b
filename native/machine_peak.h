// Loops that do nothing but multiply, out of registers: what a processor can do at most.
#pragma once

#include <cstdint>

namespace espalier {

// Each returns how many multiply-adds it has done.
int64_t multiply_f32_portable(int64_t rounds);
int64_t multiply_f32_neon(int64_t rounds);
int64_t multiply_f32_avx2(int64_t rounds);
int64_t multiply_f32_avx512(int64_t rounds);
int64_t multiply_int16_avx512vnni(int64_t rounds);
int64_t multiply_int8_avx512amx(int64_t rounds);

}  // namespace espalier
