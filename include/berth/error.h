#pragma once

#include <stdexcept>
#include <string>

namespace berth {

// The kind of an error. It decides the exit code of the program `berth`.
enum class ErrorKind {
  kUsage,        // a wrong argument, option, setting or call out of order (exit code 2)
  kInput,        // an unreadable, damaged or foreign file (exit code 3)
  kSystem,       // a failing system or driver call (exit code 4)
  kOutOfMemory,  // certain exhaustion; always thrown as OutOfMemory (exit code 4)
};

// The one exception type of berth. Its text names the request, the state and the limit in one line.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

// Memory is exhausted: every fallback was tried first.
class OutOfMemory : public Error {
 public:
  explicit OutOfMemory(const std::string& message) : Error(ErrorKind::kOutOfMemory, message) {}
};

}  // namespace berth
