#pragma once

#include <atomic>

namespace berth {

// A mutex for sections of tens of nanoseconds: one atomic exchange where nobody waits, a few spins,
// then sleep. Satisfies Lockable; works with std::lock_guard. Not recursive.
//
// States: 0 free, 1 held, 2 held and somebody may sleep (Drepper 2011, "Futexes Are Tricky",
// mutex2).
class SpinMutex {
 public:
  void lock() noexcept {
    int expected = 0;
    if (state_.compare_exchange_strong(expected, 1, std::memory_order_acquire)) [[likely]]
      return;
    lock_slowly();
  }
  [[nodiscard]] bool try_lock() noexcept {
    int expected = 0;
    return state_.compare_exchange_strong(expected, 1, std::memory_order_acquire);
  }
  void unlock() noexcept {
    if (state_.exchange(0, std::memory_order_release) == 2) [[unlikely]]
      state_.notify_one();
  }

 private:
  void lock_slowly() noexcept {
    for (int spin = 0; spin < 100; ++spin) {
      if (state_.load(std::memory_order_relaxed) == 0 && try_lock()) return;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    }
    while (state_.exchange(2, std::memory_order_acquire) != 0)
      state_.wait(2, std::memory_order_relaxed);
  }

  std::atomic<int> state_{0};
};

}  // namespace berth
