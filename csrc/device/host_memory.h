#pragma once

#include "csrc/core/bytes.h"

#include <string>
#include <string_view>
#include <vector>

namespace berth {

// How much memory this process may use: physical memory, and the limits of its memory cgroup and of
// that one's ancestors, version 1 (memory.limit_in_bytes) and version 2 (memory.max).
//
// The cgroup is looked up once, when made; figures are read at each call. Files that are missing or
// make no sense set no limit. Throws std::bad_alloc only.
class HostMemory {
 public:
  // `root` stands before every path, for tests: "" is the system's.
  explicit HostMemory(std::string root = "");

  // The smaller of physical memory and every limit; kMaxBytes where nothing is known.
  [[nodiscard]] Bytes total() const;
  // What could be used now without an out-of-memory kill: file pages that nobody uses count as
  // free.
  [[nodiscard]] Bytes available() const;

 private:
  struct Group {
    std::string folder;
    bool unified = false;  // version 2
  };
  [[nodiscard]] std::string read(const std::string& path) const;
  void add_groups(const std::string& mount, std::string path, bool unified);
  [[nodiscard]] Bytes limit(const Group& group) const;

  std::string root_;
  std::vector<Group> groups_;  // own one and ancestors
};

}  // namespace berth
