// From a row of logits to a token: the order of the steps, for one row at a time. docs/sampling.md
// defines them; src/espalier/engine/sampler_reference.py is the same in plain numpy. Knows nothing
// of Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "sampler_kernels.h"
#include "sampler_select.h"

namespace espalier {

// Settings of one row. Ids may lie outside the vocabulary: the row then ends as kBadTokenId.
struct SampleRow {
  bool is_greedy = true;
  float inv_temperature = 1.0f;
  double top_p = 1.0;
  int64_t top_k = -1;  // -1: off
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  uint64_t seed = 0;
  uint64_t position = 0;
  std::vector<int32_t> prompt_ids;  // filled only where a penalty reads them
  std::vector<int32_t> output_ids;
  std::vector<int32_t> banned_ids;
  std::vector<std::pair<int32_t, float>> bias;
  const uint32_t* mask = nullptr;  // bit set: allowed
  bool wants_logprobs = false;
  int64_t num_top = 0;
  std::vector<int32_t> chosen_ids;
};

enum class SampleStatus : int { kOk = 0, kBrokenLogits = 1, kNothingAllowed = 2, kBadTokenId = 3 };

struct SampleResult {
  SampleStatus status = SampleStatus::kOk;
  int32_t token_id = -1;
  double logprob = 0.0;
  std::vector<std::pair<int32_t, double>> top;
  std::vector<double> chosen;
};

struct LogSoftmax {
  double largest = 0.0;
  double log_sum = 0.0;  // of exp(logit - largest)

  double of(float logit) const { return (static_cast<double>(logit) - largest) - log_sum; }
};

// Holds scratch memory for one vocabulary; one thread at a time.
class TokenSampler {
 public:
  TokenSampler(size_t vocab_size, const SamplerKernels& kernels);

  size_t vocab_size() const { return vocab_size_; }

  SampleResult sample(const float* logits, const SampleRow& row);

  // Log-probabilities of row.chosen_ids, of the row.num_top most probable tokens and of token_id.
  SampleResult logprobs(const float* logits, int32_t token_id, const SampleRow& row);

 private:
  bool ids_are_valid(const SampleRow& row) const;
  void adjust(const float* logits, const SampleRow& row);
  void apply_penalties(const SampleRow& row);
  void apply_mask(const uint32_t* mask);
  float largest() const;
  int32_t argmax(const float* x, float largest) const;
  int32_t draw(const float* x, float largest, const SampleRow& row);
  void keep_top_k(const float* x, float largest, const SampleRow& row);
  void keep_heavy_tokens(float least);
  int32_t draw_any(double random) const;
  int32_t draw_kept(double random) const;
  LogSoftmax add_logprobs(const float* logits, const SampleRow& row, SampleResult& result);

  const size_t vocab_size_;
  const size_t num_blocks_;
  const SamplerKernels& kernels_;
  std::vector<float> adjusted_;       // [vocab]
  std::vector<float> weights_;        // [vocab], or those of the top k
  std::vector<float> maxima_;         // [blocks], of the logits in hand
  std::vector<float> weight_maxima_;  // [blocks]
  std::vector<double> weight_sums_;   // [blocks]
  std::vector<int32_t> counts_;       // [vocab], all zero between rows
  std::vector<int32_t> ids_;
  std::vector<float> values_;
  std::vector<Weighted> kept_;  // ascending by id
  std::vector<Weighted> scratch_;
};

}  // namespace espalier
