#include "csrc/place/fits/pyramid.h"

#include <algorithm>
#include <cstdint>

namespace berth::place {

std::vector<Index> pyramid(const Conflicts& conflicts) {
  const Problem& problem = conflicts.problem();
  if (problem.lanes.size() > 1 || conflicts.has_branches()) return {};
  std::vector<Index> by_length;
  for (Index i = 0; i < conflicts.size(); ++i) {
    if (!problem.buffers[i].pinned) by_length.push_back(i);
  }
  std::stable_sort(by_length.begin(), by_length.end(), [&](Index i, Index j) {
    return problem.buffers[i].length > problem.buffers[j].length;
  });
  // What lies outside the last also lies outside all that come later: once through is enough.
  std::vector<Index> result;
  const std::uint64_t period = problem.lanes[0].period;
  for (const Index i : by_length) {
    if (!result.empty()) {
      const Buffer &outer = problem.buffers[result.back()], &inner = problem.buffers[i];
      const std::uint64_t birth = inner.birth >= outer.birth ? inner.birth : inner.birth + period;
      const bool around = period != 0 && outer.length == period;
      if (!around && (birth < outer.birth || birth - outer.birth + inner.length > outer.length))
        continue;
    }
    result.push_back(i);
  }
  return result;
}

std::vector<Index> pyramid_order(const Conflicts& conflicts, const FirstFit& first_fit) {
  std::vector<Index> order = pyramid(conflicts);
  std::vector<bool> taken(conflicts.size(), false);
  for (const Index i : order) taken[i] = true;
  for (const Index i : first_fit.sorted(Order::kSize, {})) {
    if (!taken[i]) order.push_back(i);
  }
  return order;
}

}  // namespace berth::place
