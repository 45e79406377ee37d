#pragma once

#include <cstdint>

namespace berth::standin {

// A process of this machine; its number alone may be given to another one later.
struct ProcessId {
  int number = 0;
  std::uint64_t started = 0;  // ticks after the machine's start

  friend bool operator==(const ProcessId&, const ProcessId&) = default;
  friend auto operator<=>(const ProcessId&, const ProcessId&) = default;
};

ProcessId this_process();

// Whether it still runs; one that nobody has waited for yet does not.
bool is_alive(const ProcessId& process);

// A file that another process, or this one, has open, opened once more; -1 where that cannot be
// done.
int open_file_of(const ProcessId& process, int file);

// Wakes a thread of another process. Each process has one bell, made when it is first asked for: a
// datagram socket. Rings while nobody listens are one ring. Threads may ring at once.
class Bell {
 public:
  static constexpr int kNameSize = 48;

  static Bell& own();
  [[nodiscard]] const char* name() const { return name_; }

  // Until it rings or the time is over.
  void wait(int timeout_ms);

  // Nothing where the process is gone.
  static void ring(const char* name);

 private:
  Bell();

  int socket_ = -1;
  char name_[kNameSize] = {};
};

}  // namespace berth::standin
