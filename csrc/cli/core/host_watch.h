#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/host_memory.h"

#include <sys/types.h>

#include <string>
#include <vector>

namespace berth::cli {

// Watches the host's memory while a program and what it started run, and ends them before the
// system's out-of-memory killer would end anybody: SIGTERM where less than a reserve is left and
// the program holds as much as the reserve (else its end would not help), a second later SIGKILL.
//
// The reserve is 1/32 of what this process may use, at least 256 MiB and at most 2 GiB. A look
// costs some reads of /proc. Bytes of a process are its resident ones; of files and shared memory,
// as libraries, the most that one of them has counts. Pages that a fork shares count for both, so
// the sum may exceed what they take.
class HostWatch {
 public:
  HostWatch();
  // Other numbers, for tests: ends a program that holds `least` where less than `reserve` is left.
  HostWatch(Bytes reserve, Bytes least) : reserve_(reserve), least_(least) {}

  // To be called again and again with the first process.
  void look(pid_t program);
  // Ends them in the same way, for another reason.
  void stop(pid_t program, std::string why);

  [[nodiscard]] bool stopped() const noexcept { return looks_since_ > 0; }
  [[nodiscard]] Bytes peak() const noexcept { return peak_; }  // of the processes together
  // "the program holds 19.2 GiB of host memory, 412 MiB of 23.4 GiB are left": once stopped.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }

 private:
  HostMemory memory_;
  Bytes reserve_, least_;
  Bytes peak_ = 0;
  int looks_since_ = 0;  // since it was stopped
  std::string why_;
};

}  // namespace berth::cli
