#include "lazy_dfa.h"

#include <algorithm>
#include <string>
#include <utility>

#include "limit_reached.h"

namespace espalier {

LazyDfa::LazyDfa(PatternProgram program, const bool (&is_spelled)[256], uint32_t horizon,
                 const AutomatonLimits& limits)
    : program_(std::move(program)),
      limits_(limits),
      horizon_(horizon),
      steps_left_(limits.max_compile_steps),
      num_classes_(program_.number_byte_classes(classes_)),
      states_(num_classes_) {
  for (int byte = 0; byte < 256; ++byte) is_spelled_class_[classes_[byte]] |= is_spelled[byte];
  program_.analyse(is_spelled, [this](uint32_t node) { decide_node(node); });
  if (!program_.nodes.back().is_empty) {
    start_ = close_node(static_cast<uint32_t>(program_.nodes.size() - 1));
  }
}

size_t LazyDfa::num_bytes() const {
  const size_t scratch = tasks_.capacity() * sizeof(Task) + edges_.capacity() * sizeof(Edge) +
                         (waiting_.capacity() + visited_.capacity() + far_terms_.capacity() +
                          class_targets_.capacity()) *
                             sizeof(uint32_t);
  return program_.num_bytes() + terms_.num_bytes() + pairs_.num_bytes() + states_.num_bytes() +
         scratch;
}

void LazyDfa::spend(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) throw LimitReached("too many steps at once");
}

void LazyDfa::check_size() const {
  if (!is_full()) return;
  throw LimitReached("more than " + std::to_string(limits_.max_states) + " states or " +
                     std::to_string(limits_.max_bytes) + " bytes of the automaton");
}

void LazyDfa::fill_row(uint32_t state) {
  check_size();
  settle_pairs(state);
  collect_edges(state, 0, num_classes_ - 1);
  sort_edges_by_class();
  std::span<const uint32_t> last_targets;
  uint32_t successor = kDead;
  for (int i = 0; i < num_classes_; ++i) {
    const auto index = static_cast<size_t>(i);
    const std::span<const uint32_t> targets{class_targets_.data() + class_starts_[index],
                                            class_starts_[index + 1] - class_starts_[index]};
    if (targets.empty()) {
      successor = kDead;
    } else if (!std::ranges::equal(targets, last_targets)) {
      successor = close(targets);
    }
    last_targets = targets;
    states_.row(state)[i] = successor;
  }
  states_[state].is_filled = true;
}

uint32_t LazyDfa::find_next(uint32_t state, uint8_t byte_class) {
  if (has_pairs(state)) {
    fill_row(state);
    return states_.row(state)[byte_class];
  }
  check_size();
  collect_edges(state, byte_class, byte_class);
  class_targets_.clear();
  for (const Edge& edge : edges_) class_targets_.push_back(edge.target);
  const uint32_t successor = class_targets_.empty() ? kDead : close(class_targets_);
  states_.row(state)[byte_class] = successor;
  return successor;
}

bool LazyDfa::has_pairs(uint32_t state) const {
  return std::ranges::any_of(states_.terms(state),
                             [&](uint32_t term) { return terms_[term].kind == TermKind::kPair; });
}

// Afterwards all that collect_edges asks of pairs is known.
void LazyDfa::settle_pairs(uint32_t state) {
  for (uint32_t i = 0; i < states_[state].num_terms; ++i) {
    const Term term = terms_[states_.terms(state)[i]];
    if (term.kind != TermKind::kPair) continue;
    settle(term.first);
    for (uint32_t edge = 0; edge < pairs_[term.first].num_edges; ++edge) {
      settle(pairs_.edge(pairs_[term.first].first_edge + edge).pair);
    }
  }
}

void LazyDfa::collect_edges(uint32_t state, int first_class, int last_class) {
  edges_.clear();
  for (const uint32_t term : states_.terms(state)) {
    collect_edges_of(terms_[term], first_class, last_class);
  }
  spend(static_cast<int64_t>(states_[state].num_terms + edges_.size()));
}

void LazyDfa::collect_edges_of(const Term& from, int first_class, int last_class) {
  Term term = from;  // the table of terms may move
  const auto add = [&](uint8_t first, uint8_t last, uint32_t after, uint32_t end) {
    if (last < first_class || first > last_class) return;
    term.first = after;
    edges_.push_back({first, last, after == end ? term.tail : terms_.intern(term)});
  };
  constexpr uint32_t kNoEnd = UINT32_MAX;
  if (term.kind == TermKind::kLiteral) {
    const uint8_t byte_class = classes_[program_.bytes[term.first]];
    add(byte_class, byte_class, term.first + 1, term.second);
  } else if (term.kind == TermKind::kCharacter) {
    for (const ByteEdge& edge : program_.characters.edges(term.first)) {
      add(classes_[edge.first], classes_[edge.last], edge.next, Utf8Classes::kComplete);
    }
  } else {
    const Pair& pair = pairs_[term.first];
    for (uint32_t i = 0; i < pair.num_edges; ++i) {
      const PairEdge& edge = pairs_.edge(pair.first_edge + i);
      if (pairs_[edge.pair].liveness == Liveness::kLive) {
        add(edge.first, edge.last, edge.pair, kNoEnd);
      }
    }
  }
}

// class_targets_[class_starts_[i] .. class_starts_[i + 1]] are the targets of class i.
void LazyDfa::sort_edges_by_class() {
  const auto num_classes = static_cast<size_t>(num_classes_);
  class_starts_.assign(num_classes + 2, 0);
  for (const Edge& edge : edges_) {
    for (size_t i = edge.first; i <= edge.last; ++i) ++class_starts_[i + 2];
  }
  for (size_t i = 2; i <= num_classes; ++i) class_starts_[i + 1] += class_starts_[i];
  class_targets_.resize(class_starts_[num_classes + 1]);
  spend(static_cast<int64_t>(class_targets_.size() / 4));
  for (const Edge& edge : edges_) {
    for (size_t i = edge.first; i <= edge.last; ++i) {
      class_targets_[class_starts_[i + 1]++] = edge.target;
    }
  }
}

int LazyDfa::only_byte(uint32_t state) {
  if (is_accepting(state) || !can_go_on(state)) return -1;
  int only = -1;
  for (const uint32_t index : states_.terms(state)) {
    const Term& term = terms_[index];
    int byte;
    if (term.kind == TermKind::kLiteral) {
      byte = program_.bytes[term.first];
    } else if (term.kind == TermKind::kCharacter) {
      const std::span<const ByteEdge> edges = program_.characters.edges(term.first);
      if (edges.size() != 1 || edges[0].first != edges[0].last) return -1;
      byte = edges[0].first;
    } else {
      return only_byte_in_row(state);
    }
    if (only >= 0 && byte != only) return -1;
    only = byte;
  }
  return only;
}

int LazyDfa::only_byte_in_row(uint32_t state) {
  fill(state);
  const uint32_t* const row = states_.row(state);
  int only = -1;
  for (int byte = 0; byte < 256; ++byte) {
    if (row[classes_[byte]] == kDead) continue;
    if (only >= 0) return -1;
    only = byte;
  }
  return only;
}

uint32_t LazyDfa::mask_state(uint32_t state) {
  if (states_[state].mask_state != kDead || state == kDead) return states_[state].mask_state;
  check_size();
  waiting_.clear();
  for (uint32_t i = 0; i < states_[state].num_terms; ++i) {
    waiting_.push_back(far_term(states_.terms(state)[i]));
  }
  std::ranges::sort(waiting_);
  waiting_.erase(std::unique(waiting_.begin(), waiting_.end()), waiting_.end());
  const uint32_t far = states_.intern(waiting_, is_accepting(state));
  states_[far].mask_state = far;
  states_[state].mask_state = far;
  return far;
}

// The term with counts beyond the horizon replaced by unbounded ones.
uint32_t LazyDfa::far_term(uint32_t term) {
  std::vector<uint32_t> chain;
  uint32_t far = TermTable::kEnd;
  for (uint32_t i = term; i != TermTable::kEnd; i = terms_[i].tail) {
    if (i < far_terms_.size() && far_terms_[i] != 0) {
      far = far_terms_[i];
      break;
    }
    chain.push_back(i);
  }
  spend(static_cast<int64_t>(chain.size()));
  for (; !chain.empty(); chain.pop_back()) {
    Term copy = terms_[chain.back()];
    copy.tail = far;
    if (copy.kind == TermKind::kRepeat) copy = without_far_counts(copy);
    far = terms_.intern(copy);
    if (far_terms_.size() < terms_.size()) far_terms_.resize(terms_.size());
    far_terms_[chain.back()] = far_terms_[far] = far;
  }
  return far;
}

Term LazyDfa::without_far_counts(Term term) const {
  if (term.first > horizon_) {
    term.first = term.second = PatternNode::kUnbounded;
    term.tail = TermTable::kEnd;  // is never reached
  } else if (term.second > horizon_) {
    term.second = PatternNode::kUnbounded;
  }
  return term;
}

}  // namespace espalier
