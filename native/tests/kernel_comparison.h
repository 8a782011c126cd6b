// Runs kernels of every instruction set of this machine on the same random inputs and compares the
// bits of what they write with those of the portable kernels.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "kernels.h"

namespace espalier {

// Uniform numbers that are the same on every machine (SplitMix64, Steele et al. 2014).
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t word();
  int64_t between(int64_t least, int64_t most);  // both included
  int64_t one_of(std::initializer_list<int64_t> values);
  bool chance(int one_in) { return between(1, one_in) == 1; }
  float real(float least, float most);

 private:
  uint64_t state_;
};

// How wild the floats of a row are: moderate ones; of all sizes with zeros and subnormal ones; the
// same with infinities and NaN.
enum class Wildness : int { Moderate, AllSizes, NotFinite };

std::vector<float> random_floats(Random& random, int64_t count, Wildness wildness);
uint16_t bf16_of(float x);
std::vector<uint16_t> random_bf16(Random& random, int64_t count, Wildness wildness);
template <typename Integer>
std::vector<Integer> random_integers(Random& random, int64_t count, int64_t least, int64_t most) {
  std::vector<Integer> out(static_cast<size_t>(count));
  for (Integer& x : out) x = static_cast<Integer>(random.between(least, most));
  return out;
}

// The bits of a value, the same ones for everything that is not a number: which NaN an operation
// gives is the processor's choice.
inline uint32_t comparable_bits(float x) {
  uint32_t word;
  std::memcpy(&word, &x, sizeof word);
  return x != x ? 0x7FC00000u : word;
}
inline uint32_t comparable_bits(uint8_t x) { return x; }
inline uint32_t comparable_bits(uint16_t x) {  // a bfloat16
  return (x & 0x7FFF) > 0x7F80 ? 0x7FC0u : x;
}

// The comparison of one kernel over many cases.
class Comparison {
 public:
  explicit Comparison(std::string kernel) : kernel_(std::move(kernel)) {}

  // Lets `run` write to a copy of `before` with the kernels of each instruction set. `description`
  // is what a complaint says of the case.
  template <typename Element, typename Run>
  void check(const std::string& description, const std::vector<Element>& before, Run run) {
    ++num_cases_;
    std::vector<Element> expected = before;
    run(kernels_portable(), expected.data());
    for (const Element x : expected) add_to_digest(comparable_bits(x));
    for (const std::string& isa : other_isas()) {
      std::vector<Element> out = before;
      run(kernels_of(isa), out.data());
      for (size_t i = 0; i < out.size(); ++i) {
        const uint32_t given = comparable_bits(out[i]), wanted = comparable_bits(expected[i]);
        if (given == wanted) continue;
        complain(isa, description, i, given, wanted);
        break;
      }
    }
  }

  // Prints the number of cases and a digest of the portable results; returns whether all were
  // equal.
  bool finish() const;

  // Names of the instruction sets that are compared with the portable kernels.
  static const std::vector<std::string>& other_isas();

 private:
  static const Kernels& kernels_of(const std::string& isa);
  void add_to_digest(uint32_t word);
  void complain(const std::string& isa, const std::string& description, size_t index,
                uint32_t given, uint32_t wanted);

  std::string kernel_;
  int64_t num_cases_ = 0, num_complaints_ = 0;
  uint64_t digest_ = 0xCBF29CE484222325;  // FNV-1a
};

// Each compares some kernels and returns whether all bits were equal.
bool compare_row_kernels();
bool compare_linear_kernels();
bool compare_attention_kernels();

}  // namespace espalier
