#include "csrc/place/problem/problem.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

namespace berth::place {
namespace {

// Ticks are compared after one addition; this leaves room for it.
constexpr std::uint64_t kMaxTick = std::uint64_t{1} << 62;
constexpr std::size_t kMaxCount = std::size_t{1} << 31;

void check_lanes(const Problem& problem) {
  BERTH_CHECK(is_power_of_two(problem.alignment) && problem.alignment <= kMaxBytes, kUsage,
              "alignment {} of the problem is no power of two up to 2^62", problem.alignment);
  BERTH_CHECK(problem.buffers.size() < kMaxCount, kUsage, "{} buffers exceed the limit of {}",
              problem.buffers.size(), kMaxCount - 1);
  BERTH_CHECK(!problem.lanes.empty() && problem.lanes.size() < kMaxCount, kUsage,
              "a problem has 1 to {} lanes, this one has {}", kMaxCount - 1, problem.lanes.size());
  for (std::size_t i = 0; i < problem.lanes.size(); ++i) {
    BERTH_CHECK(problem.lanes[i].period <= kMaxTick, kUsage,
                "lane {}: a period of {} ticks exceeds 2^62", i, problem.lanes[i].period);
  }
}

void check_edges(const Problem& problem) {
  for (std::size_t i = 0; i < problem.edges.size(); ++i) {
    const PlaceEdge& edge = problem.edges[i];
    for (const std::uint32_t lane : {edge.from_lane, edge.to_lane}) {
      BERTH_CHECK(lane < problem.lanes.size(), kUsage, "edge {}: lane {} of {} lanes", i, lane,
                  problem.lanes.size());
    }
    const std::uint64_t from = problem.lanes[edge.from_lane].period;
    const std::uint64_t to = problem.lanes[edge.to_lane].period;
    BERTH_CHECK((from == 0) == (to == 0), kUsage,
                "edge {}: joins a line and a circle, lanes {} and {}", i, edge.from_lane,
                edge.to_lane);
    BERTH_CHECK(edge.from_tick <= (from == 0 ? kMaxTick : from), kUsage,
                "edge {}: tick {} of lane {} lies behind its period of {}", i, edge.from_tick,
                edge.from_lane, from);
    BERTH_CHECK(edge.to_tick <= (to == 0 ? kMaxTick : to), kUsage,
                "edge {}: tick {} of lane {} lies behind its period of {}", i, edge.to_tick,
                edge.to_lane, to);
    BERTH_CHECK(edge.delta == 0 || from != 0, kUsage,
                "edge {}: {} periods later, but lane {} has no period", i, edge.delta,
                edge.from_lane);
  }
}

void check_branches(const Problem& problem) {
  BERTH_CHECK(!problem.branches.empty() && problem.branches.size() < kMaxCount, kUsage,
              "a problem has 1 to {} branches, this one has {}", kMaxCount - 1,
              problem.branches.size());
  for (std::size_t i = 0; i < problem.branches.size(); ++i) {
    const PlaceBranch& branch = problem.branches[i];
    BERTH_CHECK(branch.parent <= i, kUsage, "branch {}: its parent {} does not come before it", i,
                branch.parent);
    BERTH_CHECK(branch.period <= kMaxTick && branch.fork <= kMaxTick, kUsage,
                "branch {}: fork {} or period {} exceeds 2^62 ticks", i, branch.fork,
                branch.period);
    if (branch.parent == i) {
      BERTH_CHECK(branch.fork == 0, kUsage, "branch {}: a root forks at tick 0, not at {}", i,
                  branch.fork);
    } else {
      BERTH_CHECK(branch.fork >= problem.branches[branch.parent].fork, kUsage,
                  "branch {}: forks at tick {}, before its parent {} does at {}", i, branch.fork,
                  branch.parent, problem.branches[branch.parent].fork);
    }
  }
}

void check_buffer(const Problem& problem, std::size_t i) {
  const Buffer& buffer = problem.buffers[i];
  BERTH_CHECK(buffer.size > 0, kUsage, "buffer {}: its size is 0", i);
  BERTH_CHECK(buffer.size <= kMaxBytes, kUsage, "buffer {}: size {} exceeds 2^62 bytes", i,
              buffer.size);
  BERTH_CHECK(is_power_of_two(buffer.alignment) && buffer.alignment <= kMaxBytes, kUsage,
              "buffer {}: alignment {} is no power of two up to 2^62", i, buffer.alignment);
  BERTH_CHECK(buffer.lane < problem.lanes.size(), kUsage, "buffer {}: lane {} of {} lanes", i,
              buffer.lane, problem.lanes.size());
  BERTH_CHECK(buffer.branch < problem.branches.size(), kUsage,
              "buffer {}: branch {} of {} branches", i, buffer.branch, problem.branches.size());
  BERTH_CHECK(buffer.length > 0, kUsage, "buffer {}: its lifetime at tick {} is empty", i,
              buffer.birth);
  BERTH_CHECK(buffer.birth <= kMaxTick && buffer.length <= kMaxTick - buffer.birth, kUsage,
              "buffer {}: its lifetime of {} ticks from tick {} exceeds 2^62 ticks", i,
              buffer.length, buffer.birth);
  if (const std::uint64_t period = period_of(problem, buffer); period != 0) {
    BERTH_CHECK(buffer.birth < period, kUsage, "buffer {}: birth at tick {} of a period of {}", i,
                buffer.birth, period);
    BERTH_CHECK(buffer.length <= period, kUsage,
                "buffer {}: its lifetime of {} ticks is longer than the period of {}", i,
                buffer.length, period);
  }
  const PlaceBranch& branch = problem.branches[buffer.branch];
  BERTH_CHECK(buffer.birth >= branch.fork, kUsage,
              "buffer {}: born at tick {}, before its branch {} forks at {}", i, buffer.birth,
              buffer.branch, branch.fork);
  if (buffer.pinned) {
    BERTH_CHECK(*buffer.pinned <= kMaxBytes, kUsage, "buffer {}: pin {} exceeds 2^62 bytes", i,
                *buffer.pinned);
    BERTH_CHECK(*buffer.pinned % unit_of(problem, buffer) == 0, kUsage,
                "buffer {}: pin {} is no multiple of its alignment {}", i, *buffer.pinned,
                unit_of(problem, buffer));
  }
}

}  // namespace

void check_problem(const Problem& problem) {
  check_lanes(problem);
  check_edges(problem);
  check_branches(problem);
  // What first fit can need at worst: everything side by side, padded, behind the last pin.
  Bytes total = 0, pins = 0;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    check_buffer(problem, i);
    const Buffer& buffer = problem.buffers[i];
    const Bytes size = align_up(buffer.size, problem.alignment);
    const auto padded = checked_add(size, unit_of(problem, buffer) - problem.alignment);
    const auto sum = padded ? checked_add(total, *padded) : std::nullopt;
    BERTH_CHECK(sum, kUsage,
                "buffer {}: {} bytes aligned to {} and the {} before it exceed 2^62 bytes", i, size,
                unit_of(problem, buffer), total);
    total = *sum;
    if (buffer.pinned) pins = std::max(pins, *buffer.pinned);
    BERTH_CHECK(checked_add(pins, total), kUsage,
                "buffer {}: {} bytes above a pin at {} exceed 2^62 bytes", i, total, pins);
  }
}

void check_options(const Problem& problem, const PlaceOptions& options) {
  const auto& engines = place_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.engine) != engines.end(), kUsage,
              "no engine '{}'; there are {}", options.engine, fmt::join(engines, ", "));
  BERTH_CHECK(options.time_limit_seconds >= 0, kUsage,
              "a time limit of {} seconds; legal are 0 to infinity", options.time_limit_seconds);
  BERTH_CHECK(options.threads <= 1024, kUsage, "{} threads; legal are 0 to 1024", options.threads);
  if (!options.warm_start.empty()) {
    BERTH_CHECK(options.warm_start.size() == problem.buffers.size(), kUsage,
                "a warm start of {} offsets for {} buffers", options.warm_start.size(),
                problem.buffers.size());
  }
}

}  // namespace berth::place
