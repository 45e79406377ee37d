#pragma once

#include "csrc/plan/plan.h"

#include <cstdint>
#include <span>
#include <vector>

namespace berth {

// A plan, frozen into the tables that serving reads: built once at load, immutable, shared by
// threads.
//
// Slots of all sequences are numbered 0..n-1, sequence by sequence, in order of birth. A cell is
// one distinct offset of the arena: at most one live block starts there, so the state of serving is
// one word a cell.
class PlanLookup {
 public:
  using SlotIndex = std::uint32_t;
  using CellIndex = std::uint32_t;
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  // What the hot path reads of a slot, in one half of a cache line.
  struct Entry {
    Bytes offset;  // Slot::kUnplanned where the pool serves it
    std::uint64_t requested;
    CellIndex cell;  // kNone where unplanned
    std::uint32_t birth;
    std::uint32_t length;
    std::uint32_t shared;  // 1: another lane's slot has some of its bytes
  };

  // Requires verify(plan) == nullopt, unless a test bypasses the verifier on purpose.
  explicit PlanLookup(Plan plan);

  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] std::size_t slot_count() const noexcept { return entries_.size(); }
  [[nodiscard]] std::size_t cell_count() const noexcept { return cell_offsets_.size(); }
  [[nodiscard]] const Entry& entry(SlotIndex slot) const noexcept { return entries_[slot]; }
  [[nodiscard]] const Slot& slot(SlotIndex slot) const noexcept;
  [[nodiscard]] std::uint32_t sequence_of(SlotIndex slot) const noexcept;
  [[nodiscard]] Bytes cell_offset(CellIndex cell) const noexcept { return cell_offsets_[cell]; }

  // The first slot of a sequence; its k-th own slot follows at + k.
  [[nodiscard]] SlotIndex first_slot(std::uint32_t sequence) const noexcept {
    return first_slots_[sequence];
  }

  // Slots of `sequence` whose lifetimes end at tick `tick` of its path (birth + length, modulo the
  // period), tick in [0, period).
  [[nodiscard]] std::span<const SlotIndex> ends_at(std::uint32_t sequence,
                                                   std::uint32_t tick) const noexcept;

  // The cell at an offset, or kNone. O(1), a hash table whatever the arena's size.
  [[nodiscard]] CellIndex cell_at(Bytes offset) const noexcept;

  // Where the request sizes `window` (oldest first) occur in a sequence: ticks after the last of
  // them, ascending. The window is kWindow sizes long. For re-aligning after a large jump.
  static constexpr std::size_t kWindow = 4;
  [[nodiscard]] std::span<const std::uint32_t> positions_after(
      std::uint32_t sequence, std::span<const Bytes, kWindow> window) const noexcept;

 private:
  Plan plan_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> sequence_of_;
  std::vector<SlotIndex> first_slots_;
  std::vector<Bytes> cell_offsets_;
  // (implementation tables: yours)
};

}  // namespace berth
