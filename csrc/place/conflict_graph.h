#pragma once

#include "csrc/place/budget.h"
#include "csrc/place/conflicts.h"
#include "csrc/place/first_fit.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::packing {

// The conflicts of a problem written out, and first fit on them: what FirstFit does, many times
// faster where it is run again and again. Immutable once built, so threads share one.
//
// Memory is 4 bytes a conflict and end; a run is O(conflicts log n).
class ConflictGraph {
 public:
  // Pairs beyond this many (256 MB) are not written out.
  static constexpr std::size_t kMaxPairs = std::size_t{1} << 25;

  // Nothing where there are more than `most` pairs.
  [[nodiscard]] static std::optional<ConflictGraph> make(const Conflicts& conflicts,
                                                         std::size_t most = kMaxPairs);

  [[nodiscard]] std::size_t size() const noexcept { return firsts_.size() - 1; }
  [[nodiscard]] std::span<const Index> of(Index i) const noexcept {
    return {neighbours_.data() + firsts_[i], firsts_[i + 1] - firsts_[i]};
  }

  // Offsets of all buffers, placed one by one in the order given, pins first, each into the lowest
  // hole; nothing where the mark would not stay below `below`, or the budget (may be null) ends.
  [[nodiscard]] std::optional<std::vector<Bytes>> first_fit(std::span<const Index> order,
                                                            Bytes below,
                                                            const Budget* budget) const;

 private:
  explicit ConflictGraph(const Conflicts& conflicts) : conflicts_(&conflicts) {}

  const Conflicts* conflicts_;
  std::vector<std::size_t> firsts_;
  std::vector<Index> neighbours_;
};

}  // namespace berth::packing
