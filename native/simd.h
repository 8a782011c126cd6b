// The vector types that kernels are written in: Vec, 16 floats; IVec, 16 int32; Pairs, 16 pairs of
// int16. Each instruction set has its own file with the same functions and the same results.
//
// A kernel file is compiled once per instruction set, inside namespace espalier::ESPALIER_ISA, so
// that no two compilations share a symbol.
#pragma once

#ifndef ESPALIER_ISA
#error "ESPALIER_ISA must name the namespace of the instruction set before this is included"
#endif

#include <cstdint>
#include <cstring>

#include "kernels.h"

#define ESPALIER_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include "simd_avx512.h"
#elif defined(__AVX2__)
#include "simd_avx2.h"
#elif defined(ESPALIER_NEON)
#include "simd_neon.h"
#else
#include "simd_portable.h"
#endif
