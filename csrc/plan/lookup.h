#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/interval_map.h"
#include "csrc/plan/alive_index.h"
#include "csrc/plan/offset_table.h"
#include "csrc/plan/plan.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace berth {

// A plan, frozen into the tables that serving reads: built once at load, immutable, shared by
// threads.
//
// Slots of all sequences are numbered 0..n-1, sequence by sequence, in order of birth; every tick
// is a request, so the slot that a sequence has at tick t of its own part is first_slot(sequence) +
// t - fork. A cell is one distinct offset of the arena: at most one live block starts there, so the
// state of serving is one word a cell. Cells are numbered as slots first use them, so that
// neighbours in time are neighbours in that state.
//
// To build takes O(n) and a sort of the offsets; 104 bytes a slot, the plan included.
class PlanLookup {
 public:
  using SlotIndex = std::uint32_t;
  using CellIndex = std::uint32_t;
  static constexpr std::uint32_t kNone = OffsetTable::kNone;

  // What the hot path reads of a slot, in one half of a cache line.
  struct alignas(32) Entry {
    Bytes offset;  // Slot::kUnplanned where the pool serves it
    std::uint64_t requested;
    CellIndex cell;  // kNone where unplanned
    std::uint32_t birth;
    std::uint32_t length;
    std::uint32_t shared;  // 1: another lane's slot has some of its bytes
  };
  static_assert(sizeof(Entry) == 32);

  // Throws Error(kUsage) where the plan is malformed (structure.h), so that every index below is in
  // range whatever it says. Slots that overlap although they live together are not found here:
  // verify() does that, and callers run it first unless a test bypasses it on purpose.
  explicit PlanLookup(Plan plan);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] std::size_t slot_count() const noexcept { return first_slots_.back(); }
  // Slots that the plan leaves to the pool, on the path that has most of them.
  [[nodiscard]] std::size_t unplanned_slots() const noexcept { return unplanned_slots_; }
  [[nodiscard]] std::size_t cell_count() const noexcept { return cell_offsets_.size(); }
  // Requires slot <= slot_count(). Behind the last slot is an entry that no request has.
  [[nodiscard]] const Entry& entry(SlotIndex slot) const noexcept { return entries_[slot]; }
  // All of the slot, size and origin included. Colder than entry().
  [[nodiscard]] const Slot& slot(SlotIndex slot) const noexcept {
    const std::uint32_t sequence = sequence_of(slot);
    return plan_.sequences[sequence].slots[slot - first_slots_[sequence]];
  }
  [[nodiscard]] std::uint32_t sequence_of(SlotIndex slot) const noexcept {
    return sequence_of_.empty() ? 0 : sequence_of_[slot];
  }
  [[nodiscard]] Bytes cell_offset(CellIndex cell) const noexcept { return cell_offsets_[cell]; }
  // The bytes of the largest slot that starts there.
  [[nodiscard]] ByteRange cell_bytes(CellIndex cell) const noexcept {
    return {cell_offsets_[cell], cell_ends_[cell]};
  }

  // The stretches of the arena that slots cover, ascending and disjoint. Holes of less than
  // kLeastHole belong to the stretch around them.
  static constexpr Bytes kLeastHole = Bytes{256} << 10;
  [[nodiscard]] const std::vector<ByteRange>& covered() const noexcept { return covered_; }

  [[nodiscard]] bool has_buckets() const noexcept { return !buckets_.empty(); }
  // Whether a slot serves requests that are smaller than itself.
  [[nodiscard]] bool is_bucket(SlotIndex slot) const noexcept {
    return !buckets_.empty() && buckets_[slot];
  }

  // The first slot of a sequence; its k-th own slot follows at + k. first_slot(sequence count) is
  // slot_count().
  [[nodiscard]] SlotIndex first_slot(std::uint32_t sequence) const noexcept {
    return first_slots_[sequence];
  }

  // Own planned slots of `sequence` whose lifetimes end at tick `tick` of its path (birth + length,
  // modulo the period); none at ticks from the period on. O(1), but for ticks before the fork of a
  // branch, where what wraps around is looked up by bisection.
  //
  // A lane that walks to tick t of a path passes, at each tick on the way, the ends of every
  // sequence from the root to the path's own, and so hears of every slot born in this step or in
  // the one before it on the same path (structure.h refuses prefixes whose ends would depend on the
  // path). What was born on another path
  // than the present one and is still live when the lane changes over is not heard of: changing the
  // path is a jump.
  [[nodiscard]] std::span<const SlotIndex> ends_at(std::uint32_t sequence,
                                                   std::uint32_t tick) const noexcept {
    const std::uint32_t own = tick - forks_[sequence];  // wraps around where it lies before
    const std::size_t first = first_slots_[sequence];
    if (own >= first_slots_[sequence + 1] - first) [[unlikely]]
      return ends_before_fork(sequence, tick);
    return {ends_.data() + ends_begin_[first + own], ends_.data() + ends_begin_[first + own + 1]};
  }

  // Calls visit(slot) for each own planned slot of a sequence that the plan has alive at tick
  // `tick` of a path that it is on, and for some others; see AliveIndex. What wraps around is there
  // for roots only.
  template <class Visit>
  void visit_alive(std::uint32_t sequence, std::uint32_t tick, Visit&& visit) const {
    const SlotIndex first = first_slots_[sequence], count = first_slots_[sequence + 1] - first;
    const std::uint32_t own = tick - forks_[sequence];  // wraps around where it lies before
    if (own >= count) return;
    alive_[sequence].visit(own, [&](std::uint32_t slot) { visit(first + slot); });
  }

  // All cells in the order of their offsets.
  [[nodiscard]] const std::vector<CellIndex>& cells_by_offset() const noexcept {
    return by_offset_;
  }
  // The cell at an offset, or kNone. O(1), a hash table whatever the arena's size.
  [[nodiscard]] CellIndex cell_at(Bytes offset) const noexcept { return cells_.find(offset); }

  // Where the request sizes `window` (oldest first) occur in a sequence: ticks after the last of
  // them, ascending. The last is one of the sequence's own; those before it may lie before the
  // fork, or, before tick 0, at the end of the same path one step earlier; the tick after the last
  // one of the path is 0. For re-aligning after a large jump. O(1).
  //
  // Ticks are found by a hash of 64 bits: callers compare sizes again as they go on.
  static constexpr std::size_t kWindow = 4;
  [[nodiscard]] std::span<const std::uint32_t> positions_after(
      std::uint32_t sequence, std::span<const Bytes, kWindow> window) const noexcept;

 private:
  // All places of one window in one sequence.
  struct WindowKey {
    std::uint64_t hash = 0;
    std::uint32_t begin = 0;
    std::uint32_t count = 0;  // 0: empty
  };

  void make_entries();
  void count_unplanned();
  void find_shared();
  void find_covered();
  void make_ends();
  void make_alive();
  void make_windows();
  [[nodiscard]] std::span<const SlotIndex> ends_before_fork(std::uint32_t sequence,
                                                            std::uint32_t tick) const noexcept;

  Plan plan_;
  std::vector<Entry> entries_;  // one more than slots
  std::size_t unplanned_slots_ = 0;
  std::vector<std::uint32_t> sequence_of_;  // empty where there is one sequence
  std::vector<bool> buckets_;               // of slots; empty where there is none
  std::vector<SlotIndex> first_slots_;      // one more than sequences
  std::vector<std::uint32_t> forks_;

  std::vector<Bytes> cell_offsets_, cell_ends_;
  std::vector<CellIndex> by_offset_;  // cells
  std::vector<ByteRange> covered_;
  OffsetTable cells_;

  // Rows are own ticks of all sequences, numbered as slots are; row r is
  // ends_[ends_begin_[r], ends_begin_[r + 1]). What wraps around to ticks before a fork comes
  // behind all rows, sorted by (sequence, tick): wrapped_ends_ in parallel with the tail of ends_.
  std::vector<std::uint32_t> ends_begin_;
  std::vector<SlotIndex> ends_;
  struct WrappedEnd {
    std::uint32_t sequence = 0;
    std::uint32_t tick = 0;
  };
  std::vector<WrappedEnd> wrapped_ends_;
  std::vector<AliveIndex> alive_;  // of the own slots of each sequence, by own tick

  std::vector<WindowKey> window_table_;  // open addressing, linear, at most half full
  std::vector<std::uint32_t> window_ticks_;
};

}  // namespace berth
