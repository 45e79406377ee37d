#include "csrc/place/problem/time_index.h"

#include <algorithm>
#include <bit>
#include <tuple>

namespace berth::place {

TimeIndex::TimeIndex(const Conflicts& conflicts, std::vector<Index> buffers)
    : conflicts_(conflicts) {
  pieces_.reserve(buffers.size());
  for (const Index i : buffers) {
    const Lifetime& life = conflicts.lifetime(i);
    pieces_.push_back({life.birth, life.end, i, true});
    if (life.wrapped > 0) pieces_.push_back({0, life.wrapped, i, false});
  }
  std::sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.first, a.buffer) < std::tie(b.first, b.buffer);
  });
  leaves_ = std::bit_ceil(std::max<std::size_t>(pieces_.size(), 1));
  nodes_.resize(2 * leaves_);
}

std::size_t TimeIndex::first_at(std::uint64_t tick) const noexcept {
  const auto it = std::partition_point(pieces_.begin(), pieces_.end(),
                                       [&](const Piece& piece) { return piece.first < tick; });
  return static_cast<std::size_t>(it - pieces_.begin());
}

void TimeIndex::add_piece(std::uint64_t first, std::uint64_t last, Index i) {
  const auto it = std::partition_point(pieces_.begin(), pieces_.end(), [&](const Piece& piece) {
    return std::tie(piece.first, piece.buffer) < std::tie(first, i);
  });
  const auto own = static_cast<std::size_t>(it - pieces_.begin());
  pieces_[own].added = true;
  // A leaf stands for the time from its birth to the next one's. A query that begins at its tick
  // finds births at that tick by itself, and stabs the leaf before.
  std::size_t lo = own + leaves_, hi = first_at(last) + leaves_;
  for (; lo < hi; lo /= 2, hi /= 2) {
    if (lo % 2 == 1) nodes_[lo++].push_back({last, i});
    if (hi % 2 == 1) nodes_[--hi].push_back({last, i});
  }
}

void TimeIndex::add(Index i) {
  const Lifetime& life = conflicts_.lifetime(i);
  add_piece(life.birth, life.end, i);
  if (life.wrapped > 0) add_piece(0, life.wrapped, i);
}

void TimeIndex::clear() noexcept {
  for (Piece& piece : pieces_) piece.added = false;
  for (auto& node : nodes_) node.clear();
}

}  // namespace berth::place
