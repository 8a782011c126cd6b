// The error of work that stopped at one of its limits.
#pragma once

#include <stdexcept>
#include <string>

namespace espalier {

// The message names the limit: "more than 10 states of the automaton". What was built stays valid.
struct LimitReached : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace espalier
