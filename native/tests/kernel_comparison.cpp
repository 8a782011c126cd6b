#include "kernel_comparison.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <limits>
#include <sstream>

#include "cpu.h"

namespace espalier {

uint64_t Random::word() {
  uint64_t x = state_ += 0x9E3779B97F4A7C15;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
  x = (x ^ x >> 27) * 0x94D049BB133111EB;
  return x ^ x >> 31;
}

int64_t Random::between(int64_t least, int64_t most) {
  return least + static_cast<int64_t>(word() % static_cast<uint64_t>(most - least + 1));
}

int64_t Random::one_of(std::initializer_list<int64_t> values) {
  return values.begin()[between(0, static_cast<int64_t>(values.size()) - 1)];
}

float Random::real(float least, float most) {
  const float unit = static_cast<float>(word() >> 40) * 0x1p-24f;
  return least + unit * (most - least);
}

std::vector<float> random_floats(Random& random, int64_t count, Wildness wildness) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> out(static_cast<size_t>(count));
  for (float& x : out) {
    x = random.real(-3.0f, 3.0f);
    if (wildness == Wildness::Moderate) continue;
    if (random.chance(3)) {
      const auto word = static_cast<uint32_t>(random.word());
      std::memcpy(&x, &word, sizeof x);
      if (!(x - x == 0.0f)) x = 0.0f;
    }
    if (random.chance(8)) x = random.chance(2) ? 0.0f : -0.0f;
    if (wildness == Wildness::NotFinite && random.chance(12)) {
      const int64_t kind = random.between(0, 2);
      x = kind == 0 ? kInfinity : kind == 1 ? -kInfinity : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return out;
}

uint16_t bf16_of(float x) {
  uint32_t word;
  std::memcpy(&word, &x, sizeof word);
  return static_cast<uint16_t>(word >> 16);
}

std::vector<uint16_t> random_bf16(Random& random, int64_t count, Wildness wildness) {
  std::vector<uint16_t> out;
  for (const float x : random_floats(random, count, wildness)) out.push_back(bf16_of(x));
  return out;
}

const std::vector<std::string>& Comparison::other_isas() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    std::istringstream all(available_isas());
    for (std::string name; std::getline(all >> std::ws, name, ',');) {
      if (name != isa_name(Isa::Portable)) out.push_back(name);
    }
    return out;
  }();
  return names;
}

const Kernels& Comparison::kernels_of(const std::string& isa) {
  return kernels_for(isa_from_name(isa));
}

void Comparison::add_to_digest(uint32_t word) {
  for (int byte = 0; byte < 4; ++byte) {
    digest_ = (digest_ ^ (word >> 8 * byte & 0xFF)) * 0x100000001B3;
  }
}

void Comparison::complain(const std::string& isa, const std::string& description, size_t index,
                          uint32_t given, uint32_t wanted) {
  constexpr int64_t kMost = 5;
  if (++num_complaints_ > kMost) return;
  std::fprintf(stderr, "%s differs in %s: %s: element %zu is %08" PRIx32 ", not %08" PRIx32 "\n",
               isa.c_str(), kernel_.c_str(), description.c_str(), index, given, wanted);
}

bool Comparison::finish() const {
  std::printf("%-18s %6" PRId64 " cases  %016" PRIx64 "\n", kernel_.c_str(), num_cases_, digest_);
  if (num_complaints_ > 0) {
    std::fprintf(stderr, "%s: %" PRId64 " results differ\n", kernel_.c_str(), num_complaints_);
  }
  return num_complaints_ == 0;
}

}  // namespace espalier

// Arguments: instruction sets that must be among those that are compared.
int main(int num_arguments, char** arguments) {
  std::fprintf(stderr, "instruction sets: %s\n", espalier::available_isas().c_str());
  const std::vector<std::string>& compared = espalier::Comparison::other_isas();
  for (int i = 1; i < num_arguments; ++i) {
    if (std::find(compared.begin(), compared.end(), arguments[i]) == compared.end()) {
      std::fprintf(stderr, "%s is not among the instruction sets here\n", arguments[i]);
      return 2;
    }
  }
  // Not with &&: all are to be seen.
  const int num_failures = !espalier::compare_row_kernels() + !espalier::compare_linear_kernels() +
                           !espalier::compare_attention_kernels();
  return num_failures > 0 ? 1 : 0;
}
