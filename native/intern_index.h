// A hash table from values that somebody else keeps to their indices, for values that are never
// removed: it holds hashes and indices only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier {

// Mixes a value into a hash (the finaliser of splitmix64, by Sebastiano Vigna).
inline uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) + 0x9e3779b97f4a7c15;
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

class InternIndex {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  InternIndex() : slots_(kFirstSlots) {}

  // The index under this hash of which is_equal(index) holds, else kNone.
  template <typename IsEqual>
  uint32_t find(uint64_t hash, const IsEqual& is_equal) const {
    const size_t last = slots_.size() - 1;
    for (size_t i = hash & last; slots_[i].index != kNone; i = (i + 1) & last) {
      if (slots_[i].hash == low_half(hash) && is_equal(slots_[i].index)) return slots_[i].index;
    }
    return kNone;
  }

  void insert(uint64_t hash, uint32_t index) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    put({low_half(hash), index});
    ++count_;
  }

  size_t num_bytes() const { return slots_.size() * sizeof(Slot); }

 private:
  struct Slot {
    uint32_t hash = 0;
    uint32_t index = kNone;
  };
  static constexpr size_t kFirstSlots = 64;

  static uint32_t low_half(uint64_t hash) { return static_cast<uint32_t>(hash); }

  void put(Slot slot) {
    const size_t last = slots_.size() - 1;
    size_t i = slot.hash & last;
    while (slots_[i].index != kNone) i = (i + 1) & last;
    slots_[i] = slot;
  }

  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.index != kNone) put(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace espalier
