#include "csrc/runtime/path.h"

#include <algorithm>

namespace berth {

Path::Path(const PlanLookup& lookup, std::uint32_t sequence) {
  const Plan& plan = lookup.plan();
  std::vector<std::uint32_t> line;  // of ancestors, and this one
  for (std::int64_t s = sequence; s >= 0; s = plan.sequences[static_cast<std::size_t>(s)].parent) {
    line.push_back(static_cast<std::uint32_t>(s));
  }
  std::reverse(line.begin(), line.end());
  for (std::size_t i = 0; i < line.size(); ++i) {
    const Sequence& own = plan.sequences[line[i]];
    std::uint32_t count = static_cast<std::uint32_t>(own.slots.size());
    // Only what comes before the fork.
    if (i + 1 < line.size()) count = std::min(count, plan.sequences[line[i + 1]].fork - own.fork);
    if (count == 0) continue;
    sequences_.push_back(line[i]);
    segments_.push_back({size_, lookup.first_slot(line[i]), count});
    size_ += count;
  }
  if (segments_.empty()) {
    sequences_.push_back(sequence);
    segments_.push_back({0, lookup.first_slot(sequence), 0});
  }
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

void Path::find_covered(const PlanLookup& lookup) {
  std::vector<ByteRange> ranges;
  for (std::uint32_t i = 0; i < size_; ++i) {
    const PlanLookup::Entry& entry = lookup.entry(slot(i));
    if (entry.cell == PlanLookup::kNone) continue;
    const Bytes size = align_up(entry.requested, lookup.plan().alignment);
    ranges.push_back({entry.offset, entry.offset + size});
  }
  std::sort(ranges.begin(), ranges.end(),
            [](ByteRange a, ByteRange b) { return a.first < b.first; });
  for (const ByteRange range : ranges) {
    if (covered_.empty() || range.first > covered_.back().last) {
      covered_.push_back(range);
    } else {
      covered_.back().last = std::max(covered_.back().last, range.last);
    }
  }
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
