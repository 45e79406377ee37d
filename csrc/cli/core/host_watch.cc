#include "csrc/cli/core/host_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <set>
#include <utility>

namespace berth::cli {
namespace {

constexpr int kLooksBeforeKill = 20;  // a second

// A process and all that it started, those that still run.
std::vector<pid_t> tree_of(pid_t program) {
  std::vector<pid_t> all = {program};
  std::set<pid_t> seen = {program};
  constexpr std::size_t kMost = 4096;
  for (std::size_t i = 0; i < all.size() && all.size() < kMost; ++i) {
    std::ifstream children(fmt::format("/proc/{0}/task/{0}/children", all[i]));
    for (pid_t child = 0; children >> child;)
      if (seen.insert(child).second) all.push_back(child);
  }
  return all;
}

// Of a process: bytes of its own, and of files and shared memory, which others may have as well.
struct Resident {
  Bytes own = 0, shared = 0;
};

Resident resident(pid_t process) {
  std::ifstream file(fmt::format("/proc/{}/statm", process));
  Bytes size = 0, all = 0, shared = 0;
  if (!(file >> size >> all >> shared)) return {};
  const auto page = static_cast<Bytes>(::sysconf(_SC_PAGESIZE));
  return {(all - std::min(all, shared)) * page, shared * page};
}

}  // namespace

HostWatch::HostWatch()
    : reserve_(std::clamp(memory_.total() / 32, Bytes{256} << 20, Bytes{2} << 30)),
      least_(reserve_) {}

void HostWatch::look(pid_t program) {
  const std::vector<pid_t> processes = tree_of(program);
  Bytes held = 0, shared = 0;
  for (const pid_t process : processes) {
    const Resident one = resident(process);
    held += one.own;
    shared = std::max(shared, one.shared);
  }
  held += shared;
  peak_ = std::max(peak_, held);
  if (stopped()) {
    if (++looks_since_ == kLooksBeforeKill)
      for (const pid_t process : processes) ::kill(process, SIGKILL);
    return;
  }
  const Bytes left = memory_.available();
  if (left >= reserve_ || held < least_) return;
  stop(program, fmt::format("the program holds {} of this machine's memory, and {} of {} are left",
                            format_bytes(held), format_bytes(left), format_bytes(memory_.total())));
}

void HostWatch::stop(pid_t program, std::string why) {
  if (stopped()) return;
  looks_since_ = 1;
  why_ = std::move(why);
  for (const pid_t process : tree_of(program)) ::kill(process, SIGTERM);
}

}  // namespace berth::cli
