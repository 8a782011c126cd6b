#include "sampler_loops.h"

namespace espalier {

const SamplerKernels& sampler_kernels_avx2() { return kKernels; }

}  // namespace espalier
