// What the machine can do at most, measured: the limits that a profile is held against.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "thread_pool.h"

namespace espalier {

// Bytes per second that the threads of a pool read from one block of memory, the best of `rounds`.
double read_bandwidth(ThreadPool& pool, int64_t num_bytes, int rounds);

// Multiply-adds per second by kind of instruction, all threads together, for those instruction
// sets that the processor has: "f32 portable" everywhere, "f32 neon", "f32 avx2", "f32 avx512",
// "int16 avx512vnni", "int8 avx512amx".
std::vector<std::pair<std::string, double>> multiply_rates(ThreadPool& pool);

}  // namespace espalier
