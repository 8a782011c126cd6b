#include "sampler_kernels.h"

#include "cpu.h"
#include "sampler_loops.h"

namespace espalier {

const SamplerKernels& sampler_kernels_portable() { return kKernels; }

const SamplerKernels& sampler_kernels_for([[maybe_unused]] Isa isa) {
#if defined(__x86_64__)
  if (isa >= Isa::Avx512) return sampler_kernels_avx512();
  if (isa >= Isa::Avx2) return sampler_kernels_avx2();
#endif
  return sampler_kernels_portable();
}

}  // namespace espalier
