#include "csrc/place/problem/lane_order.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <tuple>

namespace berth::place {
namespace {

constexpr std::uint32_t kNotJoined = ~std::uint32_t{0};
// Labels beyond this many (0.5 GB) are not worth having: the lanes then stay apart.
constexpr std::size_t kMaxLabels = std::size_t{1} << 25;
constexpr int kMaxSweeps = 64;

// The first tick of each lane that not every path has.
std::vector<std::uint64_t> common_prefixes(const Problem& problem) {
  constexpr std::uint64_t kNoFork = std::numeric_limits<std::uint64_t>::max();
  std::vector<std::uint64_t> prefixes(problem.lanes.size(), kNoFork);
  if (problem.branches.size() == 1) return prefixes;
  std::vector<std::uint32_t> roots(problem.branches.size());
  std::vector<std::uint64_t> forks(problem.branches.size(), kNoFork);
  for (std::uint32_t i = 0; i < problem.branches.size(); ++i) {
    const PlaceBranch& branch = problem.branches[i];
    roots[i] = branch.parent == i ? i : roots[branch.parent];
    if (roots[i] != i) forks[roots[i]] = std::min(forks[roots[i]], branch.fork);
  }
  std::vector<std::uint32_t> root_of_lane(problem.lanes.size(), kNotJoined);
  for (const Buffer& buffer : problem.buffers) {
    const std::uint32_t root = roots[buffer.branch];
    std::uint32_t& seen = root_of_lane[buffer.lane];
    const bool other = seen != kNotJoined && seen != root;
    prefixes[buffer.lane] = other ? 0 : std::min(prefixes[buffer.lane], forks[root]);
    seen = root;
  }
  return prefixes;
}

}  // namespace

LaneOrder::LaneOrder(const Problem& problem) {
  periods_.reserve(problem.lanes.size());
  for (const PlaceLane& lane : problem.lanes) periods_.push_back(lane.period);
  joined_.assign(problem.lanes.size(), kNotJoined);
  first_edges_.assign(problem.lanes.size() + 1, 0);
  keep_common_prefix_edges(problem);
  if (edges_.size() * joined_count_ > kMaxLabels) {
    edges_.clear();
    std::fill(first_edges_.begin(), first_edges_.end(), 0);
  }
  propagate();
  make_groups();
}

void LaneOrder::keep_common_prefix_edges(const Problem& problem) {
  const auto prefixes = common_prefixes(problem);
  std::vector<const PlaceEdge*> kept;
  for (const PlaceEdge& edge : problem.edges) {
    if (edge.from_lane == edge.to_lane) continue;
    if (edge.from_tick >= prefixes[edge.from_lane] || edge.to_tick >= prefixes[edge.to_lane])
      continue;
    kept.push_back(&edge);
  }
  std::sort(kept.begin(), kept.end(), [](const PlaceEdge* a, const PlaceEdge* b) {
    return std::tie(a->from_lane, a->from_tick) < std::tie(b->from_lane, b->from_tick);
  });
  for (const PlaceEdge* edge : kept) {
    edges_.push_back({edge->from_tick, edge->to_tick, edge->to_lane, edge->delta});
    ++first_edges_[edge->from_lane + 1];
    for (const std::uint32_t lane : {edge->from_lane, edge->to_lane}) {
      if (joined_[lane] == kNotJoined) joined_[lane] = static_cast<std::uint32_t>(joined_count_++);
    }
  }
  std::partial_sum(first_edges_.begin(), first_edges_.end(), first_edges_.begin());
}

std::size_t LaneOrder::first_edge_from(std::uint32_t lane, std::uint64_t tick) const noexcept {
  const auto first = edges_.begin() + static_cast<std::ptrdiff_t>(first_edges_[lane]);
  const auto last = edges_.begin() + static_cast<std::ptrdiff_t>(first_edges_[lane + 1]);
  const auto it = std::lower_bound(first, last, tick, [](const Edge& edge, std::uint64_t value) {
    return edge.from_tick < value;
  });
  return static_cast<std::size_t>(it - edges_.begin());
}

void LaneOrder::propagate() {
  labels_.assign(edges_.size() * joined_count_, kNever);
  if (edges_.empty()) return;
  const auto improve = [](Moment& label, Moment value, std::uint64_t steps) {
    if (value == kNever) return false;
    value.step += steps;
    if (!(value < label)) return false;
    label = value;
    return true;
  };
  bool changed = true;
  for (int sweep = 0; changed && sweep < kMaxSweeps; ++sweep) {
    changed = false;
    for (std::uint32_t lane = 0; lane < periods_.size(); ++lane) {
      // Row e: all edges of the lane from e on; behind the last the next step's first follows.
      for (std::size_t e = first_edges_[lane + 1]; e-- > first_edges_[lane];) {
        Moment* row = &labels_[e * joined_count_];
        const auto merge = [&](std::size_t other, std::uint64_t steps) {
          const Moment* from = &labels_[other * joined_count_];
          for (std::size_t b = 0; b < joined_count_; ++b)
            changed |= improve(row[b], from[b], steps);
        };
        const Edge& edge = edges_[e];
        changed |= improve(row[joined_[edge.to_lane]], {0, edge.to_tick}, edge.delta);
        if (e + 1 < first_edges_[lane + 1]) {
          merge(e + 1, 0);
        } else if (periods_[lane] != 0) {
          merge(first_edges_[lane], 1);
        }
        // What the other lane does at `to_tick` lies before an edge of a later tick only.
        const std::size_t next = first_edge_from(edge.to_lane, edge.to_tick + 1);
        if (next < first_edges_[edge.to_lane + 1]) {
          merge(next, edge.delta);
        } else if (periods_[edge.to_lane] != 0 &&
                   first_edges_[edge.to_lane] < first_edges_[edge.to_lane + 1]) {
          merge(first_edges_[edge.to_lane], std::uint64_t{edge.delta} + 1);
        }
      }
    }
  }
  for (std::uint32_t lane = 0; lane < periods_.size(); ++lane) {
    for (std::size_t e = first_edges_[lane]; e < first_edges_[lane + 1]; ++e) {
      const Moment back = label(e, lane);
      BERTH_CHECK(!(back < Moment{0, edges_[e].from_tick}), kUsage,
                  "edges contradict each other: tick {} of lane {} would come before itself",
                  back.tick, lane);
    }
  }
}

// Two lanes of circles share only what a chain leads to and back; two lines what a chain leads to.
void LaneOrder::make_groups() {
  std::vector<std::uint32_t> parents(periods_.size());
  std::iota(parents.begin(), parents.end(), 0);
  const auto find = [&](std::uint32_t lane) {
    while (parents[lane] != lane) lane = parents[lane] = parents[parents[lane]];
    return lane;
  };
  for (std::uint32_t lane = 0; lane < periods_.size(); ++lane) {
    for (std::size_t e = first_edges_[lane]; e < first_edges_[lane + 1]; ++e) {
      const std::uint32_t to = edges_[e].to_lane;
      if (periods_[lane] == 0 || seen(to, Moment{0, 0}, lane) != kNever) {
        parents[find(lane)] = find(to);
      }
    }
  }
  std::vector<std::uint32_t> numbers(periods_.size(), kNotJoined);
  for (std::uint32_t lane = 0; lane < periods_.size(); ++lane) {
    std::uint32_t& number = numbers[find(lane)];
    if (number == kNotJoined) number = group_count_++;
    groups_.push_back(number);
  }
}

Moment LaneOrder::seen(std::uint32_t from, Moment moment, std::uint32_t to) const noexcept {
  if (from == to) return moment;
  if (joined_[from] == kNotJoined || joined_[to] == kNotJoined) return kNever;
  if (first_edges_[from] == first_edges_[from + 1]) return kNever;
  std::size_t edge = first_edge_from(from, moment.tick);
  std::uint64_t steps = moment.step;
  if (edge == first_edges_[from + 1]) {
    if (periods_[from] == 0) return kNever;
    edge = first_edges_[from];
    ++steps;
  }
  Moment result = label(edge, to);
  if (result != kNever) result.step += steps;
  return result;
}

std::optional<std::uint64_t> LaneOrder::known(std::uint32_t of, std::uint64_t steps,
                                              std::uint32_t by, std::uint64_t tick) const noexcept {
  if (joined_[of] == kNotJoined || joined_[by] == kNotJoined) return std::nullopt;
  // Labels do not fall along a lane's edges.
  std::size_t low = first_edges_[of], high = first_edges_[of + 1];
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (label(middle, by) <= Moment{steps, tick}) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  if (low == first_edges_[of]) return std::nullopt;
  return edges_[low - 1].from_tick;
}

}  // namespace berth::place
