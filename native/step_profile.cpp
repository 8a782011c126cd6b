#include "step_profile.h"

#include <algorithm>

namespace espalier {

StepProfile::StepProfile(const std::vector<std::string>& names) : totals_{{.name = "step"}} {
  for (const std::string& name : names) {
    const auto same = std::find_if(totals_.begin() + 1, totals_.end(),
                                   [&](const OpTotal& total) { return total.name == name; });
    total_of_.push_back(static_cast<size_t>(same - totals_.begin()));
    if (same == totals_.end()) totals_.push_back({.name = name});
  }
}

void StepProfile::add(size_t op, double seconds, const OpCost& cost) {
  OpTotal& total = totals_[total_of_[op]];
  ++total.calls;
  total.seconds += seconds;
  total.cost.bytes += cost.bytes;
  total.cost.multiply_adds += cost.multiply_adds;
  totals_.front().seconds += seconds;
  totals_.front().cost.bytes += cost.bytes;
  totals_.front().cost.multiply_adds += cost.multiply_adds;
}

void StepProfile::add_step(double preparing_seconds) {
  ++totals_.front().calls;
  totals_.front().seconds += preparing_seconds;
}

}  // namespace espalier
