// Python's view of automata and of masks of tokens.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include <bit>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "automaton.h"
#include "bind_pattern.h"
#include "bindings.h"
#include "bit_count.h"
#include "limit_reached.h"

namespace nb = nanobind;

namespace espalier {
namespace {

using MaskIn = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaskOut = nb::ndarray<nb::numpy, const uint32_t, nb::ndim<1>>;
using IdsOut = nb::ndarray<nb::numpy, const int32_t, nb::ndim<1>>;

template <typename Array, typename Element>
Array array_of(std::unique_ptr<Element[]> elements, size_t size) {
  Element* const data = elements.release();
  const nb::capsule owner(data, [](void* self) noexcept { delete[] static_cast<Element*>(self); });
  return Array(data, {size}, owner);
}

std::shared_ptr<TokenTrie> trie_of(const nb::list& tokens) {
  std::vector<std::string_view> views;
  std::vector<nb::bytes> kept;
  for (nb::handle token : tokens) {
    kept.push_back(nb::cast<nb::bytes>(token));
    views.emplace_back(kept.back().c_str(), kept.back().size());
  }
  const nb::gil_scoped_release release;
  return std::make_shared<TokenTrie>(views);
}

// Waits without the interpreter's lock where another thread is at work with the automaton.
std::unique_lock<std::mutex> lock_of(Automaton& automaton) {
  std::unique_lock lock(automaton.mutex, std::try_to_lock);
  if (!lock.owns_lock()) {
    const nb::gil_scoped_release release;
    lock.lock();
  }
  return lock;
}

std::shared_ptr<Automaton> automaton_of(nb::handle pattern, const nb::tuple& classes,
                                        std::shared_ptr<const TokenTrie> trie,
                                        const std::vector<uint32_t>& eos_ids, uint32_t vocab_size,
                                        const AutomatonLimits& limits) {
  PatternProgram program = read_pattern(pattern, classes);
  const nb::gil_scoped_release release;
  return std::make_shared<Automaton>(std::move(program), std::move(trie), eos_ids, vocab_size,
                                     limits);
}

int64_t advance(Automaton& self, Automaton::Code state, int64_t token) {
  const auto lock = lock_of(self);
  return self.advance(state, token);
}

uint32_t mask_state(Automaton& self, Automaton::Code state) {
  const auto lock = lock_of(self);
  return self.mask_state(state);
}

nb::tuple mask(Automaton& self, uint32_t mask_state) {
  const size_t num_words = self.num_mask_words();
  auto words = std::make_unique<uint32_t[]>(num_words);
  uint32_t num_allowed = 0;
  {
    const nb::gil_scoped_release release;
    const std::scoped_lock lock(self.mutex);
    num_allowed = self.write_mask(mask_state, words.get());
  }
  return nb::make_tuple(array_of<MaskOut>(std::move(words), num_words), num_allowed);
}

nb::bytes forced_bytes(Automaton& self, Automaton::Code state, size_t max_bytes) {
  const auto lock = lock_of(self);
  const std::string_view forced = self.forced_bytes(state, max_bytes);
  return nb::bytes(forced.data(), forced.size());
}

uint32_t count_allowed(const MaskIn& mask) { return bit_count({mask.data(), mask.size()}); }

IdsOut allowed_ids(const MaskIn& mask) {
  const size_t count = count_allowed(mask);
  auto ids = std::make_unique<int32_t[]>(count);
  size_t num_found = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    for (uint32_t bits = mask.data()[i]; bits != 0; bits &= bits - 1) {
      ids[num_found++] = static_cast<int32_t>(32 * i + static_cast<size_t>(std::countr_zero(bits)));
    }
  }
  return array_of<IdsOut>(std::move(ids), count);
}

}  // namespace

void bind_automaton(nb::module_& m) {
  nb::exception<LimitReached>(m, "AutomatonLimitError", PyExc_RuntimeError);
  nb::class_<TokenTrie>(m, "TokenTrie")
      .def(nb::new_(&trie_of), nb::arg("tokens"))
      .def_prop_ro("num_bytes", &TokenTrie::num_bytes)
      .def_prop_ro("spelled_bytes", [](const TokenTrie& self) {
        char spelled[256];
        size_t count = 0;
        for (int byte = 0; byte < 256; ++byte) {
          if (self.is_spelled()[byte]) spelled[count++] = static_cast<char>(byte);
        }
        return nb::bytes(spelled, count);
      });
  nb::class_<AutomatonLimits>(m, "AutomatonLimits")
      .def(nb::new_([](int64_t max_bytes, int64_t max_states, int64_t max_compile_steps,
                       int64_t max_steps) {
             if (max_states > Automaton::kMaxStates) throw std::invalid_argument("max_states");
             return AutomatonLimits{max_bytes, max_states, max_compile_steps, max_steps};
           }),
           nb::arg("max_bytes"), nb::arg("max_states"), nb::arg("max_compile_steps"),
           nb::arg("max_steps"));
  nb::class_<Automaton>(m, "Automaton")
      .def(nb::new_(&automaton_of), nb::arg("pattern"), nb::arg("classes"), nb::arg("trie"),
           nb::arg("eos_ids"), nb::arg("vocab_size"), nb::arg("limits"))
      .def_prop_ro("start", &Automaton::start)
      .def_prop_ro("is_full",
                   [](Automaton& self) {
                     const auto lock = lock_of(self);
                     return self.is_full();
                   })
      .def_prop_ro("num_states",
                   [](Automaton& self) {
                     const auto lock = lock_of(self);
                     return self.num_states();
                   })
      .def_prop_ro("num_bytes",
                   [](Automaton& self) {
                     const auto lock = lock_of(self);
                     return self.num_bytes();
                   })
      .def("advance", &advance)
      .def("mask_state", &mask_state)
      .def("mask", &mask)
      .def("forced_bytes", &forced_bytes);
  m.def("count_allowed", &count_allowed, nb::arg("mask"));
  m.def("allowed_ids", &allowed_ids, nb::arg("mask"));
}

}  // namespace espalier
