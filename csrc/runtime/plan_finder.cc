#include "csrc/runtime/plan_finder.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace berth {

PlanFinder::PlanFinder(std::vector<PlanFolder::Found> plans) : plans_(std::move(plans)) {
  for (std::size_t plan = 0; plan < plans_.size(); ++plan) {
    for (const PlanHead::Kind& head : plans_[plan].head.kinds) {
      if (paths_.size() == kMostPaths) break;
      if (head.first.empty() || head.requests < head.first.size()) continue;
      Path& path = paths_.emplace_back();
      path.plan = plan;
      path.lane = head.lane_key;
      path.requests = head.requests;
      path.first = head.first;
      path.any =
          std::find(path.first.begin(), path.first.end(), PlanHead::kAnySize) != path.first.end();
      if (!path.any && head.requests == head.first.size())
        while (path.first.size() < kLeastFirst)
          path.first.push_back(path.first[path.first.size() - head.first.size()]);
      if (!path.any) find_fallbacks(path);
    }
  }
  find_starts();
  over_ = paths_.empty();
}

void PlanFinder::find_starts() {
  on_way_.reserve(paths_.size());
  for (std::uint32_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    path.on_way = path.any;
    if (path.any) {
      on_way_.push_back(i);
    } else {
      starts_.push_back({path.lane, path.first[0], i});
    }
  }
  std::sort(starts_.begin(), starts_.end(), [](const Start& a, const Start& b) {
    return std::tie(a.lane, a.bytes, a.path) < std::tie(b.lane, b.bytes, b.path);
  });
}

// Where `first` goes on when what comes after its first i + 1 is not the next: how many of its
// first ones are the last of those.
void PlanFinder::find_fallbacks(Path& path) {
  path.fallback.assign(path.first.size(), 0);
  std::uint32_t length = 0;
  for (std::size_t i = 1; i < path.first.size(); ++i) {
    while (length != 0 && path.first[i] != path.first[length]) length = path.fallback[length - 1];
    if (path.first[i] == path.first[length]) ++length;
    path.fallback[i] = length;
  }
}

void PlanFinder::request(LaneKey lane, Bytes bytes) noexcept {
  if (over_ || found_ != kNone) return;
  for (std::size_t i = 0; i < on_way_.size();) {
    Path& path = paths_[on_way_[i]];
    if (path.lane == lane) {
      if (path.any) {
        follow_any(path, bytes);
      } else {
        follow(path, bytes);
      }
      if (path.any ? path.lost : path.matched == 0) {
        path.on_way = false;
        on_way_[i] = on_way_.back();
        on_way_.pop_back();
        continue;
      }
    }
    ++i;
  }
  auto start = std::lower_bound(starts_.begin(), starts_.end(), std::pair(lane, bytes),
                                [](const Start& a, const std::pair<LaneKey, Bytes>& b) {
                                  return std::pair(a.lane, a.bytes) < b;
                                });
  for (; start != starts_.end() && start->lane == lane && start->bytes == bytes; ++start) {
    Path& path = paths_[start->path];
    if (path.on_way || path.refused) continue;  // on its way it was followed above
    follow(path, bytes);
    path.on_way = true;
    on_way_.push_back(start->path);
  }
  if (begun_ != 0) choose_surely();
  if (++heard_ == kMostRequests) over_ = true;
}

void PlanFinder::follow(Path& path, Bytes bytes) noexcept {
  if (path.begun()) {
    ++path.since;
    return;
  }
  while (path.matched != 0 && path.first[path.matched] != bytes)
    // mutant: find-overlap
    path.matched = path.fallback[path.matched - 1];
  if (path.first[path.matched] == bytes) ++path.matched;
  if (!path.begun()) return;
  path.since = path.matched;
  ++begun_;
}

void PlanFinder::follow_any(Path& path, Bytes bytes) noexcept {
  if (path.since < path.first.size()) {
    const Bytes expected = path.first[path.since];
    path.lost |= expected != PlanHead::kAnySize && expected != bytes;
  }
  ++path.since;
}

// How far the requests since its beginning are from its step; of a short one, from so many steps.
std::uint64_t PlanFinder::Path::off_by() const noexcept {
  if (any) return since < requests ? requests - since : since - requests;
  const std::uint64_t came = begun() ? since : matched;
  if (came < requests) return requests - came;
  if (requests >= first.size()) return came - requests;
  const std::uint64_t rest = came % requests;
  return std::min(rest, requests - rest);
}

template <class Eligible>
void PlanFinder::choose(const Eligible& eligible) noexcept {
  const Path* best = nullptr;
  for (const Path& path : paths_) {
    // mutant: find-refused
    if (path.refused || !eligible(path)) continue;
    if (best == nullptr || path.off_by() < best->off_by()) best = &path;
  }
  if (best != nullptr) found_ = best->plan;
}

// One plan begins as the run does, or several do and two steps of each are over without a mark.
void PlanFinder::choose_surely() noexcept {
  const Path* begun = nullptr;
  for (const std::uint32_t i : on_way_) {
    const Path& path = paths_[i];
    if (path.begun() && (begun == nullptr || path.since > begun->since)) begun = &path;
  }
  bool alone = true, over = true;
  for (const std::uint32_t i : on_way_) {
    const Path& path = paths_[i];
    if (path.begun()) {
      alone &= path.plan == begun->plan;
      over &= path.since >= 2 * path.requests;
      // mutant: find-longer
    } else if (!path.any && path.matched >= begun->since) {  // may yet turn out to begin so, too
      return;
    }
  }
  // mutant: find-alike
  if (alone || over) choose([](const Path& path) { return path.begun(); });
}

void PlanFinder::mark() noexcept {
  if (over_ || found_ != kNone) return;
  // A whole short step is enough where it ends here.
  choose([](const Path& path) { return path.ends_here(); });
  for (std::uint32_t i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (!path.any || path.refused) continue;
    path.since = 0;
    path.lost = false;
    // mutant: find-lost
    if (!std::exchange(path.on_way, true)) on_way_.push_back(i);
  }
}

void PlanFinder::refuse_found() noexcept {
  bool left = false;
  for (Path& path : paths_) {
    if (path.plan == found_ && !path.refused) {
      path.refused = true;
      // mutant: finder-refused-begun
      begun_ -= path.begun() ? 1 : 0;
    }
    left |= !path.refused;
  }
  std::erase_if(on_way_, [&](std::uint32_t i) { return paths_[i].refused; });
  found_ = kNone;
  choose([](const Path& path) { return path.begun(); });
  over_ |= !left;
}

}  // namespace berth
