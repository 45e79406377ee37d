#include "csrc/core/checksum.h"
#include "csrc/trace/step_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace berth::trace {
namespace {

// Marks may lie where steps do not repeat but by chance; then they are not trusted.
constexpr double kMinCoverage = 0.25;

struct Interval {
  std::uint64_t signature = 0;  // of the lane's requests in it
  std::uint32_t requests = 0;
};

std::vector<Interval> intervals_of(const LaneLog& lane, std::span<const Tick> bounds) {
  std::vector<Interval> intervals;
  std::uint32_t position = lane.position_at(bounds.front());
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const std::uint32_t end = lane.position_at(bounds[i + 1]);
    Interval interval{.signature = 0, .requests = end - position};
    for (; position < end; ++position)
      interval.signature = hash_combine(interval.signature, lane.requests[position].bytes);
    intervals.push_back(interval);
  }
  return intervals;
}

// Intervals [first, last) that repeat.
struct Run {
  std::size_t first = 0, last = 0;
  [[nodiscard]] std::size_t length() const noexcept { return last - first; }
};

// All runs of one step, or of one cycle of steps.
struct Group {
  std::uint32_t pattern = 0;
  std::vector<Run> runs;
  std::size_t covered = 0;  // intervals

  // The latest run that is not short beside the longest.
  [[nodiscard]] Run best() const noexcept {
    std::size_t longest = 0;
    for (const Run& run : runs) longest = std::max(longest, run.length());
    for (auto run = runs.rbegin();; ++run) {
      if (2 * run->length() >= longest) return *run;
    }
  }
};

std::vector<Group> find_groups(std::span<const Interval> intervals, std::uint32_t min_repeats) {
  std::vector<Group> groups;
  for (std::uint32_t p = 1; p <= kMaxPattern; ++p) {
    std::map<std::uint64_t, Group> of_pattern;
    std::size_t first = 0;
    for (std::size_t i = p; i <= intervals.size(); ++i) {
      if (i < intervals.size() && intervals[i].signature == intervals[i - p].signature &&
          intervals[i].requests == intervals[i - p].requests)
        continue;
      const Run run{first, i};
      first = i - p + 1;
      if (run.length() < std::size_t{min_repeats} * p) continue;
      // The same for every rotation of the cycle.
      std::uint64_t key = 0, requests = 0;
      for (std::size_t k = 0; k < p; ++k) {
        key += intervals[run.first + k].signature;
        requests += intervals[run.first + k].requests;
      }
      if (requests == 0) continue;
      Group& group = of_pattern[key];
      group.pattern = p;
      // Runs of a cycle may share their ends.
      const std::size_t before = group.runs.empty() ? 0 : group.runs.back().last;
      group.covered += run.last - std::max(run.first, before);
      group.runs.push_back(run);
    }
    for (auto& [key, group] : of_pattern) groups.push_back(std::move(group));
  }
  return groups;
}

const Group* choose(const std::vector<Group>& groups) {
  std::size_t best = 0;
  for (const Group& group : groups) best = std::max(best, group.covered);
  std::uint32_t pattern = kMaxPattern;
  for (const Group& group : groups) {
    if (20 * group.covered >= 19 * best) pattern = std::min(pattern, group.pattern);
  }
  const Group* chosen = nullptr;
  for (const Group& group : groups) {
    if (group.pattern != pattern || 2 * group.covered < best) continue;
    if (chosen == nullptr || group.best().last > chosen->best().last) chosen = &group;
  }
  return chosen;
}

}  // namespace

std::optional<StepCut> cut_at_marks(const RunLog& log, const StepOptions& options,
                                    std::string& why_not) {
  const auto marked = std::max_element(
      log.lanes.begin(), log.lanes.end(),
      [](const LaneLog& a, const LaneLog& b) { return a.marks.size() < b.marks.size(); });
  if (marked == log.lanes.end() || marked->marks.empty()) {
    why_not = "the run has no step marks";
    return std::nullopt;
  }
  std::vector<Tick> bounds = {0};
  for (const LaneMark& mark : marked->marks) bounds.push_back(mark.tick);
  bounds.push_back(log.end);

  const std::uint32_t min_repeats = std::max(2u, options.min_repeats);
  std::optional<StepCut> cut;
  // A data loader's lane may repeat throughout while the training's does so epoch by epoch.
  const auto marked_then_bytes = [&](LaneId lane, Bytes bytes) {
    return std::pair(!log.lanes[lane].marks.empty(), bytes);
  };
  for (LaneId lane = 0; lane < log.lanes.size(); ++lane) {
    const std::vector<Interval> intervals = intervals_of(log.lanes[lane], bounds);
    const std::vector<Group> groups = find_groups(intervals, min_repeats);
    const Group* group = choose(groups);
    if (group == nullptr) continue;
    const auto used = std::count_if(intervals.begin(), intervals.end(),
                                    [](const auto& i) { return i.requests != 0; });
    if (static_cast<double>(group->covered) < kMinCoverage * static_cast<double>(used)) continue;
    const Run run = group->best();
    Bytes bytes = 0;
    const auto& requests = log.lanes[lane].requests;
    for (std::uint32_t i = log.lanes[lane].position_at(bounds[run.first]);
         i < log.lanes[lane].position_at(bounds[run.last]); ++i)
      bytes += requests[i].bytes;
    if (cut && marked_then_bytes(lane, bytes) <= marked_then_bytes(cut->primary, cut->bytes))
      continue;
    cut = StepCut{.primary = lane,
                  .bytes = bytes,
                  .bounds = {bounds.begin() + static_cast<std::ptrdiff_t>(run.first),
                             bounds.begin() + static_cast<std::ptrdiff_t>(run.last) + 1},
                  .pattern = group->pattern,
                  .at_marks = true};
  }
  if (!cut)
    why_not = fmt::format(
        "the run has {} step marks, but no step between them repeats {} times in "
        "a row over a quarter of the run",
        marked->marks.size(), min_repeats);
  return cut;
}

}  // namespace berth::trace
