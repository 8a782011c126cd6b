// Fills the table of kernels of one instruction set; included by one file for each.
#pragma once

#if defined(__AMX_BF16__)
#include "kernel_attention_amx.h"
#else
#include "kernel_attention.h"
#endif
#include "kernel_int4.h"
#include "kernel_kv.h"
#include "kernel_linear.h"
#include "kernel_rows.h"
#if defined(__AMX_INT8__)
#include "kernel_amx.h"
#else
#include "kernel_bf16.h"
#endif

namespace espalier::ESPALIER_ISA {

constexpr Kernels kTable = {
#if defined(__AMX_INT8__)
    .most_paired_rows = kFewRows,
#else
    .most_paired_rows = INT64_MAX,
#endif
    .scale = scale_row,
    .add = add_rows,
    .rms_norm = rms_norm,
    .silu_gate = silu_gate,
    .gelu_gate = gelu_gate,
    .soft_cap = soft_cap,
    .rope_half = rope_half,
    .rope_interleaved = rope_interleaved,
    .round_bf16 = round_bf16,
    .write_kv = write_kv,
    .quantize = quantize,
#if defined(__AMX_INT8__)
    .linear_int8 = linear_int8_amx,
    .linear_int4 = linear_int4_amx,
    .linear_bf16 = linear_bf16_amx,
#else
    .linear_int8 = linear_int8,
    .linear_int4 = linear_int4,
    .linear_bf16 = linear_bf16,
#endif
    .linear_f32 = linear_f32,
#if defined(__AMX_BF16__)
    .attend_run = attend_in_tiles,
#else
    .attend_run = attend_in_vectors,
#endif
    .fold_partial = fold_partial,
    .finish_partial = finish_partial,
};

}  // namespace espalier::ESPALIER_ISA
