#include "csrc/plan/lane_order.h"

#include <algorithm>
#include <queue>

namespace berth {
namespace {

// Rounded towards minus infinity.
std::int64_t floor_divide(std::int64_t a, std::int64_t b) noexcept {
  return a / b - (a % b < 0 ? 1 : 0);
}

}  // namespace

LaneOrder::LaneOrder(const Plan& plan)
    : periods_(plan.lane_keys.size(), 0), leaving_(plan.lane_keys.size()) {
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.parent < 0) periods_[sequence.lane] = sequence.period;
  }
  for (const PlanEdge& edge : plan.edges) {
    // The end of a step is the start of the next.
    const bool at_end = edge.to_tick == periods_[edge.to_lane];
    leaving_[edge.from_lane].push_back({.from_tick = edge.from_tick,
                                        .to_lane = edge.to_lane,
                                        .to_tick = at_end ? 0 : edge.to_tick,
                                        .delta = std::int64_t{edge.delta} + (at_end ? 1 : 0)});
  }
  for (std::vector<Edge>& edges : leaving_) {
    std::sort(edges.begin(), edges.end(),
              [](const Edge& a, const Edge& b) { return a.from_tick > b.from_tick; });
  }
}

std::optional<std::uint32_t> LaneOrder::contradiction() const {
  for (std::uint32_t lane = 0; lane < leaving_.size(); ++lane) {
    if (!leaving_[lane].empty() && clocks_of(lane).waits_for_itself_) return lane;
  }
  return std::nullopt;
}

// The best chain of edges from the lane to every edge's end, best first (Dijkstra 1959; a chain
// never gains by growing). Values are ticks of the lane, relative to the step in which a chain
// arrives. Who arrives at tick t knows the same at all ticks from t on, and can leave by edges from
// ticks above t in that step, by the others a step later: so of the edges that leave a lane, latest
// first, each arrival settles a run, and one turn of the lane settles the rest.
LaneOrder::Clocks LaneOrder::clocks_of(std::uint32_t of) const {
  Clocks clocks;
  clocks.own_period_ = periods_[of];
  clocks.periods_ = periods_;
  clocks.stairs_.resize(periods_.size());

  struct Arrival {
    std::int64_t value = 0;
    std::uint32_t lane = 0;
    std::int64_t tick = -1;  // -1: a turn after the lane's first arrival
    bool operator<(const Arrival& other) const noexcept { return value < other.value; }
  };
  std::priority_queue<Arrival> arrivals;
  const auto leave = [&](const Edge& edge, std::int64_t value) {
    arrivals.push({value - edge.delta * clocks.own_period_, edge.to_lane, edge.to_tick});
  };
  for (const Edge& edge : leaving_[of]) leave(edge, edge.from_tick);

  std::vector<std::size_t> settled(periods_.size(), 0);  // edges of leaving_
  while (!arrivals.empty()) {
    const Arrival arrival = arrivals.top();
    arrivals.pop();
    if (arrival.lane == of) {
      clocks.waits_for_itself_ |= arrival.value > arrival.tick;
      continue;
    }
    const std::vector<Edge>& edges = leaving_[arrival.lane];
    std::size_t& next = settled[arrival.lane];
    std::vector<Clocks::Stair>& stairs = clocks.stairs_[arrival.lane];
    if (arrival.tick >= 0) {
      if (stairs.empty() && !edges.empty()) {
        arrivals.push({arrival.value - clocks.own_period_, arrival.lane, -1});
      }
      stairs.push_back({arrival.tick, arrival.value});
    }
    while (next < edges.size() && edges[next].from_tick > arrival.tick) {
      leave(edges[next++], arrival.value);
    }
  }

  for (std::vector<Clocks::Stair>& stairs : clocks.stairs_) {
    if (stairs.empty()) continue;
    // Arrivals came best first: a later one counts at earlier ticks only, and for less than a turn.
    std::vector<Clocks::Stair> useful;
    for (const Clocks::Stair& stair : stairs) {
      if (stair.value <= stairs.front().value - clocks.own_period_) break;
      if (useful.empty() || stair.tick < useful.back().tick) {
        if (!useful.empty() && stair.value == useful.back().value) useful.pop_back();
        useful.push_back(stair);
      }
    }
    std::reverse(useful.begin(), useful.end());
    stairs = std::move(useful);
  }
  return clocks;
}

std::optional<std::int64_t> LaneOrder::Clocks::known(std::uint32_t lane, std::int64_t tick) const {
  const std::vector<Stair>& stairs = stairs_[lane];
  if (stairs.empty()) return std::nullopt;
  const std::int64_t step = floor_divide(tick, periods_[lane]);
  const auto above =
      std::upper_bound(stairs.begin(), stairs.end(), tick - step * periods_[lane],
                       [](std::int64_t value, const Stair& stair) { return value < stair.tick; });
  const std::int64_t value =
      above == stairs.begin() ? stairs.back().value - own_period_ : std::prev(above)->value;
  return value + step * own_period_;
}

std::optional<std::int64_t> LaneOrder::Clocks::learned(std::uint32_t lane,
                                                       std::int64_t tick) const {
  const std::vector<Stair>& stairs = stairs_[lane];
  if (stairs.empty()) return std::nullopt;
  // The step whose last stair is the first to reach the tick.
  const std::int64_t step = -floor_divide(stairs.back().value - tick, own_period_);
  const auto stair =
      std::lower_bound(stairs.begin(), stairs.end(), tick - step * own_period_,
                       [](const Stair& a, std::int64_t value) { return a.value < value; });
  return stair->tick + step * periods_[lane];
}

}  // namespace berth
