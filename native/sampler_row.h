// How to choose the token of one row of logits, and what comes of it. Knows nothing of Python.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace espalier {

// Settings of one row. Ids may lie outside the vocabulary: the row then ends as kBadTokenId. The
// spans are somebody else's memory.
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
  std::span<const int32_t> prompt_ids;  // filled only where a penalty reads them
  std::span<const int32_t> output_ids;
  std::span<const int32_t> banned_ids;
  std::span<const std::pair<int32_t, float>> bias;
  const uint32_t* mask = nullptr;  // bit set: allowed
  bool wants_logprobs = false;
  int64_t num_top = 0;
  std::span<const int32_t> chosen_ids;

  bool has_penalty() const {
    return repetition_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f;
  }
};

enum class SampleStatus : int { kOk = 0, kBrokenLogits = 1, kNothingAllowed = 2, kBadTokenId = 3 };

struct SampleResult {
  SampleStatus status = SampleStatus::kOk;
  int32_t token_id = -1;
  bool has_logprobs = false;  // whether the fields below mean anything
  double logprob = 0.0;
  std::vector<std::pair<int32_t, double>> top;
  std::vector<double> chosen;
};

}  // namespace espalier
