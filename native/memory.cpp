#include "memory.h"

#include <sys/mman.h>

#include <new>
#include <stdexcept>
#include <utility>

namespace espalier {

Memory::Memory(size_t size) : size_(size) {
  if (size == 0) return;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
#if defined(MAP_NORESERVE)
  flags |= MAP_NORESERVE;
#endif
  data_ = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw std::bad_alloc();
  }
#if defined(MADV_HUGEPAGE)
  constexpr size_t kHugePage = size_t{2} << 20;
  // Only a hint: without huge pages everything works, a little slower.
  if (size >= 4 * kHugePage) (void)madvise(data_, size, MADV_HUGEPAGE);
#endif
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, size_);
}

Memory::Memory(Memory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Memory& Memory::operator=(Memory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void* Arena::take(int64_t num_bytes) {
  const int64_t begin = used_;
  used_ += padded(num_bytes);
  if (used_ > static_cast<int64_t>(memory_.size())) throw std::logic_error("an arena is too small");
  return memory_.as<uint8_t>() + begin;
}

int64_t checked_product(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (factor < 0 || __builtin_mul_overflow(product, factor, &product)) {
      throw std::invalid_argument("sizes are negative or too large to multiply");
    }
  }
  return product;
}

}  // namespace espalier
