#include "bench/train/process.h"

#include <sys/resource.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

namespace berth::bench {

std::uint64_t minor_faults() noexcept {
  rusage usage{};
  return ::getrusage(RUSAGE_SELF, &usage) == 0 ? static_cast<std::uint64_t>(usage.ru_minflt) : 0;
}

ProcessorTime processor_time() noexcept {
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return {};
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

double thread_ms() noexcept {
  timespec time{};
  if (::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0) return 0;
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

std::uint64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) != 0) continue;
    std::uint64_t kib = 0;
    std::istringstream(line.substr(6)) >> kib;
    return kib * 1024;
  }
  return 0;
}

}  // namespace berth::bench
