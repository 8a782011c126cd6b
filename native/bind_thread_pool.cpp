// Python's view of a thread pool: an object that an executor and a sampler share, and loops that do
// nothing useful, by which tests and benches see what the pool does.
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <vector>

#include "bindings.h"
#include "machine_limits.h"
#include "stopwatch.h"
#include "thread_pool.h"

namespace nb = nanobind;

namespace espalier {
namespace {

using Flag = nb::ndarray<uint8_t, nb::shape<1>, nb::device::cpu>;

void check_at_home(const ThreadPool& pool) {
  if (pool.is_foreign()) throw std::runtime_error("the pool's threads are in another process");
}

// How often each chunk of a loop ran. The chunk `failing` raises ValueError instead.
std::vector<int> count_runs(ThreadPool& pool, int64_t num_chunks, std::optional<int64_t> failing) {
  check_at_home(pool);
  std::vector<int> counts(static_cast<size_t>(num_chunks));
  const nb::gil_scoped_release release;
  const ThreadPool::Awake awake(pool);
  pool.run(num_chunks, [&](int64_t chunk, int) {
    if (chunk == failing) throw std::invalid_argument("this chunk fails");
    ++counts[static_cast<size_t>(chunk)];
  });
  return counts;
}

// Seconds of one loop, the mean of many in a row. Each chunk does `work` steps of arithmetic that
// wait for each other and touch no memory.
double loop_seconds(ThreadPool& pool, int64_t num_loops, int64_t num_chunks, int64_t work) {
  check_at_home(pool);
  const auto compute = [work](int64_t chunk, int) {
    auto x = static_cast<uint64_t>(chunk);
    for (int64_t i = 0; i < work; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
    [[maybe_unused]] const volatile uint64_t kept = x;
  };
  const nb::gil_scoped_release release;
  const ThreadPool::Awake awake(pool);
  pool.run(num_chunks, compute);  // by now the helpers are awake
  const Stopwatch watch;
  for (int64_t i = 0; i < num_loops; ++i) pool.run(num_chunks, compute);
  return watch.seconds() / static_cast<double>(num_loops);
}

// Keeps every thread that the pool has computing. Writes 1 to `flag`, which is 0, once all are at
// it, and ends when somebody writes 2. Returns how many threads it were.
int compute_until(ThreadPool& pool, const Flag& flag) {
  check_at_home(pool);
  const auto goes_on = [&] { return __atomic_load_n(flag.data(), __ATOMIC_ACQUIRE) < 2; };
  std::atomic<int> num_begun{0};
  const nb::gil_scoped_release release;
  const ThreadPool::Awake awake(pool);
  const int num_threads = pool.num_running();
  pool.run(num_threads, [&](int64_t, int) {
    uint8_t none = 0;
    if (++num_begun == num_threads) {
      __atomic_compare_exchange_n(flag.data(), &none, uint8_t{1}, false, __ATOMIC_ACQ_REL,
                                  __ATOMIC_ACQUIRE);
    }
    while (num_begun.load() < num_threads || goes_on()) {
    }
  });
  return num_begun.load();
}

}  // namespace

void bind_thread_pool(nanobind::module_& m) {
  nb::class_<ThreadPool>(m, "ThreadPool", "Threads for native loops; see native/thread_pool.h.")
      .def(nb::init<int, int>(), nb::arg("num_threads"), nb::arg("num_processors"))
      .def_prop_ro("num_threads", &ThreadPool::num_threads)
      .def_prop_ro("is_crowded", &ThreadPool::is_crowded)
      .def("end_helpers", &ThreadPool::end_helpers, nb::call_guard<nb::gil_scoped_release>())
      .def("count_runs", &count_runs, nb::arg("num_chunks"), nb::arg("failing") = nb::none())
      .def("loop_seconds", &loop_seconds, nb::arg("num_loops"), nb::arg("num_chunks"),
           nb::arg("work") = 0)
      .def("compute_until", &compute_until, nb::arg("flag"));
  m.def(
      "read_bandwidth",
      [](ThreadPool& pool, int64_t num_bytes, int rounds) {
        check_at_home(pool);
        return read_bandwidth(pool, num_bytes, rounds);
      },
      nb::arg("pool"), nb::arg("num_bytes"), nb::arg("rounds") = 5,
      nb::call_guard<nb::gil_scoped_release>());
  m.def(
      "multiply_rates",
      [](ThreadPool& pool) {
        check_at_home(pool);
        return multiply_rates(pool);
      },
      nb::arg("pool"), nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace espalier
