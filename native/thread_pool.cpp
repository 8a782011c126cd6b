#include "thread_pool.h"

#include <unistd.h>

#include <utility>

namespace espalier {
namespace {

constexpr int kSpins = 800;  // tens of microseconds, more than the gap between two loops of a step

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

}  // namespace

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads),
      owner_(getpid()),
      helpers_(std::make_unique<std::vector<std::thread>>()) {
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      helpers_->emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {
    is_ending_.store(true);
    alarm_.fetch_add(1);
    alarm_.notify_all();
    for (std::thread& helper : *helpers_) helper.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (is_foreign()) {
    // The threads do not exist in a forked child: to join them would wait for ever.
    (void)helpers_.release();
    return;
  }
  is_ending_.store(true);
  alarm_.fetch_add(1);
  alarm_.notify_all();
  for (std::thread& helper : *helpers_) helper.join();
}

bool ThreadPool::is_foreign() const { return getpid() != owner_; }

void ThreadPool::run_loop(const Loop& loop) {
  if (num_threads_ == 1 || loop.num_chunks <= 1) {
    for (int64_t chunk = 0; chunk < loop.num_chunks; ++chunk) loop.call(loop.context, chunk, 0);
    return;
  }
  loop_ = loop;
  next_chunk_.store(0, std::memory_order_relaxed);
  gate_.store((gate_.load(std::memory_order_relaxed) & ~(kLoop - 1)) + kLoop + kOpen);
  if (num_sleeping_.load() > 0) {
    alarm_.fetch_add(1);
    alarm_.notify_all();
  }
  take_chunks(0);
  gate_.fetch_and(~kOpen);
  wait_for_helpers();
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadPool::take_chunks(int thread) {
  for (;;) {
    const int64_t chunk = next_chunk_.fetch_add(1, std::memory_order_relaxed);
    if (chunk >= loop_.num_chunks) return;
    try {
      loop_.call(loop_.context, chunk, thread);
    } catch (...) {
      next_chunk_.store(loop_.num_chunks);
      const std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
  }
}

// Helpers that joined are at work, so this is short; they may still be off the processor.
void ThreadPool::wait_for_helpers() {
  for (int spins = 0;; ++spins) {
    const uint64_t gate = gate_.load();
    if ((gate & kHelpers) == 0) return;
    if (spins < kSpins) {
      relax();
    } else {
      gate_.wait(gate);
    }
  }
}

bool ThreadPool::join_loop(uint64_t gate) {
  while ((gate & kOpen) != 0) {
    if (gate_.compare_exchange_weak(gate, gate + kHelper)) return true;
  }
  return false;
}

// Returns the gate once a loop newer than `seen` was opened, or anything once the pool is ending.
uint64_t ThreadPool::wait_for_news(uint64_t seen) {
  for (int spins = 0;; ++spins) {
    const uint32_t alarm = alarm_.load();  // before the ending is looked for, which rings it too
    if (is_ending_.load()) return seen;
    uint64_t gate = gate_.load();
    if (gate / kLoop != seen / kLoop) return gate;
    if (is_awake_.load(std::memory_order_relaxed) && spins < kSpins) {
      relax();
      continue;
    }
    num_sleeping_.fetch_add(1);
    // A loop opened after the count above rings the alarm; one opened before is seen here.
    gate = gate_.load();
    if (gate / kLoop == seen / kLoop) alarm_.wait(alarm);
    num_sleeping_.fetch_sub(1);
  }
}

void ThreadPool::work(int thread) {
  uint64_t seen = 0;
  while (!is_ending_.load()) {
    const uint64_t gate = wait_for_news(seen);
    seen = gate;
    if (!join_loop(gate)) continue;
    take_chunks(thread);
    if ((gate_.fetch_sub(kHelper) & kHelpers) == kHelper) gate_.notify_one();
  }
}

}  // namespace espalier
