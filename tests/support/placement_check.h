#pragma once

#include <berth/place.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

// Independent of the planner: pair checks, simulated executions and exhaustive search for small
// problems.
namespace berth::test {

inline Bytes rounded_size(const Problem& problem, const Buffer& buffer) {
  return (buffer.size + problem.alignment - 1) / problem.alignment * problem.alignment;
}

// Whether two buffers of one lane without branches live at one tick, tick sets spelled out.
inline bool share_a_tick(std::uint64_t period, const Buffer& a, const Buffer& b) {
  const auto intersect = [](std::uint64_t a0, std::uint64_t a1, std::uint64_t b0,
                            std::uint64_t b1) { return a0 < b1 && b0 < a1; };
  const std::uint64_t a1 = a.birth + a.length, b1 = b.birth + b.length;
  if (intersect(a.birth, a1, b.birth, b1)) return true;
  return period != 0 && (intersect(a.birth + period, a1 + period, b.birth, b1) ||
                         intersect(a.birth, a1, b.birth + period, b1 + period));
}

// The first thing wrong with a placement, by looking at every pair: O(n^2). Lanes must be apart
// (problems with edges go through simulate()); of branches only the root's own path is looked at.
inline std::optional<std::string> check_placement(const Problem& problem,
                                                  const Placement& placement) {
  const auto& buffers = problem.buffers;
  if (placement.offsets.size() != buffers.size()) return "not one offset a buffer";
  Bytes high_water_mark = 0;
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    const Bytes offset = placement.offsets[i];
    if (offset % problem.alignment != 0 || offset % buffers[i].alignment != 0)
      return "buffer " + std::to_string(i) + " is not aligned";
    if (buffers[i].pinned && *buffers[i].pinned != offset)
      return "buffer " + std::to_string(i) + " left its pin";
    high_water_mark = std::max(high_water_mark, offset + rounded_size(problem, buffers[i]));
  }
  if (high_water_mark != placement.high_water_mark) return "wrong high-water mark";
  if (placement.lower_bound > high_water_mark) return "bound above the high-water mark";
  if (placement.proven_optimal != (placement.lower_bound == high_water_mark))
    return "proof and bound disagree";
  for (std::size_t i = 0; i < buffers.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      const Bytes a = placement.offsets[i], b = placement.offsets[j];
      if (a >= b + rounded_size(problem, buffers[j]) || b >= a + rounded_size(problem, buffers[i]))
        continue;
      const bool together = buffers[i].lane != buffers[j].lane
                                ? problem.edges.empty()
                                : buffers[i].branch == buffers[j].branch &&
                                      share_a_tick(problem.branches[buffers[i].branch].period != 0
                                                       ? problem.branches[buffers[i].branch].period
                                                       : problem.lanes[buffers[i].lane].period,
                                                   buffers[i], buffers[j]);
      if (together)
        return "buffers " + std::to_string(i) + " and " + std::to_string(j) + " overlap";
    }
  }
  return std::nullopt;
}

// The same by a sweep over time with the live ranges in address order, for one lane without
// branches; a circle is gone round twice. O(n log n).
inline std::optional<std::string> sweep_placement(const Problem& problem,
                                                  const Placement& placement) {
  struct Event {
    std::uint64_t tick;
    bool birth;
    std::size_t buffer;
  };
  const std::uint64_t period = problem.lanes[0].period;
  std::vector<Event> events;
  for (std::size_t i = 0; i < problem.buffers.size(); ++i) {
    const Buffer& buffer = problem.buffers[i];
    for (std::uint64_t round = 0; round < (period == 0 ? 1u : 2u); ++round) {
      events.push_back({buffer.birth + round * period, true, i});
      events.push_back({buffer.birth + buffer.length + round * period, false, i});
    }
  }
  std::sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    return a.tick != b.tick ? a.tick < b.tick : a.birth < b.birth;
  });
  std::map<Bytes, std::pair<Bytes, std::size_t>> live;  // offset -> end, buffer
  Bytes high_water_mark = 0;
  for (const auto& [tick, birth, i] : events) {
    const Bytes offset = placement.offsets[i];
    const Bytes end = offset + rounded_size(problem, problem.buffers[i]);
    high_water_mark = std::max(high_water_mark, end);
    if (!birth) {
      live.erase(offset);
      continue;
    }
    auto beside = live.lower_bound(offset);
    const bool above = beside != live.end() && beside->first < end;
    if (!above && beside != live.begin()) --beside;
    if (beside != live.end() && beside->first < end && beside->second.first > offset)
      return "buffers " + std::to_string(beside->second.second) + " and " + std::to_string(i) +
             " overlap at tick " + std::to_string(tick);
    live.emplace(offset, std::pair{end, i});
  }
  if (high_water_mark != placement.high_water_mark) return "wrong high-water mark";
  return std::nullopt;
}

// Runs the problem's lanes step by step, each lane a random path a step, all lanes in a random
// order that respects the edges, and looks whether two live buffers ever share a byte. Edges are
// followed on the common prefix of all paths only. Returns the first violation.
class Execution {
 public:
  Execution(const Problem& problem, const std::vector<Bytes>& offsets, std::uint64_t seed)
      : problem_(problem), offsets_(offsets), random_(seed), lanes_(problem.lanes.size()) {}

  std::optional<std::string> run(std::uint64_t steps) {
    for (std::uint32_t l = 0; l < lanes_.size(); ++l) begin_step(l);
    for (;;) {
      std::vector<std::uint32_t> ready;
      for (std::uint32_t l = 0; l < lanes_.size(); ++l) {
        if (lanes_[l].step < steps && may_run(l)) ready.push_back(l);
      }
      if (ready.empty()) break;
      // Often the same lane again: far drifts are what tests need.
      std::uint32_t lane = ready[random_() % ready.size()];
      if (random_() % 8 != 0 && std::find(ready.begin(), ready.end(), last_) != ready.end())
        lane = last_;
      last_ = lane;
      if (auto bad = run_tick(lane)) return bad;
    }
    return std::nullopt;
  }

 private:
  struct Live {
    std::size_t buffer;
    std::uint64_t left;  // ticks until its end
  };
  struct LaneState {
    std::uint64_t step = 0, tick = 0;
    std::vector<std::uint32_t> path;  // from the leaf to the root
    std::vector<Live> live;
    bool died = false;  // ends before this tick are done
  };

  std::uint64_t period(std::uint32_t lane) const {
    const std::uint64_t own = problem_.branches[lanes_[lane].path.front()].period;
    if (problem_.lanes[lane].period != 0) return own != 0 ? own : problem_.lanes[lane].period;
    std::uint64_t last = 1;
    for (const Buffer& b : problem_.buffers) last = std::max(last, b.birth + b.length + 1);
    for (const PlaceEdge& e : problem_.edges)
      last = std::max({last, e.from_tick + 1, e.to_tick + 1});
    return last;
  }

  void begin_step(std::uint32_t lane) {
    LaneState& state = lanes_[lane];
    state.path.clear();
    // Any branch of the trees that this lane has buffers of.
    std::vector<std::uint32_t> leaves;
    for (std::uint32_t b = 0; b < problem_.branches.size(); ++b) {
      for (const Buffer& buffer : problem_.buffers) {
        if (buffer.lane == lane && root(buffer.branch) == root(b)) {
          leaves.push_back(b);
          break;
        }
      }
    }
    std::uint32_t b = leaves.empty() ? 0 : leaves[random_() % leaves.size()];
    state.path.push_back(b);
    while (problem_.branches[b].parent != b) state.path.push_back(b = problem_.branches[b].parent);
  }

  std::uint32_t root(std::uint32_t b) const {
    while (problem_.branches[b].parent != b) b = problem_.branches[b].parent;
    return b;
  }

  // A step's tick waits for the edges that lead to it; the end of a block at tick t comes as late
  // as the lane's tick t, or as the first edge that leaves at t or later and is waited for.
  bool may_run(std::uint32_t lane) const {
    const LaneState& state = lanes_[lane];
    for (const PlaceEdge& edge : problem_.edges) {
      if (edge.to_lane != lane || edge.from_lane == lane || edge.to_tick > state.tick) continue;
      if (state.step < edge.delta) continue;
      const LaneState& from = lanes_[edge.from_lane];
      const std::uint64_t step = state.step - edge.delta;
      if (from.step < step || (from.step == step && from.tick < edge.from_tick)) return false;
    }
    return true;
  }

  std::optional<std::string> run_tick(std::uint32_t lane) {
    LaneState& state = lanes_[lane];
    for (std::size_t i = 0; i < problem_.buffers.size(); ++i) {
      const Buffer& buffer = problem_.buffers[i];
      if (buffer.lane != lane || buffer.birth != state.tick || !on_path(state, buffer)) continue;
      for (const LaneState& other : lanes_) {
        for (const Live& live : other.live) {
          if (live.buffer != i && touch(live.buffer, i))
            return "buffers " + std::to_string(live.buffer) + " and " + std::to_string(i) +
                   " live at one time in step " + std::to_string(state.step);
        }
      }
      state.live.push_back({i, buffer.length});
    }
    ++state.tick;
    for (Live& live : state.live) --live.left;
    std::erase_if(state.live, [](const Live& live) { return live.left == 0; });
    if (state.tick == period(lane)) {
      state.tick = 0;
      ++state.step;
      begin_step(lane);
      if (problem_.lanes[lane].period == 0) state.step = ~std::uint64_t{0} - 1;
    }
    return std::nullopt;
  }

  bool on_path(const LaneState& state, const Buffer& buffer) const {
    std::uint64_t before = ~std::uint64_t{0};
    for (const std::uint32_t b : state.path) {
      if (b == buffer.branch) return buffer.birth < before;
      before = problem_.branches[b].fork;
    }
    return false;
  }

  bool touch(std::size_t i, std::size_t j) const {
    return offsets_[i] < offsets_[j] + rounded_size(problem_, problem_.buffers[j]) &&
           offsets_[j] < offsets_[i] + rounded_size(problem_, problem_.buffers[i]);
  }

  const Problem& problem_;
  const std::vector<Bytes>& offsets_;
  std::mt19937_64 random_;
  std::vector<LaneState> lanes_;
  std::uint32_t last_ = 0;
};

// The optimum of a problem of one lane without branches, by trying every order in which buffers
// stand on those placed before: for n <= 9.
inline Bytes optimal_high_water_mark(const Problem& problem) {
  const auto& buffers = problem.buffers;
  const std::uint64_t period = problem.lanes[0].period;
  std::vector<Bytes> offsets(buffers.size());
  std::vector<bool> placed(buffers.size(), false);
  Bytes best = ~Bytes{0};
  const std::function<void(std::size_t, Bytes, Bytes)> extend = [&](std::size_t count, Bytes mark,
                                                                    Bytes last) {
    if (mark >= best) return;
    if (count == buffers.size()) {
      best = mark;
      return;
    }
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      if (placed[i]) continue;
      Bytes offset = 0;
      for (std::size_t j = 0; j < buffers.size(); ++j) {
        if (placed[j] && share_a_tick(period, buffers[i], buffers[j]))
          offset = std::max(offset, offsets[j] + rounded_size(problem, buffers[j]));
      }
      const Bytes unit = std::max(problem.alignment, buffers[i].alignment);
      offset = (offset + unit - 1) / unit * unit;
      if (offset < last) continue;
      placed[i] = true;
      offsets[i] = offset;
      extend(count + 1, std::max(mark, offset + rounded_size(problem, buffers[i])), offset);
      placed[i] = false;
    }
  };
  extend(0, 0, 0);
  return buffers.empty() ? 0 : best;
}

}  // namespace berth::test
