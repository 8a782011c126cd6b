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

// The calling thread works too, as thread 0; the others are its helpers. Each thread has a share of
// neighbouring chunks, which it takes from the front, so that it reads memory in order; who is done
// takes from the back of other shares. Which thread takes which chunk is thus left to chance, and a
// chunk must give the same result on any. One loop at a time, none within a chunk.
class ThreadPool {
 public:
  static constexpr int kMostThreads = 1024;

  // `num_processors` is how many processors' worth of time the threads may use together; where that
  // is less than a thread's each, none of them waits awake. Throws std::invalid_argument where
  // check_num_threads does, std::system_error where the system starts no more threads.
  ThreadPool(int num_threads, int num_processors);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Throws std::invalid_argument for a number outside 1 to kMostThreads.
  static void check_num_threads(int num_threads);

  int num_threads() const { return num_threads_; }

  // Whether threads share processors, so that none waits awake.
  bool is_crowded() const { return is_crowded_; }

  // Threads that there are now: 1 where the helpers have ended. For the holder of an Awake.
  int num_running() const { return 1 + (helpers_ ? static_cast<int>(helpers_->size()) : 0); }

  // True in a process that was forked from the one that made the pool: its threads are not here.
  bool is_foreign() const;

  // Ends the helpers, after the loops that run. Later loops have the calling thread alone. In a
  // forked process, which has no helpers, it returns at once.
  void end_helpers();

  // While a scope of this kind lives, the pool is its thread's alone, and helpers that have nothing
  // to do wait awake for a short time before they sleep. Others that want one wait.
  class Awake {
   public:
    explicit Awake(ThreadPool& pool);
    ~Awake();
    Awake(const Awake&) = delete;
    Awake& operator=(const Awake&) = delete;

   private:
    ThreadPool& pool_;
    const std::lock_guard<std::mutex> lock_;
  };

  // Calls function(chunk, thread) for chunks 0 to num_chunks - 1, each once, and returns when all
  // are done. Rethrows the first exception of a chunk; chunks not yet begun are then left out.
  // To be called by the thread that holds an Awake of this pool.
  template <typename Function>
  void run(int64_t num_chunks, Function&& function) {
    using Plain = std::remove_reference_t<Function>;
    void* context = const_cast<void*>(static_cast<const void*>(&function));
    run_loop(num_chunks, {context, [](void* it, int64_t chunk, int thread) {
                            (*static_cast<Plain*>(it))(chunk, thread);
                          }});
  }

 private:
  struct Loop {
    void* context;
    void (*call)(void* context, int64_t chunk, int thread);
  };

  // What one thread has to do. The loop may be read by who has taken a chunk: it stays until that
  // chunk is reported as done.
  struct alignas(64) Share {
    std::atomic<uint64_t> chunks{0};  // the first in the upper half, the end in the lower
    Loop loop{};
    std::atomic<uint32_t> is_asleep{0};
  };

  void run_loop(int64_t num_chunks, const Loop& loop);
  int64_t take_chunks(int thread);
  int64_t cancel();
  void work(int thread);
  bool wait_for_share(Share& own);
  void wait_until_done(uint32_t num_chunks);
  static void open(Share& share, const Loop& loop, int64_t begin, int64_t end);
  static void wake(Share& share);

  const int num_threads_;
  const bool is_crowded_;
  const pid_t owner_;
  std::mutex owner_mutex_;
  std::unique_ptr<Share[]> shares_;                // [num_threads]
  alignas(64) std::atomic<uint32_t> num_done_{0};  // chunks of the loop, done by helpers
  std::atomic<uint32_t> is_caller_asleep_{0};
  alignas(64) std::atomic<int64_t> spin_ns_{0};  // how long to wait awake
  std::atomic<bool> is_ending_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
  std::unique_ptr<std::vector<std::thread>> helpers_;  // null in a forked process that ended them
};

}  // namespace espalier
