#define ESPALIER_ISA isa_avx2
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_avx2() { return isa_avx2::kTable; }

}  // namespace espalier
