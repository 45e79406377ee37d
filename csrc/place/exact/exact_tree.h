#pragma once

#include "csrc/place/dives/dive.h"
#include "csrc/place/exact/exact_part.h"
#include "csrc/place/problem/budget.h"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::place {

enum class Answer { kFits, kRefuted, kOpen };

// Depth-first search for a placement of one part below its capacity.
//
// Of all placements that fit, one has the least sum of offsets; in it no buffer alone can be put
// lower. The search finds that one, placing buffers in the order of their offsets, each at `low`:
// on what lies below it. `Passed` buffers are those that it was decided not to put at their low:
// something must still lift them, and it must start below their would-be top. A node is refuted
// where that cannot be, or where the unplaced buffers of a section do not fit above the lowest of
// them. Where nothing unplaced crosses a cut, both sides are searched one after the other.
//
// Sound whatever the ranks: what is decided about a buffer is kept with it. Failed states are
// compared whole. Depth is on an explicit stack; a node is undone from the copy that its parent
// keeps, with all that was solved below it. Memory O(n^2). One thread at a time.
class ExactTree {
 public:
  using Value = ExactPart::Value;

  // The part must outlive the tree.
  ExactTree(const ExactPart& part, const ExactRules& rules);

  // Begins at the root, with this order among equal offsets, scaled by noise as in a dive. What was
  // refuted before is still known.
  void start(Rank rank, double noise, std::uint64_t seed);
  // Goes on with what was started. `nodes` is what it may use, and what is left of it. kOpen: the
  // nodes or the budget (may be null) ended first.
  [[nodiscard]] Answer run(std::uint64_t& nodes, const Budget* budget);

  // Offsets of the part's items after kFits.
  [[nodiscard]] const std::vector<Value>& offsets() const noexcept { return offsets_; }

 private:
  static constexpr Value kPlaced = Value{1} << 62;  // low of what is placed
  using Index32 = std::uint32_t;
  // Items that hang together, by first section; on sections [begin, end), counted on over a seam.
  struct Piece {
    std::size_t items = 0;  // in items_
    std::uint32_t count = 0;
    std::uint32_t begin = 0, end = 0;
    bool ring = false;  // not cut yet
  };
  struct Frame {
    Piece piece;
    std::size_t saved_items = 0, saved_sections = 0;  // in the copies
    std::size_t candidates = 0;
    std::uint32_t candidate_count = 0, next_candidate = 0;
    std::size_t pieces = 0;
    std::uint32_t piece_count = 0, next_piece = 0;
    std::size_t items_end = 0;
    std::uint64_t nodes = 0;  // used below it
  };
  struct Saved {
    Value low;
    std::uint8_t passed;
  };
  struct Section {
    Value floor = 0;         // nothing unplaced starts lower
    Value need = 0;          // unplaced bytes, and walls above the floor
    std::uint32_t wall = 0;  // the next, of the section's
  };

  void set_ranks(const Piece& piece);
  bool enter(const Piece& piece);
  void save(const Frame& frame);
  void restore(const Frame& frame);
  bool place(Frame& frame, Index32 i);
  bool pass(Frame& frame, Index32 i);
  bool tighten(const Index32* items, std::uint32_t count, const Piece& piece);
  bool lift_floors(const Piece& piece);
  void split(Frame& frame);
  bool try_candidates(Frame& frame);
  std::optional<bool> next_piece();
  void leave(bool solved);
  bool knows_failed(const Piece& piece);
  void remember_failed(const Piece& piece);
  void make_key(const Piece& piece);
  [[nodiscard]] Value fit(Index32 i, Value low) const noexcept;
  template <class Visit>
  void for_sections(std::uint32_t first, std::uint32_t last, Visit&& visit) {
    const std::uint32_t m = part_.sections;
    if (last <= m) {
      for (std::uint32_t x = first; x < last; ++x) visit(x);
    } else {
      for (std::uint32_t x = first; x < m; ++x) visit(x);
      for (std::uint32_t x = first < m ? 0 : first - m; x < last - m; ++x) visit(x);
    }
  }

  const ExactPart& part_;
  ExactRules rules_;
  std::uint32_t count_;
  // Of each item.
  std::vector<Value> sizes_, low_, earliest_, offsets_;
  std::vector<std::uint8_t> passed_;
  std::vector<Index32> earlier_twin_, later_twin_, ranks_;
  std::vector<std::vector<Index32>> neighbours_;
  std::vector<std::vector<std::pair<Value, Value>>> walls_of_item_;
  bool has_limits_ = false;  // walls or alignment
  // Of each section.
  std::vector<Section> sections_;
  std::vector<Value> least_;
  std::vector<std::vector<std::pair<Value, Value>>> walls_of_section_;
  std::vector<Section> first_sections_;
  // Stacks.
  std::vector<Frame> frames_;
  std::vector<Index32> items_, candidates_;
  std::vector<Piece> pieces_;
  std::vector<Saved> saved_items_;
  std::vector<Section> saved_sections_;
  std::uint64_t left_ = 0;  // nodes
  // What the piece below the last frame came to; nothing while the frame is new.
  std::optional<bool> solved_;
  // Order.
  Rank rank_ = Rank::kWAT;
  std::vector<double> factors_;
  std::vector<std::pair<std::array<double, 3>, Index32>> keys_;
  // Failed states: whole keys, found by their hash.
  std::vector<std::uint64_t> key_;
  std::vector<std::uint64_t> failed_keys_;
  std::unordered_multimap<std::uint64_t, std::pair<std::size_t, std::size_t>> failed_;
};

}  // namespace berth::place
