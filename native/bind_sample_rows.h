// Reads the sampler's rows from Python objects with the attributes of
// espalier.engine.sampler_rows.SampleRow.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "sampler_row.h"

namespace espalier {

// The rows of one call and what they point to. To be dropped with the interpreter's lock held.
struct RowInputs {
  std::vector<SampleRow> rows;
  std::vector<nanobind::object> owners;
  std::deque<std::vector<int32_t>> converted;
};

// A whole number, clamped to 64 bits.
int64_t whole_number(nanobind::handle value);

// Token ids of a sequence, with -1 for what no vocabulary has. An int32 array without gaps is read
// where it lies, everything else copied. Throws what Python raises for what is no whole number.
std::span<const int32_t> read_ids(nanobind::handle sequence, RowInputs& inputs);

// Leaves with each Python row what it has read of the row's sampling parameters, which never
// change: the row of a request comes at every step, and what was read ends with it.
class RowReader {
 public:
  explicit RowReader(size_t vocab_size) : num_mask_words_((vocab_size + 31) / 32) {}

  // Adds a row to `inputs`. Throws std::invalid_argument for a mask of the wrong size, and what
  // Python raises.
  void read(nanobind::handle object, RowInputs& inputs) const;

 private:
  void read_mask(nanobind::handle mask, SampleRow& row, RowInputs& inputs) const;

  const size_t num_mask_words_;
};

}  // namespace espalier
