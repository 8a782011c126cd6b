// Lists of strings as GGUF files hold them: a vocabulary has hundreds of thousands.
#include <nanobind/ndarray.h>

#include <cstring>
#include <stdexcept>

#include "bindings.h"

namespace nb = nanobind;

namespace espalier {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// (strings, position after them). Stops before a string that goes beyond the end of the data or is
// not UTF-8, so that the list is then too short.
nb::tuple read_strings(const Bytes& data, size_t position, size_t count) {
  nb::list strings;
  if (position > data.size()) throw std::invalid_argument("the position is beyond the end");
  for (size_t i = 0; i < count; ++i) {
    uint64_t length = 0;
    if (data.size() - position < sizeof length) break;
    std::memcpy(&length, data.data() + position, sizeof length);
    if (length > data.size() - position - sizeof length) break;
    const auto* text = reinterpret_cast<const char*>(data.data() + position + sizeof length);
    PyObject* string = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), nullptr);
    if (string == nullptr) {
      if (!PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) nb::raise_python_error();
      PyErr_Clear();
      break;
    }
    strings.append(nb::steal(string));
    position += sizeof length + length;
  }
  return nb::make_tuple(strings, position);
}

}  // namespace

void bind_strings(nanobind::module_& m) {
  m.def("read_strings", &read_strings, nb::arg("data"), nb::arg("position"), nb::arg("count"),
        "Strings of 8 bytes of length (little endian) and UTF-8 text each, from `position` on, and "
        "the position after them; fewer than `count` where one is damaged.");
}

}  // namespace espalier
