#include "csrc/place/replan.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/place/bounds/bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

namespace berth {
namespace place {
namespace {

constexpr Bytes kUnlimited = std::numeric_limits<Bytes>::max();
constexpr std::size_t kWindows = 16;  // that are tried for one buffer and radius
constexpr unsigned kDepth = 2;        // how often what is pushed out pushes others out
constexpr std::size_t kTries = 32;    // windows, for one buffer and radius with all it pushes out

}  // namespace

Rearrangement::Rearrangement(const Conflicts& conflicts, std::size_t scan)
    : conflicts_(conflicts), scan_(conflicts.size() <= scan), placed_(conflicts.size(), false) {
  if (scan_) return;
  const Problem& problem = conflicts.problem();
  std::vector<std::vector<Index>> buffers(problem.lanes.size());
  for (Index i = 0; i < conflicts.size(); ++i) buffers[problem.buffers[i].lane].push_back(i);
  for (auto& lane : buffers) {
    TimeIndex& index = lanes_.emplace_back(conflicts, lane);
    for (const Index i : lane) index.add(i);
  }
}

void Rearrangement::start(std::vector<Bytes> offsets, std::span<const Index> placed) {
  offsets_ = std::move(offsets);
  fixed_.resize(conflicts_.size());
  for (Index i = 0; i < conflicts_.size(); ++i)
    fixed_[i] = conflicts_.problem().buffers[i].pinned.has_value();
  for (const Index i : placed) {
    placed_[i] = true;
    if (scan_) by_address_.push_back(placed_buffer(i));
  }
  std::sort(by_address_.begin(), by_address_.end());
}

Rearrangement::PlacedBuffer Rearrangement::placed_buffer(Index i) const noexcept {
  const Lifetime& life = conflicts_.lifetime(i);
  const bool plain = life.wrapped == 0 && conflicts_.problem().lanes.size() == 1;
  return {offsets_[i], offsets_[i] + conflicts_.bytes(i), plain ? life.birth : 0,
          plain ? life.end : ~std::uint64_t{0}, i};
}

void Rearrangement::put(Index i, Bytes offset) {
  placed_[i] = true;
  offsets_[i] = offset;
  const PlacedBuffer placed = placed_buffer(i);
  if (scan_)
    by_address_.insert(std::lower_bound(by_address_.begin(), by_address_.end(), placed), placed);
}

void Rearrangement::take(Index i) {
  placed_[i] = false;
  if (scan_)
    by_address_.erase(std::lower_bound(by_address_.begin(), by_address_.end(), placed_buffer(i)));
}

// A superset of what is alive together with `i`, ascending.
std::span<const Rearrangement::PlacedBuffer> Rearrangement::near(Index i) {
  if (scan_) return by_address_;
  found_.clear();
  const auto visit = [&](Index j) {
    if (placed_[j]) found_.push_back(placed_buffer(j));
  };
  const std::uint32_t own = conflicts_.problem().buffers[i].lane;
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lane == own) {
      lanes_[lane].for_each_near(i, visit);
    } else {
      lanes_[lane].for_each(visit);
    }
  }
  std::sort(found_.begin(), found_.end());
  return found_;
}

std::optional<Bytes> Rearrangement::find_place(Index i, std::optional<Bytes> preferred,
                                               Bytes capacity) {
  const Bytes size = conflicts_.bytes(i), unit = conflicts_.unit(i);
  bool stays = preferred && *preferred % unit == 0 && *preferred + size <= capacity;
  const PlacedBuffer own = placed_buffer(i);
  Bytes top = 0;
  std::optional<Bytes> hole;
  for (const PlacedBuffer& placed : near(i)) {
    if (!placed.meets(own)) continue;
    const bool touches = stays && placed.first < *preferred + size && *preferred < placed.last;
    if ((placed.last <= top && !touches) || placed.buffer == i ||
        !conflicts_.conflict(i, placed.buffer))
      continue;
    stays = stays && !touches;
    if (!hole && placed.first >= size && align_up(top, unit) <= placed.first - size)
      hole = align_up(top, unit);
    top = std::max(top, placed.last);
    if (hole && !stays) break;
  }
  if (stays) return preferred;
  if (!hole) hole = align_up(top, unit);
  return *hole + size <= capacity ? hole : std::nullopt;
}

std::vector<Index> Rearrangement::in_the_way(Index i, Bytes offset) {
  const PlacedBuffer own = placed_buffer(i);
  std::vector<Index> result;
  for (const PlacedBuffer& placed : near(i)) {
    if (placed.first >= offset + conflicts_.bytes(i)) break;
    if (placed.last <= offset || !placed.meets(own) || placed.buffer == i ||
        !conflicts_.conflict(i, placed.buffer))
      continue;
    // Found by time a buffer may come several times, side by side.
    if (result.empty() || result.back() != placed.buffer) result.push_back(placed.buffer);
  }
  return result;
}

// Offsets for `i` at either end of a buffer that is alive with it, where at most `radius` buffers
// are in the way; those with the fewest bytes first, which find holes most easily.
std::vector<Bytes> Rearrangement::windows(Index i, unsigned radius, Bytes capacity) {
  const Bytes size = conflicts_.bytes(i), unit = conflicts_.unit(i);
  // Ends in order, with the count and the bytes up to each.
  std::vector<std::pair<Bytes, Bytes>> firsts, lasts;
  const PlacedBuffer own = placed_buffer(i);
  Index before = i;
  for (const PlacedBuffer& placed : near(i)) {
    if (!placed.meets(own) || placed.buffer == before || !conflicts_.conflict(i, placed.buffer))
      continue;
    before = placed.buffer;
    firsts.emplace_back(placed.first, placed.last - placed.first);
    lasts.emplace_back(placed.last, placed.last - placed.first);
  }
  std::sort(lasts.begin(), lasts.end());
  for (auto* ends : {&firsts, &lasts}) {
    Bytes sum = 0;
    for (auto& [end, bytes] : *ends) bytes = sum += bytes;
  }
  struct Window {
    Bytes bytes;
    Bytes offset;
    auto operator<=>(const Window&) const = default;
  };
  std::vector<Window> found;
  const auto up_to = [](const auto& ends, Bytes offset) {
    const auto count =
        std::upper_bound(ends.begin(), ends.end(), std::pair{offset, kUnlimited}) - ends.begin();
    return std::pair{count, count == 0 ? 0 : ends[static_cast<std::size_t>(count) - 1].second};
  };
  const auto add = [&](Bytes offset) {
    if (offset + size > capacity) return;
    // What begins before its end, but for what ends before it.
    const auto [begun, begun_bytes] = up_to(firsts, offset + size - 1);
    const auto [ended, ended_bytes] = up_to(lasts, offset);
    if (begun - ended <= static_cast<std::ptrdiff_t>(radius))
      found.push_back({begun_bytes - ended_bytes, offset});
  };
  add(0);
  for (const auto& [last, bytes] : lasts) add(align_up(last, unit));
  for (const auto& [first, bytes] : firsts) {
    if (first >= size) add(align_down(first - size, unit));
  }
  if (capacity >= size && capacity != kUnlimited) add(align_down(capacity - size, unit));
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  std::vector<Bytes> result;
  for (std::size_t k = 0; k < found.size() && k < kWindows; ++k) result.push_back(found[k].offset);
  return result;
}

bool Rearrangement::push_in(Index i, unsigned radius, Bytes capacity, unsigned depth) {
  const std::size_t before = moves_.size();
  for (const Bytes offset : windows(i, radius, capacity)) {
    std::vector<Index> others = in_the_way(i, offset);
    if (tries_ == 0) return false;
    if (std::any_of(others.begin(), others.end(), [&](Index j) { return fixed_[j]; })) continue;
    --tries_;
    std::stable_sort(others.begin(), others.end(),
                     [&](Index a, Index b) { return conflicts_.bytes(a) > conflicts_.bytes(b); });
    for (const Index j : others) {
      moves_.push_back({j, offsets_[j]});
      take(j);
    }
    put(i, offset);
    fixed_[i] = true;
    const bool settled = std::all_of(others.begin(), others.end(), [&](Index j) {
      if (const auto hole = find_place(j, std::nullopt, capacity)) {
        put(j, *hole);
        return true;
      }
      return depth > 1 && push_in(j, radius, capacity, depth - 1);
    });
    fixed_[i] = false;
    if (settled) return true;
    take(i);
    // Back in any order: what is taken twice is put back to its first offset last.
    while (moves_.size() > before) {
      const Move move = moves_.back();
      moves_.pop_back();
      if (placed_[move.buffer]) take(move.buffer);
      put(move.buffer, move.from);
    }
  }
  return false;
}

std::optional<std::vector<Index>> Rearrangement::make_room(Index i, unsigned radius,
                                                           Bytes capacity) {
  moves_.clear();
  tries_ = kTries;
  if (!push_in(i, radius, capacity, kDepth)) return std::nullopt;
  std::vector<Index> moved;
  for (const Move& move : moves_) moved.push_back(move.buffer);
  std::sort(moved.begin(), moved.end());
  moved.erase(std::unique(moved.begin(), moved.end()), moved.end());
  return moved;
}

Bytes Rearrangement::high_water_mark() const noexcept {
  Bytes mark = 0;
  for (Index i = 0; i < conflicts_.size(); ++i)
    mark = std::max(mark, offsets_[i] + conflicts_.bytes(i));
  return mark;
}

namespace {

constexpr unsigned kMaxRadius = 8;
constexpr std::size_t kFew = 16;  // may change of any problem, else a quarter

bool same_time(const Problem& a, const Problem& b) {
  const auto equal = [](const auto& x, const auto& y, auto&& same) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  return a.alignment == b.alignment &&
         equal(a.lanes, b.lanes,
               [](const PlaceLane& x, const PlaceLane& y) { return x.period == y.period; }) &&
         equal(a.edges, b.edges,
               [](const PlaceEdge& x, const PlaceEdge& y) {
                 return x.from_lane == y.from_lane && x.from_tick == y.from_tick &&
                        x.to_lane == y.to_lane && x.to_tick == y.to_tick && x.delta == y.delta;
               }) &&
         equal(a.branches, b.branches, [](const PlaceBranch& x, const PlaceBranch& y) {
           return x.parent == y.parent && x.fork == y.fork && x.period == y.period;
         });
}

// One call of replan().
class Replanner {
 public:
  Replanner(const Problem& problem, const PlacedBefore& before, const PlaceOptions& options)
      : problem_(problem), before_(before), options_(options), conflicts_(problem) {
    check_origin();
    old_.resize(conflicts_.size());
    changed_.resize(conflicts_.size());
    const bool same = same_time(before.problem, problem);
    for (Index i = 0; i < conflicts_.size(); ++i) {
      const std::uint32_t origin = before.origin.empty() ? i : before.origin[i];
      if (origin != PlacedBefore::kNew) old_[i] = before.offsets[origin];
      changed_[i] = !same || !old_[i] || has_changed(i, before.problem.buffers[origin]);
    }
    bound_ = max_load(conflicts_);
    for (std::size_t i = 0; i < before.offsets.size(); ++i) {
      old_mark_ = std::max(old_mark_, before.offsets[i] + align_up(before.problem.buffers[i].size,
                                                                   before.problem.alignment));
    }
    capacity_ = options.capacity.value_or(std::max(old_mark_, bound_ + bound_ / 100));
  }

  Replanned run() {
    std::optional<Rearrangement> arranged = rearrange();
    if (arranged && arranged->high_water_mark() <= capacity_)
      return result(arranged->offsets(), arranged->high_water_mark());
    PlaceOptions anew = options_;
    anew.warm_start.clear();
    anew.improved = nullptr;  // what is arranged may yet be the answer
    Placement placement = place_buffers(problem_, anew);
    if (arranged && placement.high_water_mark > capacity_ &&
        placement.high_water_mark >= arranged->high_water_mark())
      return result(arranged->offsets(), arranged->high_water_mark());
    placement.seconds = elapsed();
    const std::size_t count = moved(placement.offsets);
    return {std::move(placement), changed(), count};
  }

 private:
  void check_origin() const {
    const std::size_t count = before_.problem.buffers.size();
    BERTH_CHECK(before_.offsets.size() == count, kUsage,
                "an earlier placement of {} offsets for {} buffers", before_.offsets.size(), count);
    if (before_.origin.empty()) {
      BERTH_CHECK(problem_.buffers.size() == count, kUsage,
                  "{} buffers are re-planned from {} without saying which is which",
                  problem_.buffers.size(), count);
      return;
    }
    BERTH_CHECK(before_.origin.size() == problem_.buffers.size(), kUsage,
                "{} origins for {} buffers", before_.origin.size(), problem_.buffers.size());
    std::vector<bool> seen(count, false);
    for (std::size_t i = 0; i < before_.origin.size(); ++i) {
      const std::uint32_t origin = before_.origin[i];
      if (origin == PlacedBefore::kNew) continue;
      BERTH_CHECK(origin < count && !seen[origin], kUsage, "buffer {}: its origin {} is {}", i,
                  origin,
                  origin < count ? "another's too" : fmt::format("not among {} buffers", count));
      seen[origin] = true;
    }
  }

  // Whether it may not do at its old offset. What shrank may stay.
  [[nodiscard]] bool has_changed(Index i, const Buffer& was) const {
    const Buffer& is = problem_.buffers[i];
    return conflicts_.bytes(i) > align_up(was.size, problem_.alignment) || is.birth != was.birth ||
           is.length != was.length || is.lane != was.lane || is.branch != was.branch ||
           *old_[i] % conflicts_.unit(i) != 0;
  }

  // Everything at its old place but what cannot be; nothing where that is much, and where pins
  // collide, which place_buffers() says better.
  std::optional<Rearrangement> rearrange() {
    std::vector<Bytes> offsets(conflicts_.size());
    std::vector<Index> kept, homeless, pinned;
    for (Index i = 0; i < conflicts_.size(); ++i) {
      const std::optional<Bytes>& pin = problem_.buffers[i].pinned;
      offsets[i] = pin ? *pin : old_[i].value_or(0);
      if (pin && (changed_[i] || *pin != *old_[i])) {
        pinned.push_back(i);
      } else {
        (changed_[i] ? homeless : kept).push_back(i);
      }
    }
    if (homeless.size() + pinned.size() > kFew + conflicts_.size() / 4) return std::nullopt;
    Rearrangement arranged(conflicts_);
    arranged.start(std::move(offsets), kept);
    for (const Index i : pinned) {
      const Bytes pin = *problem_.buffers[i].pinned;
      for (const Index j : arranged.in_the_way(i, pin)) {
        if (problem_.buffers[j].pinned) return std::nullopt;
        arranged.take(j);
        homeless.push_back(j);
      }
      arranged.put(i, pin);
    }
    settle(arranged, std::move(homeless));
    return arranged;
  }

  void settle(Rearrangement& arranged, std::vector<Index> homeless) {
    // What lives long finds a hole least easily.
    const auto area = [&](Index i) {
      return static_cast<unsigned __int128>(conflicts_.bytes(i)) * problem_.buffers[i].length;
    };
    std::stable_sort(homeless.begin(), homeless.end(),
                     [&](Index a, Index b) { return area(a) > area(b); });
    engine_ = "replan holes";
    std::vector<Index> rest;
    for (const Index i : homeless) {
      if (const auto offset = arranged.find_place(i, old_[i], capacity_)) {
        arranged.put(i, *offset);
      } else {
        rest.push_back(i);
      }
    }
    // As long as that moves less than planning anew is worth.
    std::size_t moves = kFew + conflicts_.size() / 100;
    for (unsigned radius = 1; radius <= kMaxRadius && !rest.empty(); radius *= 2) {
      engine_ = fmt::format("replan radius {}", radius);
      std::erase_if(rest, [&](Index i) {
        if (radius > moves) return false;
        const auto others = arranged.make_room(i, radius, capacity_);
        if (others) moves -= std::min(moves, others->size());
        return others.has_value();
      });
    }
    // Above the capacity, where planning anew has to beat it.
    for (const Index i : rest) arranged.put(i, *arranged.find_place(i, old_[i], kUnlimited));
  }

  [[nodiscard]] std::size_t changed() const {
    return static_cast<std::size_t>(std::count(changed_.begin(), changed_.end(), true));
  }
  [[nodiscard]] std::size_t moved(const std::vector<Bytes>& offsets) const {
    std::size_t count = 0;
    for (Index i = 0; i < conflicts_.size(); ++i) count += !changed_[i] && offsets[i] != *old_[i];
    return count;
  }
  [[nodiscard]] double elapsed() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

  Replanned result(const std::vector<Bytes>& offsets, Bytes mark) const {
    Replanned replanned;
    replanned.placement.offsets = offsets;
    replanned.placement.high_water_mark = mark;
    replanned.placement.lower_bound = bound_;
    replanned.placement.proven_optimal = mark == bound_;
    replanned.placement.proven_infeasible = options_.capacity && *options_.capacity < bound_;
    replanned.placement.engine = engine_;
    replanned.placement.seconds = elapsed();
    replanned.changed = changed();
    replanned.moved = moved(offsets);
    return replanned;
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const Problem& problem_;
  const PlacedBefore& before_;
  const PlaceOptions& options_;
  Conflicts conflicts_;
  std::vector<std::optional<Bytes>> old_;  // offsets
  std::vector<bool> changed_;
  Bytes bound_ = 0, old_mark_ = 0, capacity_ = 0;
  std::string engine_;
};

}  // namespace
}  // namespace place

Replanned replan(const Problem& problem, const PlacedBefore& before, const PlaceOptions& options) {
  place::check_options(problem, options);
  return place::Replanner(problem, before, options).run();
}

}  // namespace berth
