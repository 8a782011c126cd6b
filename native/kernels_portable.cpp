#define ESPALIER_ISA isa_portable
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_portable() { return isa_portable::kTable; }

}  // namespace espalier
