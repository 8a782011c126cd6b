// A scope in which this thread's vector arithmetic takes subnormal numbers for zeros and gives
// zeros for them, as the products of AMX always do.
//
// The compiler knows nothing of the mode, so what is computed in it belongs into a function that
// is not inlined into the scope's.
#pragma once

#include "simd.h"

namespace espalier::ESPALIER_ISA {

class FlushSubnormals {
 public:
  FlushSubnormals() : before_(mode()) { set_mode(before_ | kFlush); }
  ~FlushSubnormals() { set_mode(before_); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__x86_64__)
  using Mode = unsigned;
  static constexpr Mode kFlush = 0x8040;
  static Mode mode() { return __builtin_ia32_stmxcsr(); }
  static void set_mode(Mode mode) { __builtin_ia32_ldmxcsr(mode); }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = uint64_t{1} << 24;
  static Mode mode() {
    Mode mode;
    __asm__ __volatile__("mrs %0, fpcr" : "=r"(mode));
    return mode;
  }
  static void set_mode(Mode mode) { __asm__ __volatile__("msr fpcr, %0" : : "r"(mode)); }
#else
  using Mode = unsigned;
  static constexpr Mode kFlush = 0;
  static Mode mode() { return 0; }
  static void set_mode(Mode) {}
#endif
  Mode before_;
};

}  // namespace espalier::ESPALIER_ISA
