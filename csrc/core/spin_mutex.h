#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace berth {

// A mutex for sections of tens of nanoseconds: one atomic exchange to lock, a plain store to
// unlock. Who finds it held spins, then yields, then sleeps in short naps: sections that take long
// (a plan's arena gets its memory) are rare, and nobody is woken by unlock(), which would cost
// every unlock another locked instruction. Naps come soon: two threads that both do nothing but
// lock run twice as fast in turns of many sections, whose data stays in one core's cache, as in
// turns of one (bench/cuda_latency). Satisfies Lockable. Not recursive.
class SpinMutex {
 public:
  void lock() noexcept {
    if (held_.exchange(true, std::memory_order_acquire)) [[unlikely]]
      lock_slowly();
  }
  [[nodiscard]] bool try_lock() noexcept {
    return !held_.exchange(true, std::memory_order_acquire);
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  void lock_slowly() noexcept {
    for (unsigned attempt = 0;; ++attempt) {
      if (!held_.load(std::memory_order_relaxed) && try_lock()) return;
      if (attempt < kSpins) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      } else if (attempt < kSpins + kYields) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  }

  static constexpr unsigned kSpins = 16, kYields = 4;

  std::atomic<bool> held_{false};
};

}  // namespace berth
