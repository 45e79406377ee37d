#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/plan/lookup.h"

#include <cstdint>
#include <vector>

namespace berth {

// One request of one path. Good for that path alone: whoever holds one while the lane goes over to
// another path has nothing (Walk looks at `sequence` before it uses `index`).
struct PathPlace {
  std::uint32_t sequence = 0;
  std::uint32_t index = 0;
};

// The slots of one sequence with those of the prefixes that it shares with its ancestors, in the
// order in which a step makes its requests: index 0 is the first request of the step.
class Path {
 public:
  using SlotIndex = PlanLookup::SlotIndex;

  Path(const PlanLookup& lookup, std::uint32_t sequence);

  [[nodiscard]] std::uint32_t size() const noexcept { return size_; }
  [[nodiscard]] SlotIndex slot(std::uint32_t index) const noexcept {
    std::size_t i = segments_.size() - 1;
    while (segments_[i].index > index) --i;
    return segments_[i].first + (index - segments_[i].index);
  }
  // The index of a slot, or size() where it is not on the path.
  [[nodiscard]] std::uint32_t index(SlotIndex slot) const noexcept;
  // One past the last slot that follows `slot` without a gap in numbering.
  [[nodiscard]] SlotIndex run_end(std::uint32_t index) const noexcept;
  // Sequences that have slots on the path, root first.
  [[nodiscard]] const std::vector<std::uint32_t>& sequences() const noexcept { return sequences_; }
  // The bytes of its slots, ascending and disjoint. Where paths are very long altogether
  // (kMostCovered slots) this is empty.
  [[nodiscard]] const std::vector<ByteRange>& covered() const noexcept { return covered_; }
  void find_covered(const PlanLookup& lookup);
  static constexpr std::size_t kMostCovered = std::size_t{1} << 22;
  // Indices before which a step mark is expected, ascending; 0 stands for the end of the path, too.
  [[nodiscard]] const std::vector<std::uint32_t>& marks() const noexcept { return marks_; }

 private:
  struct Segment {
    std::uint32_t index = 0;
    SlotIndex first = 0;
    std::uint32_t count = 0;
  };
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> sequences_;
  std::vector<std::uint32_t> marks_;
  std::vector<ByteRange> covered_;
  std::uint32_t size_ = 0;
};

}  // namespace berth
