// Terms: what is left to be matched, as lists that share their tails (partial derivatives of a
// pattern, after Antimirov, "Partial derivatives of regular expressions", 1996). A counted repeat
// is one cell with what is left of its counts, so that it takes memory only where a text gets to.
#pragma once

#include <cstdint>
#include <vector>

#include "intern_index.h"

namespace espalier {

enum class TermKind : uint8_t {
  kEnd,        // nothing is left
  kLiteral,    // from byte `first` of the pattern's bytes to `second`
  kCharacter,  // from the UTF-8 state `first`
  kPair,       // from the pair of states `first`, see pair_table.h
  kConcat,     // node `node` from its part `first` on
  kRepeat      // at least `first` and at most `second` more times the inner part of `node`
};

struct Term {
  TermKind kind;
  uint32_t node = 0;
  uint32_t first = 0, second = 0;
  uint32_t tail = 0;  // the term after it
  bool operator==(const Term&) const = default;
};

// Equal terms have one index. Terms are never removed.
class TermTable {
 public:
  static constexpr uint32_t kEnd = 0;  // the index of the term of that kind

  TermTable() : terms_{{TermKind::kEnd}} {}

  uint32_t intern(const Term& term) {
    uint64_t hash = mixed(static_cast<uint64_t>(term.kind), uint64_t{term.node} << 32 | term.tail);
    hash = mixed(hash, uint64_t{term.first} << 32 | term.second);
    const uint32_t found = index_.find(hash, [&](uint32_t i) { return terms_[i] == term; });
    if (found != InternIndex::kNone) return found;
    const auto index = static_cast<uint32_t>(terms_.size());
    terms_.push_back(term);
    index_.insert(hash, index);
    return index;
  }

  // Valid until the next intern.
  const Term& operator[](uint32_t index) const { return terms_[index]; }
  size_t size() const { return terms_.size(); }
  size_t num_bytes() const { return terms_.capacity() * sizeof(Term) + index_.num_bytes(); }

 private:
  std::vector<Term> terms_;
  InternIndex index_;
};

}  // namespace espalier
