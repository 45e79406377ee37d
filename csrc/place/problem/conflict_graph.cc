#include "csrc/place/problem/conflict_graph.h"

#include "csrc/place/problem/conflict_index.h"

#include <algorithm>

namespace berth::place {

std::optional<ConflictGraph> ConflictGraph::make(const Conflicts& conflicts, std::size_t most) {
  const auto count = static_cast<Index>(conflicts.size());
  // Half of each buffer's conflicts: with those added before.
  ConflictIndex index(conflicts);
  std::vector<std::size_t> half_firsts{0};
  std::vector<Index> half;
  const bool groups = conflicts.lanes().group_count() > 1;
  for (Index i = 0; i < count; ++i) {
    const auto first = static_cast<std::ptrdiff_t>(half.size());
    index.for_each(i, [&](Index j) { half.push_back(j); });
    if (groups) {
      for (Index j = 0; j < i; ++j) {
        if (conflicts.group(i) != conflicts.group(j)) half.push_back(j);
      }
    }
    std::sort(half.begin() + first, half.end());
    half.erase(std::unique(half.begin() + first, half.end()), half.end());
    if (half.size() > most) return std::nullopt;
    half_firsts.push_back(half.size());
    index.add(i);
  }
  ConflictGraph graph(conflicts);
  std::vector<std::size_t>& firsts = graph.firsts_;
  firsts.assign(std::size_t{count} + 1, 0);
  for (Index i = 0; i < count; ++i) {
    firsts[i + 1] += half_firsts[i + 1] - half_firsts[i];
    for (std::size_t k = half_firsts[i]; k < half_firsts[i + 1]; ++k) ++firsts[half[k] + 1];
  }
  for (Index i = 0; i < count; ++i) firsts[i + 1] += firsts[i];
  graph.neighbours_.resize(firsts.back());
  std::vector<std::size_t> next(firsts.begin(), firsts.end() - 1);
  for (Index i = 0; i < count; ++i) {
    for (std::size_t k = half_firsts[i]; k < half_firsts[i + 1]; ++k) {
      graph.neighbours_[next[i]++] = half[k];
      graph.neighbours_[next[half[k]]++] = i;
    }
  }
  return graph;
}

}  // namespace berth::place
