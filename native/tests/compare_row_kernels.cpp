// Norms, gates, rotation, rounding and quantisation of a row.
#include "kernel_comparison.h"

namespace espalier {
namespace {

constexpr Wildness kAllWildness[] = {Wildness::Moderate, Wildness::AllSizes, Wildness::NotFinite};

std::string text(const char* name, int64_t value) {
  return std::string(name) + " " + std::to_string(value);
}

// Calls function(width, wildness) for every width up to some, and for a few large ones.
template <typename Function>
void each_case(Function function) {
  for (const Wildness wildness : kAllWildness) {
    for (int64_t width = 1; width <= 70; ++width) function(width, wildness);
    for (const int64_t width : {127, 128, 576, 1000}) function(width, wildness);
  }
}

// A kernel that writes one row in place of x, or beside it.
using RowRun =
    std::function<void(const Kernels&, const float* x, const float* y, float* out, int64_t width)>;

bool compare_rows(const char* kernel, uint64_t seed, const RowRun& run) {
  Comparison comparison(kernel);
  Random random(seed);
  each_case([&](int64_t width, Wildness wildness) {
    const std::vector<float> x = random_floats(random, width, wildness);
    const std::vector<float> y = random_floats(random, width, wildness);
    comparison.check(text("width", width), x, [&](const Kernels& kernels, float* out) {
      run(kernels, x.data(), y.data(), out, width);
    });
  });
  return comparison.finish();
}

bool compare_elementwise() {
  bool is_equal = compare_rows(
      "scale", 1, [](const Kernels& k, const float*, const float*, float* out, int64_t n) {
        k.scale(out, n, 1.7f);
      });
  is_equal &= compare_rows(
      "add", 2, [](const Kernels& k, const float* x, const float* y, float* out, int64_t n) {
        k.add(x, y, out, n);
      });
  is_equal &= compare_rows(
      "rms_norm", 3, [](const Kernels& k, const float* x, const float* y, float* out, int64_t n) {
        k.rms_norm(x, y, out, n, 1e-5f);
      });
  is_equal &= compare_rows(
      "silu_gate", 4, [](const Kernels& k, const float* x, const float* y, float* out, int64_t n) {
        k.silu_gate(x, y, out, n);
      });
  is_equal &= compare_rows(
      "gelu_gate", 5, [](const Kernels& k, const float* x, const float* y, float* out, int64_t n) {
        k.gelu_gate(x, y, out, n);
      });
  is_equal &= compare_rows("soft_cap", 6,
                           [](const Kernels& k, const float*, const float*, float* out, int64_t n) {
                             k.soft_cap(out, n, 30.0f);
                           });
  return is_equal;
}

// exp and tanh over their whole range, through a gate and a soft cap.
bool compare_functions() {
  Comparison comparison("exp and tanh");
  for (float start = -130.0f; start < 130.0f; start += 8.0f) {
    std::vector<float> x(1024), ones(x.size(), 1.0f);
    for (size_t i = 0; i < x.size(); ++i) x[i] = start + static_cast<float>(i) * 0.0078125f;
    const auto n = static_cast<int64_t>(x.size());
    comparison.check("silu", x, [&](const Kernels& k, float* out) {
      k.silu_gate(x.data(), ones.data(), out, n);
    });
    comparison.check("tanh", x, [&](const Kernels& k, float* out) { k.soft_cap(out, n, 1.0f); });
  }
  return comparison.finish();
}

bool compare_rotations() {
  Comparison half("rope_half"), interleaved("rope_interleaved");
  Random random(7);
  for (const Wildness wildness : kAllWildness) {
    for (int64_t pairs = 1; pairs <= 70; ++pairs) {
      const std::vector<float> x = random_floats(random, 2 * pairs, wildness);
      const std::vector<float> cos = random_floats(random, 2 * pairs, Wildness::Moderate);
      const std::vector<float> sin = random_floats(random, 2 * pairs, Wildness::Moderate);
      half.check(text("pairs", pairs), x, [&](const Kernels& k, float* out) {
        k.rope_half(out, cos.data(), sin.data(), pairs);
      });
      interleaved.check(text("pairs", pairs), x, [&](const Kernels& k, float* out) {
        k.rope_interleaved(out, cos.data(), sin.data(), 2 * pairs);
      });
    }
  }
  const bool is_equal = half.finish();
  return interleaved.finish() && is_equal;
}

bool compare_rounding() {
  Comparison comparison("round_bf16");
  Random random(8);
  each_case([&](int64_t width, Wildness wildness) {
    const std::vector<float> x = random_floats(random, width, wildness);
    const std::vector<uint16_t> before(static_cast<size_t>((width + 31) / 32 * 32), 0x1234);
    comparison.check(text("width", width), before,
                     [&](const Kernels& k, uint16_t* out) { k.round_bf16(x.data(), width, out); });
  });
  return comparison.finish();
}

bool compare_quantisation() {
  Comparison integers("quantize"), scales("quantize scales");
  Random random(9);
  each_case([&](int64_t width, Wildness wildness) {
    const int64_t num_steps = padded_to_step(width) / kStep + random.between(0, 1);
    const int64_t num_rows = random.between(1, 40), row = random.between(0, num_rows - 1);
    const std::vector<float> x = random_floats(random, width, wildness);
    const std::vector<uint8_t> before(
        static_cast<size_t>(padded_to_lanes(num_rows) * num_steps * kStep * 2), 0xA5);
    const std::vector<float> no_scales(static_cast<size_t>(padded_to_lanes(num_rows)), 5.0f);
    for (const bool is_paired : {true, false}) {
      std::vector<float> row_scales = no_scales;
      integers.check(text("width", width), before, [&](const Kernels& k, uint8_t* out) {
        k.quantize(x.data(), width, {out, row_scales.data(), num_steps, is_paired}, row);
      });
      std::vector<uint8_t> data = before;
      scales.check(text("width", width), no_scales, [&](const Kernels& k, float* out) {
        k.quantize(x.data(), width, {data.data(), out, num_steps, is_paired}, row);
      });
    }
  });
  const bool is_equal = integers.finish();
  return scales.finish() && is_equal;
}

}  // namespace

bool compare_row_kernels() {
  bool is_equal = compare_elementwise();
  is_equal &= compare_functions();
  is_equal &= compare_rotations();
  is_equal &= compare_rounding();
  is_equal &= compare_quantisation();
  return is_equal;
}

}  // namespace espalier
