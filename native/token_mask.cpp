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

// Bytes of which up to `max_length` may follow, in any order, and no more; as inside a string.
struct FreeBytes {
  ByteSet bytes;
  size_t max_length;
};

class FreeBytesFinder {
 public:
  FreeBytesFinder(LazyDfa& dfa, const TokenTrie& trie) : dfa_(dfa), trie_(trie) {
    for (size_t byte = 0; byte < 256; ++byte) {
      weights_[dfa.classes()[byte]] += trie.byte_counts()[byte];
    }
  }

  // None where these are too few to be worth a slice.
  std::optional<FreeBytes> find(uint32_t state) {
    std::vector<uint32_t> met;
    bool is_free[256];  // by class
    std::fill_n(is_free, 256, true);
    while (std::ranges::find(met, state) == met.end()) {
      dfa_.fill(state);
      const uint32_t* const row = dfa_.rows() + state * dfa_.num_classes();
      const uint32_t successor = main_successor(row);
      if (successor == LazyDfa::kDead) {
        if (met.empty()) return {};
        for (size_t i = 0; i < dfa_.num_classes(); ++i) {
          if (is_free[i] && row[i] != LazyDfa::kDead) return {};
        }
        return answer(is_free, met.size());
      }
      size_t weight = 0;
      for (size_t i = 0; i < dfa_.num_classes(); ++i) {
        is_free[i] = is_free[i] && row[i] == successor;
        if (is_free[i]) weight += weights_[i];
      }
      if (2 * weight < trie_.nodes().size()) return {};
      met.push_back(state);
      if (met.size() == trie_.max_token_bytes()) break;
      state = successor;
    }
    return answer(is_free, trie_.max_token_bytes());
  }

 private:
  // For most bytes of tokens.
  uint32_t main_successor(const uint32_t* row) {
    struct Weighted {
      uint32_t state;
      size_t weight;
    };
    Weighted found[256];
    size_t num_found = 0;
    Weighted best{LazyDfa::kDead, 0};
    for (size_t i = 0; i < dfa_.num_classes(); ++i) {
      size_t j = 0;
      while (j < num_found && found[j].state != row[i]) ++j;
      if (j == num_found) found[num_found++] = {row[i], 0};
      found[j].weight += weights_[i];
      if (found[j].weight > best.weight) best = found[j];
    }
    return best.state;
  }

  FreeBytes answer(const bool (&is_free)[256], size_t max_length) const {
    FreeBytes free{{}, max_length};
    for (size_t byte = 0; byte < 256; ++byte) free.bytes[byte] = is_free[dfa_.classes()[byte]];
    return free;
  }

  LazyDfa& dfa_;
  const TokenTrie& trie_;
  size_t weights_[256] = {};  // of a class: nodes with its bytes
};

// Writes the tokens of a slice that are no longer than that.
void write_slice(const TokenSlice& slice, size_t max_length, uint32_t* words) {
  const size_t first_long =
      slice.length_starts[std::min(max_length, slice.length_starts.size() - 2) + 1];
  const std::span tokens(slice.tokens);
  if (2 * first_long < tokens.size()) {
    std::fill_n(words, slice.words.size(), 0);
    for (const uint32_t token : tokens.first(first_long)) words[token / 32] |= 1u << token % 32;
  } else {
    std::ranges::copy(slice.words, words);
    for (const uint32_t token : tokens.subspan(first_long)) {
      words[token / 32] &= ~(1u << token % 32);
    }
  }
}

}  // namespace

void find_allowed_tokens(LazyDfa& dfa, uint32_t state, const TokenTrie& trie, uint32_t* words) {
  std::span<const TrieNode> nodes = trie.nodes();
  std::shared_ptr<const TokenSlice> slice;
  if (const std::optional<FreeBytes> free = FreeBytesFinder(dfa, trie).find(state)) {
    slice = trie.slice(free->bytes);
    nodes = slice->nodes;
    write_slice(*slice, free->max_length, words);
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

bool may_have_text_of_tokens(LazyDfa& dfa, const TokenTrie& trie) {
  if (dfa.start() == LazyDfa::kDead) return false;
  if (dfa.is_start_spelled() || dfa.is_accepting(dfa.start())) return true;
  std::vector<uint32_t> reached{dfa.start()};
  std::vector<bool> is_reached(dfa.start() + 1);
  is_reached[dfa.start()] = true;
  bool is_found = false;
  constexpr size_t kMaxNodes = 4'000'000;  // in all walks: 10 to 20 ms
  const auto reach = [&](const TrieNode& node, uint32_t state) {
    if (node.token >= trie.num_tokens()) return;
    is_found = is_found || dfa.is_accepting(state);
    if (state >= is_reached.size()) is_reached.resize(state + 1);
    if (is_reached[state]) return;
    is_reached[state] = true;
    reached.push_back(state);
  };
  for (size_t i = 1; !is_found && !reached.empty(); ++i) {
    if (i * trie.nodes().size() > kMaxNodes) return true;
    const uint32_t state = reached.back();
    reached.pop_back();
    walk(dfa, state, trie.nodes(), trie.max_token_bytes(), reach);
  }
  return is_found;
}

}  // namespace espalier
