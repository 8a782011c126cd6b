#include "machine_limits.h"

#include <algorithm>
#include <stdexcept>

#include "cpu.h"
#include "machine_peak.h"
#include "memory.h"
#include "stopwatch.h"

namespace espalier {
namespace {

constexpr int64_t kPart = 64 << 10;  // bytes of a chunk

uint64_t sum_of(const uint64_t* words, int64_t count) {
  uint64_t sums[16] = {};
  for (int64_t i = 0; i < count; i += 16) {
    for (int64_t j = 0; j < 16; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

using Multiply = int64_t (*)(int64_t rounds);

double multiply_rate(ThreadPool& pool, Multiply multiply) {
  constexpr int64_t kRounds = 200'000;
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    std::vector<int64_t> done(static_cast<size_t>(pool.num_threads()));
    const Stopwatch watch;
    pool.run(pool.num_threads(),
             [&](int64_t chunk, int) { done[static_cast<size_t>(chunk)] = multiply(kRounds); });
    int64_t sum = 0;
    for (const int64_t part : done) sum += part;
    best = std::max(best, static_cast<double>(sum) / watch.seconds());
  }
  return best;
}

}  // namespace

double read_bandwidth(ThreadPool& pool, int64_t num_bytes, int rounds) {
  if (num_bytes < kPart || rounds < 1) throw std::invalid_argument("nothing to read");
  const int64_t num_parts = num_bytes / kPart;
  const Memory memory(static_cast<size_t>(num_parts * kPart));
  const ThreadPool::Awake awake(pool);
  constexpr int64_t kWords = kPart / 8;
  auto* words = memory.as<uint64_t>();
  pool.run(num_parts, [&](int64_t part, int) {
    for (int64_t i = 0; i < kWords; ++i) words[part * kWords + i] = static_cast<uint64_t>(i);
  });
  double best = 0;
  for (int round = 0; round < rounds; ++round) {
    const Stopwatch watch;
    pool.run(num_parts, [&](int64_t part, int) {
      [[maybe_unused]] const volatile uint64_t kept = sum_of(words + part * kWords, kWords);
    });
    best = std::max(best, static_cast<double>(num_parts * kPart) / watch.seconds());
  }
  return best;
}

std::vector<std::pair<std::string, double>> multiply_rates(ThreadPool& pool) {
  std::vector<std::pair<std::string, double>> rates;
  const ThreadPool::Awake awake(pool);
  const Isa isa = best_isa();
  const auto measure = [&](const char* name, Isa least, Multiply multiply) {
    if (isa >= least) rates.emplace_back(name, multiply_rate(pool, multiply));
  };
  measure("f32 portable", Isa::Portable, multiply_f32_portable);
#if defined(__x86_64__)
  measure("f32 avx2", Isa::Avx2, multiply_f32_avx2);
  measure("f32 avx512", Isa::Avx512, multiply_f32_avx512);
  measure("int16 avx512vnni", Isa::Avx512Vnni, multiply_int16_avx512vnni);
  measure("int8 avx512amx", Isa::Avx512Amx, multiply_int8_avx512amx);
#elif defined(__aarch64__)
  measure("f32 neon", Isa::Neon, multiply_f32_neon);
#endif
  return rates;
}

}  // namespace espalier
