#include "token_mask.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace espalier {
namespace {

// on_node(node, state) for each node that the automaton can follow, with the state after it.
template <typename OnNode>
void walk(LazyDfa& dfa, uint32_t start, std::span<const TrieNode> nodes, uint32_t max_depth,
          const OnNode& on_node) {
  const uint8_t (&classes)[256] = dfa.classes();
  const size_t num_classes = dfa.num_classes();
  // The state before a byte as the place of its row, by the byte's depth.
  std::vector<size_t> row_starts(max_depth + 1);
  row_starts[0] = start * num_classes;
  const uint32_t* rows = dfa.rows();
  for (size_t i = 0; i < nodes.size();) {
    const TrieNode& node = nodes[i];
    const size_t row_start = row_starts[node.depth];
    const uint32_t state = rows[row_start + classes[node.byte]];
    if (state == LazyDfa::kDead) {
      i = node.skip;
    } else if (state == LazyDfa::kUnknown) {
      dfa.fill(static_cast<uint32_t>(row_start / num_classes));
      rows = dfa.rows();
    } else {
      row_starts[node.depth + 1u] = state * num_classes;
      on_node(node, state);
      ++i;
    }
  }
}

// The successor of a state for most bytes of tokens.
uint32_t main_successor(const uint32_t (&successors)[256], const uint32_t (&byte_counts)[256]) {
  struct Weighted {
    uint32_t state, weight;
  };
  std::vector<Weighted> found;
  for (size_t byte = 0; byte < 256; ++byte) {
    const uint32_t state = successors[byte];
    const auto known = std::ranges::find(found, state, &Weighted::state);
    if (known == found.end()) {
      found.push_back({state, byte_counts[byte]});
    } else {
      known->weight += byte_counts[byte];
    }
  }
  return std::ranges::max_element(found, {}, &Weighted::weight)->state;
}

// Bytes of which any number may follow, in any order, in states like those inside a string. Nothing
// where these are too few to be worth a slice.
std::optional<ByteSet> free_bytes(LazyDfa& dfa, uint32_t state, const TokenTrie& trie) {
  constexpr int kMaxSteps = 8;  // until a state is met again
  ByteSet bytes;
  bytes.set();
  std::vector<uint32_t> met;
  while (std::ranges::find(met, state) == met.end()) {
    if (met.size() == kMaxSteps || state == LazyDfa::kDead) return {};
    met.push_back(state);
    dfa.fill(state);
    uint32_t successors[256];
    for (size_t byte = 0; byte < 256; ++byte) {
      successors[byte] = dfa.next(state, static_cast<uint8_t>(byte));
    }
    state = main_successor(successors, trie.byte_counts());
    for (size_t byte = 0; byte < 256; ++byte) {
      if (successors[byte] != state) bytes.reset(byte);
    }
  }
  size_t num_nodes = 0;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (bytes[byte]) num_nodes += trie.byte_counts()[byte];
  }
  return num_nodes > trie.nodes().size() / 2 ? std::optional(bytes) : std::nullopt;
}

}  // namespace

void find_allowed_tokens(LazyDfa& dfa, uint32_t state, const TokenTrie& trie, uint32_t* words) {
  std::span<const TrieNode> nodes = trie.nodes();
  std::shared_ptr<const TokenSlice> slice;
  if (const std::optional<ByteSet> bytes = free_bytes(dfa, state, trie)) {
    slice = trie.slice(*bytes);
    nodes = slice->nodes;
    std::ranges::copy(slice->words, words);
  } else {
    std::fill_n(words, trie.num_words(), 0);
  }
  walk(dfa, state, nodes, trie.max_token_bytes(), [words](const TrieNode& node, uint32_t) {
    words[node.token / 32] |= 1u << node.token % 32;
  });
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
  const auto reach = [&](const TrieNode& node, uint32_t state) {
    if (node.token >= trie.num_tokens()) return;
    is_found = is_found || dfa.is_accepting(state);
    if (state >= is_reached.size()) is_reached.resize(state + 1);
    if (is_reached[state]) return;
    is_reached[state] = true;
    reached.push_back(state);
  };
  while (!is_found && !reached.empty()) {
    const uint32_t state = reached.back();
    reached.pop_back();
    walk(dfa, state, trie.nodes(), trie.max_token_bytes(), reach);
  }
  return is_found;
}

}  // namespace espalier
