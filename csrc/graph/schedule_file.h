#pragma once

#include "csrc/graph/schedule.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace berth::graph {

// Schedules as files: a section of the frame of plan files (plans/README.md), data only.

// Reads a schedule. Trusts nothing: throws Error(kInput), naming the file and the reason, for
// damage, counts above the caps of Schedule, and a buffer that is not there. Whether the schedule
// is legal says the referee, who needs the graph. O(size).
[[nodiscard]] Schedule read_schedule(const std::string& path);
[[nodiscard]] Schedule parse_schedule(std::span<const std::byte> data, const std::string& name);

// The bytes of a schedule's file: equal ones for equal schedules. What a step's kind does not use
// is not written. Throws Error(kUsage) above the caps and for a buffer that is not there.
[[nodiscard]] std::vector<std::byte> serialize_schedule(const Schedule& schedule);

}  // namespace berth::graph
