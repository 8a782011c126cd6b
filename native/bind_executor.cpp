#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "bindings.h"
#include "cpu.h"
#include "executor.h"
#include "graph.h"
#include "kv_pool.h"

namespace nb = nanobind;

namespace espalier {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

std::span<const int32_t> as_span(const Ints& array) { return {array.data(), array.size()}; }

// Keeps the array (and with it the file's mmap) alive; dropped with the interpreter's lock held.
std::shared_ptr<const void> keep_alive(const Bytes& data) {
  return std::shared_ptr<const void>(new Bytes(data), [](const void* array) {
    const nb::gil_scoped_acquire acquire;
    delete static_cast<const Bytes*>(array);
  });
}

int add_weight(Graph& graph, const std::string& name, const std::vector<int64_t>& shape,
               const std::string& kind, const Bytes& data, float offset) {
  if (shape.empty() || shape.size() > 2) throw std::invalid_argument(name + " has no 1 or 2 sizes");
  Weight weight{name, shape.size() == 2, {}};
  weight.raw = {tensor_kind(kind), data.data(), shape.size() == 2 ? shape[0] : 1,
                shape.back(),      offset,      keep_alive(data)};
  return graph.add_weight(std::move(weight), data.size());
}

void take_wanted(const std::optional<Ints>& starts, const std::optional<Ints>& ids, Step& step) {
  if (starts.has_value() != ids.has_value()) {
    throw std::invalid_argument("bad step: wanted_starts and wanted_ids come together");
  }
  if (!starts) return;
  if (starts->size() == 0) throw std::invalid_argument("bad step: wanted_starts is empty");
  step.wanted_starts = as_span(*starts);
  step.wanted_ids = as_span(*ids);
}

Table run(Executor& executor, const Ints& token_ids, const Ints& positions, const Ints& row_starts,
          const Ints& slot_ids, const Ints& slot_starts, const Ints& logit_rows,
          const std::optional<Ints>& wanted_starts, const std::optional<Ints>& wanted_ids) {
  Step step{as_span(token_ids), as_span(positions),   as_span(row_starts),
            as_span(slot_ids),  as_span(slot_starts), as_span(logit_rows)};
  take_wanted(wanted_starts, wanted_ids, step);
  Logits logits;
  {
    const nb::gil_scoped_release release;
    logits = executor.run(step);
  }
  auto owner = std::make_unique<std::shared_ptr<const Memory>>(logits.memory);
  float* data = logits.memory->as<float>();
  nb::capsule capsule(
      owner.get(), [](void* p) noexcept { delete static_cast<std::shared_ptr<const Memory>*>(p); });
  (void)owner.release();
  return Table(data, {static_cast<size_t>(logits.num_rows), static_cast<size_t>(logits.vocab_size)},
               capsule);
}

void bind_graph(nb::module_& m) {
  nb::class_<Graph>(m, "Graph", "A plan with its names resolved; see native/graph.h.")
      .def("__init__",
           [](Graph* self, int64_t num_layers, int64_t num_heads, int64_t num_kv_heads,
              int64_t head_dim, int64_t vocab_size, int64_t max_context) {
             new (self)
                 Graph({num_layers, num_heads, num_kv_heads, head_dim, vocab_size, max_context});
           })
      .def("add_buffer", &Graph::add_buffer)
      .def("add_rope",
           [](Graph& g, std::vector<double> inv_freq, bool is_interleaved, double factor) {
             return g.add_rope({std::move(inv_freq), is_interleaved, factor});
           })
      .def("add_weight", &add_weight)
      .def("embed",
           [](Graph& g, int table, int out, float scale) { g.add(EmbedOp{table, out, scale}); })
      .def("rms_norm", [](Graph& g, int x, int weight, int out,
                          float eps) { g.add(RmsNormOp{x, weight, out, eps}); })
      .def("head_norm", [](Graph& g, int x, int weight, int64_t head_dim,
                           float eps) { g.add(HeadNormOp{x, weight, head_dim, eps}); })
      .def(
          "linear",
          [](Graph& g, int x, int weight, int out, std::optional<int> bias) {
            g.add_linear(x, {weight, out, bias});
          },
          nb::arg("x"), nb::arg("weight"), nb::arg("out"), nb::arg("bias").none())
      .def("apply_rope",
           [](Graph& g, int x, int64_t head_dim, int rope) { g.add(RopeOp{x, head_dim, rope}); })
      .def("kv_write", [](Graph& g, int64_t layer, int k, int v) { g.add(KvWriteOp{layer, k, v}); })
      .def("attention",
           [](Graph& g, int64_t layer, int q, int out, float scale, int64_t window,
              float soft_cap) { g.add(AttentionOp{layer, q, out, scale, window, soft_cap}); })
      .def("gated_activation",
           [](Graph& g, int gate, int up, int out, bool is_gelu) {
             g.add(GateOp{gate, up, out, is_gelu ? Activation::GeluTanh : Activation::Silu});
           })
      .def("add", [](Graph& g, int x, int y, int out) { g.add(AddOp{x, y, out}); })
      .def("select_rows", [](Graph& g, int x, int out) { g.add(SelectOp{x, out}); })
      .def("lm_head", [](Graph& g, int x, int weight, float soft_cap) {
        g.add(LmHeadOp{x, weight, soft_cap});
      });
}

KvFormat kv_format_of(const std::string& name) {
  if (name == "f32") return KvFormat::F32;
  if (name == "bf16") return KvFormat::Bf16;
  if (name == "int8") return KvFormat::Int8;
  throw std::invalid_argument("kv_dtype \"" + name + "\" is unknown; f32, bf16 and int8 are known");
}

ExecutorOptions make_options(int64_t num_slots, int64_t max_rows, const std::string& weights,
                             const std::string& kv_dtype, int num_threads, int num_processors,
                             const std::string& isa) {
  return {num_slots,   max_rows,       weight_choice(weights), kv_format_of(kv_dtype),
          num_threads, num_processors, isa_from_name(isa)};
}

std::tuple<int64_t, int64_t, int64_t> as_tuple(const MemoryUse& use) {
  return {use.weights, use.kv_pool, use.scratch};
}

// (name, calls, seconds, bytes, multiply-adds) for whole steps and then each kind of operation.
std::vector<std::tuple<std::string, int64_t, double, int64_t, int64_t>> take_profile(
    Executor& executor) {
  std::vector<std::tuple<std::string, int64_t, double, int64_t, int64_t>> totals;
  const std::unique_ptr<StepProfile> profile = executor.take_profile();
  if (!profile) throw std::runtime_error("no profile was started");
  for (const OpTotal& total : profile->totals()) {
    totals.emplace_back(total.name, total.calls, total.seconds, total.cost.bytes,
                        total.cost.multiply_adds);
  }
  return totals;
}

// Of a pool whose parts fill whole cache lines, so that it has no padding.
int64_t kv_slot_bytes(int64_t num_layers, int64_t num_kv_heads, int64_t head_dim,
                      const std::string& kv_dtype) {
  constexpr int64_t kSlots = 64;
  Geometry geometry{};
  geometry.num_layers = num_layers;
  geometry.num_kv_heads = num_kv_heads;
  geometry.head_dim = head_dim;
  return kv_pool_bytes(geometry, kSlots, kv_format_of(kv_dtype)) / kSlots;
}

void bind_run(nb::module_& m) {
  nb::class_<ExecutorOptions>(m, "Options", "Options of an Executor.")
      .def("__init__", [](ExecutorOptions* self, int64_t num_slots, int64_t max_rows,
                          const std::string& weights, const std::string& kv_dtype, int num_threads,
                          int num_processors, const std::string& isa) {
        new (self) ExecutorOptions(
            make_options(num_slots, max_rows, weights, kv_dtype, num_threads, num_processors, isa));
      });
  nb::exception<StepMemoryError>(m, "StepMemoryError", PyExc_MemoryError);
  nb::class_<Executor>(m, "Executor", "Runs the steps of a graph; see native/executor.h.")
      .def("__init__",
           [](Executor* self, std::shared_ptr<Graph> graph, const ExecutorOptions& options) {
             const nb::gil_scoped_release release;
             new (self) Executor(std::move(graph), options);
           })
      .def("run", &run, nb::arg("token_ids").noconvert(), nb::arg("positions").noconvert(),
           nb::arg("row_starts").noconvert(), nb::arg("slot_ids").noconvert(),
           nb::arg("slot_starts").noconvert(), nb::arg("logit_rows").noconvert(),
           nb::arg("wanted_starts").noconvert().none() = nb::none(),
           nb::arg("wanted_ids").noconvert().none() = nb::none())
      .def("memory_use", [](const Executor& executor) { return as_tuple(executor.memory_use()); })
      .def("start_profile", &Executor::start_profile)
      .def("take_profile", &take_profile)
      .def_prop_ro("thread_pool", &Executor::thread_pool);
  m.def("kv_slot_bytes", &kv_slot_bytes, nb::arg("num_layers"), nb::arg("num_kv_heads"),
        nb::arg("head_dim"), nb::arg("kv_dtype"));
  m.def("memory_needed", [](const Graph& graph, const ExecutorOptions& options) {
    return as_tuple(memory_needed(graph, options));
  });
}

}  // namespace

void bind_executor(nanobind::module_& m) {
  // An executor that lives until the process ends is not a leak that a user should read about.
  nb::set_leak_warnings(false);
  bind_graph(m);
  bind_run(m);
  m.def(
      "best_isa", [] { return std::string(isa_name(best_isa())); },
      "Name of the best instruction set that this machine offers.");
  m.def("available_isas", &available_isas,
        "Names of the instruction sets that this machine offers, slowest first.");
}

}  // namespace espalier
