#define ESPALIER_ISA isa_avx512amx
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_avx512amx() { return isa_avx512amx::kTable; }

}  // namespace espalier
