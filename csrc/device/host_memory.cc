#include "csrc/device/host_memory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace berth {
namespace {

std::optional<Bytes> parse_number(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  Bytes value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

// The text after `key` at the start of a line.
std::optional<std::string_view> line_after(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    if (text.substr(0, end).starts_with(key)) return text.substr(key.size(), end - key.size());
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// "/proc/meminfo" counts in kB of 1024 bytes.
std::optional<Bytes> meminfo(std::string_view text, std::string_view key) {
  const auto line = line_after(text, key);
  const auto kib = line ? parse_number(*line) : std::nullopt;
  if (!kib || *kib > kMaxBytes / 1024) return std::nullopt;
  return *kib * 1024;
}

Bytes number_or(std::optional<Bytes> number, Bytes otherwise) {
  return number && *number <= kMaxBytes ? *number : otherwise;
}

}  // namespace

HostMemory::HostMemory(std::string root) : root_(std::move(root)) {
  // Own paths: "ID:CONTROLLERS:PATH" a line, no controllers for version 2.
  std::string v1_path;
  std::string v2_path;
  const std::string own = read("/proc/self/cgroup");
  for (const std::string_view line : split(own, '\n')) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    const std::string_view path = line.substr(second + 1);
    if (controllers.empty()) v2_path = path;
    for (const std::string_view controller : split(controllers, ','))
      if (controller == "memory") v1_path = path;
  }
  // Mounts: "ID PARENT DEVICE ROOT POINT OPTIONS [TAGS..] - TYPE SOURCE SUPEROPTIONS" a line. In a
  // container only the part of the hierarchy below ROOT is there.
  const std::string mounts = read("/proc/self/mountinfo");
  for (const std::string_view line : split(mounts, '\n')) {
    const std::size_t dash = line.find(" - ");
    if (dash == line.npos) continue;
    const auto left = split(line.substr(0, dash), ' ');
    const auto right = split(line.substr(dash + 3), ' ');
    if (left.size() < 5 || right.empty()) continue;
    const bool unified = right[0] == "cgroup2";
    bool memory = unified;
    if (right[0] == "cgroup" && right.size() >= 3)
      for (const std::string_view option : split(right[2], ',')) memory |= option == "memory";
    const std::string& path = unified ? v2_path : v1_path;
    if (!memory || path.empty()) continue;
    const std::string_view below = left[3];
    const bool inside = below != "/" && std::string_view(path).starts_with(below);
    add_groups(std::string(left[4]), inside ? path.substr(below.size()) : path, unified);
  }
}

void HostMemory::add_groups(const std::string& mount, std::string path, bool unified) {
  while (!path.empty() && path != "/") {
    groups_.push_back({mount + path, unified});
    path.resize(path.find_last_of('/'));  // the path starts with a slash
  }
  groups_.push_back({mount, unified});
}

std::string HostMemory::read(const std::string& path) const {
  std::string text;
  const int file = open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char part[4096];
  constexpr std::size_t kLimit = 1 << 20;
  for (ssize_t got = 0; text.size() < kLimit && (got = ::read(file, part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  close(file);
  return text;
}

Bytes HostMemory::limit(const Group& group) const {
  // "max", and in version 1 a number near 2^63, are no limit.
  const char* name = group.unified ? "/memory.max" : "/memory.limit_in_bytes";
  return number_or(parse_number(read(group.folder + name)), kMaxBytes);
}

Bytes HostMemory::total() const {
  Bytes total = number_or(meminfo(read("/proc/meminfo"), "MemTotal:"), kMaxBytes);
  for (const Group& group : groups_) total = std::min(total, limit(group));
  return total;
}

Bytes HostMemory::available() const {
  Bytes available = number_or(meminfo(read("/proc/meminfo"), "MemAvailable:"), kMaxBytes);
  for (const Group& group : groups_) {
    const Bytes most = limit(group);
    if (most == kMaxBytes) continue;
    const char* name = group.unified ? "/memory.current" : "/memory.usage_in_bytes";
    const Bytes used = number_or(parse_number(read(group.folder + name)), 0);
    const std::string stat = read(group.folder + "/memory.stat");
    const auto line = line_after(stat, group.unified ? "inactive_file " : "total_inactive_file ");
    const Bytes idle = std::min(number_or(line ? parse_number(*line) : std::nullopt, 0), used);
    available = std::min(available, most - std::min(most, used - idle));
  }
  return available;
}

}  // namespace berth
