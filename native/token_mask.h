// Which tokens may follow in a state of the automaton: one walk over both trees together.
#pragma once

#include <cstdint>

#include "lazy_dfa.h"
#include "token_trie.h"

namespace espalier {

// Sets bit i % 32 of words[i / 32] for each token i after which the text can still match, and
// clears the others. There are trie.num_words() words, of which the last are scratch memory. Throws
// LimitReached.
void find_allowed_tokens(LazyDfa& dfa, uint32_t state, const TokenTrie& trie, uint32_t* words);

// False where no text made of tokens leads from the start to acceptance. True where one does, and
// where a short search does not tell: an end shows when a text gets there. Throws LimitReached.
bool may_have_text_of_tokens(LazyDfa& dfa, const TokenTrie& trie);

}  // namespace espalier
