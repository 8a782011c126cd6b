#include "sampler_loops.h"

namespace espalier {

const SamplerKernels& sampler_kernels_avx512() { return kKernels; }

}  // namespace espalier
