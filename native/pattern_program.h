// A pattern (espalier.constrain.pattern) as flat arrays: each part is written once, before the
// parts that use it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "utf8_classes.h"

namespace espalier {

enum class PatternKind : uint8_t {
  kLiteral,
  kCharClass,
  kConcat,
  kAlternation,
  kRepeat,
  kBoth,
  kWithout
};

struct PatternNode {
  static constexpr uint32_t kUnbounded = UINT32_MAX;

  PatternKind kind;
  bool is_nullable = false;  // has the text ""
  bool is_empty = false;     // has no text
  bool is_spelled = false;   // surely has a text of the spelled bytes alone, see PatternProgram
  uint32_t first = 0;        // of its bytes or children; the UTF-8 state of a class
  uint32_t count = 0;        // of its bytes or children
  uint32_t low = 0, high = kUnbounded;  // of a repeat; low: the first pair of kBoth and kWithout
  uint32_t depth = 0;                   // of kBoth and kWithout inside one another
};

// Nodes are added children first and named by their index; the last is the whole.
class PatternProgram {
 public:
  static constexpr uint32_t kMaxNodes = 250'000;
  static constexpr uint32_t kMaxLiteralBytes = 16 << 20;
  static constexpr uint32_t kMaxDepth = 64;       // of kBoth and kWithout inside one another
  static constexpr uint32_t kMaxCount = 1 << 30;  // of a repeat

  // All throw LimitReached.
  uint32_t add_literal(std::string_view text);
  uint32_t add_class(std::span<const CodePointRange> ranges);
  uint32_t add_composite(PatternKind kind, std::span<const uint32_t> children);
  uint32_t add_repeat(uint32_t inner, uint32_t low, uint32_t high);

  // Finds out which nodes are nullable, empty and spelled with the bytes that `is_spelled` tells.
  // `decide(index)` does so for kBoth and kWithout, whose children are known by then.
  template <typename Decide>
  void analyse(const bool (&is_spelled)[256], const Decide& decide) {
    find_spelled_states(is_spelled);
    for (uint32_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].kind >= PatternKind::kBoth) {
        decide(i);
      } else {
        analyse_node(nodes[i], is_spelled);
      }
    }
  }

  std::span<const uint32_t> children_of(const PatternNode& node) const {
    return {children.data() + node.first, node.count};
  }
  // Bytes that no part of the pattern tells apart have one class; classes are numbered in order.
  int number_byte_classes(uint8_t (&classes)[256]) const;
  size_t num_bytes() const;

  std::vector<PatternNode> nodes;
  std::vector<uint32_t> children;
  std::vector<uint8_t> bytes;  // of literals
  Utf8Classes characters;

 private:
  uint32_t add(const PatternNode& node);
  void find_spelled_states(const bool (&is_spelled)[256]);
  void analyse_node(PatternNode& node, const bool (&is_spelled)[256]);

  std::vector<bool> is_spelled_state_;  // by UTF-8 state
};

}  // namespace espalier
