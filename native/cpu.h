// Instruction sets: which there are, which this CPU has, and which one is to be used.
#pragma once

#include <string>
#include <string_view>

namespace espalier {

struct Kernels;

// In ascending order of speed; each includes the ones before it of the same architecture. Neon is
// that of 64-bit Arm, the others are those of x86-64.
enum class Isa : int { Portable, Neon, Avx2, Avx512, Avx512Vnni, Avx512Amx };

// The best one that this CPU and its operating system offer (and that this build has).
Isa best_isa();

const char* isa_name(Isa isa);

// The one of that name, "auto" being the best. Throws std::invalid_argument, saying which are
// available, where the name is unknown or the CPU lacks it.
Isa isa_from_name(std::string_view name);

// Names of the available ones, slowest first, joined by ", ".
std::string available_isas();

// The kernels compiled for an available instruction set.
const Kernels& kernels_for(Isa isa);

}  // namespace espalier
