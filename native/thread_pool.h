// Threads that share the chunks of one loop at a time and sleep in between.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace espalier {

// The calling thread works too, as thread 0. Which thread takes which chunk is left to chance, so a
// chunk must give the same result on any. One loop at a time; not to be called from a chunk.
class ThreadPool {
 public:
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const { return num_threads_; }

  // True in a process that was forked from the one that made the pool: its threads are not here.
  bool is_foreign() const;

  // Calls function(chunk, thread) for chunks 0 to num_chunks - 1, each once, and returns when all
  // are done. Rethrows the first exception of a chunk; chunks not yet begun are then left out.
  template <typename Function>
  void run(int64_t num_chunks, Function&& function) {
    using Plain = std::remove_reference_t<Function>;
    run_loop({num_chunks, &function, [](void* context, int64_t chunk, int thread) {
                (*static_cast<Plain*>(context))(chunk, thread);
              }});
  }

  // While a scope of this kind lives, idle threads wait awake for a short time before they sleep.
  class Awake {
   public:
    explicit Awake(ThreadPool& pool) : pool_(pool) { pool_.is_awake_.store(true); }
    ~Awake() { pool_.is_awake_.store(false); }
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    ThreadPool& pool_;
  };

 private:
  struct Loop {
    int64_t num_chunks;
    void* context;
    void (*call)(void* context, int64_t chunk, int thread);
  };

  void run_loop(const Loop& loop);
  void take_chunks(int thread);
  void work(int thread);
  bool join_loop(uint64_t gate);
  uint64_t wait_for_news(uint64_t seen);
  void wait_for_helpers();

  // The gate says whether a loop is open to join (bit 0) and how many helpers are inside (bits 1
  // to 15); the rest counts loops. A helper that wakes too late finds it shut and is not missed.
  static constexpr uint64_t kOpen = 1, kHelper = 2, kLoop = uint64_t{1} << 16;
  static constexpr uint64_t kHelpers = kLoop - kHelper;

  const int num_threads_;
  const pid_t owner_;
  Loop loop_{};
  alignas(64) std::atomic<uint64_t> gate_{0};
  alignas(64) std::atomic<int64_t> next_chunk_{0};
  alignas(64) std::atomic<uint32_t> alarm_{0};  // sleeping helpers wait for it to change
  std::atomic<int> num_sleeping_{0};
  std::atomic<bool> is_awake_{false};
  std::atomic<bool> is_ending_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::unique_ptr<std::vector<std::thread>> helpers_;
};

}  // namespace espalier
