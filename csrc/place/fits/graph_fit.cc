#include "csrc/place/fits/graph_fit.h"

#include "csrc/core/bytes.h"

#include <algorithm>
#include <limits>

namespace berth::place {

std::optional<std::vector<Bytes>> first_fit(const ConflictGraph& graph,
                                            std::span<const Index> order, Bytes below,
                                            const Budget* budget) {
  constexpr Bytes kNowhere = std::numeric_limits<Bytes>::max();
  const Conflicts& conflicts = graph.conflicts();
  const auto& buffers = conflicts.problem().buffers;
  std::vector<Bytes> offsets(graph.size(), kNowhere);
  for (Index i = 0; i < graph.size(); ++i) {
    if (!buffers[i].pinned) continue;
    offsets[i] = *buffers[i].pinned;
    if (offsets[i] + conflicts.bytes(i) >= below) return std::nullopt;
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
    for (const Index j : graph.of(i)) {
      if (offsets[j] != kNowhere) spans.push_back({offsets[j], offsets[j] + conflicts.bytes(j)});
    }
    std::sort(spans.begin(), spans.end(), [](Span a, Span b) { return a.first < b.first; });
    const Bytes size = conflicts.bytes(i), unit = conflicts.unit(i);
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

}  // namespace berth::place
