// States of the automaton: sets of terms, with a row of successors each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "intern_index.h"

namespace espalier {

struct State {
  uint32_t first_term = 0, num_terms = 0;
  bool is_accepting = false;
  bool is_filled = false;   // no successor in its row is unknown
  uint32_t mask_state = 0;  // see LazyDfa::mask_state; kDead where it was not asked for
};

// Equal states have one index. States are never removed.
class StateTable {
 public:
  static constexpr uint32_t kDead = 0;   // no text goes on from here
  static constexpr uint32_t kEnded = 1;  // the text was ended: accepting, and nothing follows
  static constexpr uint32_t kUnknown = UINT32_MAX;  // a successor that was not looked for

  explicit StateTable(int num_classes) : num_classes_(static_cast<size_t>(num_classes)) {
    add({.is_filled = true}, kDead);
    add({.is_accepting = true, .is_filled = true, .mask_state = kEnded}, kDead);
  }

  // The state of these terms, which are sorted and differ.
  uint32_t intern(std::span<const uint32_t> terms, bool is_accepting) {
    uint64_t hash = is_accepting;
    for (const uint32_t term : terms) hash = mixed(hash, term);
    const uint32_t found = index_.find(hash, [&](uint32_t i) {
      return states_[i].is_accepting == is_accepting && std::ranges::equal(this->terms(i), terms);
    });
    if (found != InternIndex::kNone) return found;
    State state{.first_term = static_cast<uint32_t>(terms_.size()),
                .num_terms = static_cast<uint32_t>(terms.size()),
                .is_accepting = is_accepting};
    terms_.insert(terms_.end(), terms.begin(), terms.end());
    const uint32_t index = add(state, kUnknown);
    index_.insert(hash, index);
    return index;
  }

  // All valid until the next intern.
  State& operator[](uint32_t index) { return states_[index]; }
  const State& operator[](uint32_t index) const { return states_[index]; }
  std::span<const uint32_t> terms(uint32_t index) const {
    return {terms_.data() + states_[index].first_term, states_[index].num_terms};
  }
  uint32_t* row(uint32_t index) { return rows_.data() + index * num_classes_; }
  const uint32_t* row(uint32_t index) const { return rows_.data() + index * num_classes_; }
  const uint32_t* rows() const { return rows_.data(); }

  size_t size() const { return states_.size(); }
  size_t num_bytes() const {
    return states_.capacity() * sizeof(State) +
           (terms_.capacity() + rows_.capacity()) * sizeof(uint32_t) + index_.num_bytes();
  }

 private:
  uint32_t add(const State& state, uint32_t successor) {
    states_.push_back(state);
    rows_.resize(rows_.size() + num_classes_, successor);
    return static_cast<uint32_t>(states_.size() - 1);
  }

  size_t num_classes_;
  std::vector<State> states_;
  std::vector<uint32_t> terms_;
  std::vector<uint32_t> rows_;  // [states, classes]
  InternIndex index_;
};

}  // namespace espalier
