// Reads patterns of Python (espalier.constrain.pattern).
#pragma once

#include <nanobind/nanobind.h>

#include "pattern_program.h"

namespace espalier {

// `classes` are those of patterns in the order of PatternKind. Parts that are one object are
// written once. Throws LimitReached; TypeError and ValueError for what is no pattern.
PatternProgram read_pattern(nanobind::handle pattern, nanobind::tuple classes);

}  // namespace espalier
