#include "bind_pattern.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "limit_reached.h"

namespace nb = nanobind;

namespace espalier {
namespace {

constexpr size_t kNumKinds = 7;
constexpr int64_t kLastCodePoint = 0x10FFFF;

// An attribute's name, made once. It is never freed: the process may end before the module does.
struct Name {
  explicit Name(const char* text) : text(PyUnicode_InternFromString(text)) {}
  nb::object of(nb::handle object) const {
    PyObject* value = PyObject_GetAttr(object.ptr(), text);
    if (value == nullptr) nb::raise_python_error();
    return nb::steal(value);
  }
  PyObject* text;
};

struct Names {
  const Name text{"text"}, ranges{"ranges"}, parts{"parts"}, options{"options"}, inner{"inner"},
      low{"low"}, high{"high"}, left{"left"}, right{"right"};
};

const Names& names() {
  static const Names* const made = new Names;
  return *made;
}

int64_t whole_number_of(nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) return overflow > 0 ? INT64_MAX : INT64_MIN;
  if (number == -1 && PyErr_Occurred()) nb::raise_python_error();
  return number;
}

uint32_t count_of(nb::handle value) {
  const int64_t count = whole_number_of(value);
  if (count < 0) throw std::invalid_argument("the count of a repeat is negative");
  // Beyond what add_repeat allows, and less than its unbounded.
  return static_cast<uint32_t>(std::min<int64_t>(count, PatternProgram::kMaxCount + 1));
}

nb::tuple tuple_of(const nb::object& value) {
  if (!PyTuple_Check(value.ptr())) throw nb::type_error("parts of a pattern are not in a tuple");
  return nb::borrow<nb::tuple>(value);
}

uint32_t code_point_of(nb::handle value) {
  const int64_t number = whole_number_of(value);
  if (number < 0 || number > kLastCodePoint) {
    throw std::invalid_argument("a code point of a pattern is outside 0 to 0x10FFFF");
  }
  return static_cast<uint32_t>(number);
}

std::vector<CodePointRange> ranges_of(const nb::object& value) {
  std::vector<CodePointRange> ranges;
  for (nb::handle item : tuple_of(value)) {
    if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2) {
      throw nb::type_error("a range of code points is not a pair");
    }
    const CodePointRange range{code_point_of(PyTuple_GET_ITEM(item.ptr(), 0)),
                               code_point_of(PyTuple_GET_ITEM(item.ptr(), 1))};
    if (range.last < range.first || (!ranges.empty() && range.first <= ranges.back().last)) {
      throw std::invalid_argument("ranges of code points are not sorted and disjoint");
    }
    ranges.push_back(range);
  }
  return ranges;
}

class PatternReader {
 public:
  explicit PatternReader(const nb::tuple& classes) {
    if (nb::len(classes) != kNumKinds) throw nb::type_error("seven classes of patterns are needed");
    for (size_t i = 0; i < kNumKinds; ++i) classes_[i] = classes[i].ptr();
  }

  PatternProgram read(nb::handle root) {
    open(root);
    while (!open_.empty()) {
      Open& last = open_.back();
      if (last.next_part < last.parts.size()) {
        open(last.parts[last.next_part++]);
      } else {
        close(last);
        open_.pop_back();
      }
    }
    return std::move(program_);
  }

 private:
  // A pattern whose parts are being read.
  struct Open {
    PyObject* object;
    PatternKind kind;
    std::vector<nb::object> parts;
    size_t next_part = 0;
  };
  static constexpr uint32_t kIsOpen = UINT32_MAX;

  PatternKind kind_of(nb::handle object) const {
    const auto found =
        std::ranges::find(classes_, reinterpret_cast<PyObject*>(Py_TYPE(object.ptr())));
    if (found == classes_.end()) {
      const std::string name = Py_TYPE(object.ptr())->tp_name;
      throw nb::type_error(("a " + name + " is no pattern").c_str());
    }
    return static_cast<PatternKind>(found - classes_.begin());
  }

  // Puts the node of the object on the stack of nodes, at once or once its parts are read.
  void open(nb::handle object) {
    const auto known = nodes_.find(object.ptr());
    if (known != nodes_.end()) {
      if (known->second == kIsOpen) throw std::invalid_argument("a pattern is a part of itself");
      done_.push_back(known->second);
      return;
    }
    kept_.push_back(nb::borrow(object));
    const PatternKind kind = kind_of(object);
    if (kind == PatternKind::kLiteral) return finish(object.ptr(), literal_of(object));
    if (kind == PatternKind::kCharClass) {
      return finish(object.ptr(), program_.add_class(ranges_of(names().ranges.of(object))));
    }
    if (open_.size() >= PatternProgram::kMaxNodes) {
      throw LimitReached("more than " + std::to_string(PatternProgram::kMaxNodes) + " parts");
    }
    nodes_.emplace(object.ptr(), kIsOpen);
    open_.push_back({object.ptr(), kind, parts_of(object, kind)});
  }

  static std::vector<nb::object> parts_of(nb::handle object, PatternKind kind) {
    const Names& name = names();
    if (kind == PatternKind::kRepeat) return {name.inner.of(object)};
    if (kind >= PatternKind::kBoth) return {name.left.of(object), name.right.of(object)};
    const bool is_concat = kind == PatternKind::kConcat;
    const nb::tuple parts = tuple_of((is_concat ? name.parts : name.options).of(object));
    std::vector<nb::object> found;
    found.reserve(nb::len(parts));
    for (nb::handle part : parts) found.push_back(nb::borrow(part));
    return found;
  }

  uint32_t literal_of(nb::handle object) {
    const nb::object text = names().text.of(object);
    if (!PyUnicode_Check(text.ptr())) throw nb::type_error("the text of a literal is not a str");
    Py_ssize_t size = 0;
    const char* const bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
    if (bytes != nullptr) return program_.add_literal({bytes, static_cast<size_t>(size)});
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) nb::raise_python_error();
    PyErr_Clear();
    return program_.add_class({});  // lone surrogates: no text has them
  }

  void close(const Open& last) {
    const size_t num_parts = last.parts.size();
    const std::span<const uint32_t> parts{done_.data() + done_.size() - num_parts, num_parts};
    uint32_t node;
    if (last.kind == PatternKind::kRepeat) {
      const nb::object low = names().low.of(last.object), high = names().high.of(last.object);
      node = program_.add_repeat(parts[0], count_of(low),
                                 high.is_none() ? PatternNode::kUnbounded : count_of(high));
    } else {
      node = program_.add_composite(last.kind, parts);
    }
    done_.resize(done_.size() - num_parts);
    finish(last.object, node);
  }

  void finish(PyObject* object, uint32_t node) {
    nodes_[object] = node;
    done_.push_back(node);
  }

  std::array<PyObject*, kNumKinds> classes_;
  PatternProgram program_;
  std::vector<Open> open_;
  std::vector<uint32_t> done_;  // nodes of parts of the open patterns
  std::unordered_map<PyObject*, uint32_t> nodes_;
  std::vector<nb::object> kept_;  // alive, so that no other object gets their addresses
};

}  // namespace

PatternProgram read_pattern(nb::handle pattern, nb::tuple classes) {
  return PatternReader(classes).read(pattern);
}

}  // namespace espalier
