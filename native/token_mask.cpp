#include "token_mask.h"

#include <algorithm>

namespace espalier {
namespace {

// on_token(token or num_tokens(), state) for each node of the trie that the automaton can follow.
template <typename OnNode>
void walk(LazyDfa& dfa, uint32_t start, const TokenTrie& trie, const OnNode& on_node) {
  const uint8_t (&classes)[256] = dfa.classes();
  const size_t num_classes = dfa.num_classes();
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  // The place of the row of the state before a byte, by the byte's depth.
  std::vector<size_t> row_starts(trie.max_token_bytes() + 1);
  dfa.fill(start);
  row_starts[0] = start * num_classes;
  const uint32_t* rows = dfa.rows();
  for (size_t i = 0; i < nodes.size();) {
    const TokenTrie::Node& node = nodes[i];
    const uint32_t state = rows[row_starts[node.depth] + classes[node.byte]];
    if (state == LazyDfa::kDead) {
      i = node.skip;
      continue;
    }
    on_node(node.token, state);
    if (node.skip != ++i) {
      if (!dfa.is_filled(state)) {
        dfa.fill(state);
        rows = dfa.rows();
      }
      row_starts[node.depth + 1u] = state * num_classes;
    }
  }
}

}  // namespace

void find_allowed_tokens(LazyDfa& dfa, uint32_t state, const TokenTrie& trie, uint32_t* words) {
  walk(dfa, state, trie,
       [words](uint32_t token, uint32_t) { words[token / 32] |= 1u << token % 32; });
  words[trie.num_tokens() / 32] &= ~(1u << trie.num_tokens() % 32);
  for (const auto& [token, twin] : trie.twins()) {
    words[twin / 32] |= (words[token / 32] >> token % 32 & 1u) << twin % 32;
  }
}

bool has_text_of_tokens(LazyDfa& dfa, const TokenTrie& trie) {
  if (dfa.start() == LazyDfa::kDead) return false;
  if (dfa.is_start_spelled() || dfa.is_accepting(dfa.start())) return true;
  std::vector<uint32_t> reached{dfa.start()};
  std::vector<bool> is_reached(dfa.start() + 1);
  is_reached[dfa.start()] = true;
  bool is_found = false;
  while (!is_found && !reached.empty()) {
    const uint32_t state = reached.back();
    reached.pop_back();
    walk(dfa, state, trie, [&](uint32_t token, uint32_t next) {
      if (token == trie.num_tokens()) return;
      is_found = is_found || dfa.is_accepting(next);
      if (next >= is_reached.size()) is_reached.resize(next + 1);
      if (is_reached[next]) return;
      is_reached[next] = true;
      reached.push_back(next);
    });
  }
  return is_found;
}

}  // namespace espalier
