#pragma once

#include "csrc/trace/file.h"

#include <berth/place.h>

#include <string>

namespace berth::test {

inline std::string instance_path(const std::string& name) {
  return std::string(BERTH_PLACE_DATA "/") + name + ".csv.gz";
}

// A problem of one line from tests/place/data.
inline Problem instance(const std::string& name) {
  Problem problem;
  for (const Lifetime& row : read_lifetimes(instance_path(name)))
    problem.buffers.push_back(
        {.size = row.size, .birth = row.lower, .length = row.upper - row.lower});
  return problem;
}

// The same on a circle of a k-th of its time, but for what lives longer than that.
inline Problem fold(const Problem& line, std::uint64_t k) {
  Problem problem;
  std::uint64_t end = 0;
  for (const Buffer& b : line.buffers) end = std::max(end, b.birth + b.length);
  const std::uint64_t period = end / k + 1;
  problem.lanes[0].period = period;
  for (Buffer buffer : line.buffers) {
    if (buffer.length > period) continue;
    buffer.birth %= period;
    problem.buffers.push_back(buffer);
  }
  return problem;
}

}  // namespace berth::test
