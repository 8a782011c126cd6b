#define ESPALIER_ISA isa_avx512vnni
#include "kernel_table.h"

namespace espalier {

const Kernels& kernels_avx512vnni() { return isa_avx512vnni::kTable; }

}  // namespace espalier
