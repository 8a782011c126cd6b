#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sampler_random.h"

namespace espalier {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double sum_of(const std::vector<double>& block_sums) {
  double sum = 0.0;
  for (const double block_sum : block_sums) sum += block_sum;
  return sum;
}

}  // namespace

TokenSampler::TokenSampler(size_t vocab_size, const SamplerKernels& kernels)
    : kernels_(kernels),
      row_(vocab_size, kernels),
      maxima_(row_.num_blocks()),
      weight_maxima_(row_.num_blocks()),
      weight_sums_(row_.num_blocks()) {}

SampleResult TokenSampler::sample(const float* logits, const SampleRow& row) {
  SampleResult result;
  if (!ids_are_valid(row)) {
    result.status = SampleStatus::kBadTokenId;
    return result;
  }
  // Where nobody asks for log-probabilities, logits that the mask excludes count for nothing.
  const bool reads_all = row.mask == nullptr || row.wants_logprobs;
  if (!(reads_all ? take_row(logits) : take_allowed(logits, row.mask))) {
    result.status = SampleStatus::kBrokenLogits;
    return result;
  }
  // Log-probabilities are those of the raw logits, so they come before the adjusting.
  LogSoftmax log_softmax;
  result.has_logprobs = row.wants_logprobs;
  if (row.wants_logprobs) log_softmax = add_logprobs(logits, row, result);
  const bool has_changes = row.has_penalty() || !row.bias.empty() || !row.banned_ids.empty();
  if (has_changes || (reads_all && row.mask != nullptr)) adjust(row);
  const float most = largest();
  if (most == -kInfinity) {
    result.status = SampleStatus::kNothingAllowed;
    return result;
  }
  const bool takes_largest = row.is_greedy || row.top_k == 1;
  result.token_id = takes_largest ? argmax(most) : draw(most, row);
  if (row.wants_logprobs) result.logprob = log_softmax.of(logits[result.token_id]);
  return result;
}

SampleResult TokenSampler::logprobs(const float* logits, int32_t token_id, const SampleRow& row) {
  SampleResult result;
  result.token_id = token_id;
  result.has_logprobs = true;
  if (!ids_are_valid(row) || token_id < 0 || static_cast<size_t>(token_id) >= vocab_size()) {
    result.status = SampleStatus::kBadTokenId;
  } else if (!take_row(logits)) {
    result.status = SampleStatus::kBrokenLogits;
  } else {
    result.logprob = add_logprobs(logits, row, result).of(logits[token_id]);
  }
  return result;
}

bool TokenSampler::ids_are_valid(const SampleRow& row) const {
  const auto is_valid = [this](int32_t id) {
    return id >= 0 && static_cast<size_t>(id) < vocab_size();
  };
  for (const auto& ids : {row.prompt_ids, row.output_ids, row.banned_ids, row.chosen_ids}) {
    if (!std::all_of(ids.begin(), ids.end(), is_valid)) return false;
  }
  return std::all_of(row.bias.begin(), row.bias.end(),
                     [&](const auto& entry) { return is_valid(entry.first); });
}

// False for logits that are no numbers.
bool TokenSampler::take_row(const float* logits) {
  row_.set(logits);
  return kernels_.block_maxima(logits, vocab_size(), maxima_.data()) && std::isfinite(largest());
}

// The same for a row of which nothing is read that the mask excludes. A mask that excludes all is
// no fault of the logits.
bool TokenSampler::take_allowed(const float* logits, const uint32_t* mask) {
  row_.set(logits, mask);
  std::fill(maxima_.begin(), maxima_.end(), -kInfinity);
  const size_t first = row_.next_allowed(0);
  bool are_numbers = true;
  float buffer[kSamplerBlock];
  for (size_t index = first, end; index < row_.num_blocks(); index = row_.next_allowed(end)) {
    end = index + 1;
    if (row_.is_changed(index)) {
      const float* block = row_.block(index, buffer);
      are_numbers &= kernels_.block_maxima(block, kSamplerBlock, &maxima_[index]);
      continue;
    }
    while (end < row_.num_blocks() && !row_.is_changed(end)) ++end;
    const size_t start = index * kSamplerBlock, stop = std::min(end * kSamplerBlock, vocab_size());
    are_numbers &= kernels_.block_maxima(logits + start, stop - start, &maxima_[index]);
  }
  return are_numbers && (first == row_.num_blocks() || std::isfinite(largest()));
}

void TokenSampler::adjust(const SampleRow& row) {
  row_.adjust(row);
  float buffer[kSamplerBlock];
  for (size_t index = 0; index < row_.num_blocks(); ++index) {
    if (row_.is_excluded(index)) {
      maxima_[index] = -kInfinity;
    } else if (row_.is_changed(index)) {
      kernels_.block_maxima(row_.block(index, buffer), kSamplerBlock, &maxima_[index]);
    }
  }
}

float TokenSampler::largest() const { return *std::max_element(maxima_.begin(), maxima_.end()); }

int32_t TokenSampler::argmax(float largest) const {
  const size_t index = std::find(maxima_.begin(), maxima_.end(), largest) - maxima_.begin();
  float buffer[kSamplerBlock];
  const float* x = row_.block(index, buffer);
  size_t i = 0;
  while (x[i] != largest) ++i;
  return static_cast<int32_t>(index * kSamplerBlock + i);
}

int32_t TokenSampler::draw(float largest, const SampleRow& row) {
  const double random = uniform(row.seed, row.position);
  const float inv_temperature = row.inv_temperature;
  const bool has_top_k = row.top_k > 0 && static_cast<size_t>(row.top_k) < vocab_size();
  if (has_top_k) {
    keep_top_k(largest, row);
    if (row.top_p < 1.0) keep_heaviest(kept_, row.top_p * weight_sum(kept_), scratch_);
  } else {
    weigh_blocks(largest, inv_temperature);
    if (row.top_p < 1.0) {
      const double target = row.top_p * sum_of(weight_sums_);
      keep_heavy_tokens(0x1p-8f, largest, inv_temperature);  // as a rule few reach the share
      if (weight_sum(kept_) < target) keep_heavy_tokens(0x1p-33f, largest, inv_temperature);
      keep_heaviest(kept_, target, scratch_);
    } else if (row.min_p > 0.0f) {
      keep_heavy_tokens(row.min_p, largest, inv_temperature);
    } else {
      return draw_any(random, largest, inv_temperature);
    }
  }
  if (row.min_p > 0.0f) {
    std::erase_if(kept_, [&](const Weighted& token) { return token.weight < row.min_p; });
  }
  return draw_kept(random);
}

// Sums and maxima of the blocks' weights. The weights themselves are computed again where they are
// asked for: they take the same bits each time.
void TokenSampler::weigh_blocks(float largest, float inv_temperature) {
  float buffers[kSamplerGroup][kSamplerBlock], weights[kSamplerGroup * kSamplerBlock];
  const float* blocks[kSamplerGroup];
  size_t indices[kSamplerGroup], count = 0;
  double sums[kSamplerGroup];
  float maxima[kSamplerGroup];
  const auto weigh = [&] {
    kernels_.weights(blocks, count, largest, inv_temperature, weights, sums, maxima);
    for (size_t i = 0; i < count; ++i) {
      weight_sums_[indices[i]] = sums[i];
      weight_maxima_[indices[i]] = maxima[i];
    }
    count = 0;
  };
  for (size_t index = 0; index < row_.num_blocks(); ++index) {
    if ((maxima_[index] - largest) * inv_temperature < kLeastExponent) {
      weight_sums_[index] = 0.0;
      weight_maxima_[index] = 0.0f;
      continue;
    }
    blocks[count] = row_.block(index, buffers[count]);
    indices[count++] = index;
    if (count == kSamplerGroup) weigh();
  }
  if (count > 0) weigh();
}

void TokenSampler::keep_top_k(float largest, const SampleRow& row) {
  select_largest(row_, maxima_.data(), static_cast<size_t>(row.top_k), bounds_, top_);
  std::sort(top_.begin(), top_.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  kept_.clear();
  float values[kSamplerBlock], weights[kSamplerBlock];
  for (size_t start = 0; start < top_.size(); start += kSamplerBlock) {
    const size_t count = std::min(kSamplerBlock, top_.size() - start);
    for (size_t i = 0; i < kSamplerBlock; ++i) {
      values[i] = i < count ? top_[start + i].value : -kInfinity;
    }
    const float* block = values;
    double sum;
    float most;
    kernels_.weights(&block, 1, largest, row.inv_temperature, weights, &sum, &most);
    for (size_t i = 0; i < count; ++i) kept_.push_back({top_[start + i].id, weights[i]});
  }
}

void TokenSampler::keep_heavy_tokens(float least, float largest, float inv_temperature) {
  float buffer[kSamplerBlock], weights[kSamplerBlock];
  size_t count = 0;
  for (size_t index = 0; index < row_.num_blocks(); ++index) {
    if (weight_maxima_[index] < least) continue;
    if (kept_.size() < count + kSamplerBlock + 1) kept_.resize(2 * (count + kSamplerBlock + 1));
    const float* block = row_.block(index, buffer);
    double sum;
    float most;
    kernels_.weights(&block, 1, largest, inv_temperature, weights, &sum, &most);
    for (size_t i = 0; i < kSamplerBlock; ++i) {
      // Written ahead and kept if heavy enough: no branch to mispredict. What fills up the last
      // block weighs nothing.
      kept_[count] = {static_cast<int32_t>(index * kSamplerBlock + i), weights[i]};
      count += weights[i] >= least ? 1 : 0;
    }
  }
  kept_.resize(count);
}

int32_t TokenSampler::draw_any(double random, float largest, float inv_temperature) const {
  const double target = random * sum_of(weight_sums_);  // less than the sum
  double reached = 0.0;
  size_t index = 0;
  while (reached + weight_sums_[index] <= target) reached += weight_sums_[index++];
  float buffer[kSamplerBlock], weights[kSamplerBlock];
  const float* block = row_.block(index, buffer);
  double sum;
  float most;
  kernels_.weights(&block, 1, largest, inv_temperature, weights, &sum, &most);
  for (size_t i = 0;; ++i) {
    reached += static_cast<double>(weights[i]);
    if (reached > target) return static_cast<int32_t>(index * kSamplerBlock + i);
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
                               std::log(kernels_.exp_sum(logits, vocab_size(), most))};
  const auto num_top = static_cast<size_t>(std::max<int64_t>(0, row.num_top));
  select_largest(row_, maxima_.data(), std::min(vocab_size(), num_top), bounds_, top_);
  std::sort(top_.begin(), top_.end(), is_larger);
  for (const Candidate& token : top_) {
    result.top.emplace_back(token.id, log_softmax.of(token.value));
  }
  for (const int32_t id : row.chosen_ids) result.chosen.push_back(log_softmax.of(logits[id]));
  return log_softmax;
}

}  // namespace espalier
