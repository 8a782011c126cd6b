#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "bindings.h"
#include "unpack.h"

namespace nb = nanobind;

namespace espalier {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<1>>;

Floats unpack_array(const std::string& name, const Bytes& data, int64_t count) {
  const TensorKind kind = tensor_kind(name);
  const int64_t num_bytes = packed_bytes(kind, count);
  if (static_cast<int64_t>(data.size()) != num_bytes) {
    throw std::invalid_argument(std::to_string(count) + " elements of " + name + " take " +
                                std::to_string(num_bytes) + " bytes, " +
                                std::to_string(data.size()) + " were given");
  }
  auto out = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count));
  {
    nb::gil_scoped_release release;
    unpack(kind, data.data(), count, out.get());
  }
  float* values = out.get();
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  out.release();
  return Floats(values, {static_cast<size_t>(count)}, owner);
}

}  // namespace

void bind_unpack(nanobind::module_& m) {
  m.def(
      "packed_bytes",
      [](const std::string& kind, int64_t count) { return packed_bytes(tensor_kind(kind), count); },
      nb::arg("kind"), nb::arg("count"),
      "Bytes of `count` elements of a tensor type; raises ValueError unless they are whole "
      "blocks.");
  m.def(
      "unpack", &unpack_array, nb::arg("kind"), nb::arg("data"), nb::arg("count"),
      "The float32 values of `count` elements that `data` (uint8) holds in a tensor type, [count]; "
      "raises ValueError where type, size and count do not fit.");
}

}  // namespace espalier
