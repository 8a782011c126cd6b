// Attention over slots in any order, folding of segments, and the end of it.
#include "kernel_comparison.h"

namespace espalier {
namespace {

// Keys, values and queries of one layer and sequence.
struct Layer {
  AttentionShape shape;
  std::vector<float> f32_keys, f32_values, q;
  std::vector<uint16_t> bf16_keys, bf16_values;
  std::vector<int32_t> slots, positions;
  AttentionUnit unit;

  Layer(Random& random, int64_t num_rows) {
    shape.head_dim = random.one_of({1, 7, 16, 20, 33, 64, 80, 128});
    shape.num_kv_heads = random.between(1, 3);
    shape.heads_per_kv = random.between(1, 4);
    shape.scale = random.real(0.05f, 0.5f);
    shape.window = random.chance(3) ? random.between(1, 200) : 0;
    shape.soft_cap = random.chance(3) ? random.real(5.0f, 50.0f) : 0.0f;
    shape.kv_is_bf16 = random.chance(2);
    choose_positions(random, num_rows);
    fill(random, random.chance(3) ? Wildness::NotFinite : Wildness::Moderate);
    unit.slots = slots.data();
    unit.positions = positions.data();
    unit.q = q.data();
    unit.num_rows = num_rows;
    unit.kv_head = random.between(0, shape.num_kv_heads - 1);
  }

  // Consecutive ones; slots are a permutation.
  void choose_positions(Random& random, int64_t num_rows) {
    const int64_t first = random.one_of({0, 1, 30, 63, 64, 100, 511, 512, 600});
    for (int64_t i = 0; i < num_rows; ++i) positions.push_back(static_cast<int32_t>(first + i));
    for (int32_t i = 0; i < static_cast<int32_t>(first + num_rows); ++i) slots.push_back(i);
    for (size_t i = slots.size(); i-- > 1;) {
      std::swap(slots[i], slots[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
    }
  }

  void fill(Random& random, Wildness wildness) {
    const int64_t count = static_cast<int64_t>(slots.size()) * shape.num_kv_heads * shape.head_dim;
    const int64_t width = shape.heads_per_kv * shape.head_dim;
    unit.q_stride = width + random.between(0, 3);
    q = random_floats(random, static_cast<int64_t>(positions.size()) * unit.q_stride, wildness);
    if (shape.kv_is_bf16) {
      bf16_keys = random_bf16(random, count, wildness);
      bf16_values = random_bf16(random, count, wildness);
      shape.keys = bf16_keys.data();
      shape.values = bf16_values.data();
    } else {
      f32_keys = random_floats(random, count, wildness);
      f32_values = random_floats(random, count, wildness);
      shape.keys = f32_keys.data();
      shape.values = f32_values.data();
    }
  }

  std::string text() const {
    return std::to_string(unit.num_rows) + " rows from " + std::to_string(positions[0]) +
           ", head size " + std::to_string(shape.head_dim) + ", " +
           std::to_string(shape.heads_per_kv) + " heads, window " + std::to_string(shape.window) +
           ", cap " + std::to_string(shape.soft_cap) + (shape.kv_is_bf16 ? ", bf16" : ", f32");
  }
};

bool compare_segments() {
  Comparison segments("attend_segment"), folds("fold_partial"), ends("finish_partial");
  Random random(30);
  for (int i = 0; i < 160; ++i) {
    const Layer layer(random, 1 + i % 40);
    const AttentionShape& shape = layer.shape;
    const int64_t num_queries = layer.unit.num_rows * shape.heads_per_kv;
    const int64_t stride = partial_stride(shape.head_dim);
    const std::vector<float> before(static_cast<size_t>(num_queries * stride), 9.0f);
    std::vector<float> scratch(static_cast<size_t>(attention_scratch(shape.head_dim)));
    std::vector<float> total = before;
    const int64_t num_segments = layer.positions.back() / kSegment + 1;
    for (int64_t segment = 0; segment < num_segments; ++segment) {
      std::vector<float> partials = before;
      segments.check(layer.text(), before, [&](const Kernels& k, float* out) {
        k.attend_segment(shape, layer.unit, segment, out, scratch.data());
      });
      kernels_portable().attend_segment(shape, layer.unit, segment, partials.data(),
                                        scratch.data());
      if (segment == 0) {
        total = partials;
        continue;
      }
      const auto fold = [&](const Kernels& k, float* out) {
        for (int64_t j = 0; j < num_queries * stride; j += stride) {
          k.fold_partial(out + j, partials.data() + j, shape.head_dim);
        }
      };
      folds.check(layer.text(), total, fold);
      fold(kernels_portable(), total.data());
    }
    const std::vector<float> none(static_cast<size_t>(num_queries * shape.head_dim), 9.0f);
    ends.check(layer.text(), none, [&](const Kernels& k, float* out) {
      for (int64_t j = 0; j < num_queries; ++j) {
        k.finish_partial(total.data() + j * stride, out + j * shape.head_dim, shape.head_dim);
      }
    });
  }
  bool is_equal = segments.finish();
  is_equal &= folds.finish();
  is_equal &= ends.finish();
  return is_equal;
}

}  // namespace

bool compare_attention_kernels() { return compare_segments(); }

}  // namespace espalier
