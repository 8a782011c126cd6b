#include "bindings.h"

NB_MODULE(_native, m) {
  m.doc() = "Native kernels of Espalier";
  espalier::bind_strings(m);
  espalier::bind_unpack(m);
  espalier::bind_thread_pool(m);
  espalier::bind_executor(m);
  espalier::bind_sampler(m);
  espalier::bind_automaton(m);
}
