#pragma once

#include "csrc/core/bytes.h"
#include "csrc/plan/lookup.h"
#include "csrc/runtime/path.h"

#include <array>
#include <cstdint>
#include <optional>

namespace berth {

// Finds again where a stream of requests is in the plan, after one came that the plan did not
// expect.
//
// An inserted, removed, resized or swapped request is told apart by what follows it: the aligner
// keeps, for each position within kReach of the last one that was sure, the least number of edits
// (requests inserted, removed or resized) that explains what came since: one row of the edit
// distance (Wagner and Fischer 1974), moved on with each request, O(kReach) a request. A request is
// served at the position that matches it with the fewest edits. When kSettled requests in a row
// matched one after the other, the position is sure again. A slot of a bucket matches any size: in
// such a step the requests that are the same always tell where it is.
//
// Positions are indices of a Path, modulo its size. Holds no reference to the path; callers pass
// the same one until the next start().
class Aligner {
 public:
  static constexpr std::uint32_t kReach = 16;
  static constexpr std::uint32_t kSettled = 4;
  // So many misses without settling: the plan does not describe this part of the run.
  static constexpr std::uint32_t kGiveUp = 24;

  // The next request expected was the one at `next`.
  void start(std::uint32_t next, std::uint32_t path_size) noexcept;

  // Takes the next request. Returns the index to serve it at, or nothing for a miss.
  [[nodiscard]] std::optional<std::uint32_t> feed(Bytes requested, const PlanLookup& lookup,
                                                  const Path& path) noexcept;

  // The index that the next request most likely has.
  [[nodiscard]] std::uint32_t next() const noexcept { return wrap(best_); }
  [[nodiscard]] bool settled() const noexcept { return run_ >= kSettled; }
  [[nodiscard]] bool lost() const noexcept { return misses_ >= kGiveUp; }

 private:
  static constexpr std::size_t kWidth = 2 * kReach + 1;
  static constexpr std::uint16_t kFar = 1000;

  [[nodiscard]] std::uint32_t wrap(std::int64_t position) const noexcept {
    const std::int64_t n = size_;
    return static_cast<std::uint32_t>(((position % n) + n) % n);
  }

  std::uint32_t size_ = 1;
  std::int64_t low_ = 0;  // position of row_[0]
  std::int64_t best_ = 0;
  std::array<std::uint16_t, kWidth> row_{};  // edits, if the next request is the one at low_ + i
  std::uint32_t run_ = 0;
  std::uint32_t misses_ = 0;
};

}  // namespace berth
