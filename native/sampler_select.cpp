#include "sampler_select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

#include "sampler_kernels.h"

namespace espalier {

namespace {

// Bins of weight, four to each power of two: the leading bits of a float are in the order of its
// value. Bin 0 holds everything under 2^-33, which is zero.
constexpr uint32_t kBinShift = 21;
constexpr uint32_t kFirstBin = std::bit_cast<uint32_t>(0x1p-33f) >> kBinShift;
constexpr uint32_t kNumBins = (std::bit_cast<uint32_t>(1.0f) >> kBinShift) - kFirstBin + 2;

size_t bin_of(float weight) {
  const uint32_t bits = std::bit_cast<uint32_t>(weight) >> kBinShift;
  return bits < kFirstBin ? 0 : bits - kFirstBin + 1;
}

bool is_heavier(const Weighted& a, const Weighted& b) {
  return a.weight > b.weight || (a.weight == b.weight && a.id < b.id);
}

}  // namespace

void select_largest(const AdjustedRow& row, const float* maxima, size_t k,
                    std::vector<float>& bounds, std::vector<Candidate>& found) {
  found.clear();
  const size_t num_blocks = row.num_blocks();
  float bound = -std::numeric_limits<float>::infinity();
  if (k == 0) return;
  if (k <= num_blocks) {
    // The k blocks with the largest maxima hold k values that are at least the least of these.
    bounds.assign(maxima, maxima + num_blocks);
    std::nth_element(bounds.begin(), bounds.begin() + (k - 1), bounds.end(), std::greater<>());
    bound = bounds[k - 1];
  }
  float buffer[kSamplerBlock];
  for (size_t index = 0; index < num_blocks; ++index) {
    if (maxima[index] < bound) continue;
    const size_t start = index * kSamplerBlock;
    const size_t count = std::min(kSamplerBlock, row.vocab_size() - start);
    const float* x = row.block(index, buffer);
    for (size_t i = 0; i < count; ++i) {
      if (x[i] >= bound) found.push_back({static_cast<int32_t>(start + i), x[i]});
    }
  }
  if (found.size() > k) {
    std::nth_element(found.begin(), found.begin() + (k - 1), found.end(), is_larger);
    found.resize(k);
  }
}

double weight_sum(const std::vector<Weighted>& tokens) {
  double sum = 0.0;
  for (const Weighted& token : tokens) sum += static_cast<double>(token.weight);
  return sum;
}

void keep_heaviest(std::vector<Weighted>& tokens, double target, std::vector<Weighted>& scratch) {
  if (tokens.empty()) return;
  std::array<double, kNumBins> bins{};
  for (const Weighted& token : tokens) {
    bins[bin_of(token.weight)] += static_cast<double>(token.weight);
  }
  double mass = 0.0;  // of the tokens in heavier bins
  size_t bin = kNumBins - 1;
  for (; bin > 0 && mass + bins[bin] < target; --bin) mass += bins[bin];
  scratch.clear();
  for (const Weighted& token : tokens) {
    if (bin_of(token.weight) == bin) scratch.push_back(token);
  }
  // The first `low` of the bin's heaviest leave the mass under the target, the first `high` do not.
  size_t low = 0;
  size_t high = scratch.size();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const auto begin = scratch.begin();
    std::nth_element(begin + low, begin + middle, begin + high, is_heavier);
    double more = 0.0;
    for (size_t i = low; i < middle; ++i) more += static_cast<double>(scratch[i].weight);
    if (mass + more >= target) {
      high = middle;
    } else {
      mass += more;
      low = middle;
    }
  }
  const Weighted last = scratch[low];
  std::erase_if(tokens, [&](const Weighted& token) { return is_heavier(last, token); });
}

}  // namespace espalier
