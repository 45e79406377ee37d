#pragma once

#include "csrc/place/problem/conflicts.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace berth::place {

// The conflicts of a problem written out. Immutable once built, so threads share one. Memory is 4
// bytes a conflict and end.
class ConflictGraph {
 public:
  // Pairs beyond this many (256 MB) are not written out.
  static constexpr std::size_t kMaxPairs = std::size_t{1} << 25;

  // Nothing where there are more than `most` pairs.
  [[nodiscard]] static std::optional<ConflictGraph> make(const Conflicts& conflicts,
                                                         std::size_t most = kMaxPairs);

  [[nodiscard]] const Conflicts& conflicts() const noexcept { return *conflicts_; }
  [[nodiscard]] std::size_t size() const noexcept { return firsts_.size() - 1; }
  [[nodiscard]] std::span<const Index> of(Index i) const noexcept {
    return {neighbours_.data() + firsts_[i], firsts_[i + 1] - firsts_[i]};
  }

 private:
  explicit ConflictGraph(const Conflicts& conflicts) : conflicts_(&conflicts) {}

  const Conflicts* conflicts_;
  std::vector<std::size_t> firsts_;
  std::vector<Index> neighbours_;
};

}  // namespace berth::place
