#pragma once

#include "csrc/place/problem/conflicts.h"

#include <cstdint>
#include <vector>

namespace berth::place {

// The placed buffers of one lane, by time: finds those whose ticks intersect a buffer's.
//
// A segment tree over the births holds each lifetime at the nodes it covers; a query is a stab at
// its first tick and the births behind that. What wraps around is held as two lifetimes. Building
// is O(n log n), adding O(log n), a query O(log n + births in its span + answers). Branches are not
// looked at: the answers are a superset, each at most four times.
class TimeIndex {
 public:
  TimeIndex(const Conflicts& conflicts, std::vector<Index> buffers);

  void add(Index i);
  void clear() noexcept;

  // Calls `visit` with the added buffers that may live together with `i`, a buffer of the lane.
  template <class Visit>
  void for_each_near(Index i, Visit&& visit) const {
    const Lifetime& life = conflicts_.lifetime(i);
    query(life.birth, life.end, visit);
    if (life.wrapped > 0) query(0, life.wrapped, visit);
  }
  // The same for those that may live at some tick of [first, last).
  template <class Visit>
  void for_each_in(std::uint64_t first, std::uint64_t last, Visit&& visit) const {
    if (first < last) query(first, last, visit);
  }
  // Calls `visit` with all that were added.
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const Piece& piece : pieces_) {
      if (piece.added && piece.own) visit(piece.buffer);
    }
  }

 private:
  struct Piece {
    std::uint64_t first, last;
    Index buffer;
    bool own;  // the piece that starts at the birth
    bool added = false;
  };
  [[nodiscard]] std::size_t first_at(std::uint64_t tick) const noexcept;
  void add_piece(std::uint64_t first, std::uint64_t last, Index i);

  template <class Visit>
  void query(std::uint64_t first, std::uint64_t last, Visit& visit) const {
    // Lifetimes that were alive before `first`'s leaf, then those born in the span.
    const std::size_t begin = first_at(first);
    if (begin > 0) {
      for (std::size_t node = begin - 1 + leaves_; node > 0; node /= 2) {
        for (const Stab& stab : nodes_[node]) {
          if (stab.last > first) visit(stab.buffer);
        }
      }
    }
    for (std::size_t p = begin; p < pieces_.size() && pieces_[p].first < last; ++p) {
      if (pieces_[p].added) visit(pieces_[p].buffer);
    }
  }

  struct Stab {
    std::uint64_t last;
    Index buffer;
  };
  const Conflicts& conflicts_;
  std::vector<Piece> pieces_;  // by first tick: the leaves
  std::size_t leaves_ = 1;
  std::vector<std::vector<Stab>> nodes_;
};

}  // namespace berth::place
