#pragma once

#include <berth/error.h>

namespace berth::cli {

// What the program `berth` answers to its caller.
enum ExitCode : int {
  kDone = 0,
  kNo = 1,             // the answer is no: not legal, does not fit, does not repeat
  kWrongUsage = 2,     // a wrong option or argument
  kBadInput = 3,       // an unreadable, damaged or foreign file
  kSystemFailure = 4,  // the system or a driver failed, or memory ran out
  kInterrupted = 130,  // Ctrl-C before there was a result: as shells have it, 128 and the signal
};

[[nodiscard]] constexpr ExitCode exit_code(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::kUsage:
      return kWrongUsage;
    case ErrorKind::kInput:
      return kBadInput;
    case ErrorKind::kSystem:
    case ErrorKind::kOutOfMemory:
      break;
  }
  return kSystemFailure;
}

}  // namespace berth::cli
