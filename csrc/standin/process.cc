#include "csrc/standin/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

namespace berth::standin {
namespace {

// State and start of a process, after proc(5); the name in between may hold anything.
bool read_status(int number, char& state, std::uint64_t& started) {
  std::FILE* file = std::fopen(fmt::format("/proc/{}/stat", number).c_str(), "re");
  if (file == nullptr) return false;
  char text[1024] = {};
  const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
  std::fclose(file);
  text[length] = '\0';
  const char* const name_end = std::strrchr(text, ')');
  unsigned long long ticks = 0;
  if (name_end == nullptr ||
      std::sscanf(name_end + 1,
                  " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d "
                  "%llu",
                  &state, &ticks) != 2) {
    return false;
  }
  started = ticks;
  return true;
}

// In the abstract namespace: the name goes with the process.
sockaddr_un address_of(const char* name, socklen_t& length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t size = strnlen(name, Bell::kNameSize - 1);
  std::memcpy(address.sun_path + 1, name, size);
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
  return address;
}

}  // namespace

ProcessId this_process() {
  ProcessId process{getpid(), 0};
  char state = 0;
  read_status(process.number, state, process.started);
  return process;
}

bool is_alive(const ProcessId& process) {
  char state = 0;
  std::uint64_t started = 0;
  return read_status(process.number, state, started) && started == process.started &&
         state != 'Z' && state != 'X';
}

int open_file_of(const ProcessId& process, int file) {
  if (!is_alive(process)) return -1;
  return open(fmt::format("/proc/{}/fd/{}", process.number, file).c_str(), O_RDWR | O_CLOEXEC);
}

Bell& Bell::own() {
  static auto* bell = new Bell;
  return *bell;
}

Bell::Bell() {
  const ProcessId process = this_process();
  fmt::format_to_n(name_, sizeof name_ - 1, "berth-standin-{}-{:x}", process.number,
                   process.started);
  socket_ = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name_, length);
  if (socket_ >= 0 && bind(socket_, reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    close(socket_);
    socket_ = -1;
  }
}

void Bell::wait(int timeout_ms) {
  // Without a socket nobody can ring: look every now and then.
  if (socket_ < 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(timeout_ms, 2)));
    return;
  }
  pollfd waiting{socket_, POLLIN, 0};
  if (poll(&waiting, 1, timeout_ms) <= 0) return;
  char rings[16];
  while (recv(socket_, rings, sizeof rings, 0) >= 0) {
  }
}

void Bell::ring(const char* name) {
  static const int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, length);
  const char ring = 1;
  // A full queue wakes just as well.
  sendto(sender, &ring, sizeof ring, MSG_NOSIGNAL, reinterpret_cast<const sockaddr*>(&address),
         length);
}

}  // namespace berth::standin
