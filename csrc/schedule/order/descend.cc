#include "csrc/schedule/order/search.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace berth::schedule {
namespace {

constexpr std::size_t kHotSteps = 6;
// The target lies this far below the peak, so that a move that lowers one of several steps counts.
constexpr Bytes kTargetPart = 200;

// The steps with the most alive, most first.
std::vector<std::uint32_t> hot_steps(const WorkingOrder& order) {
  std::vector<std::uint32_t> steps(order.order().size());
  std::iota(steps.begin(), steps.end(), 0U);
  const std::size_t count = std::min(kHotSteps, steps.size());
  std::partial_sort(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(count), steps.end(),
                    [&](std::uint32_t a, std::uint32_t b) {
                      return order.live(a) != order.live(b) ? order.live(a) > order.live(b) : a < b;
                    });
  steps.resize(count);
  return steps;
}

// Runs the cut's nodes of the window, then v, then the others, each as they were. Whether that
// lowered the area.
bool cut_move(MinCut& cuts, WorkingOrder& order, std::uint32_t step, std::uint32_t reach,
              MinCut::Side side) {
  const auto size = static_cast<std::uint32_t>(order.order().size());
  const Node v = order.order()[step];
  const std::uint32_t first = step > reach ? step - reach : 0;
  const std::uint32_t last = std::min(step + reach, size - 1);
  if (cuts.live(v, order.positions(), first, last, side) >= order.live(step)) return false;
  std::vector<Node> window, later;
  for (std::uint32_t k = first; k <= last; ++k) {
    const Node node = order.order()[k];
    if (node != v) (cuts.executed(node) ? window : later).push_back(node);
  }
  window.push_back(v);
  window.insert(window.end(), later.begin(), later.end());
  if (order.price(first, window) >= 0) return false;
  order.accept(first, window);
  return true;
}

}  // namespace

bool descend_once(MinCut& cuts, WorkingOrder& order, const SearchLimits& limits) {
  const auto size = static_cast<std::uint32_t>(order.order().size());
  const std::array<std::uint32_t, 4> reaches = {size, size / 4, size / 16, 40};
  for (const std::uint32_t step : hot_steps(order)) {
    for (const std::uint32_t reach : reaches) {
      for (const MinCut::Side side : {MinCut::Side::kLeast, MinCut::Side::kLargest}) {
        if (limits.stop()) return false;
        if (cut_move(cuts, order, step, std::max(reach, 1U), side)) return true;
      }
    }
  }
  return false;
}

std::uint64_t descend(MinCut& cuts, WorkingOrder& order, const SearchLimits& limits) {
  std::uint64_t moves = 0;
  while (moves < limits.moves) {
    order.set_target(order.peak() - order.peak() / kTargetPart);
    if (!descend_once(cuts, order, limits)) break;
    ++moves;
  }
  return moves;
}

}  // namespace berth::schedule
