#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampler_random.h"

namespace espalier {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

// An infinite bias makes a token certain.
float capped(float value) { return value < kLargest ? value : kLargest; }

double sum_of(const std::vector<double>& block_sums) {
  double sum = 0.0;
  for (const double block_sum : block_sums) sum += block_sum;
  return sum;
}

bool has_penalty(const SampleRow& row) {
  return row.repetition_penalty != 1.0f || row.frequency_penalty != 0.0f ||
         row.presence_penalty != 0.0f;
}

}  // namespace

TokenSampler::TokenSampler(size_t vocab_size, const SamplerKernels& kernels)
    : vocab_size_(vocab_size),
      num_blocks_((vocab_size + kSamplerBlock - 1) / kSamplerBlock),
      kernels_(kernels),
      adjusted_(vocab_size),
      weights_(vocab_size),
      maxima_(num_blocks_),
      weight_maxima_(num_blocks_),
      weight_sums_(num_blocks_),
      counts_(vocab_size) {}

SampleResult TokenSampler::sample(const float* logits, const SampleRow& row) {
  SampleResult result;
  if (!ids_are_valid(row)) {
    result.status = SampleStatus::kBadTokenId;
    return result;
  }
  if (!kernels_.block_maxima(logits, vocab_size_, maxima_.data()) || !std::isfinite(largest())) {
    result.status = SampleStatus::kBrokenLogits;
    return result;
  }
  // Log-probabilities need the maxima of the raw logits, so they come before the adjusting.
  LogSoftmax log_softmax;
  if (row.wants_logprobs) log_softmax = add_logprobs(logits, row, result);
  const float* x = logits;
  if (row.mask != nullptr || has_penalty(row) || !row.bias.empty() || !row.banned_ids.empty()) {
    adjust(logits, row);
    x = adjusted_.data();
    kernels_.block_maxima(x, vocab_size_, maxima_.data());
  }
  const float most = largest();
  if (most == -kInfinity) {
    result.status = SampleStatus::kNothingAllowed;
    return result;
  }
  const bool takes_largest = row.is_greedy || row.top_k == 1;
  result.token_id = takes_largest ? argmax(x, most) : draw(x, most, row);
  if (row.wants_logprobs) result.logprob = log_softmax.of(logits[result.token_id]);
  return result;
}

SampleResult TokenSampler::logprobs(const float* logits, int32_t token_id, const SampleRow& row) {
  SampleResult result;
  result.token_id = token_id;
  if (!ids_are_valid(row) || token_id < 0 || static_cast<size_t>(token_id) >= vocab_size_) {
    result.status = SampleStatus::kBadTokenId;
  } else if (!kernels_.block_maxima(logits, vocab_size_, maxima_.data()) ||
             !std::isfinite(largest())) {
    result.status = SampleStatus::kBrokenLogits;
  } else {
    result.logprob = add_logprobs(logits, row, result).of(logits[token_id]);
  }
  return result;
}

bool TokenSampler::ids_are_valid(const SampleRow& row) const {
  const auto is_valid = [this](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < vocab_size_;
  };
  for (const auto* ids : {&row.prompt_ids, &row.output_ids, &row.banned_ids, &row.chosen_ids}) {
    if (!std::all_of(ids->begin(), ids->end(), is_valid)) return false;
  }
  return std::all_of(row.bias.begin(), row.bias.end(),
                     [&](const auto& entry) { return is_valid(entry.first); });
}

void TokenSampler::adjust(const float* logits, const SampleRow& row) {
  std::copy(logits, logits + vocab_size_, adjusted_.begin());
  if (has_penalty(row)) apply_penalties(row);
  for (const auto& [id, amount] : row.bias) {
    // What the model excludes stays excluded.
    if (adjusted_[id] > -kInfinity) adjusted_[id] = capped(adjusted_[id] + amount);
  }
  for (const int32_t id : row.banned_ids) adjusted_[id] = -kInfinity;
  if (row.mask != nullptr) apply_mask(row.mask);
}

void TokenSampler::apply_penalties(const SampleRow& row) {
  const auto repeat = [&](int32_t id) {
    if (row.repetition_penalty == 1.0f) return;
    float& value = adjusted_[id];
    if (value == -kInfinity) return;  // a penalty as small as 0 would make it NaN
    value = capped(value > 0 ? value / row.repetition_penalty : value * row.repetition_penalty);
  };
  for (const int32_t id : row.output_ids) {
    if (counts_[id]++ == 0) repeat(id);
  }
  for (const int32_t id : row.output_ids) {
    if (counts_[id] <= 0) continue;
    adjusted_[id] -= row.frequency_penalty * static_cast<float>(counts_[id]);
    adjusted_[id] -= row.presence_penalty;
    counts_[id] = -1;  // done
  }
  for (const int32_t id : row.prompt_ids) {
    if (counts_[id] == 0) repeat(id);
    counts_[id] = -1;
  }
  for (const int32_t id : row.output_ids) counts_[id] = 0;
  for (const int32_t id : row.prompt_ids) counts_[id] = 0;
}

void TokenSampler::apply_mask(const uint32_t* mask) {
  for (size_t start = 0; start < vocab_size_; start += 32) {
    const uint32_t word = mask[start / 32];
    if (word == ~uint32_t{0}) continue;
    const size_t count = std::min<size_t>(32, vocab_size_ - start);
    for (size_t i = 0; i < count; ++i) {
      adjusted_[start + i] = (word >> i & 1) != 0 ? adjusted_[start + i] : -kInfinity;
    }
  }
}

float TokenSampler::largest() const { return *std::max_element(maxima_.begin(), maxima_.end()); }

int32_t TokenSampler::argmax(const float* x, float largest) const {
  const size_t block = std::find(maxima_.begin(), maxima_.end(), largest) - maxima_.begin();
  size_t i = block * kSamplerBlock;
  while (x[i] != largest) ++i;
  return static_cast<int32_t>(i);
}

int32_t TokenSampler::draw(const float* x, float largest, const SampleRow& row) {
  const double random = uniform(row.seed, row.position);
  const bool has_top_k = row.top_k > 0 && static_cast<size_t>(row.top_k) < vocab_size_;
  if (has_top_k) {
    keep_top_k(x, largest, row);
    if (row.top_p < 1.0) keep_heaviest(kept_, row.top_p * weight_sum(kept_), scratch_);
  } else {
    kernels_.weights(x, vocab_size_, largest, row.inv_temperature, weights_.data(),
                     weight_sums_.data(), weight_maxima_.data());
    if (row.top_p < 1.0) {
      const double target = row.top_p * sum_of(weight_sums_);
      keep_heavy_tokens(0x1p-8f);  // as a rule few tokens reach the share
      if (weight_sum(kept_) < target) keep_heavy_tokens(0x1p-33f);
      keep_heaviest(kept_, target, scratch_);
    } else if (row.min_p > 0.0f) {
      keep_heavy_tokens(row.min_p);
    } else {
      return draw_any(random);
    }
  }
  if (row.min_p > 0.0f) {
    std::erase_if(kept_, [&](const Weighted& token) { return token.weight < row.min_p; });
  }
  return draw_kept(random);
}

void TokenSampler::keep_top_k(const float* x, float largest, const SampleRow& row) {
  select_largest(x, vocab_size_, maxima_.data(), static_cast<size_t>(row.top_k), values_, ids_);
  std::sort(ids_.begin(), ids_.end());
  values_.resize(ids_.size());
  for (size_t i = 0; i < ids_.size(); ++i) values_[i] = x[ids_[i]];
  kernels_.weights(values_.data(), values_.size(), largest, row.inv_temperature, weights_.data(),
                   weight_sums_.data(), weight_maxima_.data());
  kept_.clear();
  for (size_t i = 0; i < ids_.size(); ++i) kept_.push_back({ids_[i], weights_[i]});
}

void TokenSampler::keep_heavy_tokens(float least) {
  size_t count = 0;
  for (size_t block = 0; block < num_blocks_; ++block) {
    if (weight_maxima_[block] < least) continue;
    if (kept_.size() < count + kSamplerBlock + 1) kept_.resize(2 * (count + kSamplerBlock + 1));
    const size_t end = std::min(vocab_size_, (block + 1) * kSamplerBlock);
    for (size_t i = block * kSamplerBlock; i < end; ++i) {
      // Written ahead and kept if heavy enough: no branch to mispredict.
      kept_[count] = {static_cast<int32_t>(i), weights_[i]};
      count += weights_[i] >= least ? 1 : 0;
    }
  }
  kept_.resize(count);
}

int32_t TokenSampler::draw_any(double random) const {
  const double target = random * sum_of(weight_sums_);  // less than the sum
  double reached = 0.0;
  size_t block = 0;
  while (reached + weight_sums_[block] <= target) reached += weight_sums_[block++];
  size_t i = block * kSamplerBlock;
  for (;; ++i) {
    reached += static_cast<double>(weights_[i]);
    if (reached > target) return static_cast<int32_t>(i);
  }
}

int32_t TokenSampler::draw_kept(double random) const {
  const double target = random * weight_sum(kept_);
  double reached = 0.0;
  for (const Weighted& token : kept_) {
    reached += static_cast<double>(token.weight);
    if (reached > target) return token.id;
  }
  return kept_.back().id;
}

LogSoftmax TokenSampler::add_logprobs(const float* logits, const SampleRow& row,
                                      SampleResult& result) {
  const float most = largest();
  const LogSoftmax log_softmax{static_cast<double>(most),
                               std::log(kernels_.exp_sum(logits, vocab_size_, most))};
  const auto num_top = static_cast<size_t>(std::max<int64_t>(0, row.num_top));
  select_largest(logits, vocab_size_, maxima_.data(), std::min(vocab_size_, num_top), values_,
                 ids_);
  std::sort(ids_.begin(), ids_.end(), [logits](int32_t a, int32_t b) {
    return logits[a] > logits[b] || (logits[a] == logits[b] && a < b);
  });
  for (const int32_t id : ids_) result.top.emplace_back(id, log_softmax.of(logits[id]));
  for (const int32_t id : row.chosen_ids) result.chosen.push_back(log_softmax.of(logits[id]));
  return log_softmax;
}

}  // namespace espalier
