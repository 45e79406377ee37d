#pragma once

#include "csrc/graph/schedule.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace berth::graph {

// Schedules as files: a section of the frame of plan files (plans/README.md), data only.

// As read_schedule(), of what was read.
[[nodiscard]] Schedule parse_schedule(std::span<const std::byte> data, const std::string& name);

// The bytes that write_schedule() writes.
[[nodiscard]] std::vector<std::byte> serialize_schedule(const Schedule& schedule);

}  // namespace berth::graph
