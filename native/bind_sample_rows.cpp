#include "bind_sample_rows.h"

#include <nanobind/ndarray.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace nb = nanobind;

namespace espalier {
namespace {

using IdArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaskArray = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// An attribute's name, made once. It is never freed: the process may end before the module does.
struct Name {
  explicit Name(const char* text) : text(PyUnicode_InternFromString(text)) {}
  nb::object of(nb::handle object) const {
    PyObject* value = PyObject_GetAttr(object.ptr(), text);
    if (value == nullptr) nb::raise_python_error();
    return nb::steal(value);
  }
  void set(nb::handle object, nb::handle value) const {
    if (PyObject_SetAttr(object.ptr(), text, value.ptr()) != 0) nb::raise_python_error();
  }
  PyObject* text;
};

struct Names {
  const Name sampling{"sampling"}, seed{"seed"}, position{"position"}, prompt_ids{"prompt_ids"},
      output_ids{"output_ids"}, banned_ids{"banned_ids"}, mask{"mask"},
      want_logprob{"want_logprob"}, top_logprobs_num{"top_logprobs_num"},
      token_ids_logprob{"token_ids_logprob"}, read_settings{"read_settings"};
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

// What sampling parameters say, with the memory that it points to.
struct Settings {
  Settings() = default;
  Settings(const Settings&) = delete;
  Settings& operator=(const Settings&) = delete;

  nb::object sampling;  // whose these are; alive, so that no other object gets its address
  std::vector<std::pair<int32_t, float>> bias;
  SampleRow row;
};

constexpr const char* kSettingsName = "espalier.Settings";

std::unique_ptr<Settings> read_sampling(nb::handle sampling) {
  auto settings = std::make_unique<Settings>();
  settings->sampling = nb::borrow(sampling);
  SampleRow& row = settings->row;
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
    settings->bias.emplace_back(token_id_of(id), static_cast<float>(nb::cast<double>(amount)));
  }
  row.bias = settings->bias;
  return settings;
}

Settings* settings_in(PyObject* capsule) {
  return static_cast<Settings*>(PyCapsule_GetPointer(capsule, kSettingsName));
}

nb::object capsule_of(std::unique_ptr<Settings> settings) {
  PyObject* capsule = PyCapsule_New(settings.get(), kSettingsName,
                                    [](PyObject* self) { delete settings_in(self); });
  if (capsule == nullptr) nb::raise_python_error();
  (void)settings.release();  // the capsule's now
  return nb::steal(capsule);
}

// The settings of a Python row's parameters: those that were left with it, else read anew.
const SampleRow& settings_of(nb::handle object, RowInputs& inputs) {
  const Names& name = names();
  const nb::object sampling = name.sampling.of(object);
  nb::object capsule = name.read_settings.of(object);
  if (!PyCapsule_IsValid(capsule.ptr(), kSettingsName) ||
      !settings_in(capsule.ptr())->sampling.is(sampling)) {
    capsule = capsule_of(read_sampling(sampling));
    name.read_settings.set(object, capsule);
  }
  return settings_in(inputs.owners.emplace_back(std::move(capsule)).ptr())->row;
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
  constexpr bool converts =
      false;  // a copy that it made would end with `array`, and wrap large ids
  if (nb::ndarray_check(sequence) && nb::try_cast(sequence, array, converts)) {
    inputs.owners.push_back(nb::borrow(sequence));
    return {array.data(), array.shape(0)};
  }
  std::vector<int32_t>& ids = inputs.converted.emplace_back();
  for (nb::handle id : sequence) ids.push_back(token_id_of(id));
  return ids;
}

void RowReader::read_mask(nb::handle mask, SampleRow& row, RowInputs& inputs) const {
  if (mask.is_none()) return;
  const auto words = nb::cast<MaskArray>(mask);
  if (words.shape(0) != num_mask_words_) {
    throw std::invalid_argument("a mask has " + std::to_string(words.shape(0)) +
                                " words; the vocabulary needs " + std::to_string(num_mask_words_));
  }
  inputs.owners.push_back(nb::cast(words));
  row.mask = words.data();
}

void RowReader::read(nb::handle object, RowInputs& inputs) const {
  const Names& name = names();
  SampleRow row = settings_of(object, inputs);
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
  inputs.rows.push_back(row);
}

}  // namespace espalier
