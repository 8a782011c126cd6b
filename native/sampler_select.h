// Selection without sorting: the k largest of a vocabulary, the heaviest tokens up to a share.
// The results are sets that the values and ids define, whatever the selection does inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "adjusted_row.h"

namespace espalier {

struct Weighted {
  int32_t id;
  float weight;  // a multiple of 2^-33, at most 1
};

struct Candidate {
  int32_t id;
  float value;
};

// In falling order of value, ties by id.
inline bool is_larger(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

// The k largest of a row, k <= its length, ties by the lower id, in no certain order. `maxima` are
// the largest values of its blocks, `bounds` is scratch.
void select_largest(const AdjustedRow& row, const float* maxima, size_t k,
                    std::vector<float>& bounds, std::vector<Candidate>& found);

// Exact: every partial sum of at most 2^20 such weights fits a double.
double weight_sum(const std::vector<Weighted>& tokens);

// Keeps the fewest of the heaviest tokens (ties by the lower id) that weigh `target` together, and
// leaves their order as it was. `target` is at most their sum; `scratch` is scratch.
void keep_heaviest(std::vector<Weighted>& tokens, double target, std::vector<Weighted>& scratch);

}  // namespace espalier
