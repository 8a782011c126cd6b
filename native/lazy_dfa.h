// The deterministic automaton of a pattern, built where a text or a mask gets to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pair_table.h"
#include "pattern_program.h"
#include "state_table.h"
#include "term_table.h"

namespace espalier {

struct AutomatonLimits {
  int64_t max_bytes = 0;
  int64_t max_states = 0;
  int64_t max_compile_steps = 0;
  int64_t max_steps = 0;  // of one mask, one token or one search
};

// A state stands for what may follow; every state but kDead can still become accepting. The states
// of both patterns of an intersection or difference are states of the same automaton, so that a
// pair of them is one more thing that a term can wait in. Not thread-safe. Where a limit is
// reached, the functions throw LimitReached, and what was built before stays valid.
class LazyDfa {
 public:
  static constexpr uint32_t kDead = StateTable::kDead;
  static constexpr uint32_t kEnded = StateTable::kEnded;
  static constexpr uint32_t kUnknown = StateTable::kUnknown;

  // `is_spelled` tells the bytes that some token is, `horizon` how far masks look: the bytes of the
  // longest token.
  LazyDfa(PatternProgram program, const bool (&is_spelled)[256], uint32_t horizon,
          const AutomatonLimits& limits);

  // Gives the steps of one task; each function below spends them.
  void refuel() { steps_left_ = limits_.max_steps; }

  uint32_t start() const { return start_; }
  // Surely some text is made of bytes that tokens are.
  bool is_start_spelled() const { return program_.nodes.back().is_spelled; }
  bool is_accepting(uint32_t state) const { return states_[state].is_accepting; }
  // Something may follow.
  bool can_go_on(uint32_t state) const { return states_[state].num_terms > 0; }

  uint32_t next(uint32_t state, uint8_t byte) {
    const uint32_t found = states_.row(state)[classes_[byte]];
    return found != StateTable::kUnknown ? found : find_next(state, classes_[byte]);
  }

  // Makes the whole row of a state known.
  void fill(uint32_t state) {
    if (!states_[state].is_filled) fill_row(state);
  }
  // [states, num_classes], with kUnknown where a state was not filled; valid until the next fill.
  const uint32_t* rows() const { return states_.rows(); }
  size_t num_classes() const { return static_cast<size_t>(num_classes_); }
  const uint8_t (&classes() const)[256] { return classes_; }

  // The only byte that may follow, -1 where there are several or the text may end.
  int only_byte(uint32_t state);

  // A state that cannot be told from `state` within the horizon. Those that differ only in counts
  // that no token can use up share one.
  uint32_t mask_state(uint32_t state);

  bool is_full() const {
    return static_cast<int64_t>(states_.size()) >= limits_.max_states ||
           static_cast<int64_t>(num_bytes()) > limits_.max_bytes;
  }
  size_t num_states() const { return states_.size(); }
  size_t num_bytes() const;

 private:
  struct Edge {
    uint8_t first, last;  // classes
    uint32_t target;      // a term
  };
  struct Task {
    uint32_t node;  // kNoNode: of the term alone
    uint32_t term;  // after the node
  };
  static constexpr uint32_t kNoNode = UINT32_MAX;

  void spend(int64_t steps);
  void check_size() const;

  // Closure: from terms to the state that waits in all of them.
  uint32_t close(std::span<const uint32_t> terms);
  uint32_t close_node(uint32_t node);
  uint32_t close_tasks();
  bool visit(uint32_t term);
  void visit_term(uint32_t term);
  void visit_node(uint32_t node, uint32_t tail);
  void visit_concat(uint32_t node, uint32_t part, uint32_t tail);
  void visit_repeat(uint32_t node, uint32_t low, uint32_t high, uint32_t tail);

  // Successors.
  void fill_row(uint32_t state);
  uint32_t find_next(uint32_t state, uint8_t byte_class);
  void settle_pairs(uint32_t state);
  bool has_pairs(uint32_t state) const;
  void collect_edges(uint32_t state, int first_class, int last_class);
  void collect_edges_of(const Term& term, int first_class, int last_class);
  void sort_edges_by_class();
  int only_byte_in_row(uint32_t state);

  // Pairs, see lazy_dfa_pairs.cpp.
  void decide_node(uint32_t node);
  uint32_t pair_of(PairKind kind, uint8_t level, uint32_t left, uint32_t right);
  void expand(uint32_t pair);
  void settle(uint32_t pair);
  bool is_live(uint32_t pair);
  friend class LivenessSearch;

  uint32_t far_term(uint32_t term);
  Term without_far_counts(Term term) const;

  PatternProgram program_;
  AutomatonLimits limits_;
  uint32_t horizon_;
  int64_t steps_left_;
  uint8_t classes_[256];
  int num_classes_;
  bool is_spelled_class_[256] = {};
  TermTable terms_;
  PairTable pairs_;
  StateTable states_;
  uint32_t start_ = kDead;
  uint32_t num_searches_ = 0;

  // Scratch memory of a closure, and of a row.
  std::vector<Task> tasks_;
  std::vector<uint32_t> waiting_;    // terms of the state
  std::vector<uint32_t> visited_;    // by term: the closure that last visited it
  std::vector<uint32_t> far_terms_;  // by term: what far_term answered, 0 where it was not asked
  uint32_t closure_ = 0;
  bool accepts_ = false;
  std::vector<Edge> edges_;
  std::vector<uint32_t> class_starts_, class_targets_;
};

}  // namespace espalier
