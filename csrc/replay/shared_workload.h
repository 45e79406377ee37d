#pragma once

#include "csrc/device/driver_costs.h"
#include "csrc/replay/workload.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace berth::replay {

// What parent and child of a replay tell each other, at the start of memory that they share; the
// operations follow.
struct SharedHeader {
  std::uint64_t operations = 0, blocks = 0;
  std::uint64_t library = 0;  // the child's own number of what it replays under
  std::uint64_t measure = 0;  // 1: memory, 0: time
  // The answer.
  std::uint64_t loaded = 0, complete = 0;
  std::uint64_t reserved_peak = 0, driver_calls = 0, retries = 0;
  double ns_per_operation = -1;
  MemoryCallCounts memory_calls;  // under the stand-in
};

// Runs `command` with the descriptor of the shared memory as its last argument and waits for it.
// Returns what it wrote over its header. `name` is for messages. Throws Error(kSystem).
[[nodiscard]] SharedHeader run_in_child(
    std::vector<std::string> command,
    const std::vector<std::pair<std::string, std::string>>& environment, const Workload& workload,
    SharedHeader header, const std::string& name);

// The child's side. Throws Error(kUsage) for what is no replay's descriptor.
class SharedWorkload {
 public:
  explicit SharedWorkload(const char* memory_fd);
  [[nodiscard]] SharedHeader& header() const noexcept { return *header_; }
  [[nodiscard]] std::span<const Operation> operations() const noexcept { return operations_; }
  // One null a block, in memory that counts as nobody's malloc.
  [[nodiscard]] std::span<void*> pointers() const noexcept { return pointers_; }

 private:
  SharedHeader* header_ = nullptr;
  std::span<const Operation> operations_;
  std::span<void*> pointers_;
};

}  // namespace berth::replay
