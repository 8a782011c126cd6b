#include "weight_format.h"

#include <stdexcept>

namespace espalier {

WeightChoice weight_choice(std::string_view name) {
  if (name == "auto") return WeightChoice::Auto;
  if (name == "int8") return WeightChoice::Int8;
  if (name == "int4") return WeightChoice::Int4;
  if (name == "bf16") return WeightChoice::Bf16;
  if (name == "f32") return WeightChoice::F32;
  throw std::invalid_argument("unknown weight format " + std::string(name));
}

WeightFormat weight_format(const Graph& graph, int weight, WeightChoice choice) {
  const RawTensor& raw = graph.weights()[static_cast<size_t>(weight)].raw;
  const bool is_kept = is_four_bit(raw.kind) && raw.offset == 0;
  switch (choice) {
    case WeightChoice::F32:
      return WeightFormat::F32;
    case WeightChoice::Bf16:
      return WeightFormat::Bf16;
    case WeightChoice::Int8:
      return WeightFormat::Int8;
    case WeightChoice::Int4:
      return is_kept || !graph.is_head(weight) ? WeightFormat::Int4 : WeightFormat::Int8;
    default:
      return is_kept ? WeightFormat::Int4 : WeightFormat::Int8;
  }
}

}  // namespace espalier
