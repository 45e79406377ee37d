#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace berth::replay {

// How a child process ended.
struct ChildExit {
  int code = 0;    // its exit code, where signal is 0
  int signal = 0;  // that ended it
};

struct ChildOptions {
  // Called every 50 ms while the child runs, with its process.
  std::function<void(pid_t)> watch = {};
  // Its standard output goes where our standard error does.
  bool output_to_error = false;
};

// Runs `arguments` (a program, found in PATH, and its arguments) with `variables` added to our
// environment, and waits for its end. Signals that reach us alone are passed on to it; those of the
// terminal reach it by themselves, and never end us first. Throws Error(kSystem) where it cannot be
// started. One at a time.
[[nodiscard]] ChildExit run_child(const std::vector<std::string>& arguments,
                                  const std::vector<std::pair<std::string, std::string>>& variables,
                                  const ChildOptions& options = {});

}  // namespace berth::replay
