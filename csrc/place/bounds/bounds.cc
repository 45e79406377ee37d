#include "csrc/place/bounds/bounds.h"

#include "csrc/place/bounds/lane_cut.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <span>
#include <utility>

namespace berth::place {
namespace {

// A change of load at a tick; at one tick ends come first.
struct Change {
  std::uint64_t tick;
  bool birth;
  Bytes size;
  friend bool operator<(const Change& a, const Change& b) {
    return a.tick != b.tick ? a.tick < b.tick : a.birth < b.birth;
  }
};

// Buffers of one lane and path, on a circle of `period` ticks or a line.
Bytes max_load_of_path(const Conflicts& conflicts, std::span<const Index> buffers,
                       std::uint64_t period, std::vector<Change>& changes) {
  changes.clear();
  Bytes load = 0;
  for (const Index i : buffers) {
    const Lifetime& life = conflicts.lifetime(i);
    const Bytes size = conflicts.bytes(i);
    changes.push_back({life.birth, true, size});
    if (period != 0 && life.end > period) {
      load += size;
      changes.push_back({life.end - period, false, size});
    } else {
      changes.push_back({life.end, false, size});
    }
  }
  std::sort(changes.begin(), changes.end());
  Bytes most = load;
  for (const Change& change : changes) {
    load = change.birth ? load + change.size : load - change.size;
    most = std::max(most, load);
  }
  return most;
}

// Steps of work over paths after which the rest of the paths is not looked at.
constexpr std::size_t kMaxPathWork = std::size_t{1} << 25;

// Calls visit(buffers, period) for the path of each branch.
template <class Visit>
void for_each_path(const Conflicts& conflicts, std::uint32_t lane,
                   const std::vector<Index>& buffers, Visit&& visit) {
  const Problem& problem = conflicts.problem();
  std::vector<std::vector<Index>> of_branch(problem.branches.size());
  for (const Index i : buffers) of_branch[problem.buffers[i].branch].push_back(i);
  std::size_t work = 0;
  std::vector<Index> path;
  for (std::uint32_t leaf = 0; leaf < problem.branches.size() && work < kMaxPathWork; ++leaf) {
    path = of_branch[leaf];
    for (std::uint32_t b = leaf; problem.branches[b].parent != b;) {
      const std::uint64_t fork = problem.branches[b].fork;
      b = problem.branches[b].parent;
      for (const Index i : of_branch[b]) {
        if (conflicts.lifetime(i).birth < fork) path.push_back(i);
      }
      work += of_branch[b].size();
    }
    work += path.size() + 1;
    const std::uint64_t own = problem.branches[leaf].period;
    const std::uint64_t period = problem.lanes[lane].period;
    visit(path, period == 0 || own == 0 ? period : own);
  }
}

// The most that one path's step leaves alive in the next one, tick by tick: a step of any path may
// follow a step of any other.
class Leftovers {
 public:
  void add(const Conflicts& conflicts, std::span<const Index> path, std::uint64_t period) {
    std::vector<std::pair<std::uint64_t, Bytes>> ends;
    for (const Index i : path) {
      const Lifetime& life = conflicts.lifetime(i);
      // What would meet its own next birth counts once.
      if (life.birth < period && life.end > period && life.end - period <= life.birth)
        ends.emplace_back(life.end - period, conflicts.bytes(i));
    }
    std::sort(ends.begin(), ends.end(), std::greater<>());
    Bytes sum = 0;
    for (const auto& [end, size] : ends) most_.emplace_back(end, sum += size);
  }

  void finish() {
    std::sort(most_.begin(), most_.end(), std::greater<>());
    Bytes most = 0;
    for (auto& [end, size] : most_) size = most = std::max(most, size);
  }

  // Of buffers alive together, these and those of the path: the most bytes.
  [[nodiscard]] Bytes with(const Conflicts& conflicts, std::span<const Index> path,
                           std::vector<Change>& changes) const {
    changes.clear();
    for (const Index i : path) {
      const Lifetime& life = conflicts.lifetime(i);
      changes.push_back({life.birth, true, conflicts.bytes(i)});
      changes.push_back({life.end, false, conflicts.bytes(i)});
    }
    std::sort(changes.begin(), changes.end());
    Bytes most = most_.empty() ? 0 : most_.back().second, load = 0;
    std::size_t left = most_.size();  // those that end later are a prefix
    for (const Change& change : changes) {
      load = change.birth ? load + change.size : load - change.size;
      while (left > 0 && most_[left - 1].first <= change.tick) --left;
      most = std::max(most, load + (left > 0 ? most_[left - 1].second : 0));
    }
    return most;
  }

 private:
  std::vector<std::pair<std::uint64_t, Bytes>> most_;  // until which tick, how much
};

Bytes max_load_of_lane(const Conflicts& conflicts, std::uint32_t lane,
                       const std::vector<Index>& buffers, std::vector<Change>& changes) {
  const std::uint64_t period = conflicts.problem().lanes[lane].period;
  if (!conflicts.has_branches()) return max_load_of_path(conflicts, buffers, period, changes);
  Bytes most = 0;
  Leftovers leftovers;
  for_each_path(conflicts, lane, buffers, [&](std::span<const Index> path, std::uint64_t own) {
    most = std::max(most, max_load_of_path(conflicts, path, own, changes));
    if (period != 0) leftovers.add(conflicts, path, own);
  });
  if (period == 0) return most;
  leftovers.finish();
  for_each_path(conflicts, lane, buffers, [&](std::span<const Index> path, std::uint64_t) {
    most = std::max(most, leftovers.with(conflicts, path, changes));
  });
  return most;
}

}  // namespace

Bytes max_load(const Conflicts& conflicts) {
  const Problem& problem = conflicts.problem();
  std::vector<std::vector<Index>> of_lane(problem.lanes.size());
  Bytes pins = 0;
  for (Index i = 0; i < conflicts.size(); ++i) {
    of_lane[problem.buffers[i].lane].push_back(i);
    if (problem.buffers[i].pinned) {
      pins = std::max(pins, *problem.buffers[i].pinned + conflicts.bytes(i));
    }
  }
  std::vector<Bytes> of_group(conflicts.lanes().group_count(), 0);
  std::vector<Change> changes;
  for (std::uint32_t lane = 0; lane < problem.lanes.size(); ++lane) {
    if (of_lane[lane].empty()) continue;
    Bytes& most = of_group[conflicts.lanes().group(lane)];
    most = std::max(most, max_load_of_lane(conflicts, lane, of_lane[lane], changes));
  }
  std::vector<std::vector<std::uint32_t>> lanes_of_group(of_group.size());
  for (std::uint32_t lane = 0; lane < problem.lanes.size(); ++lane) {
    if (!of_lane[lane].empty()) lanes_of_group[conflicts.lanes().group(lane)].push_back(lane);
  }
  Bytes sum = 0;
  for (std::size_t group = 0; group < of_group.size(); ++group) {
    Bytes most = of_group[group];
    if (lanes_of_group[group].size() > 1 && !conflicts.has_branches())
      most = std::max(most, heaviest_cut(conflicts, lanes_of_group[group]));
    sum += most;
  }
  return std::max(sum, pins);
}

std::vector<Bytes> largest_loads(const Conflicts& conflicts) {
  const Problem& problem = conflicts.problem();
  std::vector<Bytes> result(conflicts.size());
  std::vector<std::vector<Index>> of_lane(problem.lanes.size());
  for (Index i = 0; i < conflicts.size(); ++i) of_lane[problem.buffers[i].lane].push_back(i);
  std::vector<std::uint64_t> ticks;
  std::vector<Bytes> loads, tree;
  for (const auto& buffers : of_lane) {
    if (buffers.empty()) continue;
    ticks.assign(1, 0);
    for (const Index i : buffers) ticks.push_back(conflicts.lifetime(i).birth);
    std::sort(ticks.begin(), ticks.end());
    ticks.erase(std::unique(ticks.begin(), ticks.end()), ticks.end());
    const auto at = [&](std::uint64_t tick) {
      return static_cast<std::size_t>(std::lower_bound(ticks.begin(), ticks.end(), tick) -
                                      ticks.begin());
    };
    loads.assign(ticks.size() + 1, 0);
    const auto pieces = [&](Index i, auto&& visit) {
      const Lifetime& life = conflicts.lifetime(i);
      visit(at(life.birth), at(life.end));
      if (life.wrapped > 0) visit(std::size_t{0}, at(life.wrapped));
    };
    for (const Index i : buffers) {
      pieces(i, [&](std::size_t first, std::size_t last) {
        loads[first] += conflicts.bytes(i);
        loads[last] -= conflicts.bytes(i);  // wraps below zero and back: sums are exact
      });
    }
    for (std::size_t t = 1; t < loads.size(); ++t) loads[t] += loads[t - 1];
    const std::size_t leaves = std::bit_ceil(ticks.size());
    tree.assign(2 * leaves, 0);
    std::copy_n(loads.begin(), ticks.size(), tree.begin() + static_cast<std::ptrdiff_t>(leaves));
    for (std::size_t node = leaves; node-- > 1;)
      tree[node] = std::max(tree[2 * node], tree[2 * node + 1]);
    for (const Index i : buffers) {
      pieces(i, [&](std::size_t first, std::size_t last) {
        std::size_t lo = first + leaves, hi = last + leaves;
        for (; lo < hi; lo /= 2, hi /= 2) {
          if (lo % 2 == 1) result[i] = std::max(result[i], tree[lo++]);
          if (hi % 2 == 1) result[i] = std::max(result[i], tree[--hi]);
        }
      });
    }
  }
  return result;
}

}  // namespace berth::place
