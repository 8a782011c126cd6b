// The parts that make up the Python module espalier._native; each part binds itself.
#pragma once

#include <nanobind/nanobind.h>

namespace espalier {

void bind_strings(nanobind::module_& m);
void bind_unpack(nanobind::module_& m);
void bind_thread_pool(nanobind::module_& m);
void bind_executor(nanobind::module_& m);
void bind_sampler(nanobind::module_& m);
void bind_automaton(nanobind::module_& m);

}  // namespace espalier
