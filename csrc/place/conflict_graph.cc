#include "csrc/place/conflict_graph.h"

#include "csrc/core/bytes.h"
#include "csrc/place/conflict_index.h"

#include <algorithm>
#include <limits>

namespace berth::packing {

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

std::optional<std::vector<Bytes>> ConflictGraph::first_fit(std::span<const Index> order,
                                                           Bytes below,
                                                           const Budget* budget) const {
  constexpr Bytes kNowhere = std::numeric_limits<Bytes>::max();
  const auto& buffers = conflicts_->problem().buffers;
  std::vector<Bytes> offsets(size(), kNowhere);
  for (Index i = 0; i < size(); ++i) {
    if (!buffers[i].pinned) continue;
    offsets[i] = *buffers[i].pinned;
    if (offsets[i] + conflicts_->bytes(i) >= below) return std::nullopt;
  }
  struct Span {
    Bytes first, last;
  };
  std::vector<Span> spans;
  std::uint32_t rounds = 0;
  for (const Index i : order) {
    if (buffers[i].pinned) continue;
    if (budget != nullptr && ++rounds % 64 == 0 && budget->expired()) return std::nullopt;
    spans.clear();
    for (const Index j : of(i)) {
      if (offsets[j] != kNowhere) spans.push_back({offsets[j], offsets[j] + conflicts_->bytes(j)});
    }
    std::sort(spans.begin(), spans.end(), [](Span a, Span b) { return a.first < b.first; });
    const Bytes size = conflicts_->bytes(i), unit = conflicts_->unit(i);
    Bytes at = 0;
    for (const Span span : spans) {
      if (span.first >= at + size) break;
      if (span.last > at) at = align_up(span.last, unit);
    }
    if (at + size >= below) return std::nullopt;
    offsets[i] = at;
  }
  return offsets;
}

}  // namespace berth::packing
