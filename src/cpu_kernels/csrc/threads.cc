#include "threads.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace cpu_kernels {
namespace {

constexpr int kSpins = 2000;  // some 30 microseconds: shorter than a thread takes to wake up

inline void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::atomic<int> wanted_threads{0};

// A loop is open while `state_` is odd. A worker that joins counts itself in `active_` before it looks at `state_`
// again, and the owner closes the loop before it looks at `active_`: one of them sees the other.
class Pool {
 public:
  Pool() {
    const int wanted = wanted_threads.load();
    threads_ = wanted > 0 ? wanted : static_cast<int>(std::thread::hardware_concurrency());
    for (int i = 1; i < threads_; ++i) {
      std::thread([this] { Serve(); }).detach();
    }
  }

  int threads() const { return threads_; }

  void Run(int64_t count, Body body, const void *context) {
    if (count < 2 || threads_ < 2 || busy_.test_and_set(std::memory_order_acquire)) {
      for (int64_t i = 0; i < count; ++i) body(context, i);
      return;
    }
    body_ = body;
    context_ = context;
    count_ = count;
    next_.store(0);
    {
      std::lock_guard<std::mutex> lock(sleep_);
      state_.fetch_add(1);
    }
    wake_.notify_all();
    Work();
    state_.fetch_add(1);
    for (int spins = 0; active_.load() != 0; ++spins) {
      if (spins < kSpins) {
        Pause();
      } else {
        std::this_thread::yield();
      }
    }
    std::exception_ptr error;
    std::swap(error, error_);
    failed_.store(false);
    busy_.clear(std::memory_order_release);
    if (error) std::rethrow_exception(error);
  }

 private:
  void Work() {
    try {
      for (int64_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) body_(context_, i);
    } catch (...) {
      next_.store(count_);
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }

  void Serve() {
    for (uint64_t seen = 0;;) {
      seen = WaitForAnother(seen);
      active_.fetch_add(1);
      if (state_.load() == seen) Work();
      active_.fetch_sub(1);
    }
  }

  uint64_t WaitForAnother(uint64_t seen) {
    uint64_t state = seen;
    const auto opened = [&] {
      state = state_.load();
      return state % 2 == 1 && state != seen;
    };
    for (int spins = 0; spins < kSpins; ++spins) {
      if (opened()) return state;
      Pause();
    }
    std::unique_lock<std::mutex> lock(sleep_);
    wake_.wait(lock, opened);
    return state;
  }

  int threads_;
  std::atomic_flag busy_ = ATOMIC_FLAG_INIT;
  std::mutex sleep_;
  std::condition_variable wake_;
  std::atomic<uint64_t> state_{0};
  std::atomic<int> active_{0};
  std::atomic<int64_t> next_{0};
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the thread that set `failed_`
  int64_t count_ = 0;
  Body body_ = nullptr;
  const void *context_ = nullptr;
};

Pool &ThePool() {
  static Pool *pool = new Pool();  // never destroyed: its threads end with the process
  return *pool;
}

}  // namespace

void SetThreads(int threads) { wanted_threads.store(threads); }

int Threads() { return ThePool().threads(); }

void ParallelRun(int64_t count, Body body, const void *context) { ThePool().Run(count, body, context); }

}  // namespace cpu_kernels
