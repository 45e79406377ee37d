// Virtual memory that was asked for by name, before the process uses CUDA.

#include "csrc/core/check.h"
#include "csrc/cuda/cuda_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <string>

namespace berth {
namespace {

constexpr std::chrono::seconds kPatience{20};

// What the child finds: empty where it works, or where that cannot be found out.
std::string complaint_about(int index) noexcept {
  try {
    if (cuda_is_over() || index >= cuda_device_count()) return {};
    const auto device = make_cuda_device({.index = index});
    return device->memory() == CudaOptions::Memory::kVirtual
               ? std::string()
               : lacks_virtual_memory(index, device->properties());
  } catch (...) {
    return {};
  }
}

// Up to the end of it, or of our patience.
std::string read_all(int from) {
  std::string text;
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    pollfd ready{from, POLLIN, 0};
    const int polled = left.count() <= 0 ? 0 : poll(&ready, 1, static_cast<int>(left.count()));
    if (polled < 0 && errno == EINTR) continue;
    if (polled <= 0) return {};
    char part[1024];
    const ssize_t got = read(from, part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return text;
    text.append(part, static_cast<std::size_t>(got));
  }
}

}  // namespace

void require_virtual_memory(int index) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  const pid_t child = fork();
  if (child == 0) {
    const std::string text = complaint_about(index);
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t more = write(ends[1], text.data() + sent, text.size() - sent);
      if (more <= 0) break;
      sent += static_cast<std::size_t>(more);
    }
    _exit(0);  // nothing of the parent's ends here
  }
  close(ends[1]);
  std::string text;
  if (child > 0) {
    text = read_all(ends[0]);
    (void)kill(child, SIGKILL);
    while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close(ends[0]);
  BERTH_CHECK(text.empty(), kSystem, "{}", text);
}

}  // namespace berth
