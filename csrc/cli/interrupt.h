#pragma once

#include <atomic>
#include <csignal>

namespace berth::cli {

// Ctrl-C ends the search and keeps the best so far; the second one ends the program. One at a time.
class CancelOnInterrupt {
 public:
  CancelOnInterrupt() noexcept {
    flag().store(false);
    struct sigaction action {};
    action.sa_handler = [](int) { flag().store(true); };
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, nullptr, &before_);
    if (before_.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  }
  ~CancelOnInterrupt() { ::sigaction(SIGINT, &before_, nullptr); }
  CancelOnInterrupt(const CancelOnInterrupt&) = delete;
  CancelOnInterrupt& operator=(const CancelOnInterrupt&) = delete;

  [[nodiscard]] const std::atomic<bool>& cancelled() const noexcept { return flag(); }
  // Whether the last one was.
  [[nodiscard]] static bool happened() noexcept { return flag().load(); }

 private:
  static std::atomic<bool>& flag() noexcept {
    static constinit std::atomic<bool> cancelled{false};
    static_assert(std::atomic<bool>::is_always_lock_free, "set in a signal handler");
    return cancelled;
  }

  struct sigaction before_ {};
};

}  // namespace berth::cli
