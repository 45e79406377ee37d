#include "csrc/runtime/aligner.h"

#include <algorithm>

namespace berth {

void Aligner::start(std::uint32_t next, std::uint32_t path_size) noexcept {
  size_ = path_size;
  best_ = next;
  low_ = best_ - kReach;
  // Requests before `next` were served: to expect one again means that it was wrong to skip it.
  for (std::size_t i = 0; i < kWidth; ++i) {
    const std::int64_t position = low_ + static_cast<std::int64_t>(i);
    row_[i] = position < best_ ? kFar : static_cast<std::uint16_t>(position - best_);
  }
  run_ = 0;
  misses_ = 0;
}

std::optional<std::uint32_t> Aligner::feed(Bytes requested, const PlanLookup& lookup,
                                           const Path& path) noexcept {
  // Positions further apart than one turn of the circle would be the same slot twice.
  const std::size_t width =
      std::min<std::size_t>(kWidth, kReach + 1 + std::min<std::uint32_t>(kReach, size_));
  std::array<std::uint16_t, kWidth> row;
  row.fill(kFar);
  std::array<bool, kWidth> matched{};
  for (std::size_t i = 0; i < width; ++i) {
    std::uint16_t cost =
        static_cast<std::uint16_t>(std::min<unsigned>(row_[i] + 1u, kFar));  // an inserted request
    if (i > 0) {
      const PlanLookup::SlotIndex slot = path.slot(wrap(low_ + static_cast<std::int64_t>(i) - 1));
      const bool equal = lookup.entry(slot).requested == requested || lookup.is_bucket(slot);
      const std::uint16_t diagonal = static_cast<std::uint16_t>(row_[i - 1] + (equal ? 0u : 1u));
      if (diagonal < cost || (equal && diagonal == cost)) {
        cost = diagonal;
        matched[i] = equal;
      }
      if (row[i - 1] + 1u < cost) {  // a removed one
        cost = static_cast<std::uint16_t>(row[i - 1] + 1u);
        matched[i] = false;
      }
    }
    row[i] = cost;
  }
  const std::uint16_t least =
      *std::min_element(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(width));
  // Of the cheapest explanations, one that serves the request; of those, the one nearest to what
  // was expected.
  std::optional<std::size_t> serve;
  std::size_t stay = 0;
  const auto expected = best_ + 1 - low_;
  for (std::size_t i = 0; i < width; ++i) {
    if (row[i] != least) continue;
    if (matched[i] && (!serve || std::abs(static_cast<std::int64_t>(i) - expected) <
                                     std::abs(static_cast<std::int64_t>(*serve) - expected))) {
      serve = i;
    }
    if (row[stay] != least) stay = i;
  }
  const std::int64_t previous = best_;
  best_ = low_ + static_cast<std::int64_t>(serve.value_or(stay));
  run_ = serve ? (best_ == previous + 1 ? run_ + 1 : 1) : 0;
  if (!serve) ++misses_;

  // Costs count from the cheapest, and the row follows the best position.
  const std::int64_t low = best_ - kReach;
  for (std::size_t i = 0; i < kWidth; ++i) {
    const std::int64_t from = low + static_cast<std::int64_t>(i) - low_;
    row_[i] = from >= 0 && from < static_cast<std::int64_t>(width)
                  ? static_cast<std::uint16_t>(row[static_cast<std::size_t>(from)] - least)
                  : kFar;
  }
  // What lies ahead of the old row can be reached by skipping.
  for (std::size_t i = 1; i < kWidth; ++i) {
    row_[i] = std::min<std::uint16_t>(row_[i], static_cast<std::uint16_t>(row_[i - 1] + 1u));
  }
  low_ = low;
  if (!serve) return std::nullopt;
  return wrap(best_ - 1);
}

}  // namespace berth
