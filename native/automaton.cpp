#include "automaton.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "bit_count.h"
#include "limit_reached.h"
#include "token_mask.h"

namespace espalier {
namespace {

// A search that reaches a limit does not tell either.
Automaton::Code start_code(LazyDfa& dfa, const TokenTrie& trie, Automaton::Code code) {
  try {
    return may_have_text_of_tokens(dfa, trie) ? code : 0;
  } catch (const LimitReached&) {
    return code;
  }
}

}  // namespace

Automaton::Automaton(PatternProgram program, std::shared_ptr<const TokenTrie> trie,
                     std::span<const uint32_t> eos_ids, uint32_t vocab_size,
                     const AutomatonLimits& limits)
    : trie_(std::move(trie)),
      eos_ids_(eos_ids.begin(), eos_ids.end()),
      vocab_size_(vocab_size),
      dfa_(std::move(program), trie_->is_spelled(), trie_->max_token_bytes(), limits) {
  std::erase_if(eos_ids_, [&](uint32_t id) { return id >= vocab_size; });
  start_ = start_code(dfa_, *trie_, code_of(dfa_.start()));
}

uint32_t Automaton::number_of(Code code) const {
  const uint32_t state = code >> 2;
  if (state >= dfa_.num_states()) throw std::invalid_argument("no state of this automaton");
  return state;
}

int64_t Automaton::advance(Code code, int64_t token) {
  uint32_t state = number_of(code);
  if (token < 0 || token >= vocab_size_ || state == LazyDfa::kEnded) return kRefused;
  const auto id = static_cast<uint32_t>(token);
  if (std::ranges::find(eos_ids_, id) != eos_ids_.end()) {
    return dfa_.is_accepting(state) ? code_of(LazyDfa::kEnded) : kRefused;
  }
  if (id >= trie_->num_tokens() || trie_->bytes_of(id).empty()) return kRefused;
  dfa_.refuel();
  for (const uint8_t byte : trie_->bytes_of(id)) {
    state = dfa_.next(state, byte);
    if (state == LazyDfa::kDead) return kRefused;
  }
  return code_of(state);
}

uint32_t Automaton::mask_state(Code code) {
  const uint32_t state = number_of(code);
  dfa_.refuel();
  return dfa_.mask_state(state);
}

uint32_t Automaton::write_mask(uint32_t mask_state, uint32_t* words) {
  const uint32_t state = number_of(mask_state << 2);
  std::vector<uint32_t> found(std::max(trie_->num_words(), num_mask_words()));
  if (state != LazyDfa::kEnded) {
    dfa_.refuel();
    find_allowed_tokens(dfa_, state, *trie_, found.data());
    std::fill(found.begin() + trie_->num_token_words(), found.end(), 0);
    for (const uint32_t id : eos_ids_) {
      const uint32_t bit = 1u << id % 32;
      found[id / 32] = dfa_.is_accepting(state) ? found[id / 32] | bit : found[id / 32] & ~bit;
    }
  }
  if (vocab_size_ % 32 != 0) found[vocab_size_ / 32] &= (1u << vocab_size_ % 32) - 1;
  std::copy_n(found.begin(), num_mask_words(), words);
  return bit_count({words, num_mask_words()});
}

std::string_view Automaton::forced_bytes(Code code, size_t max_bytes) {
  const uint32_t state = number_of(code);
  dfa_.refuel();
  return edges_.find(dfa_, state, max_bytes);
}

}  // namespace espalier
