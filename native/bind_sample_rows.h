// Reads the sampler's rows from Python objects with the attributes of
// espalier.engine.sampler_rows.SampleRow.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <vector>

#include "sampler_row.h"

namespace espalier {

// The rows of one call and what they point to. To be dropped with the interpreter's lock held.
struct RowInputs {
  std::vector<SampleRow> rows;
  std::vector<nanobind::object> arrays;
  std::deque<std::vector<int32_t>> converted;
};

// A whole number, clamped to 64 bits.
int64_t whole_number(nanobind::handle value);

// Token ids of a sequence, with -1 for what no vocabulary has. An int32 array is not copied.
std::span<const int32_t> read_ids(nanobind::handle sequence, RowInputs& inputs);

// Remembers sampling parameters that it has read, which never change: rows of one request name the
// same ones at every step.
class RowReader {
 public:
  explicit RowReader(size_t vocab_size) : num_mask_words_((vocab_size + 31) / 32) {}

  // Adds a row to `inputs`. Throws std::invalid_argument for a mask of the wrong size, and what
  // Python raises.
  void read(nanobind::handle object, RowInputs& inputs);

 private:
  struct Known {
    nanobind::object sampling;  // alive, so that no other object gets its address
    SampleRow row;              // what it says
  };

  const SampleRow& settings_of(nanobind::handle sampling);
  void read_mask(nanobind::handle mask, SampleRow& row, RowInputs& inputs) const;

  const size_t num_mask_words_;
  std::unordered_map<PyObject*, Known> known_;
};

}  // namespace espalier
