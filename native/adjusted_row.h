// A row of logits as penalties, bias, bans and a mask leave it, without a copy of the vocabulary:
// the tokens that they change lie beside the row, and a block of it is put together when asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory.h"
#include "sampler_kernels.h"
#include "sampler_row.h"

namespace espalier {

// One row at a time. Blocks are those of the kernels: kSamplerBlock tokens, the last one perhaps
// fewer.
class AdjustedRow {
 public:
  AdjustedRow(size_t vocab_size, const SamplerKernels& kernels);

  size_t vocab_size() const { return vocab_size_; }
  size_t num_blocks() const { return num_blocks_; }

  // Takes a row as it is, but for the tokens that `mask` excludes, where there is one. Logits and
  // masks are read where they lie; those of excluded tokens may be any bits.
  void set(const float* logits, const uint32_t* mask = nullptr);

  // Changes it, in this order: penalties, bias, bans, mask. All ids are of the vocabulary.
  void adjust(const SampleRow& row);

  // The values of a block: in the logits themselves where nothing has changed them, else put
  // together in `buffer`. A short block is filled up with -infinity.
  const float* block(size_t index, float (&buffer)[kSamplerBlock]) const;

  // Whether a block may differ from the logits.
  bool is_changed(size_t index) const { return changed_[index] != 0 || masked(index) != 0; }

  // Whether the mask excludes all of a block.
  bool is_excluded(size_t index) const { return masked(index) == whole(index); }

  // The first block from `index` on of which the mask allows something; num_blocks() for none.
  size_t next_allowed(size_t index) const;

 private:
  float unmasked(int32_t id) const;
  void change(int32_t id, float value);
  void penalise(const SampleRow& row);
  void repeat(int32_t id, float penalty);
  uint64_t whole(size_t index) const;   // a bit for each token of the block
  uint64_t masked(size_t index) const;  // those that the mask excludes

  const SamplerKernels& kernels_;
  const size_t vocab_size_;
  const size_t num_blocks_;
  const float* logits_ = nullptr;
  const uint32_t* mask_ = nullptr;
  bool is_adjusted_ = false;
  std::vector<uint64_t> changed_;  // [blocks], a bit for each token that has a value in values_
  // By token, and paged in where something is written: few tokens are changed as a rule.
  Memory values_;  // float [vocab]
  Memory counts_;  // int32 [vocab], all zero between calls
};

}  // namespace espalier
