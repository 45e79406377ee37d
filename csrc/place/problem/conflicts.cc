#include "csrc/place/problem/conflicts.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace berth::place {
namespace {

const Problem& checked(const Problem& problem) {
  check_problem(problem);
  return problem;
}

// The shortest path that goes through a buffer born at some tick, for each branch.
class ShortestPaths {
 public:
  explicit ShortestPaths(const Problem& problem) : children_(problem.branches.size()) {
    // Shortest own period of each subtree; 0 stands for the lane's, which is not known here, so
    // that the lane's period is kept apart.
    std::vector<Period> subtrees(problem.branches.size());
    for (std::size_t i = problem.branches.size(); i-- > 0;) {
      const PlaceBranch& branch = problem.branches[i];
      subtrees[i].add(branch.period);
      if (branch.parent == i) continue;
      subtrees[branch.parent].add(subtrees[i]);
      children_[branch.parent].emplace_back(branch.fork, subtrees[i]);
    }
    for (auto& children : children_) {
      std::sort(children.begin(), children.end(),
                [](const auto& a, const auto& b) { return a.first > b.first; });
      for (std::size_t i = 1; i < children.size(); ++i)
        children[i].second.add(children[i - 1].second);
    }
  }

  [[nodiscard]] std::uint64_t through(const Problem& problem, const Buffer& buffer) const {
    Period period;
    period.add(problem.branches[buffer.branch].period);
    // Children in order of falling forks: those that fork behind the birth are a prefix.
    const auto& children = children_[buffer.branch];
    const auto it = std::partition_point(children.begin(), children.end(), [&](const auto& child) {
      return child.first > buffer.birth;
    });
    if (it != children.begin()) period.add(std::prev(it)->second);
    const std::uint64_t lane = problem.lanes[buffer.lane].period;
    return period.lanes ? std::min(lane, period.own) : period.own;
  }

 private:
  struct Period {
    std::uint64_t own = std::numeric_limits<std::uint64_t>::max();
    bool lanes = false;  // some path has the lane's period

    void add(std::uint64_t period) {
      if (period == 0)
        lanes = true;
      else
        own = std::min(own, period);
    }
    void add(const Period& other) {
      own = std::min(own, other.own);
      lanes |= other.lanes;
    }
  };
  std::vector<std::vector<std::pair<std::uint64_t, Period>>> children_;
};

}  // namespace

Conflicts::Conflicts(const Problem& problem) : problem_(checked(problem)), lanes_(problem) {
  set_lifetimes();
}

void Conflicts::set_lifetimes() {
  const ShortestPaths paths(problem_);
  lifetimes_.reserve(problem_.buffers.size());
  for (const Buffer& buffer : problem_.buffers) {
    Lifetime life{buffer.birth, buffer.birth + buffer.length, 0};
    if (problem_.lanes[buffer.lane].period != 0) {
      const std::uint64_t shortest = paths.through(problem_, buffer);
      if (life.end > shortest) life.wrapped = life.end - shortest;
    }
    lifetimes_.push_back(life);
  }
}

Moment Conflicts::end(Index i) const noexcept {
  const Lifetime& life = lifetimes_[i];
  return life.wrapped > 0 ? Moment{1, life.wrapped} : Moment{0, life.end};
}

bool Conflicts::on_common_path(Index u, Index v) const noexcept {
  std::uint32_t x = problem_.buffers[u].branch, y = problem_.buffers[v].branch;
  if (x == y) return true;
  // A parent's index is smaller: the larger one can only be the descendant.
  if (x > y) {
    std::swap(x, y);
    std::swap(u, v);
  }
  while (problem_.branches[y].parent > x && problem_.branches[y].parent != y)
    y = problem_.branches[y].parent;
  return problem_.branches[y].parent == x && lifetimes_[u].birth < problem_.branches[y].fork;
}

bool Conflicts::conflict_in_lane(Index u, Index v) const noexcept {
  const Lifetime &a = lifetimes_[u], &b = lifetimes_[v];
  if (a.birth < b.wrapped || b.birth < a.wrapped) return true;
  return a.birth < b.end && b.birth < a.end && (!has_branches() || on_common_path(u, v));
}

bool Conflicts::conflict_across_lanes(Index u, Index v) const noexcept {
  const std::uint32_t a = problem_.buffers[u].lane, b = problem_.buffers[v].lane;
  if (lanes_.group(a) != lanes_.group(b)) return true;
  // The steps after which the next birth of the one has surely seen the end of the other.
  const auto steps = [&](Index dies, std::uint32_t from, Index born,
                         std::uint32_t to) -> std::optional<std::uint64_t> {
    const Moment seen = lanes_.seen(from, end(dies), to);
    if (seen == LaneOrder::kNever) return std::nullopt;
    return seen.step + (lifetimes_[born].birth < seen.tick ? 1 : 0);
  };
  const auto uv = steps(u, a, v, b);
  const auto vu = steps(v, b, u, a);
  if (problem_.lanes[a].period == 0) return !(uv && *uv == 0) && !(vu && *vu == 0);
  return !(uv && vu && *uv + *vu <= 1);
}

Conflicts::Shadow Conflicts::shadow(Index i, std::uint32_t lane) const noexcept {
  const std::uint32_t own = problem_.buffers[i].lane;
  const std::uint64_t period = problem_.lanes[lane].period;
  const std::uint64_t birth = lifetimes_[i].birth;
  constexpr std::uint64_t kAlways = std::uint64_t{1} << 62;
  if (lanes_.group(own) != lanes_.group(lane)) return {0, period == 0 ? kAlways : period};
  const Moment seen = lanes_.seen(own, end(i), lane);
  if (period == 0) {
    // All that dies by `first` came before.
    std::uint64_t first = lanes_.known(lane, 0, own, birth).value_or(0);
    const std::uint64_t last = seen == LaneOrder::kNever ? kAlways : seen.tick;
    if (last == 0) return {0, 0};
    first = std::min(first, last - 1);
    return {first, last - first};
  }
  const Shadow whole{0, period};
  if (seen == LaneOrder::kNever || seen.step > 1) return whole;
  std::uint64_t back = 0;
  auto first = lanes_.known(lane, 0, own, birth);
  if (!first) first = lanes_.known(lane, back = 1, own, birth);
  if (!first || seen.step + back > 1) return whole;
  if (seen.step + back == 1) {
    if (seen.tick >= *first) return whole;
    if (seen.tick == 0 && *first == period) return {period - 1, 1};
    return {*first % period, period + seen.tick - *first};
  }
  if (seen.tick == 0) return {period - 1, 1};
  const std::uint64_t begin = std::min(*first, seen.tick - 1);
  return {begin, seen.tick - begin};
}

bool Conflicts::conflict(Index u, Index v) const noexcept {
  return problem_.buffers[u].lane == problem_.buffers[v].lane ? conflict_in_lane(u, v)
                                                              : conflict_across_lanes(u, v);
}

}  // namespace berth::place
