// Keys and values in every format; attention over slots in any order, folding of segments, and the
// end of it.
#include <algorithm>
#include <limits>

#include "kernel_comparison.h"

namespace espalier {
namespace {

constexpr int64_t kBlocksPerSegment = kSegment / kBlock;
constexpr KvFormat kFormats[] = {KvFormat::F32, KvFormat::Bf16, KvFormat::Int8};

std::string text(KvFormat format) {
  return format == KvFormat::F32 ? "f32" : format == KvFormat::Bf16 ? "bf16" : "int8";
}

bool compare_writes() {
  Comparison rows("write_kv"), scales("write_kv scales");
  Random random(40);
  for (int i = 0; i < 300; ++i) {
    const int64_t head_dim = 1 + i % 100;
    const KvFormat format = kFormats[random.between(0, 2)];
    const auto wildness = static_cast<Wildness>(random.between(0, 2));
    const auto key = random_floats(random, head_dim, wildness);
    const auto value = random_floats(random, head_dim, wildness);
    const int64_t bytes = head_dim * element_bytes(format);
    const std::string description = text(format) + ", head size " + std::to_string(head_dim);
    const std::vector<uint8_t> before(static_cast<size_t>(2 * bytes), 0xA5);
    const std::vector<float> no_scales(2, 5.0f);
    rows.check(description, before, [&](const Kernels& kernels, uint8_t* out) {
      std::vector<float> two = no_scales;
      kernels.write_kv(format, key.data(), value.data(), head_dim,
                       {out, out + bytes, &two[0], &two[1]});
    });
    scales.check(description, no_scales, [&](const Kernels& kernels, float* out) {
      std::vector<uint8_t> data = before;
      kernels.write_kv(format, key.data(), value.data(), head_dim,
                       {data.data(), data.data() + bytes, out, out + 1});
    });
  }
  const bool is_equal = rows.finish();
  return scales.finish() && is_equal;
}

// The keys and values of one layer and a unit of queries, which share the slots of a context.
struct Layer {
  AttentionShape shape;
  AttentionUnit unit;
  std::vector<uint8_t> keys, values;
  std::vector<float> key_scales, value_scales, q;
  std::vector<int32_t> slots, rows, positions;

  Layer(Random& random, int64_t num_rows) {
    shape.head_dim = random.one_of({1, 7, 16, 20, 33, 64, 80, 128});
    shape.num_kv_heads = random.between(1, 3);
    shape.heads_per_kv = random.between(1, 4);
    shape.scale = random.chance(8) ? -0.3f : random.real(0.05f, 0.5f);
    shape.window = random.chance(3) ? random.between(1, 200) : 0;
    shape.soft_cap = random.chance(3) ? random.real(5.0f, 50.0f) : 0.0f;
    shape.format = kFormats[random.between(0, 2)];
    choose_positions(random, num_rows);
    fill_pool(random, random.chance(4));
    unit = {.slots = slots.data(),
            .rows = rows.data(),
            .positions = positions.data(),
            .q = q.data(),
            .q_stride = unit.q_stride,
            .num_rows = num_rows,
            .kv_head = random.between(0, shape.num_kv_heads - 1),
            .blocks = {0, 0},
            .is_fresh = true,
            .next_slots = nullptr,
            .next_positions = {0, 0},
            .next_kv_head = 0};
  }

  // Those of one sequence, or of some whose context is shared; some rows of the step are of others.
  void choose_positions(Random& random, int64_t num_rows) {
    const int64_t first = random.one_of({0, 1, 30, 63, 64, 100, 511, 512, 600});
    const bool is_one_sequence = random.chance(2);
    for (int64_t i = 0; i < num_rows; ++i) {
      if (random.chance(4)) positions.push_back(0);
      rows.push_back(static_cast<int32_t>(positions.size()));
      positions.push_back(
          static_cast<int32_t>(first + (is_one_sequence ? i : random.between(0, 70))));
    }
    int32_t context = 0;
    for (const int32_t position : positions) context = std::max(context, position + 1);
    for (int32_t i = 0; i < context; ++i) slots.push_back(i);
    // Half of them follow each other, as those of one sequence mostly do.
    for (size_t i = random.chance(2) ? slots.size() : 0; i-- > 1;) {
      std::swap(slots[i], slots[static_cast<size_t>(random.between(0, static_cast<int64_t>(i)))]);
    }
    shape.num_slots = context;
  }

  void fill_pool(Random& random, bool is_wild) {
    const int64_t dim = shape.head_dim, bytes = dim * element_bytes(shape.format);
    const int64_t num_rows = shape.num_slots * shape.num_kv_heads;
    keys.resize(static_cast<size_t>(num_rows * bytes));
    values.resize(keys.size());
    key_scales.resize(static_cast<size_t>(num_rows));
    value_scales.resize(key_scales.size());
    for (int64_t row = 0; row < num_rows; ++row) {
      const auto key = floats(random, dim, is_wild), value = floats(random, dim, is_wild);
      kernels_portable().write_kv(
          shape.format, key.data(), value.data(), dim,
          {keys.data() + row * bytes, values.data() + row * bytes,
           &key_scales[static_cast<size_t>(row)], &value_scales[static_cast<size_t>(row)]});
    }
    shape.keys = keys.data();
    shape.values = values.data();
    shape.key_scales = key_scales.data();
    shape.value_scales = value_scales.data();
    unit.q_stride = shape.heads_per_kv * dim + random.between(0, 3);
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto row = floats(random, unit.q_stride, is_wild);
      q.insert(q.end(), row.begin(), row.end());
    }
  }

  // Of usual sizes; sometimes one is not finite where the layer is wild.
  static std::vector<float> floats(Random& random, int64_t count, bool is_wild) {
    std::vector<float> out = random_floats(random, count, Wildness::Moderate);
    if (is_wild && random.chance(60)) {
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const float odd[] = {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN()};
      out[static_cast<size_t>(random.between(0, count - 1))] = odd[random.between(0, 2)];
    }
    return out;
  }

  int64_t num_queries() const { return unit.num_rows * shape.heads_per_kv; }

  std::string text() const {
    return std::to_string(unit.num_rows) + " rows from " + std::to_string(positions[0]) +
           ", head size " + std::to_string(shape.head_dim) + ", " +
           std::to_string(shape.heads_per_kv) + " heads, window " + std::to_string(shape.window) +
           ", cap " + std::to_string(shape.soft_cap) + ", " + espalier::text(shape.format) +
           ", blocks " + std::to_string(unit.blocks.begin) + " to " +
           std::to_string(unit.blocks.end);
  }
};

class AttentionComparison {
 public:
  // A unit, segment by segment, each in one or two runs.
  void compare(Random& random, int64_t num_rows) {
    Layer layer(random, num_rows);
    const int64_t num_blocks = (layer.shape.num_slots + kBlock - 1) / kBlock;
    std::vector<float> total;
    for (int64_t block = 0; block < num_blocks; block += kBlocksPerSegment) {
      const int64_t end = std::min(block + kBlocksPerSegment, num_blocks);
      const std::vector<float> partials =
          compare_segment(layer, {block, end}, random.between(block + 1, end));
      if (block == 0) {
        total = partials;
      } else {
        compare_fold(layer, partials, total);
      }
    }
    compare_end(layer, total);
  }

  bool finish() const {
    bool is_equal = runs_.finish();
    is_equal &= folds_.finish();
    is_equal &= ends_.finish();
    return is_equal;
  }

 private:
  struct alignas(64) Line {
    float floats[kLanes];
  };

  std::vector<float> compare_segment(Layer& layer, Range blocks, int64_t middle) {
    const int64_t dim = layer.shape.head_dim, count = layer.num_queries();
    std::vector<float> partials(static_cast<size_t>(count * partial_stride(dim)), 9.0f);
    Line unused;
    std::fill(unused.floats, unused.floats + kLanes, std::numeric_limits<float>::quiet_NaN());
    std::vector<Line> scratch(static_cast<size_t>(attention_scratch(dim, count) / kLanes), unused);
    for (const Range run : {Range{blocks.begin, middle}, Range{middle, blocks.end}}) {
      if (run.begin == run.end) continue;
      layer.unit.blocks = run;
      layer.unit.is_fresh = run.begin == blocks.begin;
      const auto attend = [&](const Kernels& kernels, float* out) {
        kernels.attend_run(layer.shape, layer.unit, out, scratch.data()->floats);
        forget_lost(layer, out);
      };
      runs_.check(layer.text(), partials, attend);
      attend(kernels_portable(), partials.data());
    }
    return partials;
  }

  // A partial whose sum is not a number stays so to the end, whatever else it holds.
  static void forget_lost(const Layer& layer, float* partials) {
    const int64_t stride = partial_stride(layer.shape.head_dim);
    for (int64_t i = 0; i < layer.num_queries(); ++i, partials += stride) {
      const float sum = partials[padded_to_lanes(layer.shape.head_dim)];
      if (sum != sum) std::fill(partials, partials + stride, sum);
    }
  }

  void compare_fold(const Layer& layer, const std::vector<float>& partials,
                    std::vector<float>& total) {
    const int64_t stride = partial_stride(layer.shape.head_dim);
    const auto fold = [&](const Kernels& kernels, float* out) {
      for (int64_t i = 0; i < layer.num_queries() * stride; i += stride) {
        kernels.fold_partial(out + i, partials.data() + i, layer.shape.head_dim, 0.7f);
      }
    };
    folds_.check(layer.text(), total, fold);
    fold(kernels_portable(), total.data());
  }

  void compare_end(const Layer& layer, const std::vector<float>& total) {
    const int64_t dim = layer.shape.head_dim, stride = partial_stride(dim);
    const std::vector<float> before(static_cast<size_t>(layer.num_queries() * dim), 9.0f);
    ends_.check(layer.text(), before, [&](const Kernels& kernels, float* out) {
      for (int64_t i = 0; i < layer.num_queries(); ++i) {
        kernels.finish_partial(total.data() + i * stride, out + i * dim, dim);
      }
    });
  }

  Comparison runs_{"attend_run"}, folds_{"fold_partial"}, ends_{"finish_partial"};
};

}  // namespace

bool compare_attention_kernels() {
  const bool is_equal = compare_writes();
  AttentionComparison attention;
  Random random(41);
  for (int i = 0; i < 200; ++i) attention.compare(random, 1 + i % 40);
  return attention.finish() && is_equal;
}

}  // namespace espalier
