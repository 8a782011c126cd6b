// The table of kernels that each instruction set fills, and the plain structs that they take.
//
// A kernel works on one thread and knows no plan, pool or batch. Each one gives the same bits on
// every instruction set: vectors have 16 lanes everywhere, float sums run in a fixed order, and a
// multiplication is fused with an addition exactly where the source says so.
//
// Included by files that are compiled for different instruction sets: nothing but declarations and
// trivial structs may stand here, and those files may use no library templates, because the linker
// keeps one copy of an inline function and could keep the one that this CPU cannot run.
#pragma once

#include <cstdint>

namespace espalier {

constexpr int kLanes = 16;        // columns of a weight tile, lanes of a vector
constexpr int kStep = 64;         // inputs that integer products take at once
constexpr int kNibbleGroup = 32;  // inputs whose 4-bit weights share a factor and an offset
constexpr int64_t kTileBufferBytes = 160 << 10;  // of an L2 cache
constexpr int kRowBlock = 16;                    // rows whose quantised inputs lie together
constexpr int kBlock = 64;                       // positions that attention scores at once
constexpr int kSegment = 8 * kBlock;             // positions whose softmax is summed up by itself

struct Range {
  int64_t begin, end;
};

// Pieces of at most `size` that `count` things are cut into.
static inline int64_t chunks_of(int64_t count, int64_t size) { return (count + size - 1) / size; }

// int8 weights: tiles [out/16][in/64][16 quads][16 columns][4 inputs]; scales [out/16][groups][16],
// where a group is `steps_per_group` times 64 inputs.
struct Int8Matrix {
  const int8_t* tiles;
  const float* scales;
  const float* bias;  // [out, padded to 16], or null
  int64_t num_steps;
  int64_t steps_per_group;
  int64_t out_features;
};

// The same matrix with 4 bits for a weight: int8 = (factor * q + offset) >> 8, in 16-bit integers,
// with q from 0 to 15 and factor and offset for each column and 32 inputs. Records
// [out/16][in/32]: 4 lines of [16 columns][8 inputs]; then 16 factors and 16 offsets. In the word
// of a column, inputs 0, 1, 4, 5 are the nibbles of the low half and 2, 3, 6, 7 those of the high.
struct Int4Matrix {
  static constexpr int64_t kLine = 4 * kLanes;
  static constexpr int64_t kRecord = 5 * kLine;
  const uint8_t* records;
  const float* scales;
  const float* bias;
  int64_t num_steps;
  int64_t steps_per_group;
  int64_t out_features;
};

// bfloat16 weights: tiles [out/16][in/32][16 pairs][16 columns][2 inputs]; no subnormal numbers.
struct Bf16Matrix {
  static constexpr int64_t kStep = 32;
  const uint16_t* tiles;
  const float* bias;  // [out, padded to 16], or null
  int64_t num_steps;
  int64_t out_features;
};

// Rows of bfloat16, [row][num_steps * 32]; 15 rows behind the last one are there to be read.
struct Bf16Rows {
  const uint16_t* data;
  int64_t stride;
};

// float weights: tiles [out/16][in][16].
struct F32Matrix {
  const float* tiles;
  const float* bias;  // [out, padded to 16], or null
  int64_t in_features;
  int64_t out_features;
};

// Rows of integers of 15 bits with one scale each, 2 bytes for an input: [row][step] of int16, a
// quad of inputs as the pairs (x0, x2) and (x1, x3); or, not paired, x = 128 * high + low as
// [row/16][step][high, low][16 rows][64 bytes]. Rows up to a multiple of 16 are there to be read.
struct QuantizedRows {
  uint8_t* data;
  float* scales;
  int64_t num_steps;
  bool is_paired;
};

struct Rows {
  const float* data;
  int64_t stride;
};

struct RowsOut {
  float* data;
  int64_t stride;
  const int32_t* places = nullptr;  // of the rows, where they are not in order; products only
};

static inline float* place_of(const RowsOut& out, int64_t row) {
  return out.data + (out.places == nullptr ? row : out.places[row]) * out.stride;
}

// How keys and values are stored. Int8 has one scale for each slot and key head.
enum class KvFormat : int { F32, Bf16, Int8 };

static constexpr int64_t element_bytes(KvFormat format) {
  return format == KvFormat::F32 ? 4 : format == KvFormat::Bf16 ? 2 : 1;
}

// Where keys and values of one slot and key head lie; scales only for Int8.
struct KvSlot {
  void *key, *value;
  float *key_scale, *value_scale;
};

// Attention of one layer, the same for all rows.
struct AttentionShape {
  int64_t head_dim;
  int64_t num_kv_heads;
  int64_t heads_per_kv;
  int64_t num_slots;
  float scale;     // finite, not 0
  int64_t window;  // 0: none
  float soft_cap;  // 0: none
  KvFormat format;
  const void* keys;           // [kv_head][slot][head_dim]
  const void* values;         // the same
  const float* key_scales;    // [kv_head][slot], or null
  const float* value_scales;  // the same
};

// Rows that see the same slots in some blocks of positions, with the query heads of one key head.
// Query i is row rows[i / heads_per_kv], head i % heads_per_kv of the group.
struct AttentionUnit {
  const int32_t* slots;      // slot of each position, for the blocks
  const int32_t* rows;       // [num_rows], rows of the step
  const int32_t* positions;  // of each row of the step
  const float* q;            // first row of the step, first head of the group
  int64_t q_stride;
  int64_t num_rows;
  int64_t kv_head;
  Range blocks;   // of kBlock positions, all in one segment
  bool is_fresh;  // the partials hold nothing yet
  // What is likely to come after this unit, to be fetched meanwhile: positions in other slots, with
  // one key head. Null for nothing.
  const int32_t* next_slots;
  Range next_positions;
  int64_t next_kv_head;
};

static inline int64_t padded_to_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// What one query has gathered so far in a segment: head_dim sums (padded to 16), then the sum of
// exponentials and the largest score. A sum of 0 means that it has seen nothing.
static inline int64_t partial_stride(int64_t head_dim) {
  return padded_to_lanes(head_dim) + kLanes;
}
static inline int64_t padded_to_step(int64_t n) { return (n + kStep - 1) / kStep * kStep; }
// Floats that attend_run needs as scratch for so many queries, aligned to 64 bytes.
static inline int64_t attention_scratch(int64_t head_dim, int64_t num_queries) {
  const int64_t padded = padded_to_step(head_dim), queries = padded_to_lanes(num_queries);
  return kBlock * (2 * padded + 6 * kLanes) + queries * (2 * padded + 4 * kLanes) + 32 * kLanes;
}

struct Kernels {
  // Steps of more rows have their quantised inputs not paired.
  int64_t most_paired_rows;

  // Row kernels. Widths are free; rows need no alignment.
  void (*scale)(float* x, int64_t n, float factor);
  void (*add)(const float* x, const float* y, float* out, int64_t n);
  void (*rms_norm)(const float* x, const float* weight, float* out, int64_t n, float eps);
  void (*silu_gate)(const float* gate, const float* up, float* out, int64_t n);
  void (*gelu_gate)(const float* gate, const float* up, float* out, int64_t n);
  void (*soft_cap)(float* x, int64_t n, float cap);
  // cos, sin: [pairs]; element i is rotated with i + pairs.
  void (*rope_half)(float* x, const float* cos, const float* sin, int64_t pairs);
  // cos, sin: [width], each value twice, the sine of even elements negated.
  void (*rope_interleaved)(float* x, const float* cos, const float* sin, int64_t width);
  // n inputs in bfloat16, zeros for subnormal numbers and up to a multiple of 32.
  void (*round_bf16)(const float* x, int64_t n, uint16_t* out);
  // Keys and values of one slot and key head.
  void (*write_kv)(KvFormat, const float* key, const float* value, int64_t head_dim, const KvSlot&);
  // Writes n inputs, padded with zeros to a whole step, as row `row`.
  void (*quantize)(const float* x, int64_t n, const QuantizedRows&, int64_t row);

  // out[row][column] for rows and column tiles in the ranges. Quantised rows that are not paired
  // begin at a multiple of 16.
  void (*linear_int8)(const Int8Matrix&, const QuantizedRows&, const RowsOut&, Range rows,
                      Range tiles);
  // `buffer` has twice kTileBufferBytes, and room for the int8 weights of two tiles.
  void (*linear_int4)(const Int4Matrix&, const QuantizedRows&, const RowsOut&, Range rows,
                      Range tiles, int8_t* buffer);
  void (*linear_bf16)(const Bf16Matrix&, const Bf16Rows&, const RowsOut&, Range rows, Range tiles);
  void (*linear_f32)(const F32Matrix&, const Rows&, const RowsOut&, Range rows, Range tiles);

  // Attention of a unit's queries over its blocks, added to one partial each.
  void (*attend_run)(const AttentionShape&, const AttentionUnit&, float* partials, float* scratch);
  // Adds the partial of a later segment to that of all earlier ones; scores are in natural units
  // once multiplied by `score_factor`.
  void (*fold_partial)(float* total, const float* partial, int64_t head_dim, float score_factor);
  void (*finish_partial)(const float* total, float* out, int64_t head_dim);
};

const Kernels& kernels_portable();
#if defined(__x86_64__)
const Kernels& kernels_avx2();
const Kernels& kernels_avx512();
const Kernels& kernels_avx512vnni();
const Kernels& kernels_avx512amx();
#elif defined(__aarch64__)
const Kernels& kernels_neon();
#endif

}  // namespace espalier
