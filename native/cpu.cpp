#include "cpu.h"

#include <stdexcept>

#include "kernels.h"

#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace espalier {
namespace {

#if defined(__x86_64__)

struct CpuidLeaf {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

CpuidLeaf cpuid(unsigned leaf, unsigned subleaf = 0) {
  CpuidLeaf out;
  __get_cpuid_count(leaf, subleaf, &out.a, &out.b, &out.c, &out.d);
  return out;
}

bool bit(unsigned word, int index) { return (word >> index & 1) != 0; }

// Register states that the operating system saves (XCR0); 0 where it saves none.
unsigned saved_states() {
  if (!bit(cpuid(1).c, 27)) return 0;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// Linux saves the tile registers of a process only once it has asked for them; one request serves
// all its threads.
bool may_use_tiles() {
#if defined(__linux__)
  constexpr long kRequestState = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestState, kTileData) == 0;
#else
  return false;
#endif
}

Isa detect() {
  constexpr unsigned kTileState = 0x60000;
  constexpr unsigned kAvxState = 0x06, kAvx512State = 0xE6;
  const CpuidLeaf one = cpuid(1), seven = cpuid(7);
  const unsigned states = saved_states();
  const bool fma = bit(one.c, 12), f16c = bit(one.c, 29), avx = bit(one.c, 28);
  const bool avx2 = bit(seven.b, 5), bmi2 = bit(seven.b, 8);
  if (!(fma && f16c && avx && avx2 && bmi2) || (states & kAvxState) != kAvxState) {
    return Isa::Portable;
  }
  const bool avx512 = bit(seven.b, 16) && bit(seven.b, 17) && bit(seven.b, 30) && bit(seven.b, 31);
  if (!avx512 || (states & kAvx512State) != kAvx512State) return Isa::Avx2;
  if (!bit(seven.c, 11)) return Isa::Avx512;
  const bool amx = bit(seven.d, 22) && bit(seven.d, 24) && bit(seven.d, 25);
  const bool bf16 = bit(cpuid(7, 1).a, 5);
  if (!(amx && bf16) || (states & kTileState) != kTileState || !may_use_tiles()) {
    return Isa::Avx512Vnni;
  }
  return Isa::Avx512Amx;
}

constexpr Isa kAll[] = {Isa::Portable, Isa::Avx2, Isa::Avx512, Isa::Avx512Vnni, Isa::Avx512Amx};

#elif defined(__aarch64__)

Isa detect() { return Isa::Neon; }  // every one of these processors has it

constexpr Isa kAll[] = {Isa::Portable, Isa::Neon};

#else

Isa detect() { return Isa::Portable; }

constexpr Isa kAll[] = {Isa::Portable};

#endif

}  // namespace

Isa best_isa() {
  static const Isa best = detect();
  return best;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::Neon:
      return "neon";
    case Isa::Avx2:
      return "avx2";
    case Isa::Avx512:
      return "avx512";
    case Isa::Avx512Vnni:
      return "avx512vnni";
    case Isa::Avx512Amx:
      return "avx512amx";
    default:
      return "portable";
  }
}

std::string available_isas() {
  std::string names;
  for (const Isa isa : kAll) {
    if (isa <= best_isa()) names += (names.empty() ? "" : ", ") + std::string(isa_name(isa));
  }
  return names;
}

Isa isa_from_name(std::string_view name) {
  if (name == "auto") return best_isa();
  for (const Isa isa : kAll) {
    if (name == isa_name(isa) && isa <= best_isa()) return isa;
  }
  throw std::invalid_argument("instruction set \"" + std::string(name) +
                              "\" is not available here; use auto or one of " + available_isas() +
                              ".");
}

const Kernels& kernels_for(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::Avx2) return kernels_avx2();
  if (isa == Isa::Avx512) return kernels_avx512();
  if (isa == Isa::Avx512Vnni) return kernels_avx512vnni();
  if (isa == Isa::Avx512Amx) return kernels_avx512amx();
#elif defined(__aarch64__)
  if (isa == Isa::Neon) return kernels_neon();
#endif
  (void)isa;
  return kernels_portable();
}

}  // namespace espalier
