// Products with the weights of every format, for 1 to 40 rows and any part of the tiles.
#include "kernel_comparison.h"

namespace espalier {
namespace {

// Rows, columns and the part of them that a case computes.
struct Shape {
  int64_t num_rows, padded_rows, in_features, out_features, num_tiles, stride;
  Range rows, tiles;

  std::string text() const {
    return std::to_string(num_rows) + " rows, " + std::to_string(in_features) + " inputs, " +
           std::to_string(out_features) + " outputs; rows " + std::to_string(rows.begin) + " to " +
           std::to_string(rows.end) + ", tiles " + std::to_string(tiles.begin) + " to " +
           std::to_string(tiles.end);
  }
};

Shape random_shape(Random& random, int64_t num_rows) {
  Shape s;
  s.num_rows = num_rows;
  s.padded_rows = padded_to_lanes(num_rows);
  s.in_features = random.between(1, 300);
  s.out_features = random.between(1, 150);
  s.num_tiles = padded_to_lanes(s.out_features) / kLanes;
  s.stride = s.out_features + random.between(0, 5);
  s.rows = {0, num_rows};
  if (num_rows > kRowBlock && random.chance(2)) s.rows.begin = kRowBlock;
  if (random.chance(4)) s.rows.end = random.between(s.rows.begin + 1, num_rows);
  s.tiles.begin = random.chance(2) ? 0 : random.between(0, s.num_tiles - 1);
  s.tiles.end = random.chance(2) ? s.num_tiles : random.between(s.tiles.begin + 1, s.num_tiles);
  return s;
}

// Calls function(shape) for a few shapes of each number of rows.
template <typename Function>
void each_shape(Random& random, Function function) {
  for (int64_t num_rows = 1; num_rows <= 40; ++num_rows) {
    for (int i = 0; i < 4; ++i) function(random_shape(random, num_rows));
  }
}

std::vector<float> untouched(const Shape& s) {
  return std::vector<float>(static_cast<size_t>(s.num_rows * s.stride), 7.5f);
}

// The same rows as each kernel table wants them.
struct Inputs {
  std::vector<uint8_t> paired, planes;
  std::vector<float> scales;
  int64_t num_steps;

  Inputs(Random& random, const Shape& s, Wildness wildness)
      : paired(static_cast<size_t>(s.padded_rows * padded_to_step(s.in_features) * 2)),
        planes(paired.size()),
        scales(static_cast<size_t>(s.padded_rows)),
        num_steps(padded_to_step(s.in_features) / kStep) {
    for (int64_t row = 0; row < s.num_rows; ++row) {
      const std::vector<float> x = random_floats(random, s.in_features, wildness);
      for (uint8_t* data : {paired.data(), planes.data()}) {
        kernels_portable().quantize(x.data(), s.in_features,
                                    {data, scales.data(), num_steps, data == paired.data()}, row);
      }
    }
  }

  QuantizedRows rows_for(const Kernels& kernels, const Shape& s) {
    const bool is_paired = s.num_rows <= kernels.most_paired_rows;
    return {(is_paired ? paired : planes).data(), scales.data(), num_steps, is_paired};
  }
};

int64_t random_divisor(Random& random, int64_t n) {
  int64_t divisor = random.between(1, n);
  while (n % divisor != 0) --divisor;
  return divisor;
}

bool compare_int8() {
  Comparison comparison("linear_int8");
  Random random(20);
  each_shape(random, [&](const Shape& s) {
    Inputs inputs(random, s, random.chance(2) ? Wildness::AllSizes : Wildness::Moderate);
    const int64_t steps_per_group = random_divisor(random, inputs.num_steps);
    const int64_t num_groups = inputs.num_steps / steps_per_group;
    const auto tiles =
        random_integers<int8_t>(random, s.num_tiles * inputs.num_steps * kStep * kLanes, -127, 127);
    const auto scales =
        random_floats(random, s.num_tiles * num_groups * kLanes, Wildness::Moderate);
    const auto bias = random_floats(random, s.num_tiles * kLanes, Wildness::Moderate);
    const Int8Matrix matrix{
        tiles.data(),     scales.data(),   random.chance(2) ? bias.data() : nullptr,
        inputs.num_steps, steps_per_group, s.out_features};
    comparison.check(s.text(), untouched(s), [&](const Kernels& kernels, float* out) {
      kernels.linear_int8(matrix, inputs.rows_for(kernels, s), {out, s.stride}, s.rows, s.tiles);
    });
  });
  return comparison.finish();
}

bool compare_int4() {
  Comparison comparison("linear_int4");
  Random random(21);
  each_shape(random, [&](const Shape& s) {
    Inputs inputs(random, s, random.chance(2) ? Wildness::NotFinite : Wildness::Moderate);
    const int64_t steps_per_group = random_divisor(random, inputs.num_steps);
    const int64_t num_groups = inputs.num_steps / steps_per_group;
    const auto records = random_integers<uint8_t>(
        random, s.num_tiles * inputs.num_steps * (kStep / kNibbleGroup) * Int4Matrix::kRecord, 0,
        255);
    const auto scales =
        random_floats(random, s.num_tiles * num_groups * kLanes, Wildness::Moderate);
    const auto bias = random_floats(random, s.num_tiles * kLanes, Wildness::Moderate);
    const Int4Matrix matrix{
        records.data(),   scales.data(),   random.chance(2) ? bias.data() : nullptr,
        inputs.num_steps, steps_per_group, s.out_features};
    std::vector<int8_t> buffer(static_cast<size_t>(2 * kTileBufferBytes));
    comparison.check(s.text(), untouched(s), [&](const Kernels& kernels, float* out) {
      kernels.linear_int4(matrix, inputs.rows_for(kernels, s), {out, s.stride}, s.rows, s.tiles,
                          buffer.data());
    });
  });
  return comparison.finish();
}

// Numbers from 2^-67 to 2^-60, whose products are subnormal or nearly so.
void make_small(Random& random, std::vector<uint16_t>& numbers) {
  for (uint16_t& x : numbers) {
    x = static_cast<uint16_t>((x & 0x807F) | random.between(60, 66) << 7);
  }
}

// With numbers that are subnormal, or whose products are: all kernels take them for zeros.
bool compare_bf16() {
  Comparison comparison("linear_bf16");
  Random random(22);
  each_shape(random, [&](const Shape& s) {
    const int64_t num_steps = (s.in_features + Bf16Matrix::kStep - 1) / Bf16Matrix::kStep;
    const int64_t width = num_steps * Bf16Matrix::kStep;
    const Wildness wildness = random.chance(2) ? Wildness::AllSizes : Wildness::Moderate;
    auto tiles = random_bf16(random, s.num_tiles * width * kLanes, wildness);
    const auto bias = random_floats(random, s.num_tiles * kLanes, wildness);
    const int64_t stride = width + 2 * random.between(0, 3);
    auto x = random_bf16(random, s.padded_rows * stride, wildness);
    if (random.chance(3)) {
      make_small(random, tiles);
      make_small(random, x);
    }
    if (random.chance(4)) x[static_cast<size_t>(random.between(0, width - 1))] = 0x7F80;
    const Bf16Matrix matrix{tiles.data(), random.chance(2) ? bias.data() : nullptr, num_steps,
                            s.out_features};
    comparison.check(s.text(), untouched(s), [&](const Kernels& kernels, float* out) {
      kernels.linear_bf16(matrix, {x.data(), stride}, {out, s.stride}, s.rows, s.tiles);
    });
  });
  return comparison.finish();
}

bool compare_f32() {
  Comparison comparison("linear_f32");
  Random random(23);
  each_shape(random, [&](const Shape& s) {
    const auto wildness = static_cast<Wildness>(random.between(0, 2));
    const auto tiles = random_floats(random, s.num_tiles * s.in_features * kLanes, wildness);
    const auto bias = random_floats(random, s.num_tiles * kLanes, Wildness::Moderate);
    const int64_t stride = s.in_features + random.between(0, 3);
    const auto x = random_floats(random, s.num_rows * stride, wildness);
    const F32Matrix matrix{tiles.data(), random.chance(2) ? bias.data() : nullptr, s.in_features,
                           s.out_features};
    comparison.check(s.text(), untouched(s), [&](const Kernels& kernels, float* out) {
      kernels.linear_f32(matrix, {x.data(), stride}, {out, s.stride}, s.rows, s.tiles);
    });
  });
  return comparison.finish();
}

}  // namespace

bool compare_linear_kernels() {
  bool is_equal = compare_int8();
  is_equal &= compare_int4();
  is_equal &= compare_bf16();
  is_equal &= compare_f32();
  return is_equal;
}

}  // namespace espalier
