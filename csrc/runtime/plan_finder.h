#pragma once

#include "csrc/device/device.h"
#include "csrc/plan/folder.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth {

// Finds which plan of a folder a run's requests are those of: the one whose first requests came one
// after the other on its lane, 128 of them or a whole step, wherever in the run that was. What is
// compared is the requests, not a hash of them.
//
// Where several plans begin so, the end of the step decides: whose number of requests is nearest to
// what came, then the first in the folder's order. It may be wrong, and that costs misses; whoever
// serves the plan sees them. It listens to kMostRequests at most, and follows kMostPaths ways of
// beginning a step: all of those that a folder lists.
//
// Nothing allocates or throws but the constructor. Not thread-safe: the allocator's lock covers it.
// A request costs a bisection of the ways by their first requests, and a few tens of instructions
// for each way that the last requests are on; a mark costs O(ways). 1.7 KiB a way.
class PlanFinder {
 public:
  static constexpr std::size_t kMostPaths = std::size_t{512} * PlanHead::kMostKinds;
  static constexpr std::uint64_t kMostRequests = std::uint64_t{1} << 20;

  // Those first are preferred.
  explicit PlanFinder(std::vector<PlanFolder::Found> plans);

  void request(LaneKey lane, Bytes bytes) noexcept;
  // A step ends.
  void mark() noexcept;

  // The plan that is found; null while there is none.
  [[nodiscard]] const PlanFolder::Found* found() const noexcept {
    return found_ == kNone ? nullptr : &plans_[found_];
  }
  // It cannot be had: goes on with the others.
  void refuse_found() noexcept;
  // Ends the search.
  void stop() noexcept { over_ = true; }
  // Whether it listens no more: too much came, no plan is left, or it was stopped.
  [[nodiscard]] bool over() const noexcept { return over_; }
  [[nodiscard]] std::size_t plan_count() const noexcept { return plans_.size(); }

 private:
  static constexpr std::size_t kNone = ~std::size_t{0};
  // A shorter step is looked for again and again, up to so many requests.
  static constexpr std::size_t kLeastFirst = 64;
  struct Path {
    std::size_t plan = 0;
    LaneKey lane = 0;
    std::uint64_t requests = 0;  // of the whole path
    std::vector<Bytes> first;
    std::vector<std::uint32_t> fallback;  // of Knuth, Morris and Pratt
    std::uint32_t matched = 0;            // of `first`, by the last requests
    std::uint64_t since = 0;              // requests since its beginning came
    bool any = false;      // has requests of any size: its steps are told between marks only
    bool lost = false;     // and this step is none of them
    bool on_way = false;   // is in on_way_
    bool refused = false;  // its plan cannot be had
    [[nodiscard]] bool begun() const noexcept { return !any && matched == first.size(); }
    [[nodiscard]] bool ends_here() const noexcept {
      return any ? !lost && since == requests : begun() || (matched >= requests && off_by() == 0);
    }
    [[nodiscard]] std::uint64_t off_by() const noexcept;
  };

  // Where a path begins.
  struct Start {
    LaneKey lane = 0;
    Bytes bytes = 0;
    std::uint32_t path = 0;
  };

  static void find_fallbacks(Path& path);
  void find_starts();
  void follow(Path& path, Bytes bytes) noexcept;
  static void follow_any(Path& path, Bytes bytes) noexcept;
  void choose_surely() noexcept;
  template <class Eligible>
  void choose(const Eligible& eligible) noexcept;

  std::vector<PlanFolder::Found> plans_;
  std::vector<Path> paths_;
  std::vector<Start> starts_;  // of paths without requests of any size, sorted
  // Paths that any request matters to: some of the beginning came, or, where requests have any
  // size, all of this step.
  std::vector<std::uint32_t> on_way_;
  std::size_t begun_ = 0;  // paths
  std::size_t found_ = kNone;
  std::uint64_t heard_ = 0;
  bool over_ = false;
};

}  // namespace berth
