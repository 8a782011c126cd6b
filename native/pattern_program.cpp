#include "pattern_program.h"

#include <algorithm>
#include <string>

#include "limit_reached.h"

namespace espalier {

uint32_t PatternProgram::add(const PatternNode& node) {
  if (nodes.size() >= kMaxNodes) {
    throw LimitReached("more than " + std::to_string(kMaxNodes) + " parts");
  }
  nodes.push_back(node);
  return static_cast<uint32_t>(nodes.size() - 1);
}

uint32_t PatternProgram::add_literal(std::string_view text) {
  if (text.size() > kMaxLiteralBytes - bytes.size()) {
    throw LimitReached("more than " + std::to_string(kMaxLiteralBytes) + " bytes of literal text");
  }
  PatternNode node{.kind = PatternKind::kLiteral};
  node.first = static_cast<uint32_t>(bytes.size());
  node.count = static_cast<uint32_t>(text.size());
  bytes.insert(bytes.end(), text.begin(), text.end());
  return add(node);
}

uint32_t PatternProgram::add_class(std::span<const CodePointRange> ranges) {
  PatternNode node{.kind = PatternKind::kCharClass};
  node.first = characters.state_of(ranges);
  return add(node);
}

uint32_t PatternProgram::add_composite(PatternKind kind, std::span<const uint32_t> parts) {
  PatternNode node{.kind = kind};
  node.first = static_cast<uint32_t>(children.size());
  node.count = static_cast<uint32_t>(parts.size());
  for (const uint32_t part : parts) node.depth = std::max(node.depth, nodes[part].depth);
  if (kind >= PatternKind::kBoth && ++node.depth > kMaxDepth) {
    throw LimitReached("intersections or differences nested more than " +
                       std::to_string(kMaxDepth) + " deep");
  }
  children.insert(children.end(), parts.begin(), parts.end());
  return add(node);
}

uint32_t PatternProgram::add_repeat(uint32_t inner, uint32_t low, uint32_t high) {
  if (low > kMaxCount || (high > kMaxCount && high != PatternNode::kUnbounded)) {
    throw LimitReached("a repeat of more than " + std::to_string(kMaxCount) + " times");
  }
  const uint32_t node = add_composite(PatternKind::kRepeat, {&inner, 1});
  nodes[node].low = low;
  nodes[node].high = high;
  return node;
}

// A state's edges lead to states with lower numbers, which are known by then.
void PatternProgram::find_spelled_states(const bool (&is_spelled)[256]) {
  is_spelled_state_.assign(characters.num_states(), false);
  is_spelled_state_[Utf8Classes::kComplete] = true;
  for (uint32_t state = 1; state < characters.num_states(); ++state) {
    is_spelled_state_[state] =
        std::ranges::any_of(characters.edges(state), [&](const ByteEdge& edge) {
          return is_spelled_state_[edge.next] &&
                 std::any_of(is_spelled + edge.first, is_spelled + edge.last + 1,
                             [](bool spelled) { return spelled; });
        });
  }
}

void PatternProgram::analyse_node(PatternNode& node, const bool (&is_spelled)[256]) {
  const auto all = [&](bool PatternNode::* property) {
    return std::ranges::all_of(children_of(node), [&](uint32_t i) { return nodes[i].*property; });
  };
  const auto any = [&](bool PatternNode::* property) {
    return std::ranges::any_of(children_of(node), [&](uint32_t i) { return nodes[i].*property; });
  };
  switch (node.kind) {
    case PatternKind::kLiteral:
      node.is_nullable = node.count == 0;
      node.is_spelled =
          std::all_of(bytes.begin() + node.first, bytes.begin() + node.first + node.count,
                      [&](uint8_t byte) { return is_spelled[byte]; });
      return;
    case PatternKind::kCharClass:
      node.is_empty = node.first == Utf8Classes::kComplete;
      node.is_spelled = !node.is_empty && is_spelled_state_[node.first];
      return;
    case PatternKind::kConcat:
      node.is_empty = any(&PatternNode::is_empty);
      node.is_nullable = all(&PatternNode::is_nullable);
      node.is_spelled = all(&PatternNode::is_spelled);
      return;
    case PatternKind::kAlternation:
      node.is_empty = all(&PatternNode::is_empty);
      node.is_nullable = any(&PatternNode::is_nullable);
      node.is_spelled = any(&PatternNode::is_spelled);
      return;
    default:
      break;
  }
  const PatternNode& inner = nodes[children[node.first]];
  node.is_empty = node.low > node.high || (node.low > 0 && inner.is_empty);
  if (inner.is_empty) node.high = 0;
  if (inner.is_nullable) node.low = 0;  // fewer texts, and "" for the rest
  node.is_nullable = !node.is_empty && node.low == 0;
  node.is_spelled = !node.is_empty && (node.low == 0 || inner.is_spelled);
}

int PatternProgram::number_byte_classes(uint8_t (&classes)[256]) const {
  bool is_first[257] = {true};  // of a class
  for (const ByteEdge& edge : characters.all_edges()) {
    is_first[edge.first] = is_first[edge.last + 1] = true;
  }
  for (const uint8_t byte : bytes) is_first[byte] = is_first[byte + 1] = true;
  int num_classes = 0;
  for (int byte = 0; byte < 256; ++byte) {
    num_classes += is_first[byte];
    classes[byte] = static_cast<uint8_t>(num_classes - 1);
  }
  return num_classes;
}

size_t PatternProgram::num_bytes() const {
  return nodes.capacity() * sizeof(PatternNode) + children.capacity() * sizeof(uint32_t) +
         bytes.capacity() + characters.num_bytes();
}

}  // namespace espalier
