#pragma once

#include "csrc/cli/core/exit_code.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <string_view>

namespace berth::cli {

// Ends the program from a signal handler.
[[noreturn]] inline void leave_interrupted() noexcept {
  constexpr std::string_view kText = "berth: interrupted\n";
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, kText.data(), kText.size());
  ::_exit(kInterrupted);
}

// Has `handler` called on Ctrl-C, unless the program was started to ignore it. Returns what was
// there.
inline struct sigaction handle_interrupt(void (*handler)(int)) noexcept {
  struct sigaction action {};
  struct sigaction before {};
  action.sa_handler = handler;
  ::sigaction(SIGINT, nullptr, &before);
  if (before.sa_handler != SIG_IGN) ::sigaction(SIGINT, &action, nullptr);
  return before;
}

// From now on Ctrl-C ends the program with kInterrupted and one line.
inline void end_on_interrupt() noexcept {
  handle_interrupt([](int) { leave_interrupted(); });
}

// Ctrl-C ends the search and keeps the best so far; the second one ends the program. One at a time.
class CancelOnInterrupt {
 public:
  CancelOnInterrupt() noexcept {
    flag().store(false);
    before_ = handle_interrupt([](int) {
      if (flag().exchange(true)) leave_interrupted();
    });
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
