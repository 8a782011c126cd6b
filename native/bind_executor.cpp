#include "bindings.h"

namespace espalier {

void bind_executor(nanobind::module_& m) { (void)m; }

}  // namespace espalier
