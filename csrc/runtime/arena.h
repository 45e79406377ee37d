#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/lane_events.h"
#include "csrc/plan/lookup.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/accounts.h"
#include "csrc/runtime/arena_memory.h"
#include "csrc/runtime/guards.h"
#include "csrc/runtime/lane.h"
#include "csrc/runtime/path.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace berth {

// The range of one device that a plan is laid out in, and the rule by which it is served.
//
// A slot is handed out at its birth only if (1) it is not live itself, (2) nothing off schedule
// touches its bytes, (3) no live slot of another lane shares them, (4) no captured graph pins them
// and its lane has waited for every guard on them. Why that is enough, and which event changes
// what, is in README.md; tests/runtime/rule_model_test.cc checks it.
//
// On the fast path this is one branch: `attention_` counts everything that (2) and (4) could meet,
// a slot knows whether it is shared, and its cell whether it is live.
//
// Offsets and sizes are bytes. Not thread-safe: the allocator's lock covers it. Owns its address
// range; the device and the events outlive it. allocate and free are O(1) while nothing is off
// schedule, O(log n) else; a jump is O(cells).
class Arena {
 public:
  Arena(Device& device, LaneEvents& events, Bytes alignment);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  struct Outcome {
    Served served = Served::kUnplanned;
    void* pointer = nullptr;  // set where the arena serves: for a hit and what is lent
    Bytes size = 0;           // of the slot
    bool realigned = false;   // a jump was made

    static Outcome handed_out(Served served, void* pointer, Bytes size) noexcept {
      return {served, pointer, size, false};
    }
    static Outcome missed(Served why) noexcept { return {why, nullptr, 0, false}; }
  };

  // Serves the lane's next request where nothing is in the way: the plan expects it, and nothing in
  // the arena needs a second look. Null else, and allocate() decides. `id` names the block in a
  // recording.
  [[nodiscard]] void* serve(Bytes requested, LaneKey key, std::uint64_t id) noexcept {
    if (key != fast_key_ || fast_lane_ == nullptr) [[unlikely]]
      return nullptr;
    Lane& lane = *fast_lane_;
    if (lane.next >= lane.end) [[unlikely]]
      return nullptr;
    const PlanLookup::Entry& entry = entries_[lane.next];
    if (entry.requested != requested || entry.cell == PlanLookup::kNone) [[unlikely]]
      return nullptr;
    walk(lane, entry.birth);
    Cell& cell = cells_[entry.cell];
    if (((cell.slot ^ PlanLookup::kNone) | entry.shared | attention_) != 0) [[unlikely]]
      return nullptr;
    cell.slot = lane.next++;
    cell.id = id;
    return memory_.base() + entry.offset;
  }

  // What becomes of a request that serve() has nothing for. Throws std::bad_alloc, and then nothing
  // was handed out.
  [[nodiscard]] Outcome serve_slowly(Bytes requested, LaneKey key, std::uint64_t id);
  // Both: serves the lane's next request, or says why not.
  [[nodiscard]] Outcome allocate(Bytes requested, LaneKey key, std::uint64_t id) {
    if (void* pointer = serve(requested, key, id))
      return Outcome::handed_out(Served::kHit, pointer, rounded(requested));
    return serve_slowly(requested, key, id);
  }

  struct Freed {
    bool found = false;
    Bytes size = 0;
    Bytes requested = 0;
    std::uint64_t id = 0;
    LaneKey owner = 0;  // whose request it was
    bool late = false;  // after its planned lifetime
    bool device_error =
        false;  // an event could not be recorded: the bytes wait for a synchronisation
  };

  // Takes back the live planned block that starts at `pointer`, where it is on schedule and was
  // used on its own lane only, and says what was asked for. `owner`, where it is not null, is set
  // to whose it was. False else, and free() decides.
  [[nodiscard]] bool take_back(void* pointer, Bytes* asked, LaneKey* owner = nullptr) noexcept {
    if (lookup_ == nullptr || !uses_.empty()) [[unlikely]]
      return false;
    const PlanLookup::CellIndex index = lookup_->cell_at(offset_of(pointer));
    if (index == PlanLookup::kNone) [[unlikely]]
      return false;
    Cell& cell = cells_[index];
    if (cell.slot >= kOffSchedule) [[unlikely]]
      return false;
    const PlanLookup::Entry& entry = entries_[cell.slot];
    if (entry.shared) [[unlikely]]
      return false;
    if (owner != nullptr) *owner = lanes_.size() == 1 ? lanes_.front()->key : owner_of(cell.slot);
    cell.slot = PlanLookup::kNone;
    *asked = entry.requested;
    return true;
  }

  // Takes back the live block that starts at `pointer`. `freeing` is the lane it is freed on, where
  // that is known.
  Freed free(void* pointer, std::optional<LaneKey> freeing = std::nullopt) noexcept {
    return free_slowly(offset_of(pointer), freeing);
  }

  // Whether the address lies in the arena's range, live or not.
  [[nodiscard]] bool contains(const void* pointer) const noexcept {
    return offset_of(pointer) < memory_.range_bytes();
  }

  struct Block {
    Bytes requested = 0;
    std::uint64_t id = 0;
    LaneKey lane = 0;
  };
  [[nodiscard]] std::optional<Block> find(const void* pointer) const noexcept;
  // All committed memory, with what lives in it and, as waiting, what guards or lost events keep.
  [[nodiscard]] std::vector<PoolStretch> stretches() const;

  // The block is also used on `key`: its free will guard the bytes. Throws std::bad_alloc, and then
  // does not know of the use.
  void record_use(const void* pointer, LaneKey key);

  // A step of the lane ends. Aligns the lane with the plan; with one lane in the plan, binds that
  // lane to `key`. Polls guards. Returns whether the position had to jump.
  bool mark(LaneKey key);

  // Serves `plan` from now on. Live blocks keep their bytes: they are off schedule. Every lane's
  // earlier work guards the bytes against other lanes. Returns what the device said; on failure the
  // plan before stays.
  enum class Commit : std::uint8_t {
    kNow,
    kAtStepStart,  // when commit() is called after a lane next passed the start of its step
  };
  Status activate(std::shared_ptr<const PlanLookup> plan, Commit when);

  // Whether a plan was activated without memory and a lane has come to the start of its step;
  // commit() then gives it its memory. Returns false where the device refuses; the plan goes on
  // without, so rest().
  [[nodiscard]] bool commit_due() const noexcept {
    return memory_.state() == ArenaMemory::State::kDue;
  }
  [[nodiscard]] bool commit(Device::Residency residency) noexcept;
  // Makes resident what was committed on demand: no page fault, and no call of the device, from
  // here on.
  void make_resident() noexcept;
  // Whether pages still come with the first block on them: commit() on demand, on a device whose
  // own work cannot fault them in.
  [[nodiscard]] bool filling() const noexcept {
    return memory_.state() == ArenaMemory::State::kFilling;
  }
  // No more than so much is committed page by page, or by make_resident().
  void set_page_limit(Bytes limit) noexcept { memory_.set_limit(limit); }

  // Ends serving; live blocks stay, off schedule.
  void rest() noexcept;

  // Makes the range at least this large. Keeps the base where anything is live; fails then if the
  // range is too small.
  Status ensure_range(Bytes bytes) noexcept;

  // Gives back the memory of an arena in which nothing is live and no graph pins anything. A plan
  // that is served asks for it again at the start of a step (commit_due). Returns bytes given back.
  Bytes retire() noexcept;

  // Asks for all events, and forgets guards that are over.
  void poll_guards() noexcept;
  // The device is done with everything that was queued until now (Device::synchronize_all()).
  void synchronized() noexcept;

  // The live block that starts at `pointer` is used by a captured graph: its bytes are handed out
  // to nobody until unpin() was called as often, whenever it is freed. False where none starts
  // there. Throws std::bad_alloc, and then nothing is pinned.
  bool pin(const void* pointer);
  // False where nothing is pinned that starts there. Work of the graph is over or ordered before
  // all that comes.
  bool unpin(const void* pointer) noexcept;

  [[nodiscard]] const std::shared_ptr<const PlanLookup>& plan() const noexcept { return lookup_; }
  // Bytes that it has, and, with those that are still to come while it fills.
  [[nodiscard]] Bytes committed() const noexcept { return memory_.committed(); }
  [[nodiscard]] Bytes pledged() const noexcept { return memory_.pledged(); }
  // Bytes that are handed out, rounded. O(cells + strays).
  [[nodiscard]] Bytes live() const noexcept;
  // Requests of one period that the plan leaves to the pool.
  [[nodiscard]] std::uint64_t slot_count() const noexcept {
    return lookup_ ? lookup_->slot_count() : 0;
  }
  [[nodiscard]] std::size_t unplanned_slots() const noexcept { return unplanned_slots_; }
  [[nodiscard]] std::size_t off_schedule() const noexcept { return strays_.size(); }
  [[nodiscard]] std::size_t guards() const noexcept { return guards_.size(); }
  [[nodiscard]] std::uint64_t device_errors() const noexcept {
    return device_errors_ + memory_.device_errors();
  }
  // The first request since the plan was activated that it did not expect, `index` requests into
  // the step.
  struct Surprise {
    std::uint32_t index = 0;
    Bytes expected = 0, came = 0;
  };
  [[nodiscard]] const std::optional<Surprise>& first_surprise() const noexcept {
    return first_surprise_;
  }
  // Whether the lane follows the plan now (aligned, not searching).
  [[nodiscard]] bool aligned(LaneKey key) const noexcept;

  // Walks everything; the first broken invariant in one line, empty where all is well. For tests.
  [[nodiscard]] std::string is_valid() const;

 private:
  // At most one live block starts at an offset of the plan. `slot` is kNone while none does;
  // kOffSchedule is set in it while the block is in strays_ too.
  static constexpr std::uint32_t kOffSchedule = 0x80000000;
  struct Cell {
    std::uint32_t slot = PlanLookup::kNone;
    std::uint64_t id = 0;
  };
  // A block that is live in the arena and that the plan does not put there now (the set X).
  struct Stray {
    PlanLookup::CellIndex cell = PlanLookup::kNone;  // kNone: of an earlier plan
    Bytes requested = 0;
    LaneKey owner = 0;
    std::uint64_t id = 0;
    bool freed = false;  // freed, but no event could be recorded: waits for a synchronisation
  };
  // Bytes that no planned block of any lane has or will have while the position of `lane` is in
  // [from, until) of `sequence`. A jump and the end of a step make them void.
  struct Gaps {
    const Lane* lane = nullptr;  // null: void
    std::uint32_t sequence = 0;
    std::uint32_t from = 0, until = 0;
    std::vector<ByteRange> ranges;  // largest first
    std::uint64_t walked = 0;       // slots that searches for gaps have looked at
    std::uint64_t busy = 0;         // requests that asked for a gap
  };

  // Beyond the range where the pointer lies before it.
  [[nodiscard]] Bytes offset_of(const void* pointer) const noexcept {
    return reinterpret_cast<Bytes>(pointer) - reinterpret_cast<Bytes>(memory_.base());
  }
  [[nodiscard]] Bytes rounded(Bytes requested) const noexcept {
    return (requested + alignment_ - 1) & ~(alignment_ - 1);
  }

  // Moves the lane's position forward to `tick` of its path: slots that end on the way and are
  // still live become strays.
  void walk(Lane& lane, std::uint32_t tick) noexcept {
    while (lane.position < tick) {
      ++lane.position;
      for (const std::uint32_t slot : lookup_->ends_at(lane.sequence, lane.position)) expire(slot);
      if (lane.parent_ends) [[unlikely]]
        expire_ancestors(lane);
    }
  }
  void expire(PlanLookup::SlotIndex slot) noexcept {
    const PlanLookup::CellIndex cell = entries_[slot].cell;
    if (cell != PlanLookup::kNone && cells_[cell].slot == slot) [[unlikely]]
      make_stray(cell);
  }
  void expire_ancestors(Lane& lane) noexcept;
  void make_stray(PlanLookup::CellIndex cell) noexcept;

  Outcome allocate_aligned(Lane& lane, Bytes requested, std::uint64_t id);
  Outcome allocate_searching(Lane& lane, Bytes requested, std::uint64_t id);
  Outcome allocate_resting(Lane& lane, Bytes requested, std::uint64_t id);
  Outcome hand_out(Lane& lane, PlanLookup::SlotIndex slot, Bytes requested, std::uint64_t id);
  bool may_have(const Lane& lane, const PlanLookup::Entry& entry, Bytes size);
  Outcome lend(Lane& lane, const PlanLookup::Entry& wanted, Bytes requested, std::uint64_t id);
  Outcome lend_idle(const Lane& lane, Bytes requested, std::uint64_t id, Outcome miss);
  Outcome hand_out_lent(const Lane& lane, ByteRange bytes, Bytes requested, std::uint64_t id);
  [[nodiscard]] std::optional<ByteRange> unused_in(ByteRange gap, Bytes size,
                                                   std::size_t most_tries) const;
  [[nodiscard]] bool find_gaps(const Lane& lane, const PlanLookup::Entry& wanted);
  void tend_guards() noexcept;
  Freed free_slowly(Bytes offset, std::optional<LaneKey> freeing) noexcept;
  void recount() noexcept;

  [[nodiscard]] LaneKey owner_of(PlanLookup::SlotIndex slot) const noexcept;
  Lane& lane_of(LaneKey key);
  void select(Lane& lane) noexcept;
  void bind(Lane& lane, std::uint32_t plan_lane) noexcept;
  [[nodiscard]] const Path& path(const Lane& lane) const noexcept { return paths_[lane.sequence]; }
  [[nodiscard]] std::uint32_t root_of(std::uint32_t plan_lane) const noexcept {
    return roots_[plan_lane];
  }
  bool take_branch(Lane& lane, Bytes requested) noexcept;
  void expect(Lane& lane, std::uint32_t index) noexcept;
  void pass_run_end(Lane& lane, Bytes requested) noexcept;
  void pass_step_end(Lane& lane) noexcept;
  void jump(Lane& lane, std::uint32_t sequence, std::uint32_t index) noexcept;
  void rest_lane(Lane& lane, std::uint32_t run_needed) noexcept;
  bool mark_lane(Lane& lane) noexcept;
  void rebuild_strays(const Lane& lane) noexcept;
  [[nodiscard]] bool on_schedule(const Lane& lane, PlanLookup::SlotIndex slot) const noexcept;

  Device& device_;
  LaneEvents& events_;
  const Bytes alignment_;
  ArenaMemory memory_;

  std::shared_ptr<const PlanLookup> lookup_;
  const PlanLookup::Entry* entries_ = nullptr;
  std::vector<Path> paths_;           // of each sequence
  std::vector<std::uint32_t> roots_;  // the root sequence of each lane of the plan
  std::vector<Cell> cells_;
  std::size_t unplanned_slots_ = 0;
  std::optional<Surprise> first_surprise_;

  IntervalMap<Stray> strays_;
  Gaps gaps_;
  bool all_astray_ = false;  // the plan's only lane rests, and every live block is in strays_
  IntervalMap<std::uint32_t>
      live_shared_;                  // live shared slots, by offset: the plan lane that has them
  IntervalMap<std::uint32_t> pins_;  // how often
  Guards guards_{events_};
  std::unordered_map<Bytes, std::vector<LaneKey>> uses_;  // of live blocks, on lanes not their own
  std::uint32_t attention_ = 0;

  std::vector<std::unique_ptr<Lane>> lanes_;
  LaneKey fast_key_ = 0;
  Lane* fast_lane_ = nullptr;

  std::uint64_t device_errors_ = 0;
};

}  // namespace berth
