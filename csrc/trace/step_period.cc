#include "csrc/trace/period.h"
#include "csrc/trace/step_cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace berth::trace {
namespace {

// Older history says little about the steps to come.
constexpr std::size_t kMaxHistory = std::size_t{1} << 20;
constexpr std::size_t kMaxLanes = 64;

std::vector<LiveLoad> live_loads(std::span<const LaneRequest> requests) {
  std::vector<LiveLoad> live(requests.size() + 1);
  // Deaths first, as differences that wrap around; the sums never do.
  for (const LaneRequest& r : requests) {
    if (r.end == LaneRequest::kAlive) continue;
    live[r.end].bytes -= r.bytes;
    live[r.end].blocks -= 1;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    live[i + 1].bytes += live[i].bytes + requests[i].bytes;
    live[i + 1].blocks += live[i].blocks + 1;
  }
  return live;
}

StepCut cut_run(const LaneLog& lane, LaneId id, Tick end, std::span<const LiveLoad> live,
                const PeriodicRun& run, std::uint32_t min_repeats) {
  // A step begins where least is alive, so that little wraps around.
  const std::uint32_t last_start =
      std::min(run.last - min_repeats * run.period, run.first + run.period - 1);
  std::uint32_t start = run.first;
  for (std::uint32_t i = run.first; i <= last_start; ++i) {
    if (live[i].bytes < live[start].bytes) start = i;
  }
  StepCut cut{.primary = id, .bytes = 0, .bounds = {}, .pattern = 1, .at_marks = false};
  std::uint32_t last = start;
  for (std::uint32_t i = start; i <= run.last; i += run.period) {
    cut.bounds.push_back(i < lane.requests.size() ? lane.requests[i].tick : end);
    last = i;
  }
  for (std::uint32_t i = start; i < last; ++i) cut.bytes += lane.requests[i].bytes;
  return cut;
}

// Of all lanes, in one period.
std::size_t most_marks(const RunLog& log, const StepCut& cut) {
  std::size_t most = 0;
  for (const LaneLog& lane : log.lanes) {
    most = std::max(most, static_cast<std::size_t>(std::count_if(
                              lane.marks.begin(), lane.marks.end(), [&](const LaneMark& mark) {
                                return mark.tick >= cut.bounds[0] && mark.tick < cut.bounds[1];
                              })));
  }
  return most;
}

}  // namespace

std::optional<StepCut> cut_by_period(const RunLog& log, const StepOptions& options,
                                     std::string& why_not) {
  std::vector<std::pair<Bytes, LaneId>> lanes;  // by bytes asked for, most first
  for (LaneId lane = 0; lane < log.lanes.size(); ++lane) {
    Bytes bytes = 0;
    for (const LaneRequest& r : log.lanes[lane].requests) bytes += r.bytes;
    if (bytes != 0) lanes.emplace_back(bytes, lane);
  }
  std::sort(lanes.begin(), lanes.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  });
  if (lanes.size() > kMaxLanes) lanes.resize(kMaxLanes);
  const std::uint32_t min_repeats = std::max(2u, options.min_repeats);
  for (const auto& [bytes, lane] : lanes) {
    if (options.cancelled()) break;
    const LaneLog& requests = log.lanes[lane];
    const std::size_t count = requests.requests.size();
    const std::size_t first = count - std::min(count, kMaxHistory);
    const std::vector<LiveLoad> live = live_loads(requests.requests);
    std::vector<Bytes> sizes;
    for (std::size_t i = first; i < count; ++i) sizes.push_back(requests.requests[i].bytes);
    std::optional<PeriodicRun> run =
        find_period(sizes, std::span(live).subspan(first), min_repeats, options.cancel);
    if (!run) continue;
    run->first += static_cast<std::uint32_t>(first);
    run->last += static_cast<std::uint32_t>(first);
    StepCut cut = cut_run(requests, lane, log.end, live, *run, min_repeats);
    if (most_marks(log, cut) <= options.most_marks) return cut;
  }
  why_not = fmt::format("no sequence of requests repeats {} times in a row over half of the run",
                        min_repeats);
  return std::nullopt;
}

}  // namespace berth::trace
