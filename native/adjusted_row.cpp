#include "adjusted_row.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace espalier {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
static_assert(kSamplerBlock == 64);  // a bit of a word for each token

// An infinite bias makes a token certain.
float capped(float value) { return value < kLargest ? value : kLargest; }

size_t block_of(int32_t id) { return static_cast<size_t>(id) / kSamplerBlock; }
uint64_t bit_of(int32_t id) { return uint64_t{1} << (static_cast<size_t>(id) % kSamplerBlock); }

}  // namespace

AdjustedRow::AdjustedRow(size_t vocab_size, const SamplerKernels& kernels)
    : kernels_(kernels),
      vocab_size_(vocab_size),
      num_blocks_((vocab_size + kSamplerBlock - 1) / kSamplerBlock),
      changed_(num_blocks_),
      values_(vocab_size * sizeof(float)),
      counts_(vocab_size * sizeof(int32_t)) {}

void AdjustedRow::set(const float* logits, const uint32_t* mask) {
  logits_ = logits;
  mask_ = mask;
  if (is_adjusted_) std::fill(changed_.begin(), changed_.end(), 0);
  is_adjusted_ = false;
}

void AdjustedRow::adjust(const SampleRow& row) {
  is_adjusted_ = true;
  if (row.has_penalty()) penalise(row);
  for (const auto& [id, amount] : row.bias) {
    const float value = unmasked(id);
    // What the model excludes stays excluded.
    if (value > -kInfinity) change(id, capped(value + amount));
  }
  for (const int32_t id : row.banned_ids) change(id, -kInfinity);
  mask_ = row.mask;
}

void AdjustedRow::penalise(const SampleRow& row) {
  auto* counts = counts_.as<int32_t>();
  for (const int32_t id : row.output_ids) {
    if (counts[id]++ == 0) repeat(id, row.repetition_penalty);
  }
  for (const int32_t id : row.output_ids) {
    if (counts[id] <= 0) continue;
    float value = unmasked(id);
    value -= row.frequency_penalty * static_cast<float>(counts[id]);
    value -= row.presence_penalty;
    change(id, value);
    counts[id] = -1;  // done
  }
  for (const int32_t id : row.prompt_ids) {
    if (counts[id] == 0) repeat(id, row.repetition_penalty);
    counts[id] = -1;
  }
  for (const int32_t id : row.output_ids) counts[id] = 0;
  for (const int32_t id : row.prompt_ids) counts[id] = 0;
}

void AdjustedRow::repeat(int32_t id, float penalty) {
  if (penalty == 1.0f) return;
  const float value = unmasked(id);
  if (value == -kInfinity) return;  // a penalty as small as 0 would make it NaN
  change(id, capped(value > 0 ? value / penalty : value * penalty));
}

void AdjustedRow::change(int32_t id, float value) {
  changed_[block_of(id)] |= bit_of(id);
  values_.as<float>()[id] = value;
}

float AdjustedRow::unmasked(int32_t id) const {
  const bool is_changed = (changed_[block_of(id)] & bit_of(id)) != 0;
  return is_changed ? values_.as<float>()[id] : logits_[id];
}

uint64_t AdjustedRow::whole(size_t index) const {
  const size_t count = vocab_size_ - index * kSamplerBlock;
  return count >= kSamplerBlock ? ~uint64_t{0} : (uint64_t{1} << count) - 1;
}

uint64_t AdjustedRow::masked(size_t index) const {
  if (mask_ == nullptr) return 0;
  uint64_t allowed = mask_[2 * index];
  if (2 * index + 1 < (vocab_size_ + 31) / 32) allowed |= uint64_t{mask_[2 * index + 1]} << 32;
  return ~allowed & whole(index);
}

size_t AdjustedRow::next_allowed(size_t index) const {
  while (index < num_blocks_ && is_excluded(index)) ++index;
  return index;
}

const float* AdjustedRow::block(size_t index, float (&buffer)[kSamplerBlock]) const {
  const size_t start = index * kSamplerBlock;
  const size_t count = std::min(kSamplerBlock, vocab_size_ - start);
  const uint64_t excluded = masked(index);
  uint64_t changed = changed_[index];
  if (changed == 0 && excluded == 0 && count == kSamplerBlock) return logits_ + start;
  const float* x = logits_ + start;
  if (changed != 0 || count < kSamplerBlock) {
    std::copy_n(x, count, buffer);
    std::fill(buffer + count, buffer + kSamplerBlock, -kInfinity);
    x = buffer;
  }
  for (; changed != 0; changed &= changed - 1) {
    const auto i = static_cast<size_t>(std::countr_zero(changed));
    buffer[i] = values_.as<float>()[start + i];
  }
  if (excluded != 0) kernels_.exclude(x, excluded, buffer);
  return buffer;
}

}  // namespace espalier
