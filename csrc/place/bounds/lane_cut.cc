#include "csrc/place/bounds/lane_cut.h"

#include "csrc/core/max_flow.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

namespace berth::place {
namespace {

// Steps of circles that a cut may reach over.
constexpr std::uint64_t kSteps = 3;
constexpr std::size_t kMaxPoints = 100'000;
constexpr std::uint64_t kMaxWork = 50'000'000;

// Positions of a lane count half ticks: an edge leaves at 2t and arrives at 2t + 1, a buffer lives
// over [2 birth + 1, 2 end).
using Position = unsigned __int128;

struct Lane {
  std::vector<Position> points;  // where edges leave and arrive, sorted
  std::vector<Bytes> most;       // before the first, and from each to the next
  MaxFlow::Vertex first = 0;     // the first point's vertex
};

void set_most(const Conflicts& conflicts, std::uint32_t number, std::uint64_t steps, Lane& lane) {
  struct Change {
    Position at;
    bool birth;
    Bytes size;
  };
  const std::uint64_t period = conflicts.problem().lanes[number].period;
  std::vector<Change> changes;
  Bytes load = 0;
  for (Index i = 0; i < conflicts.size(); ++i) {
    const Buffer& buffer = conflicts.problem().buffers[i];
    if (buffer.lane != number) continue;
    const std::uint64_t end = buffer.birth + buffer.length;
    // What was born in the step before the first.
    if (period != 0 && end > period) {
      load += conflicts.bytes(i);
      changes.push_back({Position{2} * (end - period), false, conflicts.bytes(i)});
    }
    for (std::uint64_t step = 0; step < steps; ++step) {
      const Position base = Position{2} * period * step;
      changes.push_back({base + Position{2} * buffer.birth + 1, true, conflicts.bytes(i)});
      changes.push_back({base + Position{2} * end, false, conflicts.bytes(i)});
    }
  }
  std::sort(changes.begin(), changes.end(), [](const Change& a, const Change& b) {
    return std::tie(a.at, a.birth) < std::tie(b.at, b.birth);
  });
  lane.most.assign(1, load);
  std::size_t next = 0;
  const auto until = [&](const Position* end) {
    for (; next < changes.size() && (end == nullptr || changes[next].at < *end); ++next) {
      load = changes[next].birth ? load + changes[next].size : load - changes[next].size;
      lane.most.back() = std::max(lane.most.back(), load);
    }
  };
  for (const Position point : lane.points) {
    until(&point);
    // What dies right here is dead in what begins here.
    while (next < changes.size() && changes[next].at == point && !changes[next].birth)
      load -= changes[next++].size;
    lane.most.push_back(load);
  }
  until(nullptr);
}

}  // namespace

Bytes heaviest_cut(const Conflicts& conflicts, std::span<const std::uint32_t> lanes) {
  const Problem& problem = conflicts.problem();
  const std::uint64_t steps = problem.lanes[lanes.front()].period == 0 ? 1 : kSteps;
  std::vector<Lane> all(problem.lanes.size());
  const auto leaves = [&](const PlaceEdge& edge, std::uint64_t step) {
    return Position{2} * problem.lanes[edge.from_lane].period * step + Position{2} * edge.from_tick;
  };
  const auto arrives = [&](const PlaceEdge& edge, std::uint64_t step) {
    return Position{2} * problem.lanes[edge.to_lane].period * (step + edge.delta) +
           Position{2} * edge.to_tick + 1;
  };
  const auto for_each_edge = [&](auto&& visit) {
    for (const PlaceEdge& edge : problem.edges) {
      if (edge.from_lane == edge.to_lane) continue;
      for (std::uint64_t step = 0; step + edge.delta < steps; ++step) visit(edge, step);
    }
  };
  std::size_t count = 0;
  for_each_edge([&](const PlaceEdge& edge, std::uint64_t step) {
    if (++count > kMaxPoints) return;
    all[edge.from_lane].points.push_back(leaves(edge, step));
    all[edge.to_lane].points.push_back(arrives(edge, step));
  });
  if (count > kMaxPoints) return 0;
  // A vertex a point: on the closed side where the lane's moment is not before it.
  MaxFlow flow;
  for (const std::uint32_t l : lanes) {
    auto& points = all[l].points;
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    for (std::size_t p = 0; p < points.size(); ++p) {
      const MaxFlow::Vertex vertex = flow.add_vertex();
      if (p == 0) all[l].first = vertex;
    }
    set_most(conflicts, l, steps, all[l]);
  }
  unsigned __int128 sum = 0;
  for (const std::uint32_t l : lanes) {
    const Lane& lane = all[l];
    sum += lane.most.front();
    for (std::uint32_t p = 0; p < lane.points.size(); ++p) {
      const MaxFlow::Vertex vertex = lane.first + p;
      if (p > 0) flow.add_arc(vertex, vertex - 1, MaxFlow::kInfinite);
      const Bytes before = lane.most[p], after = lane.most[p + 1];
      if (after > before) {
        flow.add_arc(MaxFlow::kSource, vertex, after - before);
        sum += after - before;
      } else if (after < before) {
        flow.add_arc(vertex, MaxFlow::kSink, before - after);
      }
    }
  }
  const auto vertex_of = [&](std::uint32_t l, Position point) {
    const auto& points = all[l].points;
    return all[l].first +
           static_cast<std::uint32_t>(std::lower_bound(points.begin(), points.end(), point) -
                                      points.begin());
  };
  for_each_edge([&](const PlaceEdge& edge, std::uint64_t step) {
    if (conflicts.lanes().group(edge.from_lane) != conflicts.lanes().group(lanes.front()) ||
        conflicts.lanes().group(edge.to_lane) != conflicts.lanes().group(lanes.front()))
      return;
    flow.add_arc(vertex_of(edge.to_lane, arrives(edge, step)),
                 vertex_of(edge.from_lane, leaves(edge, step)), MaxFlow::kInfinite);
  });
  if (sum >= MaxFlow::kInfinite / 2) return 0;
  const std::optional<Bytes> cut = flow.run(kMaxWork);
  return cut ? static_cast<Bytes>(sum) - *cut : 0;
}

}  // namespace berth::place
