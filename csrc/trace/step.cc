#include "csrc/trace/step.h"

#include "csrc/trace/run_log.h"
#include "csrc/trace/step_cut.h"
#include "csrc/trace/step_edges.h"
#include "csrc/trace/step_lane.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth {
namespace {

using trace::LaneRequest;
using trace::RunLog;
using trace::StepCut;
using trace::StepLaneLog;

// Blocks that outlive the period are worth a longer step from this part of the peak on.
constexpr Bytes kWorthUnrolling = 1000;

// How many periods the step should cover: as few as leave nothing that matters unplanned.
std::uint32_t choose_unroll(const std::vector<StepLaneLog>& lanes, std::uint32_t repeats,
                            std::uint32_t max_unroll) {
  Bytes peak = 0;
  for (const StepLaneLog& lane : lanes) peak += lane.peak();
  const std::uint32_t limit = std::min(max_unroll, repeats);
  const auto left_out = [&](std::uint32_t unroll) {
    Bytes bytes = 0;
    for (const StepLaneLog& lane : lanes) {
      for (const auto& slot : lane.slots()) {
        if (slot.length > std::uint64_t{unroll} * lane.period() &&
            slot.length <= std::uint64_t{limit} * lane.period())
          bytes += slot.bytes;
      }
    }
    return bytes;
  };
  for (std::uint32_t unroll = 1; unroll < limit; ++unroll) {
    if (left_out(unroll) <= peak / kWorthUnrolling) return unroll;
  }
  return std::max(limit, 1u);
}

// Ticks of a lane before which marks lie in every repeat.
std::vector<std::uint32_t> find_marks(const trace::LaneLog& log, const StepLaneLog& lane,
                                      std::uint32_t repeats) {
  const auto of_repeat = [&](std::uint32_t repeat) {
    std::vector<std::uint32_t> ticks;
    const auto [first, last] = lane.ticks_of(repeat);
    for (auto mark = std::lower_bound(log.marks.begin(), log.marks.end(), first,
                                      [](const auto&m, trace::Tick t) { return m.tick < t; });
         mark != log.marks.end() && mark->tick < last; ++mark)
      ticks.push_back((mark->position - lane.begin_of(repeat)) % lane.period());
    std::sort(ticks.begin(), ticks.end());
    ticks.erase(std::unique(ticks.begin(), ticks.end()), ticks.end());
    return ticks;
  };
  // The mark that opens the first repeat may be missing: it may be the run's first step.
  const std::vector<std::uint32_t> marks = of_repeat(repeats - 1);
  for (std::uint32_t repeat = 1; repeat < repeats; ++repeat) {
    if (of_repeat(repeat) != marks) return {};
  }
  return marks;
}

Step build(const Trace& trace, const RunLog& log, const StepCut& cut, const StepOptions& options) {
  Step step;
  std::vector<StepLaneLog> lanes;
  for (trace::LaneId lane = 0; lane < log.lanes.size(); ++lane) {
    if (auto found = StepLaneLog::make(log.lanes[lane], lane, cut)) lanes.push_back(*found);
  }
  step.repeats = static_cast<std::uint32_t>((cut.bounds.size() - 1) / cut.pattern);
  step.unrolled = choose_unroll(lanes, step.repeats, options.max_unroll);
  // The last whole repeats, as many as the step covers.
  const std::uint32_t first_repeat = step.repeats - step.unrolled;
  step.first_tick = cut.bounds[std::size_t{first_repeat} * cut.pattern];
  step.last_tick = cut.bounds[std::size_t{step.repeats} * cut.pattern];

  std::vector<trace::Tick> tick_of;  // of each request
  for (std::uint32_t index = 0; index < lanes.size(); ++index) {
    const StepLaneLog& lane = lanes[index];
    const trace::LaneLog& lane_log = log.lanes[lane.lane()];
    const std::uint32_t period = step.unrolled * lane.period();
    if (lane.lane() == cut.primary) step.primary = index;
    StepLane& step_lane = step.lanes.emplace_back();
    step_lane.key = trace.lanes[lane.lane()].key;
    step_lane.period = period;
    for (const std::uint32_t mark : find_marks(lane_log, lane, step.repeats)) {
      for (std::uint32_t copy = 0; copy < step.unrolled; ++copy)
        step_lane.marks.push_back(mark + copy * lane.period());
    }
    std::sort(step_lane.marks.begin(), step_lane.marks.end());
    for (std::uint32_t birth = 0; birth < period; ++birth) {
      const LaneRequest& request = lane_log.requests[lane.begin_of(first_repeat) + birth];
      const std::uint64_t length = lane.slots()[birth % lane.period()].length;
      step.requests.push_back(
          {.bytes = request.bytes,
           .lane = index,
           .birth = birth,
           .length = static_cast<std::uint32_t>(std::min<std::uint64_t>(length, period)),
           .tag = request.tag,
           .planned = length <= period,
           .block = request.block});
      tick_of.push_back(request.tick);
    }
  }
  std::vector<std::uint32_t> order(step.requests.size());
  for (std::uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](std::uint32_t a, std::uint32_t b) { return tick_of[a] < tick_of[b]; });
  std::vector<StepRequest> sorted;
  sorted.reserve(order.size());
  for (const std::uint32_t i : order) sorted.push_back(step.requests[i]);
  step.requests = std::move(sorted);

  for (trace::LaneId lane = 0; lane < log.lanes.size(); ++lane) {
    for (const LaneRequest& request : log.lanes[lane].requests) {
      if (request.tick < step.first_tick && request.freed >= step.last_tick)
        step.residents.push_back({request.block, request.bytes, lane});
    }
  }
  std::size_t marks = 0;
  for (const StepLane& lane : step.lanes) marks = std::max(marks, lane.marks.size());
  step.marks_per_period =
      cut.at_marks ? step.unrolled * cut.pattern : static_cast<std::uint32_t>(marks);
  step.edges = trace::find_edges(trace, lanes, step.repeats, step.unrolled);
  return step;
}

}  // namespace

std::optional<Step> extract_step(const Trace& trace, const StepOptions& options,
                                 std::string* why_not) {
  const RunLog log = trace::make_run_log(trace);
  std::string at_marks, by_period;
  std::optional<StepCut> cut = cut_at_marks(log, options, at_marks);
  if (!cut || log.lanes[cut->primary].marks.empty()) {
    std::optional<StepCut> period = cut_by_period(log, options, by_period);
    if (!cut || (period && period->bytes > cut->bytes)) cut = std::move(period);
  }
  if (cut) return build(trace, log, *cut, options);
  if (why_not != nullptr) *why_not = fmt::format("{}; {}", at_marks, by_period);
  return std::nullopt;
}

}  // namespace berth
