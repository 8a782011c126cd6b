// Python's view of the sampler: rows are read with the interpreter's lock, then sampled without it.
#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "bind_sample_rows.h"
#include "bindings.h"
#include "cpu.h"
#include "sampler.h"
#include "thread_pool.h"

namespace nb = nanobind;

namespace espalier {

namespace {

using Logits = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr size_t kMaxVocabSize = size_t{1} << 20;  // sums of weights are exact up to here
constexpr size_t kLeastShared = size_t{1} << 17;   // logits; fewer are not worth a wake-up

// The token alone where nothing else is to tell, else
// (status, token id, logprob, ((id, logprob), ...), (logprob, ...)).
nb::object answer_of(const SampleResult& result) {
  if (result.status == SampleStatus::kOk && !result.has_logprobs) return nb::int_(result.token_id);
  nb::list top;
  for (const auto& [id, logprob] : result.top) top.append(nb::make_tuple(id, logprob));
  nb::list chosen;
  for (const double logprob : result.chosen) chosen.append(logprob);
  return nb::make_tuple(static_cast<int>(result.status), result.token_id, result.logprob,
                        nb::tuple(top), nb::tuple(chosen));
}

nb::list answers_of(const std::vector<SampleResult>& results) {
  nb::list list;
  for (const SampleResult& result : results) list.append(answer_of(result));
  return list;
}

// Rows are shared by the threads of `pool`, each with scratch memory of its own.
class PySampler {
 public:
  PySampler(size_t vocab_size, const std::string& isa, std::shared_ptr<ThreadPool> pool)
      : vocab_size_(checked(vocab_size)),
        isa_(isa_from_name(isa)),
        pool_(std::move(pool)),
        reader_(vocab_size) {
    const int num_threads = pool_ == nullptr ? 1 : pool_->num_threads();
    samplers_.reserve(static_cast<size_t>(num_threads));
    for (int i = 0; i < num_threads; ++i) {
      samplers_.emplace_back(vocab_size, sampler_kernels_for(isa_));
    }
  }

  std::string isa() const { return isa_name(isa_); }

  nb::list sample(Logits logits, nb::sequence objects) {
    RowInputs inputs;
    inputs.rows.reserve(nb::len(objects));
    for (nb::handle object : objects) reader_.read(object, inputs);
    return run(logits, inputs.rows.size(), [&](TokenSampler& sampler, const float* x, size_t i) {
      return sampler.sample(x, inputs.rows[i]);
    });
  }

  nb::list token_logprobs(Logits logits, nb::sequence token_ids, int64_t num_top,
                          nb::sequence chosen_ids) {
    RowInputs inputs;
    SampleRow row;
    row.num_top = num_top;
    row.chosen_ids = read_ids(chosen_ids, inputs);
    const std::span<const int32_t> ids = read_ids(token_ids, inputs);
    return run(logits, ids.size(), [&](TokenSampler& sampler, const float* x, size_t i) {
      return sampler.logprobs(x, ids[i], row);
    });
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
    if (logits.shape(0) == num_rows && logits.shape(1) == vocab_size_) return;
    throw std::invalid_argument(
        "logits are [" + std::to_string(logits.shape(0)) + ", " + std::to_string(logits.shape(1)) +
        "]; [" + std::to_string(num_rows) + ", " + std::to_string(vocab_size_) + "] is needed");
  }

  // function(sampler, logits, row) for each row of logits.
  template <typename Function>
  nb::list run(const Logits& logits, size_t num_rows, const Function& function) {
    check_shape(logits, num_rows);
    std::vector<SampleResult> results(num_rows);
    {
      const nb::gil_scoped_release release;
      const std::scoped_lock lock(mutex_);
      const auto run_row = [&](int64_t row, int thread) {
        const auto i = static_cast<size_t>(row);
        results[i] =
            function(samplers_[static_cast<size_t>(thread)], logits.data() + i * vocab_size_, i);
      };
      run_rows(static_cast<int64_t>(num_rows), run_row);
    }
    return answers_of(results);
  }

  template <typename Function>
  void run_rows(int64_t num_rows, const Function& run_row) {
    const bool is_little = static_cast<size_t>(num_rows) * vocab_size_ < kLeastShared;
    if (pool_ == nullptr || num_rows <= 1 || is_little) {
      for (int64_t row = 0; row < num_rows; ++row) run_row(row, 0);
      return;
    }
    if (pool_->is_foreign()) {
      throw std::runtime_error("the sampler's threads are not in this process, which was forked");
    }
    const ThreadPool::Awake awake(*pool_);
    pool_->run(num_rows, run_row);
  }

  const size_t vocab_size_;
  const Isa isa_;
  const std::shared_ptr<ThreadPool> pool_;
  const RowReader reader_;
  std::vector<TokenSampler> samplers_;  // by thread
  std::mutex mutex_;
};

}  // namespace

void bind_sampler(nb::module_& m) {
  nb::class_<PySampler>(m, "TokenSampler")
      .def(nb::init<size_t, const std::string&, std::shared_ptr<ThreadPool>>(),
           nb::arg("vocab_size"), nb::arg("isa") = "auto", nb::arg("pool") = nb::none())
      .def_prop_ro("isa", &PySampler::isa)
      .def("sample", &PySampler::sample, nb::arg("logits"), nb::arg("rows"))
      .def("token_logprobs", &PySampler::token_logprobs, nb::arg("logits"), nb::arg("token_ids"),
           nb::arg("top_logprobs_num"), nb::arg("token_ids_logprob"));
}

}  // namespace espalier
