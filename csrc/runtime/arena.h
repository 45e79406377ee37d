#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/lane_events.h"
#include "csrc/device/stretch.h"
#include "csrc/plan/lookup.h"
#include "csrc/runtime/accounts.h"
#include "csrc/runtime/arena_memory.h"
#include "csrc/runtime/guards.h"
#include "csrc/runtime/lanes.h"
#include "csrc/runtime/lending.h"
#include "csrc/runtime/occupancy.h"
#include "csrc/runtime/pins.h"
#include "csrc/runtime/walk.h"

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
//   a request: serve()                       as planned, and nothing in the way
//                Walk::advance()               the slots that end before it
//              serve_slowly()                all others
//                tend_guards()                 asks for a few events
//                Walk::next()                  which slot it is
//                hand_out()                    the rule
//                  Occupancy::is_free()          (1), (2), (3)
//                  Pins, Guards::wait()          (4)
//                  ArenaMemory::ensure()         its pages, while they come one by one
//                  lend()                        its bytes are in use: others
//                lend_idle()                   the lane rests: any that are not live
//   a free:    take_back()                   as planned, on its own lane
//              free()                        all others
//                Occupancy::take()             whose it was
//                Guards::add()                 for each lane that may still use it
//
// Offsets and sizes are bytes. Not thread-safe: the allocator's lock covers it. Owns its address
// range; the device and the events outlive it. allocate and free are O(1) while nothing is off
// schedule, O(log n) else; a jump is O(what the plan has alive and what is off schedule).
class Arena {
 public:
  Arena(Device& device, LaneEvents& events, Bytes alignment);
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
    walk_.advance(lane, entry.birth);
    Occupancy::Cell& cell = occupancy_.cell(entry.cell);
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
      return Outcome::handed_out(Served::kHit, pointer, occupancy_.rounded(requested));
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
    Occupancy::Cell& cell = occupancy_.cell(index);
    if (cell.slot >= Occupancy::kOffSchedule) [[unlikely]]
      return false;
    const PlanLookup::Entry& entry = entries_[cell.slot];
    if (entry.shared) [[unlikely]]
      return false;
    if (owner != nullptr) *owner = owner_of(cell.slot);
    cell.slot = PlanLookup::kNone;
    *asked = entry.requested;
    return true;
  }

  // Takes back the live block that starts at `pointer`. `freeing` is the lane it is freed on, where
  // that is known.
  Freed free(void* pointer, std::optional<LaneKey> freeing = std::nullopt) noexcept;

  // Whether the address lies in the arena's range, live or not.
  [[nodiscard]] bool contains(const void* pointer) const noexcept {
    return offset_of(pointer) < memory_.range_bytes();
  }

  using Block = Occupancy::Block;
  [[nodiscard]] std::optional<Block> find(const void* pointer) const noexcept;
  // All committed memory, with what lives in it and, as waiting, what guards or lost events keep.
  [[nodiscard]] std::vector<Stretch> stretches() const;

  // The block is also used on `key`: its free will guard the bytes. Throws std::bad_alloc, and then
  // does not know of the use.
  void record_use(const void* pointer, LaneKey key);

  // A step of the lane ends. Aligns all lanes with the plan; a plan with one lane is served to
  // `key` from here on. Asks for guards. Returns whether a position had to jump.
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
  // without, so deactivate().
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
  void deactivate() noexcept;

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
  // Freed bytes that no event covers: they come back with that.
  [[nodiscard]] Bytes unproven() const noexcept { return unproven_; }

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
  // Bytes that are handed out, rounded. O(cells + off_schedule()).
  [[nodiscard]] Bytes live() const noexcept { return occupancy_.live(); }
  // Requests of one period that the plan leaves to the pool.
  [[nodiscard]] std::uint64_t slot_count() const noexcept {
    return lookup_ ? lookup_->slot_count() : 0;
  }
  [[nodiscard]] std::size_t unplanned_slots() const noexcept {
    return lookup_ ? lookup_->unplanned_slots() : 0;
  }
  [[nodiscard]] std::size_t off_schedule() const noexcept { return occupancy_.off_schedule(); }
  [[nodiscard]] std::size_t guards() const noexcept { return guards_.size(); }
  [[nodiscard]] std::uint64_t device_errors() const noexcept {
    return device_errors_ + memory_.device_errors();
  }
  // The first request since the plan was activated that it did not expect.
  using Surprise = Walk::Surprise;
  [[nodiscard]] const std::optional<Surprise>& first_surprise() const noexcept {
    return walk_.first_surprise();
  }
  // Whether the lane follows the plan now (aligned, not searching).
  [[nodiscard]] bool aligned(LaneKey key) const noexcept;

  // Walks everything; the first broken invariant in one line, empty where all is well. For tests.
  [[nodiscard]] std::string is_valid() const;

 private:
  // Beyond the range where the pointer lies before it.
  [[nodiscard]] Bytes offset_of(const void* pointer) const noexcept {
    return reinterpret_cast<Bytes>(pointer) - reinterpret_cast<Bytes>(memory_.base());
  }
  // Whose request a slot is.
  [[nodiscard]] LaneKey owner_of(PlanLookup::SlotIndex slot) const noexcept {
    return lanes_.of_plan(lookup_->plan().sequences[lookup_->sequence_of(slot)].lane).key;
  }
  [[nodiscard]] auto owner() const noexcept {
    return [this](PlanLookup::SlotIndex slot) { return owner_of(slot); };
  }

  Outcome hand_out(Lane& lane, PlanLookup::SlotIndex slot, std::uint64_t id);
  [[nodiscard]] bool may_have(const Lane& lane, const PlanLookup::Entry& entry, Bytes size);
  [[nodiscard]] bool may_borrow(const Lane& lane, ByteRange bytes) noexcept;
  Outcome lend(const Lane& lane, const PlanLookup::Entry& wanted, std::uint64_t id);
  Outcome lend_idle(Lane& lane, Bytes requested, std::uint64_t id, Outcome miss);
  Outcome hand_out_lent(const Lane& lane, ByteRange bytes, Bytes requested, std::uint64_t id);
  void tend_guards() noexcept;
  void select(Lane& lane) noexcept;
  [[nodiscard]] bool fence(const Lane& lane) noexcept;
  [[nodiscard]] Lane* take_over(LaneKey key);
  void recount() noexcept;

  Device& device_;
  LaneEvents& events_;
  std::shared_ptr<const PlanLookup> lookup_;
  const PlanLookup::Entry* entries_ = nullptr;
  LaneKey fast_key_ = 0;  // whose requests serve() may serve
  Lane* fast_lane_ = nullptr;
  std::uint32_t attention_ = 0;
  Bytes unproven_ = 0;

  ArenaMemory memory_;
  Occupancy occupancy_;
  Walk walk_{occupancy_};
  Lanes lanes_;
  Pins pins_;
  Guards guards_{events_};
  Lending lending_;
  std::unordered_map<Bytes, std::vector<LaneKey>> uses_;  // of live blocks, on lanes not their own
  std::uint64_t device_errors_ = 0;
};

}  // namespace berth
