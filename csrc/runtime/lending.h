#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/page_sharing.h"
#include "csrc/plan/lookup.h"
#include "csrc/runtime/lane.h"
#include "csrc/runtime/lanes.h"
#include "csrc/runtime/occupancy.h"
#include "csrc/runtime/pins.h"
#include "csrc/runtime/walk.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <unordered_map>
#include <vector>

namespace berth {

// Finds other bytes of an arena for a request whose planned bytes are in use.
//
// A block that overstays keeps every later tenant from its bytes: after one change in a run of
// equal requests that can be a hundred, since a request that looks like the one before it is served
// there, however long it then lives. Elsewhere in the arena there are bytes that the plan needs for
// nobody while such a tenant lives: those of slots that stand empty, and those of times past or to
// come.
//
// Sound by the rule: all that is live and on schedule now was live when the gaps were found or was
// planned to be born since, so it lies outside of them; all else that is live is off schedule, and
// looked up. What is lent is off schedule until it is freed.
//
// To look for gaps is a walk over what is live and what is born soon. They hold for some ticks, and
// a request that found its bytes in use pays for a part of the walk only (kSlotsPaid), so that a
// plan that no longer fits costs no more for them. Not thread-safe. Throws std::bad_alloc.
class Lending {
 public:
  Lending(const Occupancy& occupancy, const Pins& pins, const Walk& walk, Bytes alignment) noexcept
      : occupancy_(occupancy), pins_(pins), walk_(walk), alignment_(alignment) {}
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  // After fewer misses in a step one change may explain them, and it goes on as planned.
  static constexpr std::uint32_t kFewMisses = 4;
  // A step that missed so often is another than the plan's.
  static constexpr std::uint32_t kManyMisses = 32;

  void follow(const PlanLookup& lookup) noexcept;

  // Whether the lane may have bytes that nobody uses; where it may, they are the result.
  using MayHave = std::function<bool(ByteRange)>;
  // Bytes that no birth in the next ticks needs, while the lane has what was `wanted` for it.
  [[nodiscard]] std::optional<ByteRange> find(const Lane& lane, const PlanLookup::Entry& wanted,
                                              Bytes size, const MayHave& may_have);
  // The bytes of slots that are born before others may use what the lanes can spare, in order; a
  // lane that rests needs none. Until a lane goes on they are the same. O(lanes) then; else O(ticks
  // of the lanes' paths), at the first time sorted. Not for kAny.
  [[nodiscard]] const std::vector<ByteRange>& needed_ahead(const Lanes& lanes,
                                                           PageLender::Spare spare);
  // Any bytes under slots that are not live. Requires that no slot is handed out before they are
  // off schedule.
  [[nodiscard]] std::optional<ByteRange> find_idle(Bytes size, const MayHave& may_have) const;

 private:
  // Bytes that no planned block of any lane has or will have while the position of `lane` is in
  // [from, until) of `sequence`. A jump and the end of a step make them void.
  struct Gaps {
    const Lane* lane = nullptr;  // null: void
    std::uint64_t turns = 0;     // jumps and step ends before
    std::uint32_t sequence = 0;
    std::uint32_t from = 0, until = 0;
    std::vector<ByteRange> ranges;  // largest first
    std::uint64_t walked = 0;       // slots that searches for gaps have looked at
    std::uint64_t busy = 0;         // requests that asked for a gap
  };

  // Slots of a path that are born at ticks in (from, until).
  struct Window {
    std::uint32_t sequence = 0, from = 0, until = 0;
    bool operator==(const Window&) const = default;
  };
  // What the lanes need, by their windows.
  struct Ahead {
    std::vector<Window> windows;
    std::vector<ByteRange> bytes;
  };

  [[nodiscard]] Window window(const Lane& lane, PageLender::Spare spare) const;
  void add_needed(const Window& window, std::vector<ByteRange>* bytes);
  // A slot that has a place, and the tick of its path at which it is born.
  struct Birth {
    ByteRange bytes;
    std::uint32_t tick = 0;
  };
  // Those of a path, ascending by their bytes.
  [[nodiscard]] const std::vector<Birth>& by_bytes(std::uint32_t sequence);
  // Of a slot without a place none.
  [[nodiscard]] ByteRange bytes_of(PlanLookup::SlotIndex slot) const;
  [[nodiscard]] std::uint64_t turns() const noexcept { return walk_.jumps() + walk_.step_ends(); }
  [[nodiscard]] bool find_gaps(const Lane& lane, const PlanLookup::Entry& wanted);
  [[nodiscard]] std::vector<ByteRange> needed(const Lane& lane, std::uint32_t until);
  [[nodiscard]] std::optional<ByteRange> unused_in(ByteRange gap, Bytes size,
                                                   std::size_t* tries) const;

  const Occupancy& occupancy_;
  const Pins& pins_;
  const Walk& walk_;
  const Bytes alignment_;
  const PlanLookup* lookup_ = nullptr;
  Gaps gaps_;
  std::array<Ahead, 4> ahead_;  // by Spare, as far as they were asked for
  std::unordered_map<std::uint32_t, std::vector<Birth>> orders_;  // by sequence
  std::size_t ordered_ = 0;                                       // slots in them
};

}  // namespace berth
