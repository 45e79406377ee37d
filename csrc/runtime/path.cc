#include "csrc/runtime/path.h"

#include <algorithm>

namespace berth {

Path::Path(const PlanLookup& lookup, std::uint32_t sequence) {
  const Plan& plan = lookup.plan();
  for (std::int64_t s = sequence; s >= 0; s = plan.sequences[static_cast<std::size_t>(s)].parent) {
    sequences_.push_back(static_cast<std::uint32_t>(s));
  }
  std::reverse(sequences_.begin(), sequences_.end());
  for (std::size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& own = plan.sequences[sequences_[i]];
    std::uint32_t count = static_cast<std::uint32_t>(own.slots.size());
    if (i + 1 < sequences_.size()) {
      // Only what comes before the fork.
      const std::uint32_t fork = plan.sequences[sequences_[i + 1]].fork;
      const auto cut =
          std::lower_bound(own.slots.begin(), own.slots.end(), fork,
                           [](const Slot& slot, std::uint32_t tick) { return slot.birth < tick; });
      count = static_cast<std::uint32_t>(cut - own.slots.begin());
    }
    if (count == 0 && sequences_.size() > 1) continue;
    segments_.push_back({size_, lookup.first_slot(sequences_[i]), count});
    size_ += count;
  }
  if (segments_.empty()) segments_.push_back({0, lookup.first_slot(sequence), 0});
  for (const std::uint32_t tick : plan.sequences[sequence].marks) {
    // The first slot that is born at the mark's tick or later.
    std::uint32_t low = 0, high = size_;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (lookup.entry(slot(middle)).birth < tick) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    marks_.push_back(low == size_ ? 0 : low);
  }
  std::sort(marks_.begin(), marks_.end());
  marks_.erase(std::unique(marks_.begin(), marks_.end()), marks_.end());
}

std::uint32_t Path::index(SlotIndex slot) const noexcept {
  for (const Segment& segment : segments_) {
    if (slot >= segment.first && slot < segment.first + segment.count)
      return segment.index + (slot - segment.first);
  }
  return size_;
}

Path::SlotIndex Path::run_end(std::uint32_t index) const noexcept {
  for (const Segment& segment : segments_) {
    if (index < segment.index + segment.count) return segment.first + segment.count;
  }
  return segments_.back().first + segments_.back().count;
}

}  // namespace berth
