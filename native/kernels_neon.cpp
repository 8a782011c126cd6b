#define ESPALIER_ISA isa_neon
#define ESPALIER_NEON
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_neon() { return isa_neon::kTable; }

}  // namespace espalier
