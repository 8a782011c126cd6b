#include "thread_pool.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

namespace espalier {
namespace {

// Longer than the gap between two loops of a step, and about what it costs to wake a thread.
constexpr int64_t kSpinNs = 50'000;
constexpr int kMostVictims = 8;  // shares that a helper looks into when its own is empty

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("yield");
#endif
}

// Says how long to go on asking; the clock is read now and then only.
class Spin {
 public:
  bool goes_on(int64_t spin_ns) {
    if (spin_ns == 0) return false;
    relax();
    if (++count_ % 16 != 0) return true;
    const auto now = std::chrono::steady_clock::now();
    if (count_ == 16) start_ = now;
    return now - start_ < std::chrono::nanoseconds(spin_ns);
  }

 private:
  unsigned count_ = 0;
  std::chrono::steady_clock::time_point start_;
};

constexpr uint64_t packed(uint64_t begin, uint64_t end) { return begin << 32 | end; }
constexpr uint32_t begin_of(uint64_t chunks) { return static_cast<uint32_t>(chunks >> 32); }
constexpr uint32_t end_of(uint64_t chunks) { return static_cast<uint32_t>(chunks); }
constexpr bool is_empty(uint64_t chunks) { return begin_of(chunks) >= end_of(chunks); }

// Takes the first or the last of some chunks; -1 where none is left. Chunks that were opened anew
// since they were looked at are as good.
int64_t take(std::atomic<uint64_t>& chunks, bool is_first) {
  uint64_t seen = chunks.load(std::memory_order_acquire);
  while (!is_empty(seen)) {
    const uint32_t begin = begin_of(seen), end = end_of(seen);
    const uint64_t rest = is_first ? packed(begin + 1, end) : packed(begin, end - 1);
    if (chunks.compare_exchange_weak(seen, rest, std::memory_order_acq_rel)) {
      return is_first ? begin : end - 1;
    }
  }
  return -1;
}

int checked(int num_threads) {
  ThreadPool::check_num_threads(num_threads);
  return num_threads;
}

}  // namespace

void ThreadPool::check_num_threads(int num_threads) {
  if (num_threads >= 1 && num_threads <= kMostThreads) return;
  throw std::invalid_argument("num_threads is " + std::to_string(num_threads) + "; 1 to " +
                              std::to_string(kMostThreads) + " are allowed");
}

ThreadPool::ThreadPool(int num_threads, int num_processors)
    : num_threads_(checked(num_threads)),
      is_crowded_(num_processors < num_threads),
      owner_(getpid()),
      shares_(std::make_unique<Share[]>(static_cast<size_t>(num_threads))),
      helpers_(std::make_unique<std::vector<std::thread>>()) {
  try {
    for (int thread = 1; thread < num_threads; ++thread) {
      helpers_->emplace_back([this, thread] { work(thread); });
    }
  } catch (...) {
    end_helpers();
    throw;
  }
}

ThreadPool::~ThreadPool() { end_helpers(); }

bool ThreadPool::is_foreign() const { return getpid() != owner_; }

void ThreadPool::end_helpers() {
  if (is_foreign()) {
    // The threads do not exist in a forked child: to join them would wait for ever, and so would
    // the lock, where a thread that is not here holds it.
    (void)helpers_.release();
    return;
  }
  const std::lock_guard<std::mutex> lock(owner_mutex_);
  is_ending_.store(true);
  for (int thread = 1; thread < num_threads_; ++thread) wake(shares_[thread]);
  for (std::thread& helper : *helpers_) helper.join();
  helpers_->clear();
}

// Where threads share a processor, who waits awake keeps the processor from whom it waits for.
ThreadPool::Awake::Awake(ThreadPool& pool) : pool_(pool), lock_(pool.owner_mutex_) {
  if (pool_.num_running() == 1 || pool_.is_crowded_) return;
  pool_.spin_ns_.store(kSpinNs);
  for (int thread = 1; thread < pool_.num_threads_; ++thread) wake(pool_.shares_[thread]);
}

ThreadPool::Awake::~Awake() { pool_.spin_ns_.store(0); }

// After a change that a sleeper waits for. It says that it sleeps before it looks a last time.
void ThreadPool::wake(Share& share) {
  if (share.is_asleep.load() == 0) return;
  share.is_asleep.store(0);
  share.is_asleep.notify_one();
}

void ThreadPool::open(Share& share, const Loop& loop, int64_t begin, int64_t end) {
  share.loop = loop;
  share.chunks.store(packed(static_cast<uint64_t>(begin), static_cast<uint64_t>(end)));
}

void ThreadPool::run_loop(int64_t num_chunks, const Loop& loop) {
  if (num_running() == 1 || num_chunks <= 1) {
    for (int64_t chunk = 0; chunk < num_chunks; ++chunk) loop.call(loop.context, chunk, 0);
    return;
  }
  if (num_chunks > std::numeric_limits<int32_t>::max()) {
    throw std::invalid_argument("a loop of " + std::to_string(num_chunks) + " chunks is too long");
  }
  num_done_.store(0, std::memory_order_relaxed);
  const int64_t num_shares = std::min<int64_t>(num_threads_, num_chunks);
  for (int64_t i = num_shares - 1; i >= 0; --i) {
    Share& share = shares_[static_cast<size_t>(i)];
    open(share, loop, num_chunks * i / num_shares, num_chunks * (i + 1) / num_shares);
    if (i > 0) wake(share);
  }
  const int64_t num_mine = take_chunks(0);
  wait_until_done(static_cast<uint32_t>(num_chunks - num_mine));
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// Returns how many were done or cancelled. Thread 0 leaves none behind that nobody has taken.
int64_t ThreadPool::take_chunks(int thread) {
  int64_t num_done = 0;
  const int num_visits = thread == 0 ? num_threads_ : std::min(num_threads_, kMostVictims);
  for (int visit = 0; visit < num_visits; ++visit) {
    Share& share = shares_[static_cast<size_t>((thread + visit) % num_threads_)];
    for (;;) {
      const int64_t chunk = take(share.chunks, visit == 0);
      if (chunk < 0) break;
      ++num_done;
      try {
        share.loop.call(share.loop.context, chunk, thread);
      } catch (...) {
        num_done += cancel();
        const std::lock_guard<std::mutex> lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
      }
    }
  }
  return num_done;
}

// Takes all chunks that nobody has begun, and returns how many these were.
int64_t ThreadPool::cancel() {
  int64_t count = 0;
  for (int thread = 0; thread < num_threads_; ++thread) {
    const uint64_t left = shares_[static_cast<size_t>(thread)].chunks.exchange(0);
    if (!is_empty(left)) count += end_of(left) - begin_of(left);
  }
  return count;
}

void ThreadPool::wait_until_done(uint32_t num_chunks) {
  Spin spin;
  uint32_t seen = num_done_.load(std::memory_order_acquire);
  while (seen != num_chunks) {
    if (!spin.goes_on(spin_ns_.load(std::memory_order_relaxed))) break;
    seen = num_done_.load(std::memory_order_acquire);
  }
  if (seen == num_chunks) return;
  is_caller_asleep_.store(1);
  while ((seen = num_done_.load()) != num_chunks) num_done_.wait(seen);
  is_caller_asleep_.store(0, std::memory_order_relaxed);
}

// False once the pool is ending.
bool ThreadPool::wait_for_share(Share& own) {
  Spin spin;
  for (;;) {
    if (!is_empty(own.chunks.load(std::memory_order_acquire))) return true;
    if (is_ending_.load(std::memory_order_relaxed)) return false;
    if (spin.goes_on(spin_ns_.load(std::memory_order_relaxed))) continue;
    own.is_asleep.store(1);
    if (is_empty(own.chunks.load()) && !is_ending_.load()) own.is_asleep.wait(1);
    own.is_asleep.store(0);
    spin = Spin();
  }
}

void ThreadPool::work(int thread) {
  Share& own = shares_[static_cast<size_t>(thread)];
  while (wait_for_share(own)) {
    const int64_t num_done = take_chunks(thread);
    if (num_done == 0) continue;
    num_done_.fetch_add(static_cast<uint32_t>(num_done));
    if (is_caller_asleep_.load() != 0) num_done_.notify_one();
  }
}

}  // namespace espalier
