#include "csrc/runtime/path_order.h"

#include <algorithm>
#include <numeric>

namespace berth {
namespace {

class Comparison {
 public:
  Comparison(const PlanLookup& lookup, const std::vector<Path>& paths)
      : lookup_(lookup), sequences_(lookup.plan().sequences), paths_(paths) {}

  // How many first requests are alike.
  [[nodiscard]] std::uint32_t alike(std::uint32_t a, std::uint32_t b) const noexcept {
    const std::uint32_t end = std::min(paths_[a].size(), paths_[b].size());
    std::uint32_t index = std::min(end, parting(a, b));
    while (index < end && size(a, index) == size(b, index)) ++index;
    return index;
  }
  [[nodiscard]] bool less(std::uint32_t a, std::uint32_t b) const noexcept {
    if (sequences_[a].lane != sequences_[b].lane) return sequences_[a].lane < sequences_[b].lane;
    const std::uint32_t index = alike(a, b);
    const bool a_ends = index == paths_[a].size(), b_ends = index == paths_[b].size();
    if (a_ends || b_ends) return a_ends && !b_ends;
    return size(a, index) < size(b, index);
  }

 private:
  // Buckets are alike, whatever they have room for.
  [[nodiscard]] Bytes size(std::uint32_t sequence, std::uint32_t index) const noexcept {
    const PlanLookup::SlotIndex slot = paths_[sequence].slot(index);
    return lookup_.is_bucket(slot) ? ~Bytes{0} : lookup_.entry(slot).requested;
  }
  // The tick up to which two paths of one lane have the same slots.
  [[nodiscard]] std::uint32_t parting(std::uint32_t a, std::uint32_t b) const noexcept {
    std::uint32_t fork = ~std::uint32_t{0};
    while (a != b) {
      std::uint32_t& later = a > b ? a : b;
      if (sequences_[later].parent < 0) return 0;
      fork = std::min(fork, sequences_[later].fork);
      later = static_cast<std::uint32_t>(sequences_[later].parent);
    }
    return fork;
  }

  const PlanLookup& lookup_;
  const std::vector<Sequence>& sequences_;
  const std::vector<Path>& paths_;
};

}  // namespace

PathOrder::PathOrder(const PlanLookup& lookup, const std::vector<Path>& paths)
    : order_(paths.size()), place_(paths.size()), alike_(paths.size(), 0) {
  const Comparison comparison(lookup, paths);
  std::iota(order_.begin(), order_.end(), 0);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return comparison.less(a, b); });
  const std::vector<Sequence>& sequences = lookup.plan().sequences;
  for (std::uint32_t at = 0; at < order_.size(); ++at) {
    place_[order_[at]] = at;
    if (at > 0 && sequences[order_[at]].lane == sequences[order_[at - 1]].lane)
      alike_[at] = 1 + comparison.alike(order_[at - 1], order_[at]);
  }
}

}  // namespace berth
