// Python's view of the sampler: rows are read from objects with the attributes of
// espalier.engine.sampler_rows.SampleRow, then sampled without the GIL.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings.h"
#include "sampler.h"

namespace nb = nanobind;

namespace espalier {

namespace {

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using IdArray = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using MaskArray = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr size_t kMaxVocabSize = size_t{1} << 20;  // sums of weights are exact up to here

// A whole number, clamped to 64 bits.
int64_t whole(nb::handle value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) return overflow > 0 ? INT64_MAX : INT64_MIN;
  if (number == -1 && PyErr_Occurred()) nb::raise_python_error();
  return number;
}

// A token id; -1 stands for one that no vocabulary has.
int32_t token_id_of(nb::handle value) {
  const int64_t id = whole(value);
  return id >= 0 && id <= INT32_MAX ? static_cast<int32_t>(id) : -1;
}

uint64_t low_64_bits(nb::handle value) {
  const unsigned long long bits = PyLong_AsUnsignedLongLongMask(value.ptr());
  if (PyErr_Occurred()) nb::raise_python_error();
  return bits;
}

std::vector<int32_t> ids_of(nb::handle sequence) {
  IdArray array;
  if (nb::ndarray_check(sequence) && nb::try_cast(sequence, array)) {
    return {array.data(), array.data() + array.shape(0)};
  }
  std::vector<int32_t> ids;
  for (nb::handle id : sequence) ids.push_back(token_id_of(nb::int_(id)));
  return ids;
}

double number(nb::handle object, const char* name) { return nb::cast<double>(object.attr(name)); }

void read_sampling(nb::handle sampling, SampleRow& row) {
  row.is_greedy = nb::cast<bool>(sampling.attr("is_greedy"));
  if (!row.is_greedy) {
    row.inv_temperature = static_cast<float>(1.0 / number(sampling, "temperature"));
    row.top_p = number(sampling, "top_p");
    row.top_k = whole(sampling.attr("top_k"));
    row.min_p = static_cast<float>(number(sampling, "min_p"));
  }
  row.frequency_penalty = static_cast<float>(number(sampling, "frequency_penalty"));
  row.presence_penalty = static_cast<float>(number(sampling, "presence_penalty"));
  row.repetition_penalty = static_cast<float>(number(sampling, "repetition_penalty"));
  for (auto [id, amount] : nb::cast<nb::dict>(sampling.attr("logit_bias"))) {
    row.bias.emplace_back(token_id_of(id), static_cast<float>(nb::cast<double>(amount)));
  }
}

void read_logprob_wishes(nb::handle chosen_ids, int64_t num_top, SampleRow& row) {
  row.num_top = num_top;
  row.chosen_ids = ids_of(chosen_ids);
}

// `masks` keeps the row's mask alive.
SampleRow read_row(nb::handle object, size_t num_words, std::vector<MaskArray>& masks) {
  SampleRow row;
  read_sampling(object.attr("sampling"), row);
  row.seed = low_64_bits(object.attr("seed"));
  row.position = low_64_bits(object.attr("position"));
  const bool repeats = row.repetition_penalty != 1.0f;
  if (repeats) row.prompt_ids = ids_of(object.attr("prompt_ids"));
  if (repeats || row.frequency_penalty != 0.0f || row.presence_penalty != 0.0f) {
    row.output_ids = ids_of(object.attr("output_ids"));
  }
  row.banned_ids = ids_of(object.attr("banned_ids"));
  if (nb::object mask = object.attr("mask"); !mask.is_none()) {
    masks.push_back(nb::cast<MaskArray>(mask));
    if (masks.back().shape(0) != num_words) {
      throw std::invalid_argument("a mask has " + std::to_string(masks.back().shape(0)) +
                                  " words; the vocabulary needs " + std::to_string(num_words));
    }
    row.mask = masks.back().data();
  }
  read_logprob_wishes(object.attr("token_ids_logprob"), whole(object.attr("top_logprobs_num")),
                      row);
  row.wants_logprobs =
      nb::cast<bool>(object.attr("want_logprob")) || row.num_top > 0 || !row.chosen_ids.empty();
  return row;
}

// (status, token id, logprob, ((id, logprob), ...), (logprob, ...))
nb::tuple as_tuple(const SampleResult& result) {
  nb::list top;
  for (const auto& [id, logprob] : result.top) top.append(nb::make_tuple(id, logprob));
  nb::list chosen;
  for (const double logprob : result.chosen) chosen.append(logprob);
  return nb::make_tuple(static_cast<int>(result.status), result.token_id, result.logprob,
                        nb::tuple(top), nb::tuple(chosen));
}

nb::list as_list(const std::vector<SampleResult>& results) {
  nb::list list;
  for (const SampleResult& result : results) list.append(as_tuple(result));
  return list;
}

const SamplerKernels& kernels_of(const std::string& isa) {
  if (isa == "auto") return sampler_kernels();
  if (isa == "portable") return sampler_kernels_portable();
#if defined(__x86_64__)
  if (isa == "avx2" && __builtin_cpu_supports("avx2")) return sampler_kernels_avx2();
  if (isa == "avx512" && __builtin_cpu_supports("avx512dq")) return sampler_kernels_avx512();
#endif
  throw std::invalid_argument("no sampler for the instruction set " + isa + " on this machine");
}

class PySampler {
 public:
  PySampler(size_t vocab_size, const std::string& isa)
      : sampler_(checked(vocab_size), kernels_of(isa)) {}

  nb::list sample(Logits logits, nb::sequence objects) {
    std::vector<MaskArray> masks;
    masks.reserve(nb::len(objects));
    std::vector<SampleRow> rows;
    rows.reserve(nb::len(objects));
    for (nb::handle object : objects) {
      rows.push_back(read_row(object, (sampler_.vocab_size() + 31) / 32, masks));
    }
    check_shape(logits, rows.size());
    std::vector<SampleResult> results(rows.size());
    {
      nb::gil_scoped_release release;
      const std::scoped_lock lock(mutex_);
      for (size_t i = 0; i < rows.size(); ++i) {
        results[i] = sampler_.sample(logits.data() + i * sampler_.vocab_size(), rows[i]);
      }
    }
    return as_list(results);
  }

  nb::list token_logprobs(Logits logits, nb::sequence token_ids, int64_t num_top,
                          nb::sequence chosen_ids) {
    SampleRow row;
    read_logprob_wishes(chosen_ids, num_top, row);
    const std::vector<int32_t> ids = ids_of(token_ids);
    check_shape(logits, ids.size());
    std::vector<SampleResult> results(ids.size());
    {
      nb::gil_scoped_release release;
      const std::scoped_lock lock(mutex_);
      for (size_t i = 0; i < ids.size(); ++i) {
        results[i] = sampler_.logprobs(logits.data() + i * sampler_.vocab_size(), ids[i], row);
      }
    }
    return as_list(results);
  }

 private:
  static size_t checked(size_t vocab_size) {
    if (vocab_size == 0 || vocab_size > kMaxVocabSize) {
      throw std::invalid_argument("a vocabulary of " + std::to_string(vocab_size) +
                                  " tokens; 1 to " + std::to_string(kMaxVocabSize) +
                                  " are allowed");
    }
    return vocab_size;
  }

  void check_shape(const Logits& logits, size_t num_rows) const {
    if (logits.shape(0) == num_rows && logits.shape(1) == sampler_.vocab_size()) return;
    throw std::invalid_argument("logits are [" + std::to_string(logits.shape(0)) + ", " +
                                std::to_string(logits.shape(1)) + "]; [" +
                                std::to_string(num_rows) + ", " +
                                std::to_string(sampler_.vocab_size()) + "] is needed");
  }

  TokenSampler sampler_;
  std::mutex mutex_;
};

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<PySampler>(m, "TokenSampler")
      .def(nb::init<size_t, const std::string&>(), nb::arg("vocab_size"), nb::arg("isa") = "auto")
      .def("sample", &PySampler::sample, nb::arg("logits"), nb::arg("rows"))
      .def("token_logprobs", &PySampler::token_logprobs, nb::arg("logits"), nb::arg("token_ids"),
           nb::arg("top_logprobs_num"), nb::arg("token_ids_logprob"));
}

}  // namespace espalier
