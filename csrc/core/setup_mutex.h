#pragma once

#include "csrc/core/check.h"

#include <sys/types.h>
#include <unistd.h>

#include <atomic>

namespace berth {

// A mutex for what a process sets up once, while calls of others run that may take long and have
// locks of their own (libtorch's, CUDA's): such a lock cannot be held over a fork. In a child that
// was forked while another thread of its parent held it, nobody will ever unlock it: lock() throws
// Error(kUsage) there instead of waiting. Not recursive.
class SetupMutex {
 public:
  void lock() {
    const pid_t here = ::getpid();
    pid_t holder = 0;
    while (!holder_.compare_exchange_strong(holder, here, std::memory_order_acquire)) {
      BERTH_CHECK(holder == here, kUsage,
                  "this process was forked while another thread of its parent, process {}, set "
                  "berth up: berth cannot be used here. Fork before, or after",
                  holder);
      holder_.wait(holder);
      holder = 0;
    }
  }
  void unlock() noexcept {
    holder_.store(0, std::memory_order_release);
    holder_.notify_all();
  }

 private:
  std::atomic<pid_t> holder_{0};  // the process of the thread that holds it
};

}  // namespace berth
