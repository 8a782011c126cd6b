#include "bind_sample_rows.h"

#include <nanobind/ndarray.h>

#include <stdexcept>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace espalier {
namespace {

using IdArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaskArray = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr size_t kMostKnown = 1024;

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
  const Name sampling{"sampling"}, seed{"seed"}, position{"position"}, prompt_ids{"prompt_ids"},
      output_ids{"output_ids"}, banned_ids{"banned_ids"}, mask{"mask"},
      want_logprob{"want_logprob"}, top_logprobs_num{"top_logprobs_num"},
      token_ids_logprob{"token_ids_logprob"};
};

const Names& names() {
  static const Names* const made = new Names;
  return *made;
}

// -1 stands for an id that no vocabulary has.
int32_t token_id_of(nb::handle value) {
  const int64_t id = whole_number(value);
  return id >= 0 && id <= INT32_MAX ? static_cast<int32_t>(id) : -1;
}

uint64_t low_64_bits(nb::handle value) {
  const unsigned long long bits = PyLong_AsUnsignedLongLongMask(value.ptr());
  if (PyErr_Occurred()) nb::raise_python_error();
  return bits;
}

bool is_true(nb::handle value) {
  const int answer = PyObject_IsTrue(value.ptr());
  if (answer < 0) nb::raise_python_error();
  return answer != 0;
}

double number(nb::handle object, const char* name) { return nb::cast<double>(object.attr(name)); }

SampleRow read_sampling(nb::handle sampling) {
  SampleRow row;
  row.is_greedy = nb::cast<bool>(sampling.attr("is_greedy"));
  if (!row.is_greedy) {
    row.inv_temperature = static_cast<float>(1.0 / number(sampling, "temperature"));
    row.top_p = number(sampling, "top_p");
    row.top_k = whole_number(sampling.attr("top_k"));
    row.min_p = static_cast<float>(number(sampling, "min_p"));
  }
  row.frequency_penalty = static_cast<float>(number(sampling, "frequency_penalty"));
  row.presence_penalty = static_cast<float>(number(sampling, "presence_penalty"));
  row.repetition_penalty = static_cast<float>(number(sampling, "repetition_penalty"));
  for (auto [id, amount] : nb::cast<nb::dict>(sampling.attr("logit_bias"))) {
    row.bias.emplace_back(token_id_of(id), static_cast<float>(nb::cast<double>(amount)));
  }
  return row;
}

}  // namespace

int64_t whole_number(nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) return overflow > 0 ? INT64_MAX : INT64_MIN;
  if (number == -1 && PyErr_Occurred()) nb::raise_python_error();
  return number;
}

std::span<const int32_t> read_ids(nb::handle sequence, RowInputs& inputs) {
  if (PyTuple_CheckExact(sequence.ptr()) && PyTuple_GET_SIZE(sequence.ptr()) == 0) return {};
  IdArray array;
  if (nb::ndarray_check(sequence) && nb::try_cast(sequence, array)) {
    inputs.arrays.push_back(nb::borrow(sequence));
    return {array.data(), array.shape(0)};
  }
  std::vector<int32_t>& ids = inputs.converted.emplace_back();
  for (nb::handle id : sequence) ids.push_back(token_id_of(nb::int_(id)));
  return ids;
}

const SampleRow& RowReader::settings_of(nb::handle sampling) {
  const auto found = known_.find(sampling.ptr());
  if (found != known_.end()) return found->second.row;
  SampleRow row = read_sampling(sampling);
  if (known_.size() >= kMostKnown) known_.clear();
  return known_.emplace(sampling.ptr(), Known{nb::borrow(sampling), std::move(row)})
      .first->second.row;
}

void RowReader::read_mask(nb::handle mask, SampleRow& row, RowInputs& inputs) const {
  if (mask.is_none()) return;
  const auto words = nb::cast<MaskArray>(mask);
  if (words.shape(0) != num_mask_words_) {
    throw std::invalid_argument("a mask has " + std::to_string(words.shape(0)) +
                                " words; the vocabulary needs " + std::to_string(num_mask_words_));
  }
  inputs.arrays.push_back(nb::cast(words));
  row.mask = words.data();
}

void RowReader::read(nb::handle object, RowInputs& inputs) {
  const Names& name = names();
  SampleRow row = settings_of(name.sampling.of(object));
  row.seed = low_64_bits(name.seed.of(object));
  row.position = low_64_bits(name.position.of(object));
  if (row.repetition_penalty != 1.0f) {
    row.prompt_ids = read_ids(name.prompt_ids.of(object), inputs);
  }
  if (row.has_penalty()) row.output_ids = read_ids(name.output_ids.of(object), inputs);
  row.banned_ids = read_ids(name.banned_ids.of(object), inputs);
  read_mask(name.mask.of(object), row, inputs);
  row.num_top = whole_number(name.top_logprobs_num.of(object));
  row.chosen_ids = read_ids(name.token_ids_logprob.of(object), inputs);
  row.wants_logprobs =
      row.num_top > 0 || !row.chosen_ids.empty() || is_true(name.want_logprob.of(object));
  inputs.rows.push_back(std::move(row));
}

}  // namespace espalier
