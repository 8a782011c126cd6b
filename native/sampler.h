// From a row of logits to a token: the order of the steps, for one row at a time. docs/sampling.md
// defines them; src/espalier/engine/sampler_reference.py is the same in plain numpy. Knows nothing
// of Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "adjusted_row.h"
#include "sampler_kernels.h"
#include "sampler_row.h"
#include "sampler_select.h"

namespace espalier {

struct LogSoftmax {
  double largest = 0.0;
  double log_sum = 0.0;  // of exp(logit - largest)

  double of(float logit) const { return (static_cast<double>(logit) - largest) - log_sum; }
};

// Holds scratch memory for one vocabulary; one thread at a time.
class TokenSampler {
 public:
  TokenSampler(size_t vocab_size, const SamplerKernels& kernels);

  size_t vocab_size() const { return row_.vocab_size(); }

  SampleResult sample(const float* logits, const SampleRow& row);

  // Log-probabilities of row.chosen_ids, of the row.num_top most probable tokens and of token_id.
  SampleResult logprobs(const float* logits, int32_t token_id, const SampleRow& row);

 private:
  bool ids_are_valid(const SampleRow& row) const;
  bool take_row(const float* logits);
  bool take_allowed(const float* logits, const uint32_t* mask);
  void adjust(const SampleRow& row);
  float largest() const;
  int32_t argmax(float largest) const;
  int32_t draw(float largest, const SampleRow& row);
  void weigh_blocks(float largest, float inv_temperature);
  void keep_top_k(float largest, const SampleRow& row);
  void keep_heavy_tokens(float least, float largest, float inv_temperature);
  int32_t draw_any(double random, float largest, float inv_temperature) const;
  int32_t draw_kept(double random) const;
  LogSoftmax add_logprobs(const float* logits, const SampleRow& row, SampleResult& result);

  const SamplerKernels& kernels_;
  AdjustedRow row_;
  std::vector<float> maxima_;         // [blocks], of the row
  std::vector<float> weight_maxima_;  // [blocks]
  std::vector<double> weight_sums_;   // [blocks]
  std::vector<float> bounds_;
  std::vector<Candidate> top_;
  std::vector<Weighted> kept_;  // ascending by id
  std::vector<Weighted> scratch_;
};

}  // namespace espalier
