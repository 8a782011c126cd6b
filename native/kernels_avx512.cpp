#define ESPALIER_ISA isa_avx512
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_avx512() { return isa_avx512::kTable; }

}  // namespace espalier
