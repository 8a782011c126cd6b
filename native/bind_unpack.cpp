#include "bindings.h"

namespace espalier {

void bind_unpack(nanobind::module_& m) { (void)m; }

}  // namespace espalier
