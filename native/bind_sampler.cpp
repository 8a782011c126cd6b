#include "bindings.h"

namespace espalier {

void bind_sampler(nanobind::module_& m) { (void)m; }

}  // namespace espalier
