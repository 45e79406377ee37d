#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/plan/lookup.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace berth {

// Which bytes of an arena are live, and which of them the plan does not put there now.
//
// A planned block that is live is named in its cell. The off-schedule set X holds the byte ranges
// of all that is live and that the plan does not put there at the position of its lane: blocks that
// overstay, blocks of an earlier plan, what was lent, and bytes whose last use no event could be
// recorded for. So a slot's bytes are free where its cell is empty, nothing of X touches them, and,
// for a slot that shares bytes with other lanes, no live shared slot does.
//
// Offsets and sizes are bytes. Not thread-safe. All is O(1) or O(log |X|), unless it says more.
class Occupancy {
 public:
  using SlotIndex = PlanLookup::SlotIndex;
  using CellIndex = PlanLookup::CellIndex;

  // At most one live block starts at an offset of the plan. `slot` is kNone while none does, kBare
  // where none does and memory is missing under the largest slot there; kOffSchedule is set in it
  // while the block is in X too. A live block is `partly` where memory is missing under that slot:
  // it is in X, so that its free is noticed.
  static constexpr std::uint32_t kOffSchedule = 0x80000000, kBare = PlanLookup::kNone - 1;
  struct Cell {
    std::uint32_t slot = PlanLookup::kNone;
    bool partly = false;
    std::uint64_t id = 0;

    [[nodiscard]] bool empty() const noexcept { return slot >= kBare; }
  };
  struct Block {
    Bytes requested = 0;
    std::uint64_t id = 0;
    LaneKey lane = 0;  // whose request it was
  };

  // `attention` counts the members of X, among other things.
  Occupancy(Bytes alignment, std::uint32_t& attention) noexcept
      : alignment_(alignment), attention_(attention) {}
  Occupancy(const Occupancy&) = delete;
  Occupancy& operator=(const Occupancy&) = delete;

  [[nodiscard]] Bytes rounded(Bytes requested) const noexcept {
    return (requested + alignment_ - 1) & ~(alignment_ - 1);
  }

  // --- The plan

  // So many more blocks can come off schedule without host memory. Throws std::bad_alloc.
  void reserve(std::size_t blocks) { strays_.reserve(strays_.size() + blocks); }
  // Follows a plan whose cells are empty, for which reserve() was called.
  void follow(const PlanLookup& lookup, std::vector<Cell> cells) noexcept;
  // No plan any more: its live blocks go on as byte ranges, which outlive it. `owner_of(slot)` is
  // the lane that a block belongs to. O(cells).
  template <class OwnerOf>
  void leave(OwnerOf&& owner_of) noexcept {
    for (CellIndex index = 0; index < cells_.size(); ++index) {
      // mutant: x-new-plan
      if (!cells_[index].empty()) outlive(index, owner_of(cells_[index].slot & ~kOffSchedule));
    }
    forget_plan();
  }

  // --- Planned blocks

  [[nodiscard]] Cell& cell(CellIndex index) noexcept { return cells_[index]; }
  [[nodiscard]] const std::vector<Cell>& cells() const noexcept { return cells_; }
  // Tests 1 to 3 of the rule.
  [[nodiscard]] bool is_free(const PlanLookup::Entry& entry) const {
    if (entry.cell == PlanLookup::kNone) return false;
    const ByteRange bytes{entry.offset, entry.offset + rounded(entry.requested)};
    // mutant: itself-slow
    if (!cells_[entry.cell].empty()) return false;
    // mutant: x-slow
    if (strays_.find_touching(bytes)) return false;
    // mutant: shared-slow
    return !entry.shared || !live_shared_.find_touching(bytes);
  }
  [[nodiscard]] bool is_bare(CellIndex index) const noexcept { return cells_[index].slot == kBare; }
  // Memory came or went: `has_memory(bytes)` says whether it is there, `on_schedule(slot)` whether
  // the plan has a slot alive now. O(cells).
  template <class HasMemory, class OnSchedule>
  void memory_changed(HasMemory&& has_memory, OnSchedule&& on_schedule) noexcept {
    for (CellIndex index = 0; index < cells_.size(); ++index) {
      Cell& cell = cells_[index];
      const bool there = has_memory(lookup_->cell_bytes(index));
      if (cell.empty()) {
        // mutant: pages-fast
        cell.slot = there ? PlanLookup::kNone : kBare;
        continue;
      }
      if (cell.partly != there) continue;
      cell.partly = !there;
      // mutant: pages-gone
      if (!there)
        make_stray(index);
      else if (on_schedule(cell.slot & ~kOffSchedule))
        back_on_schedule(index);
    }
  }
  // Requires is_free(). `all_there`: memory for the largest slot of the cell. Throws
  // std::bad_alloc, and then nothing changes.
  void put(SlotIndex slot, Bytes size, std::uint64_t id, bool all_there);

  // A slot ends: if it is live still it is off schedule from here on.
  void expire(SlotIndex slot) noexcept {
    const CellIndex index = entries_[slot].cell;
    if (index != PlanLookup::kNone && cells_[index].slot == slot) [[unlikely]]
      make_stray(index);
  }

  // After a jump of the lane that stood at tick `position` of a path through `sequences`: X has
  // what `on_schedule(slot)` denies of the lane's planned blocks, and what the plan did not put
  // there. O(|X| + what the plan has alive there).
  template <class OnSchedule>
  void rebuild(const std::vector<std::uint32_t>& sequences, std::uint32_t position,
               OnSchedule&& on_schedule) noexcept {
    const std::uint32_t lane = lane_of(sequences.front());
    for (auto it = strays_.begin(); it != strays_.end();) {
      const CellIndex index = (it++)->second.second.cell;
      if (index != PlanLookup::kNone) settle(index, lane, on_schedule);
    }
    // mutant: x-alive
    for_each_alive(sequences, position, [&](CellIndex index) { settle(index, lane, on_schedule); });
  }
  // The plan's only lane, which stands at `position`, is another stream's from here on: what it has
  // live goes on as byte ranges of `owner`. Requires reserve(cells).
  void hand_over(const std::vector<std::uint32_t>& sequences, std::uint32_t position,
                 LaneKey owner) noexcept;

  // --- Blocks, planned or not

  // The live block that starts at an offset. `owner_of` as in leave().
  template <class OwnerOf>
  [[nodiscard]] std::optional<Block> find(Bytes offset, OwnerOf&& owner_of) const noexcept {
    if (const CellIndex index = cell_at(offset); index != PlanLookup::kNone) {
      const SlotIndex slot = cells_[index].slot & ~kOffSchedule;
      return Block{entries_[slot].requested, cells_[index].id, owner_of(slot)};
    }
    const Stray* const stray = strays_.find(offset);
    if (stray == nullptr || stray->use != Use::kLive) return std::nullopt;
    return stray->block;
  }
  // Takes it back.
  struct Taken {
    bool found = false;
    bool off_schedule = false;  // and no part of its cell lacks memory
    bool planned = false;  // by the plan that is followed; then `shared` and the block's lane hold
    bool shared = false;
    bool within = false;  // put_within(), by the plan that is followed
    Block block;
  };
  template <class OwnerOf>
  Taken take(Bytes offset, OwnerOf&& owner_of) noexcept {
    const std::optional<Block> block = find(offset, owner_of);
    return block ? take_found(offset, *block) : Taken{};
  }

  // Bytes that nothing live touches, and that no slot has: off schedule until they are freed. There
  // is room for one more (see reserve()).
  void lend(ByteRange bytes, const Block& block) noexcept;
  // Bytes of a slot that may be handed out, for a block that is smaller than it: off schedule until
  // it is freed, and while its plan is followed its own lane's alone. There is room for one more.
  void put_within(ByteRange bytes, const Block& block, Bytes left = 0) noexcept;
  // What blocks leave of their last pages, as put_within() was told.
  [[nodiscard]] Bytes left() const noexcept { return left_; }
  // The same for somebody who has blocks of his own there, and gives them back by take_away_back().
  // They are no live block of the arena.
  void give_away(ByteRange bytes, LaneKey lane) noexcept;
  // Where they end, and the lane that they were given away for; nothing where none start there.
  struct Away {
    Bytes last = 0;
    LaneKey lane = 0;
  };
  std::optional<Away> take_away_back(Bytes first) noexcept;
  // Bytes that were freed, and whose last use only a synchronisation of the device can tell.
  void lose(ByteRange bytes, const Block& block);
  // The device is done with everything.
  void synchronized() noexcept;

  // The first range of X that shares a byte with `bytes`.
  [[nodiscard]] std::optional<ByteRange> touching(ByteRange bytes) const {
    return strays_.find_touching(bytes);
  }
  [[nodiscard]] std::size_t off_schedule() const noexcept { return strays_.size(); }
  // Calls visit(bytes, slot) for all of X; the slot is kNone for what is no block of the plan's.
  template <class Visit>
  void for_each_off_schedule(Visit&& visit) const noexcept {
    for (const auto& [first, stray] : strays_) {
      const CellIndex cell = stray.second.cell;
      visit(ByteRange{first, stray.first},
            cell == PlanLookup::kNone ? cell : cells_[cell].slot & ~kOffSchedule);
    }
  }
  [[nodiscard]] bool empty() const noexcept { return off_schedule() == 0 && live() == 0; }
  // Bytes that are handed out, rounded. O(cells + |X|).
  [[nodiscard]] Bytes live() const noexcept;
  // Calls visit(bytes, block, use) for what is live, lost, or given away, in no order.
  enum class Use : std::uint8_t { kLive, kLost, kAway };
  template <class OwnerOf, class Visit>
  void for_each_block(OwnerOf&& owner_of, Visit&& visit) const {
    for (const Cell& cell : cells_) {
      if (cell.empty()) continue;
      const PlanLookup::Entry& entry = entries_[cell.slot & ~kOffSchedule];
      visit(ByteRange{entry.offset, entry.offset + rounded(entry.requested)},
            Block{entry.requested, cell.id, owner_of(cell.slot & ~kOffSchedule)}, Use::kLive);
    }
    for (const auto& [first, stray] : strays_) {
      if (stray.second.cell == PlanLookup::kNone)
        visit(ByteRange{first, stray.first}, stray.second.block, stray.second.use);
    }
  }

  // Calls visit(bytes) for the same in the order of their offsets. O(cells + |X|).
  template <class Visit>
  void for_each_in_order(Visit&& visit) const {
    auto stray = strays_.begin();
    const auto visit_strays = [&](Bytes until) {
      for (; stray != strays_.end() && stray->first < until; ++stray)
        if (stray->second.second.cell == PlanLookup::kNone)
          visit(ByteRange{stray->first, stray->second.first});
    };
    if (lookup_ != nullptr)
      for (const CellIndex index : lookup_->cells_by_offset()) {
        const Cell& cell = cells_[index];
        if (cell.empty()) continue;
        const PlanLookup::Entry& entry = entries_[cell.slot & ~kOffSchedule];
        visit_strays(entry.offset);
        visit(ByteRange{entry.offset, entry.offset + rounded(entry.requested)});
      }
    visit_strays(kMaxBytes);
  }

  // Walks everything; the first broken invariant in one line, empty where all is well.
  [[nodiscard]] std::string is_valid() const;

 private:
  struct Stray {
    CellIndex cell = PlanLookup::kNone;  // of the planned block; else kNone
    Block block;                         // else
    Use use = Use::kLive;
    bool within = false;  // a slot of the plan that is followed
    Bytes left = 0;
  };

  // The cell at an offset where a planned block is live, or kNone.
  [[nodiscard]] CellIndex cell_at(Bytes offset) const noexcept {
    const CellIndex index = lookup_ != nullptr ? lookup_->cell_at(offset) : PlanLookup::kNone;
    return index != PlanLookup::kNone && !cells_[index].empty() ? index : PlanLookup::kNone;
  }
  [[nodiscard]] std::uint32_t lane_of(std::uint32_t sequence) const noexcept {
    return lookup_->plan().sequences[sequence].lane;
  }
  // Cells of what is live and on schedule at a tick of a path, and of some other live blocks.
  template <class Visit>
  void for_each_alive(const std::vector<std::uint32_t>& sequences, std::uint32_t position,
                      Visit&& visit) const noexcept {
    for (const std::uint32_t sequence : sequences) {
      lookup_->visit_alive(sequence, position, [&](SlotIndex slot) {
        const CellIndex index = entries_[slot].cell;
        if (index != PlanLookup::kNone && cells_[index].slot == slot) visit(index);
      });
    }
  }
  template <class OnSchedule>
  void settle(CellIndex index, std::uint32_t lane, OnSchedule&& on_schedule) noexcept {
    const SlotIndex slot = cells_[index].slot & ~kOffSchedule;
    if (lane_of(lookup_->sequence_of(slot)) != lane) return;
    if (!on_schedule(slot))
      make_stray(index);
    else if (cells_[index].slot != slot && !cells_[index].partly)
      back_on_schedule(index);
  }
  void back_on_schedule(CellIndex index) noexcept {
    cells_[index].slot &= ~kOffSchedule;
    remove_stray(entries_[cells_[index].slot].offset);
  }
  void clear(CellIndex index) noexcept {
    Cell& cell = cells_[index];
    // mutant: pages-freed
    cell.slot = std::exchange(cell.partly, false) ? kBare : PlanLookup::kNone;
  }
  void make_stray(CellIndex index) noexcept;
  void remove_stray(Bytes offset) noexcept;
  void outlive(CellIndex index, LaneKey owner) noexcept;
  void forget_plan() noexcept;
  Taken take_found(Bytes offset, const Block& block) noexcept;

  const Bytes alignment_;
  std::uint32_t& attention_;
  const PlanLookup* lookup_ = nullptr;
  const PlanLookup::Entry* entries_ = nullptr;
  std::vector<Cell> cells_;
  IntervalMap<Stray> strays_;  // X
  Bytes left_ = 0;
  IntervalMap<int> live_shared_;  // live slots that share bytes with other lanes
};

}  // namespace berth
