// A pattern over the tokens of a vocabulary: what a grammar asks of its automaton, by token.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "compressed_edges.h"
#include "lazy_dfa.h"
#include "token_trie.h"

namespace espalier {

// States are given to callers with what they ask most often: number << 2 | can go on << 1 |
// accepting. Not thread-safe: its callers hold `mutex` while they call. Limits throw LimitReached.
class Automaton {
 public:
  using Code = uint32_t;
  static constexpr int64_t kMaxStates = 1 << 29;
  static constexpr int64_t kRefused = -1;

  // `vocab_size`: bits of a mask. Ids beyond it are never allowed.
  Automaton(PatternProgram program, std::shared_ptr<const TokenTrie> trie,
            std::span<const uint32_t> eos_ids, uint32_t vocab_size, const AutomatonLimits& limits);

  // kDead << 2 where no text made of tokens matches.
  Code start() const { return start_; }

  // The state after a token, kRefused where it may not follow. An end of text leads to kEnded.
  int64_t advance(Code code, int64_t token);

  // States with equal numbers here have equal masks.
  uint32_t mask_state(Code code);
  size_t num_mask_words() const { return (vocab_size_ + 31) / 32; }
  // Writes num_mask_words() words; returns how many bits are set.
  uint32_t write_mask(uint32_t mask_state, uint32_t* words);

  std::string_view forced_bytes(Code code, size_t max_bytes);

  // No new state can be found.
  bool is_full() const { return dfa_.is_full(); }
  size_t num_states() const { return dfa_.num_states(); }
  size_t num_bytes() const { return dfa_.num_bytes() + edges_.num_bytes() + sizeof *this; }

  std::mutex mutex;

 private:
  Code code_of(uint32_t state) const {
    return state << 2 | static_cast<Code>(dfa_.can_go_on(state)) << 1 |
           static_cast<Code>(dfa_.is_accepting(state));
  }
  uint32_t number_of(Code code) const;  // throws std::invalid_argument

  const std::shared_ptr<const TokenTrie> trie_;
  std::vector<uint32_t> eos_ids_;
  const uint32_t vocab_size_;
  LazyDfa dfa_;
  CompressedEdges edges_;
  Code start_;
};

}  // namespace espalier
