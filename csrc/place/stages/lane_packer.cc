#include "csrc/place/stages/lane_packer.h"

#include "csrc/place/fits/order_search.h"
#include "csrc/place/fits/strip_fit.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace berth::place {
namespace {

constexpr std::size_t kMaxWork = std::size_t{1} << 24;

void write(const Strip& strip, const std::vector<Bytes>& found, std::vector<Bytes>& offsets) {
  for (const auto& [buffer, offset] : strip.bottom) offsets[buffer] = offset;
  for (std::size_t k = 0; k < found.size(); ++k) offsets[strip.items[k].buffer] = found[k];
}

Bytes packed_mark(const Strip& strip, const std::vector<Bytes>& found) {
  Bytes mark = strip.base;
  for (std::size_t k = 0; k < found.size(); ++k)
    mark = std::max(mark, found[k] + strip.items[k].size);
  return mark;
}

std::optional<std::vector<Bytes>> dive(const Strip& strip, const PackSettings& settings,
                                       const Budget* budget) {
  DiveSettings own{.rank = settings.rank, .noise = settings.noise, .seed = settings.seed};
  own.capacity = std::max(settings.capacity, max_load(strip));
  own.below = settings.below;
  own.look = settings.look;
  return Dive(strip).run(own, budget);
}

}  // namespace

LanePacker::LanePacker(const Conflicts& conflicts, std::uint32_t lane) : conflicts_(&conflicts) {
  const Problem& problem = conflicts.problem();
  period_ = problem.lanes[lane].period;
  std::vector<std::vector<Index>> of_branch(problem.branches.size());
  for (Index i = 0; i < conflicts.size(); ++i) {
    if (problem.buffers[i].lane != lane) continue;
    buffers_.push_back(i);
    of_branch[problem.buffers[i].branch].push_back(i);
  }
  std::size_t work = 0;
  for (std::uint32_t branch = 0; branch < of_branch.size() && within_reach_; ++branch) {
    if (of_branch[branch].empty()) continue;
    make_path(branch, of_branch);
    work += paths_.back().buffers.size();
    within_reach_ = work <= kMaxWork;
  }
  forked_ = paths_.size() > 1;
  for (std::uint32_t b = 0; b < problem.branches.size(); ++b) {
    const std::uint32_t parent = problem.branches[b].parent;
    forked_ |= parent != b && (!of_branch[b].empty() || !of_branch[parent].empty());
  }
  if (!within_reach_ || !forked_) return;
  make_segments(of_branch);
  std::sort(shared_.begin(), shared_.end());
  within_reach_ = segments_.size() * shared_.size() <= kMaxWork;
  std::stable_sort(paths_.begin(), paths_.end(),
                   [](const Path& a, const Path& b) { return a.load > b.load; });
}

bool LanePacker::on_path(Index i, std::uint32_t branch) const noexcept {
  const Problem& problem = conflicts_->problem();
  std::uint64_t before = std::numeric_limits<std::uint64_t>::max();
  while (branch > problem.buffers[i].branch && problem.branches[branch].parent != branch) {
    before = problem.branches[branch].fork;
    branch = problem.branches[branch].parent;
  }
  return branch == problem.buffers[i].branch && conflicts_->lifetime(i).birth < before;
}

void LanePacker::make_path(std::uint32_t branch, const std::vector<std::vector<Index>>& of_branch) {
  const Problem& problem = conflicts_->problem();
  const std::uint64_t own = problem.branches[branch].period;
  Path path{branch, period_ == 0 || own == 0 ? period_ : own, 0, of_branch[branch]};
  for (std::uint32_t b = branch; problem.branches[b].parent != b;) {
    const std::uint64_t fork = problem.branches[b].fork;
    b = problem.branches[b].parent;
    for (const Index i : of_branch[b]) {
      if (conflicts_->lifetime(i).birth < fork) path.buffers.push_back(i);
    }
  }
  std::vector<Arc> arcs;
  for (const Index i : path.buffers)
    arcs.push_back({i, conflicts_->lifetime(i).birth, problem.buffers[i].length});
  path.load = max_load(make_strip(*conflicts_, arcs, 0));
  paths_.push_back(std::move(path));
}

void LanePacker::make_segments(const std::vector<std::vector<Index>>& of_branch) {
  const Problem& problem = conflicts_->problem();
  std::vector<std::vector<std::uint64_t>> forks(problem.branches.size());
  for (std::uint32_t b = 0; b < problem.branches.size(); ++b) {
    const PlaceBranch& branch = problem.branches[b];
    if (branch.parent != b) forks[branch.parent].push_back(branch.fork);
  }
  for (std::uint32_t b = 0; b < problem.branches.size(); ++b) {
    auto& ends = forks[b];
    ends.push_back(std::numeric_limits<std::uint64_t>::max());
    std::sort(ends.begin(), ends.end());
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    std::vector<Segment> segments(ends.size(), Segment{b, {}});
    for (const Index i : of_branch[b]) {
      const Lifetime& life = conflicts_->lifetime(i);
      const auto next = std::upper_bound(ends.begin(), ends.end(), life.birth);
      if (life.wrapped > 0 || life.end > *next || problem.buffers[i].pinned) {
        shared_.push_back(i);
      } else {
        segments[static_cast<std::size_t>(next - ends.begin())].buffers.push_back(i);
      }
    }
    for (Segment& segment : segments) {
      if (!segment.buffers.empty()) segments_.push_back(std::move(segment));
    }
  }
}

std::vector<std::size_t> LanePacker::path_order(const PackSettings& settings) const {
  std::vector<double> keys;
  for (std::uint32_t p = 0; p < paths_.size(); ++p) {
    const double factor = settings.noise > 0 ? noise_factor(settings.noise, ~settings.seed, p) : 1;
    keys.push_back(factor * static_cast<double>(paths_[p].load));
  }
  std::vector<std::size_t> order(paths_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
  return order;
}

// The buffers of a path that are not placed yet, around the shared ones that are.
Strip LanePacker::path_strip(const Path& path, std::span<const Arc> taken,
                             const std::vector<Bytes>& offsets,
                             const std::vector<bool>& placed) const {
  std::vector<Arc> arcs(taken.begin(), taken.end());
  // On a circle for what wraps around, if any is left. `round` lies behind all births.
  std::uint64_t round = 0, wrapped = 0, first_wrapping = std::numeric_limits<std::uint64_t>::max();
  for (const Index i : path.buffers) {
    const Lifetime& life = conflicts_->lifetime(i);
    round = std::max({round, life.birth + 1, life.wrapped > 0 ? 0 : life.end});
    if (placed[i] || life.wrapped == 0) continue;
    wrapped = std::max(wrapped, life.wrapped);
    first_wrapping = std::min(first_wrapping, life.birth);
  }
  round = wrapped == 0 ? 0 : std::max(round, path.period);
  // On another path that goes on from here, shared ones may live with what is placed there (and
  // was not placed with them, which those that wrap around are).
  std::uint64_t shared_end = 0;
  for (const Index i : shared_) {
    if (!placed[i] && on_path(i, path.branch))
      shared_end = std::max(shared_end, conflicts_->lifetime(i).end);
  }
  const auto add = [&](Index i, std::uint64_t first, std::uint64_t last) {
    if (first >= last) return;
    const std::uint64_t length = round == 0 ? last - first : std::min(last - first, round);
    arcs.push_back({i, first, length});
    if (placed[i]) arcs.back().fixed = offsets[i];
  };
  const auto add_all = [&](Index i) {
    const Lifetime& life = conflicts_->lifetime(i);
    const bool around = round != 0 && life.wrapped > 0;
    add(i, life.birth, around ? std::max(life.end, round + life.wrapped) : life.end);
    if (round == 0) add(i, 0, life.wrapped);
  };
  for (const Index i : path.buffers) {
    if (!placed[i]) add_all(i);
  }
  for (const Index i : shared_) {
    if (!placed[i]) continue;
    const Lifetime& life = conflicts_->lifetime(i);
    if (on_path(i, path.branch)) {
      add_all(i);
    } else if (round == 0) {
      add(i, life.birth, std::min(life.end, shared_end));
      add(i, 0, life.wrapped);
    } else {
      // Ends of other paths meet what is born before them, ends of this path what was born before
      // these; the ends do not meet, and as a rule are far from any of their births.
      // (What ends behind all births lives all around, so that its last tick stands for those.)
      const bool pinned = conflicts_->problem().buffers[i].pinned.has_value();
      const std::uint64_t met_until = pinned ? std::max(wrapped, shared_end) : wrapped;
      if (life.birth < met_until)
        add(i, std::min(life.birth, round - 1), std::min({life.end, met_until, round}));
      add(i, first_wrapping, std::min(life.wrapped, round));
    }
  }
  return make_strip_around(*conflicts_, std::move(arcs), round);
}

Strip LanePacker::segment_strip(const Segment& segment, std::span<const Arc> taken,
                                const std::vector<Bytes>& offsets) const {
  std::vector<Arc> arcs(taken.begin(), taken.end());
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max(), last = 0;
  for (const Index i : segment.buffers) {
    const Lifetime& life = conflicts_->lifetime(i);
    arcs.push_back({i, life.birth, life.end - life.birth});
    first = std::min(first, life.birth);
    last = std::max(last, life.end);
  }
  for (const Index i : shared_) {
    const Lifetime& life = conflicts_->lifetime(i);
    if (life.birth < last && life.end > first && on_path(i, segment.branch))
      arcs.push_back({i, life.birth, life.end - life.birth, offsets[i]});
    if (life.wrapped > first) arcs.push_back({i, 0, life.wrapped, offsets[i]});
  }
  return make_strip_around(*conflicts_, std::move(arcs), 0);
}

Strip LanePacker::whole_strip(std::span<const Arc> taken) const {
  std::vector<Arc> arcs(taken.begin(), taken.end());
  for (const Index i : buffers_) {
    const Buffer& buffer = conflicts_->problem().buffers[i];
    arcs.push_back({i, buffer.birth, buffer.length, buffer.pinned});
  }
  return make_strip_around(*conflicts_, std::move(arcs), paths_.front().period);
}

bool LanePacker::pack(std::span<const Arc> taken, const PackSettings& settings,
                      const Budget* budget, std::vector<Bytes>& offsets) const {
  for (const Index i : buffers_) {
    if (const auto& pin = conflicts_->problem().buffers[i].pinned) offsets[i] = *pin;
  }
  if (!forked_) {
    const Strip strip = whole_strip(taken);
    const auto found = dive(strip, settings, budget);
    if (found) write(strip, *found, offsets);
    return found.has_value();
  }
  std::vector<bool> placed(conflicts_->size(), false);
  for (const Index i : shared_) placed[i] = conflicts_->problem().buffers[i].pinned.has_value();
  // Of what a path's dive finds only some shared ones stay: first those that wrap around, then the
  // others. The rest is what segments begin with.
  constexpr Bytes kNowhere = std::numeric_limits<Bytes>::max();
  std::vector<Bytes> drafts(conflicts_->size(), kNowhere);
  for (const bool wraps : {true, false}) {
    std::vector<bool> drafted(conflicts_->size(), false);
    for (const std::size_t p : path_order(settings)) {
      const Path& path = paths_[p];
      const auto stays = [&](Index i) {
        return !placed[i] && is_shared(i) && (conflicts_->lifetime(i).wrapped > 0) == wraps;
      };
      if (std::none_of(path.buffers.begin(), path.buffers.end(), stays)) continue;
      const Strip strip = path_strip(path, taken, offsets, placed);
      const auto found = dive(strip, settings, budget);
      if (!found) return false;
      std::vector<Bytes> all = offsets;
      write(strip, *found, all);
      for (const Index i : path.buffers) {
        if (stays(i)) {
          offsets[i] = all[i];
          placed[i] = true;
        } else if (!placed[i] && !drafted[i]) {
          drafts[i] = all[i];
          drafted[i] = true;
        }
      }
    }
  }
  for (const Segment& segment : segments_) {
    const Strip strip = segment_strip(segment, taken, offsets);
    std::optional<std::vector<Bytes>> best;
    if (drafts[segment.buffers.front()] != kNowhere) {
      std::vector<Bytes> draft;
      for (const Strip::Item& item : strip.items) draft.push_back(drafts[item.buffer]);
      best = StripFit(strip).run(order_of(draft), Fit::kFirst, settings.below, budget);
    }
    const Bytes enough = std::max(settings.capacity, max_load(strip));
    if (!best || packed_mark(strip, *best) > enough) {
      auto found = dive(strip, settings, budget);
      if (found && (!best || packed_mark(strip, *found) < packed_mark(strip, *best))) best = found;
    }
    if (!best) return false;
    write(strip, *best, offsets);
  }
  return true;
}

std::vector<Strip> LanePacker::parts(std::span<const Arc> taken,
                                     const std::vector<Bytes>& offsets) const {
  std::vector<Strip> strips;
  if (!forked_) strips.push_back(whole_strip(taken));
  for (const Segment& segment : segments_) strips.push_back(segment_strip(segment, taken, offsets));
  return strips;
}

}  // namespace berth::place
