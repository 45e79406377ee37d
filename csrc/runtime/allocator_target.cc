// How much memory should be held beside what lives.

#include "csrc/runtime/allocator_state.h"

#include <algorithm>

namespace berth {
namespace {

// Beyond the peak of live bytes memory is asked for without a look at what the plan could spare up
// to this: the part below, and a page for each end of the pool; with a plan the larger of both. The
// part is small where a plan misses often, since little of what it spares would have been a hit.
constexpr Bytes kSlackPart = 128, kLeastSlackPart = 2048, kSlackPages = 2;
// Beyond the peak of live bytes memory is scarce from here on: the part below, and so many pages.
// With fewer pages beside little that lives, streams would wait for each other instead. Where no
// stream waits for another, the pages are at most a part of what lives, and no fewer than the last
// figure.
constexpr Bytes kTargetPart = 128, kTargetPages = 4, kPagesPart = 8, kLeastPages = 2;

}  // namespace

Bytes Allocator::State::live_with(Bytes asked) const noexcept {
  return std::max({counters.live_peak, counters.live + rounded(asked), foretold_live});
}

Bytes Allocator::State::allowance(Bytes asked) const noexcept {
  const Bytes live = live_with(asked);
  return std::max(std::min(store.peak(), target(asked)), live + slack(live));
}

Bytes Allocator::State::target(Bytes asked) const noexcept {
  const DeviceProperties& properties = device.properties();
  const Bytes live = live_with(asked);
  const Bytes page = properties.page_bytes;
  // mutant: target-pages
  const bool few = pool.lanes() < 2 && pool.stats().waiting == 0;
  const Bytes part = few ? live / kPagesPart : kMaxBytes;
  const Bytes pages = std::clamp(part, kLeastPages * page, kTargetPages * page);
  const Bytes wanted = live + live / kTargetPart + pages;
  if (properties.aliases) return wanted;
  // Only what plans add to what is held counts.
  const bool planned = made_room || arena.committed() != 0;
  // mutant: plain-target
  return planned ? std::max(store.peak(), wanted) : 0;
}

bool Allocator::State::pool_has_target() const noexcept {
  const DeviceProperties& properties = device.properties();
  return properties.maps_pages && !properties.aliases;
}

// What is not worth a search beside so much that lives.
Bytes Allocator::State::slack(Bytes live) const noexcept {
  const Bytes pages = kSlackPages * device.properties().page_bytes;
  if (!arena.plan()) return live / kSlackPart + pages;
  // mutant: slack-misses
  return std::max(live / (hit_share.is_high() ? kSlackPart : kLeastSlackPart), pages);
}

}  // namespace berth
