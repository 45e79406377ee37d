#pragma once

#include "csrc/runtime/allocator.h"

#include <sys/wait.h>
#include <unistd.h>

namespace berth::test {

// Whether `body` returns true in a forked child, between the allocator's handlers as fork() calls
// them. A child that hangs, crashes or throws counts as false.
template <class Body>
[[nodiscard]] bool holds_in_forked_child(Allocator& allocator, Body body) {
  allocator.before_fork();
  const pid_t child = ::fork();
  if (child == 0) {
    allocator.after_fork_in_child();
    ::alarm(20);  // ends it where it waits for a thread that it does not have
    bool holds = false;
    try {
      holds = body();
    } catch (...) {
    }
    ::_exit(holds ? 0 : 1);
  }
  allocator.after_fork_in_parent();
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace berth::test
