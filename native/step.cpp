#include "step.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace espalier {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw std::invalid_argument("bad step: " + message);
}

std::string name(const char* array, int64_t index, int64_t value) {
  return std::string(array) + "[" + std::to_string(index) + "] is " + std::to_string(value);
}

void check_starts(const char* array, std::span<const int32_t> starts, size_t end) {
  if (starts.size() < 2) fail(std::string(array) + " has fewer than 2 entries");
  if (starts.front() != 0) fail(name(array, 0, starts.front()) + ", not 0");
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] <= starts[i - 1]) {
      fail(name(array, static_cast<int64_t>(i), starts[i]) +
           "; every sequence has at least one row and one slot");
    }
  }
  if (static_cast<size_t>(starts.back()) != end) {
    fail(std::string(array) + " ends at " + std::to_string(starts.back()) + ", not at " +
         std::to_string(end));
  }
}

void check_range(const char* array, std::span<const int32_t> values, int64_t end,
                 const char* what) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] < 0 || values[i] >= end) {
      fail(name(array, static_cast<int64_t>(i), values[i]) + "; " + what + " are 0 to " +
           std::to_string(end - 1));
    }
  }
}

}  // namespace

StepChecker::StepChecker(const StepLimits& limits)
    : limits_(limits), written_in_(static_cast<size_t>(limits.num_slots), 0) {}

void StepChecker::check(const Step& step, std::vector<int32_t>& row_slots) {
  check_sizes(step);
  check_range("token_ids", step.token_ids, limits_.vocab_size, "tokens");
  check_range("slot_ids", step.slot_ids, limits_.num_slots, "slots");
  check_logit_rows(step);
  check_wanted(step);
  if (++step_number_ == 0) {
    std::fill(written_in_.begin(), written_in_.end(), 0);
    step_number_ = 1;
  }
  row_slots.clear();
  for (int64_t i = 0; i < step.num_sequences(); ++i) check_sequence(step, i, row_slots);
}

void StepChecker::check_sizes(const Step& step) const {
  const int64_t rows = step.num_rows();
  if (rows < 1 || rows > limits_.max_rows) {
    fail(std::to_string(rows) + " rows; 1 to max_rows (" + std::to_string(limits_.max_rows) +
         ") are allowed");
  }
  if (step.positions.size() != step.token_ids.size()) {
    fail(std::to_string(step.positions.size()) + " positions for " + std::to_string(rows) +
         " tokens");
  }
  if (step.slot_starts.size() != step.row_starts.size()) {
    fail("row_starts has " + std::to_string(step.row_starts.size()) + " entries, slot_starts " +
         std::to_string(step.slot_starts.size()));
  }
  check_starts("row_starts", step.row_starts, step.token_ids.size());
  check_starts("slot_starts", step.slot_starts, step.slot_ids.size());
}

void StepChecker::check_sequence(const Step& step, int64_t sequence,
                                 std::vector<int32_t>& row_slots) {
  const auto i = static_cast<size_t>(sequence);
  const int32_t first_slot = step.slot_starts[i];
  const int32_t context = step.slot_starts[i + 1] - first_slot;
  if (context > limits_.max_context) {
    fail("sequence " + std::to_string(sequence) + " is " + std::to_string(context) +
         " positions long; the model's context is " + std::to_string(limits_.max_context));
  }
  int32_t previous = -1;
  for (int32_t row = step.row_starts[i]; row < step.row_starts[i + 1]; ++row) {
    const int32_t position = step.positions[static_cast<size_t>(row)];
    if (position <= previous || position >= context) {
      fail(name("positions", row, position) + " in a sequence of " + std::to_string(context) +
           " slots; positions ascend, and the last one has the last slot");
    }
    previous = position;
    row_slots.push_back(step.slot_ids[static_cast<size_t>(first_slot + position)]);
    mark_written(row_slots.back());
  }
  if (previous != context - 1) {
    fail("sequence " + std::to_string(sequence) + " ends at position " + std::to_string(previous) +
         " and has " + std::to_string(context) + " slots; one slot per position is needed");
  }
}

void StepChecker::mark_written(int32_t slot) {
  uint32_t& mark = written_in_[static_cast<size_t>(slot)];
  if (mark == step_number_) fail("slot " + std::to_string(slot) + " is written by two rows");
  mark = step_number_;
}

void StepChecker::check_logit_rows(const Step& step) const {
  check_range("logit_rows", step.logit_rows, step.num_rows(), "rows");
  for (size_t i = 1; i < step.logit_rows.size(); ++i) {
    if (step.logit_rows[i] <= step.logit_rows[i - 1]) {
      fail(name("logit_rows", static_cast<int64_t>(i), step.logit_rows[i]) + "; they must ascend");
    }
  }
}

void StepChecker::check_wanted(const Step& step) const {
  const std::span<const int32_t> starts = step.wanted_starts;
  if (starts.empty()) return;
  if (starts.size() != step.logit_rows.size() + 1) {
    fail("wanted_starts has " + std::to_string(starts.size()) + " entries; " +
         std::to_string(step.logit_rows.size()) +
         " rows of logits need one more than their number");
  }
  if (starts.front() != 0) fail(name("wanted_starts", 0, starts.front()) + ", not 0");
  for (size_t i = 1; i < starts.size(); ++i) {
    if (starts[i] < starts[i - 1]) {
      fail(name("wanted_starts", static_cast<int64_t>(i), starts[i]) + "; they may not descend");
    }
  }
  if (static_cast<size_t>(starts.back()) != step.wanted_ids.size()) {
    fail("wanted_starts ends at " + std::to_string(starts.back()) + ", not at " +
         std::to_string(step.wanted_ids.size()) + ", the number of wanted_ids");
  }
  check_range("wanted_ids", step.wanted_ids, limits_.vocab_size, "tokens");
}

}  // namespace espalier
