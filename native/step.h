// One step as it comes from the engine, and the check that makes it safe to run.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace espalier {

// See StepBatch in src/espalier/exec/executor.py.
struct Step {
  std::span<const int32_t> token_ids, positions, row_starts, slot_ids, slot_starts, logit_rows;
  // For each row of logits the tokens whose logits are wanted, none for all of them; or no entry at
  // all where every logit of every row is wanted.
  std::span<const int32_t> wanted_starts{}, wanted_ids{};

  int64_t num_rows() const { return static_cast<int64_t>(token_ids.size()); }
  int64_t num_sequences() const { return static_cast<int64_t>(row_starts.size()) - 1; }
};

struct StepLimits {
  int64_t max_rows, num_slots, vocab_size, max_context;
};

// Checks steps; holds a mark per slot so that it finds a slot written twice without sorting.
class StepChecker {
 public:
  explicit StepChecker(const StepLimits& limits);

  // Throws std::invalid_argument that says what is wrong. Otherwise every index of the step is in
  // bounds, and `row_slots` becomes the slot that each row writes.
  void check(const Step& step, std::vector<int32_t>& row_slots);

 private:
  void check_sizes(const Step& step) const;
  void check_sequence(const Step& step, int64_t sequence, std::vector<int32_t>& row_slots);
  void check_logit_rows(const Step& step) const;
  void check_wanted(const Step& step) const;
  void mark_written(int32_t slot);

  StepLimits limits_;
  std::vector<uint32_t> written_in_;  // number of the step that wrote a slot last
  uint32_t step_number_ = 0;
};

}  // namespace espalier
