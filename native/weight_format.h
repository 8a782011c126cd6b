// Forms that weights are held in, and which one a tensor gets.
#pragma once

#include <string>
#include <string_view>

#include "graph.h"

namespace espalier {

enum class WeightFormat : int { Int8, Int4, Bf16, F32 };

// Whether products want their inputs in a form of their own: quantised, or rounded to bfloat16.
inline bool prepares_inputs(WeightFormat format) { return format != WeightFormat::F32; }

// What the user asks for. Auto keeps 4-bit tensors of the file at 4 bits and holds all others as
// int8. Int4 holds every tensor at 4 bits except those of the LM head that the file does not: an
// error there moves every token's probability.
enum class WeightChoice : int { Auto, Int8, Int4, Bf16, F32 };

// Throws std::invalid_argument for any other name than "auto", "int8", "int4", "bf16" and
// "f32".
WeightChoice weight_choice(std::string_view name);

// The form of a matrix that is multiplied with.
WeightFormat weight_format(const Graph& graph, int weight, WeightChoice choice);

}  // namespace espalier
