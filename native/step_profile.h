// Where the time of steps goes: what each kind of operation took, read and computed.
//
// Knows operations by their index and name only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace espalier {

// What one operation must do at least: bytes of weights and KV to be read once, multiplications of
// weights or KV with activations. What lies in caches as a rule (rows of activations) is left out.
struct OpCost {
  int64_t bytes = 0, multiply_adds = 0;
};

struct OpTotal {
  std::string name{};
  int64_t calls = 0;
  double seconds = 0;
  OpCost cost{};
};

class StepProfile {
 public:
  // A name for each operation of a step, in order; those of one name are summed up.
  explicit StepProfile(const std::vector<std::string>& names);

  void add(size_t op, double seconds, const OpCost& cost);
  void add_step(double preparing_seconds);

  // Whole steps, named "step", preparations included, and then the operations in their order.
  const std::vector<OpTotal>& totals() const { return totals_; }

 private:
  std::vector<size_t> total_of_;  // by operation
  std::vector<OpTotal> totals_;
};

}  // namespace espalier
