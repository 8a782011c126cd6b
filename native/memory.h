// Large blocks of memory, taken from the system page by page as they are first written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace espalier {

// `size` bytes of zeros, aligned to a page; freed on destruction. Pages that were never written
// take no memory. Throws std::bad_alloc.
class Memory {
 public:
  Memory() = default;
  explicit Memory(size_t size);
  ~Memory();
  Memory(Memory&& other) noexcept;
  Memory& operator=(Memory&& other) noexcept;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  template <typename Element>
  Element* as() const {
    return static_cast<Element*>(data_);
  }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

// One block of memory that is handed out in pieces, one behind the other: matrices that are read in
// turn then share huge pages, and the processor's prefetchers run from one into the next.
class Arena {
 public:
  static constexpr int64_t kAlignment = 64;
  // What a piece takes of an arena.
  static int64_t padded(int64_t num_bytes) {
    return (num_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }

  Arena() = default;
  // Throws std::bad_alloc.
  explicit Arena(int64_t num_bytes) : memory_(static_cast<size_t>(num_bytes)) {}

  // Zeros that live as long as the arena. Throws std::logic_error where no room is left.
  void* take(int64_t num_bytes);

 private:
  Memory memory_;
  int64_t used_ = 0;
};

// Product of sizes in bytes or elements; throws std::invalid_argument on overflow or a negative.
int64_t checked_product(std::initializer_list<int64_t> factors);

}  // namespace espalier
