#include "sampler_kernels.h"

#include "sampler_loops.h"

namespace espalier {

const SamplerKernels& sampler_kernels_portable() { return kKernels; }

const SamplerKernels& sampler_kernels() {
#if defined(__x86_64__)
  static const SamplerKernels& chosen = [&]() -> const SamplerKernels& {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
      return sampler_kernels_avx512();
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      return sampler_kernels_avx2();
    }
    return sampler_kernels_portable();
  }();
  return chosen;
#else
  return sampler_kernels_portable();
#endif
}

}  // namespace espalier
