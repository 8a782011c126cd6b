// From terms to the state that waits for a byte in all of them: what may be skipped is skipped. No
// function here calls itself, however deep a pattern is.
#include <algorithm>

#include "lazy_dfa.h"

namespace espalier {
namespace {

constexpr uint32_t kTasksPerSizeCheck = 4096;

}  // namespace

uint32_t LazyDfa::close(std::span<const uint32_t> terms) {
  tasks_.clear();
  for (const uint32_t term : terms) tasks_.push_back({kNoNode, term});
  return close_tasks();
}

uint32_t LazyDfa::close_node(uint32_t node) {
  check_size();
  tasks_.assign(1, {node, TermTable::kEnd});
  return close_tasks();
}

uint32_t LazyDfa::close_tasks() {
  if (++closure_ == 0) {
    std::ranges::fill(visited_, 0);
    closure_ = 1;
  }
  waiting_.clear();
  accepts_ = false;
  for (uint32_t i = 1; !tasks_.empty(); ++i) {
    if (i % kTasksPerSizeCheck == 0) check_size();
    const Task task = tasks_.back();
    tasks_.pop_back();
    if (task.node == kNoNode) {
      visit_term(task.term);
    } else {
      visit_node(task.node, task.term);
    }
  }
  if (waiting_.empty() && !accepts_) return kDead;
  std::ranges::sort(waiting_);
  spend(static_cast<int64_t>(waiting_.size()));
  return states_.intern(waiting_, accepts_);
}

// True the first time in a closure.
bool LazyDfa::visit(uint32_t term) {
  if (visited_.size() <= term) visited_.resize(terms_.size());
  if (visited_[term] == closure_) return false;
  visited_[term] = closure_;
  return true;
}

void LazyDfa::visit_term(uint32_t index) {
  spend(1);
  if (!visit(index)) return;
  const Term term = terms_[index];
  switch (term.kind) {
    case TermKind::kEnd:
      accepts_ = true;
      return;
    case TermKind::kLiteral:
    case TermKind::kCharacter:
      waiting_.push_back(index);
      return;
    case TermKind::kPair:
      if (pairs_[term.first].can_go_on) waiting_.push_back(index);
      if (pairs_[term.first].is_accepting) tasks_.push_back({kNoNode, term.tail});
      return;
    case TermKind::kConcat:
      return visit_concat(term.node, term.first, term.tail);
    case TermKind::kRepeat:
      return visit_repeat(term.node, term.first, term.second, term.tail);
  }
}

// No node with an empty language gets here.
void LazyDfa::visit_node(uint32_t index, uint32_t tail) {
  const PatternNode& node = program_.nodes[index];
  spend(1);
  switch (node.kind) {
    case PatternKind::kLiteral:
      if (node.count == 0) return visit_term(tail);
      return visit_term(terms_.intern({.kind = TermKind::kLiteral,
                                       .first = node.first,
                                       .second = node.first + node.count,
                                       .tail = tail}));
    case PatternKind::kCharClass:
      return visit_term(
          terms_.intern({.kind = TermKind::kCharacter, .first = node.first, .tail = tail}));
    case PatternKind::kConcat:
      if (node.count == 0) return visit_term(tail);
      return visit_concat(index, 0, tail);
    case PatternKind::kAlternation:
      spend(node.count);
      for (const uint32_t option : program_.children_of(node)) {
        if (!program_.nodes[option].is_empty) tasks_.push_back({option, tail});
      }
      return;
    case PatternKind::kRepeat:
      return visit_repeat(index, node.low, node.high, tail);
    case PatternKind::kBoth:
    case PatternKind::kWithout:
      return visit_term(terms_.intern({.kind = TermKind::kPair, .first = node.low, .tail = tail}));
  }
}

void LazyDfa::visit_concat(uint32_t node, uint32_t part, uint32_t tail) {
  const std::span<const uint32_t> parts = program_.children_of(program_.nodes[node]);
  if (part + 1 < parts.size()) {
    tail =
        terms_.intern({.kind = TermKind::kConcat, .node = node, .first = part + 1, .tail = tail});
  }
  tasks_.push_back({parts[part], tail});
}

void LazyDfa::visit_repeat(uint32_t node, uint32_t low, uint32_t high, uint32_t tail) {
  if (low == 0) tasks_.push_back({kNoNode, tail});
  if (high == 0) return;
  const auto less = [](uint32_t count) {
    return count == 0 || count == PatternNode::kUnbounded ? count : count - 1;
  };
  const uint32_t inner = program_.children[program_.nodes[node].first];
  uint32_t after = tail;
  if (high > 1) {
    after = terms_.intern({.kind = TermKind::kRepeat,
                           .node = node,
                           .first = less(low),
                           .second = less(high),
                           .tail = tail});
    // Once more of nothing leads to fewer texts than this visit finds.
    if (program_.nodes[inner].is_nullable) visit(after);
  }
  tasks_.push_back({inner, after});
}

}  // namespace espalier
