// Selection without sorting: the k largest of a vocabulary, the heaviest tokens up to a share.
// The results are sets that the values and ids define, whatever the selection does inside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

struct Weighted {
  int32_t id;
  float weight;  // a multiple of 2^-33, at most 1
};

// Ids of the k largest of x[0..n), k <= n, ties by the lower id, in no certain order. `maxima` are
// the largest values of its blocks, `bounds` is scratch.
void select_largest(const float* x, size_t n, const float* maxima, size_t k,
                    std::vector<float>& bounds, std::vector<int32_t>& ids);

// Exact: every partial sum of at most 2^20 such weights fits a double.
double weight_sum(const std::vector<Weighted>& tokens);

// Keeps the fewest of the heaviest tokens (ties by the lower id) that weigh `target` together, and
// leaves their order as it was. `target` is at most their sum; `scratch` is scratch.
void keep_heaviest(std::vector<Weighted>& tokens, double target, std::vector<Weighted>& scratch);

}  // namespace espalier
