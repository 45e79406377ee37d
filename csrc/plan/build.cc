#include "csrc/plan/build.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace berth {
namespace {

using trace::StringId;

// What is open on one thread while a trace is read in order. Ends come for what is open, innermost
// first as a rule; an end without a beginning is ignored.
class OpenScopes {
 public:
  // Ranges of modules and users say more of a request than phases do.
  static constexpr std::uint8_t kPhase = 0, kRange = 1, kOperator = 2;

  void begin(std::uint8_t kind, std::uint64_t id, StringId name) {
    open_[kind].emplace_back(id, name);
  }
  void end(std::uint8_t kind, std::uint64_t id) {
    auto& scopes = open_[kind];
    const auto last = std::find_if(scopes.rbegin(), scopes.rend(),
                                   [&](const auto& scope) { return scope.first == id; });
    if (last != scopes.rend()) scopes.erase(std::prev(last.base()));
  }
  [[nodiscard]] StringId name() const {
    for (const std::uint8_t kind : {kOperator, kRange, kPhase}) {
      if (!open_[kind].empty()) return open_[kind].back().second;
    }
    return 0;
  }

 private:
  std::vector<std::pair<std::uint64_t, StringId>> open_[3];
};

// Who asked for each block of a step.
std::unordered_map<trace::BlockId, StringId> origins_of(const Step& step, const Trace& trace) {
  std::unordered_map<trace::BlockId, StringId> origins;
  std::unordered_map<trace::ThreadId, OpenScopes> threads;
  for (const trace::Entry& entry : trace.entries) {
    if (entry.tick >= step.last_tick) break;
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      if (entry.tick < step.first_tick) continue;
      if (const auto scopes = threads.find(entry.thread); scopes != threads.end()) {
        origins[request->id] = scopes->second.name();
      }
    } else if (const auto* range = std::get_if<trace::RangeBegin>(&entry.event)) {
      const bool phase = range->kind == trace::RangeKind::kPhase;
      threads[entry.thread].begin(phase ? OpenScopes::kPhase : OpenScopes::kRange, range->range,
                                  range->name);
    } else if (const auto* range_end = std::get_if<trace::RangeEnd>(&entry.event)) {
      threads[entry.thread].end(OpenScopes::kPhase, range_end->range);
      threads[entry.thread].end(OpenScopes::kRange, range_end->range);
    } else if (const auto* op = std::get_if<trace::OperatorBegin>(&entry.event)) {
      threads[entry.thread].begin(OpenScopes::kOperator, op->op, op->name);
    } else if (const auto* op_end = std::get_if<trace::OperatorEnd>(&entry.event)) {
      threads[entry.thread].end(OpenScopes::kOperator, op_end->op);
    }
  }
  return origins;
}

// The edges that a plan may hold. `lanes`: the plan's number of each lane of the step that asks for
// something.
std::vector<PlanEdge> edges_of(const Step& step, const std::vector<std::uint32_t>& lanes) {
  std::vector<bool> joined(step.lanes.size(), false);
  std::size_t joined_count = 0;
  std::vector<PlanEdge> edges;
  for (const StepEdge& edge : step.edges) {
    if (edges.size() == Plan::kMaxEdges) break;
    if (edge.from_lane >= step.lanes.size() || edge.to_lane >= step.lanes.size()) continue;
    const std::uint32_t from_period = step.lanes[edge.from_lane].period;
    const std::uint32_t to_period = step.lanes[edge.to_lane].period;
    if (edge.from_lane == edge.to_lane || from_period == 0 || to_period == 0 ||
        edge.from_tick > from_period || edge.to_tick > to_period || edge.delta > Plan::kMaxDelta) {
      continue;
    }
    const std::size_t joining =
        (joined[edge.from_lane] ? 0u : 1u) + (joined[edge.to_lane] ? 0u : 1u);
    if (joined_count + joining > Plan::kMaxJoinedLanes) continue;
    joined_count += joining;
    joined[edge.from_lane] = joined[edge.to_lane] = true;
    edges.push_back(
        {lanes[edge.from_lane], edge.from_tick, lanes[edge.to_lane], edge.to_tick, edge.delta});
  }
  return edges;
}

}  // namespace

Plan skeleton(const Step& step, const Trace& trace, Bytes alignment) {
  BERTH_CHECK(is_power_of_two(alignment) && alignment <= Plan::kMaxAlignment, kUsage,
              "a plan aligned to {}, it must be a power of two up to {}", alignment,
              Plan::kMaxAlignment);
  Plan plan;
  plan.program = trace.program;
  plan.alignment = alignment;
  // A lane that asks for nothing is none of the plan's; each other one has one sequence.
  constexpr std::uint32_t kNoLane = ~std::uint32_t{0};
  std::vector<std::uint32_t> lanes(step.lanes.size(), kNoLane);
  for (std::size_t l = 0; l < step.lanes.size(); ++l) {
    const StepLane& lane = step.lanes[l];
    // mutant: plan-no-requests
    if (lane.period == 0) continue;
    lanes[l] = static_cast<std::uint32_t>(plan.lane_keys.size());
    plan.lane_keys.push_back(lane.key);
    Sequence& sequence = plan.sequences.emplace_back();
    sequence.lane = lanes[l];
    sequence.period = lane.period;
    sequence.marks = lane.marks;
  }
  plan.edges = edges_of(step, lanes);

  const std::unordered_map<trace::BlockId, StringId> origins = origins_of(step, trace);
  std::unordered_map<StringId, std::uint32_t> strings = {{0, 0}};
  for (std::size_t i = 0; i < step.requests.size(); ++i) {
    const StepRequest& request = step.requests[i];
    BERTH_CHECK(request.lane < step.lanes.size() && lanes[request.lane] != kNoLane, kUsage,
                "request {} of the step is of lane {}, which asks for nothing", i, request.lane);
    BERTH_CHECK(request.bytes > 0 && request.bytes <= kMaxBytes, kUsage,
                "request {} of the step is for {} bytes, the limit is {}", i, request.bytes,
                kMaxBytes);
    Sequence& sequence = plan.sequences[lanes[request.lane]];
    BERTH_CHECK(request.birth == sequence.slots.size(), kUsage,
                "request {} of the step is born at tick {} of lane {}, its place is {}", i,
                request.birth, request.lane, sequence.slots.size());
    std::uint32_t origin = 0;
    if (const auto from = origins.find(request.block); from != origins.end()) {
      const auto [known, is_new] =
          strings.try_emplace(from->second, static_cast<std::uint32_t>(plan.strings.size()));
      if (is_new) plan.strings.emplace_back(trace.name(from->second));
      origin = known->second;
    }
    sequence.slots.push_back({.offset = request.planned ? 0 : Slot::kUnplanned,
                              .requested = request.bytes,
                              .size = align_up(request.bytes, alignment),
                              .birth = request.birth,
                              .length = request.length,
                              .origin = origin});
  }
  for (const Sequence& sequence : plan.sequences) {
    BERTH_CHECK(sequence.slots.size() == sequence.period, kUsage,
                "lane {} of the step has a period of {} ticks and {} requests", sequence.lane,
                sequence.period, sequence.slots.size());
  }
  return plan;
}

}  // namespace berth
