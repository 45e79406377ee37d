#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/lane_events.h"
#include "csrc/device/page_sharing.h"
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

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
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
//                keeps_page()                  another step's small block: it shares a page instead
//                hand_out()                    the rule
//                  Occupancy::is_free()          (1), (2), (3)
//                  Pins, Guards::wait()          (4)
//                  Walk::other_way()             its bytes are in use: a path that begins alike
//                  ArenaMemory::ensure()         its pages, while they come one by one
//                  lend()                        its bytes are in use: others
//                hand_out_bucket()             it is smaller than the slot that stands for it
//                lend_idle()                   the lane rests: any that are not live
//   a free:    take_back()                   as planned, on its own lane
//              free()                        all others
//                Occupancy::take()             whose it was
//                Guards::add()                 for each lane that may still use it
//   the pool:  offer(), lend()               whole pages that the plan does not need soon
//
// Offsets and sizes are bytes. Not thread-safe: the allocator's lock covers it. Owns its address
// range; the device and the events outlive it. allocate and free are O(1) while nothing is off
// schedule, O(log n) else; a jump is O(what the plan has alive and what is off schedule).
class Arena : public PageLender {
 public:
  // Takes pages from `source` where it has free ones.
  Arena(Device& device, LaneEvents& events, Bytes alignment, PageSource* source = nullptr);
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
    // mutant: itself-fast, x-fast, shared-fast
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
    // mutant: s1-fast-free
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
  // All committed memory that is not lent by lend(), with what lives in it and, as waiting, what
  // guards or lost events keep.
  [[nodiscard]] std::vector<Stretch> stretches() const;

  // The block is also used on `key`: its free will guard the bytes. Throws std::bad_alloc, and then
  // does not know of the use.
  void record_use(const void* pointer, LaneKey key);

  // A step of the lane ends. Aligns all lanes with the plan; a plan with one lane is served to
  // `key` from here on. Asks for guards. Returns whether a position had to jump.
  bool mark(LaneKey key);

  // So many requests came in the step that now ends, as far as anybody else knows: mark() follows.
  void note_requests(LaneKey key, std::uint64_t requests) noexcept {
    if (Lane* const lane = lanes_.lone(); lane != nullptr && lane->key == key)
      lane->requests_since_mark = requests;
  }

  // Serves `plan` from now on. Live blocks keep their bytes: they are off schedule. Every lane's
  // earlier work guards the bytes against other lanes. Returns what the device said; on failure the
  // plan before stays.
  enum class Pages : std::uint8_t {
    kNow,
    kAsUsed,  // each comes with the first block on it
  };
  Status activate(std::shared_ptr<const PlanLookup> plan, Pages when);

  // Whether its pages are away (ParkedPages): then serve() leaves everything to serve_slowly(),
  // which must not be called.
  void set_parked(bool parked) noexcept {
    parked_ = parked;
    recount();
  }

  // All pages that the plan needs and does not have: those that lie free elsewhere, and, where
  // `may_grow`, the device's. False where that is not all.
  bool fill(bool may_grow) noexcept;
  // Bytes of pages that the plan needs and that come with the next block on them.
  [[nodiscard]] Bytes missing() const noexcept { return memory_.missing(); }
  // Bytes of the pages under the slots of a plan.
  [[nodiscard]] Bytes needed(const PlanLookup& plan) const;

  // Where no pages are mapped: the range that would take the place of this one for a plan; 0 where
  // this one does. 0 elsewhere.
  [[nodiscard]] Bytes growth_for(const PlanLookup& plan) const noexcept {
    const Bytes bytes = plan.plan().arena_bytes;
    if (device_.properties().maps_pages || bytes <= memory_.range_bytes()) return 0;
    return memory_.range_of(bytes);
  }

  // Ends serving; live blocks stay, off schedule.
  void deactivate() noexcept;

  // Makes the range at least this large. Keeps the base where anything is live; fails then if the
  // range is too small.
  Status ensure_range(Bytes bytes) noexcept;

  // Bytes for a request that the plan does not serve, of those that it can spare: by the first of
  // `spares`, which ascend, that has some. They come from the smallest gap that is large enough,
  // and of whose last page they leave `most_left` at most. They are off schedule until they are
  // freed. O(cells, blocks off schedule, and slots ahead).
  [[nodiscard]] Outcome lend_spare(std::initializer_list<Spare> spares, Bytes requested,
                                   LaneKey key, std::uint64_t id, Bytes most_left) noexcept;

  // Whether a lane of the plan rests, or missed so often in its step.
  [[nodiscard]] bool astray(std::uint32_t misses) const noexcept;

  // Whether it holds memory that nothing needs: no plan is served, and nothing lives there.
  [[nodiscard]] bool idle() const noexcept {
    return lookup_ == nullptr && memory_.committed() != 0 && !in_use();
  }
  // Whether something lives there, or a graph pins something.
  [[nodiscard]] bool in_use() const noexcept { return !occupancy_.empty() || !pins_.empty(); }

  // Of a block, the part that it may leave of its last page where pages are crowded.
  static constexpr Bytes kMostLeft = 64;
  // Whether the bytes that it lends by itself are left to who looks for those that leave least of
  // a page (lend_spare()).
  void set_crowded(bool crowded) noexcept { crowded_ = crowded; }
  // What blocks may leave, all together, of their last pages within slots that are larger.
  void set_most_left(Bytes bytes) noexcept { most_left_ = bytes; }
  // Of what it can spare, the bytes on pages that it does not have free as a whole.
  [[nodiscard]] Bytes spare_parts();
  // Gives back all pages on which nothing lives and no graph pins anything; those that a plan needs
  // come back with the next blocks on them. Where no pages are mapped all or nothing, and the plan
  // goes with it. Until the next plan what comes back has handles of up to `handle` bytes where the
  // store's are smaller. Waits for the device. Returns bytes given back.
  Bytes give_back(Bytes handle = 0) noexcept;
  // For who does not lack memory: a program that empties its cache in each step makes a third of
  // the calls. It is that of PyTorch's expandable segments.
  static constexpr Bytes kReturningHandle = Bytes{20} << 20;

  // Whether it may have pages that only an earlier plan needed.
  [[nodiscard]] bool has_leftover() const noexcept { return leftover_; }
  // Gives those back on which nothing lives. Waits for the device where there are any. Returns
  // bytes given back. O(stretches and live blocks).
  Bytes give_back_leftover() noexcept;

  // The plan that could not be served any more since its memory was given back, once: where pages
  // are not mapped one by one.
  [[nodiscard]] std::shared_ptr<const PlanLookup> take_given_up() noexcept {
    return std::exchange(given_up_, nullptr);
  }

  // See PageLender. Bytes that are lent are off schedule until they are taken back.
  void offer(Spare spare, std::vector<ByteRange>* free) override;
  [[nodiscard]] bool lend(LaneKey lane, ByteRange bytes) noexcept override;
  void take_back(Bytes first) noexcept override;

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

  // Whether a step began that the plan is followed in, or may be.
  [[nodiscard]] bool entered() const noexcept;
  [[nodiscard]] const std::shared_ptr<const PlanLookup>& plan() const noexcept { return lookup_; }
  // Bytes that it has, and, with those that are still to come while it fills.
  [[nodiscard]] Bytes committed() const noexcept { return memory_.committed(); }
  // Bytes that are handed out, rounded. O(cells + off_schedule()).
  [[nodiscard]] Bytes live() const noexcept { return occupancy_.live(); }
  // Requests of one period that the plan leaves to the pool.
  // Places of the plan at which a block may begin, and blocks elsewhere.
  [[nodiscard]] std::size_t places() const noexcept {
    return occupancy_.cells().size() + occupancy_.off_schedule();
  }
  [[nodiscard]] std::uint64_t slot_count() const noexcept {
    return lookup_ ? lookup_->slot_count() : 0;
  }
  [[nodiscard]] std::size_t unplanned_slots() const noexcept {
    return lookup_ ? lookup_->unplanned_slots() : 0;
  }
  [[nodiscard]] std::size_t off_schedule() const noexcept { return occupancy_.off_schedule(); }
  [[nodiscard]] std::size_t guards() const noexcept { return guards_.size(); }
  [[nodiscard]] std::uint64_t device_errors() const noexcept { return memory_.device_errors(); }
  // Pages that came from the source.
  [[nodiscard]] std::uint64_t pages_moved() const noexcept { return memory_.pages_moved(); }
  // The first request since the plan was activated that it did not expect.
  using Surprise = Walk::Surprise;
  [[nodiscard]] const std::optional<Surprise>& first_surprise() const noexcept {
    return walk_.first_surprise();
  }
  // What the plan expected where it just missed; nothing of a lane that it does not know.
  [[nodiscard]] std::optional<Walk::Expected> expected(LaneKey key, Served missed) const noexcept {
    const Lane* const lane = lookup_ ? lanes_.find(key) : nullptr;
    if (lane == nullptr) return std::nullopt;
    return walk_.expected(*lane, missed == Served::kMissBusy);
  }
  // What the slots of buckets are too small for and the pool served, since the plan was activated
  // or this was asked; kMostGrowth at most. What was refused, and what is far larger and came once,
  // may never come again.
  struct Growth {
    LaneKey lane = 0;            // as the plan has it
    std::uint32_t requests = 0;  // of the step
    std::uint32_t index = 0;     // of this one
    Bytes bytes = 0;
  };
  static constexpr std::size_t kMostGrowth = 1 << 16;
  // The request that serve_slowly() just had nothing for was served elsewhere. Throws
  // std::bad_alloc.
  void grow_bucket();
  [[nodiscard]] bool wants_growth() const noexcept { return !growth_.empty(); }
  [[nodiscard]] std::vector<Growth> take_growth() noexcept { return std::exchange(growth_, {}); }
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
  Outcome hand_out_planned(LaneKey key, PlanLookup::SlotIndex slot, std::uint64_t id);
  Outcome hand_out_bucket(Lane& lane, PlanLookup::SlotIndex slot, Bytes requested,
                          std::uint64_t id);
  void note_outgrown(const Lane& lane, PlanLookup::SlotIndex slot, Bytes requested) noexcept;
  [[nodiscard]] bool may_have(const Lane& lane, const PlanLookup::Entry& entry);
  [[nodiscard]] bool may_borrow(const Lane& lane, ByteRange bytes) noexcept;
  Outcome lend(const Lane& lane, const PlanLookup::Entry& wanted, std::uint64_t id);
  Outcome lend_idle(Lane& lane, Bytes requested, std::uint64_t id, Outcome miss);
  [[nodiscard]] const std::vector<ByteRange>& spare_bytes(Spare spare);
  // Whether the lane's step is another than the plan's, so that its small blocks share pages.
  [[nodiscard]] bool shares_pages(const Lane& lane) const noexcept;
  // Whether a block below a page would lie in such a step where most of its page is free, as of a
  // few requests ago. O(log n) on average: a request pays for a few blocks.
  [[nodiscard]] bool keeps_page(const Lane& lane, ByteRange bytes);
  // Of the last page of a block that begins with a gap, what the gap has behind it.
  [[nodiscard]] Bytes left_of_page(ByteRange gap, Bytes size) const noexcept;
  void forget_spared() noexcept { spared_known_ = 0; }
  Outcome hand_out_lent(LaneKey key, ByteRange bytes, Bytes requested, std::uint64_t id);
  [[nodiscard]] bool order_after_lanes(LaneKey key, ByteRange bytes) noexcept;
  [[nodiscard]] bool ensure(ByteRange bytes, LaneKey key, ByteRange around, bool planned) noexcept;
  void memory_changed() noexcept;
  void guard_moved(const ArenaMemory::Brought& brought, LaneKey key) noexcept;
  [[nodiscard]] std::vector<ByteRange> bytes_in_use() const;
  Bytes give_back(const std::vector<ByteRange>& stretches);
  void leave_schedule(Lane& lane);
  [[nodiscard]] bool let_go(ByteRange bytes, LaneKey key) noexcept;
  void tend_guards() noexcept;
  void select(Lane& lane) noexcept;
  [[nodiscard]] bool fence(const Lane& lane) noexcept;
  [[nodiscard]] Lane* take_over(LaneKey key);
  void recount() noexcept;

  Device& device_;
  LaneEvents& events_;
  std::shared_ptr<const PlanLookup> lookup_, given_up_;
  const PlanLookup::Entry* entries_ = nullptr;
  LaneKey fast_key_ = 0;  // whose requests serve() may serve
  Lane* fast_lane_ = nullptr;
  std::uint32_t attention_ = 0;
  bool parked_ = false;
  Bytes unproven_ = 0;
  bool leftover_ = false;
  bool crowded_ = false;
  Bytes most_left_ = kMaxBytes;
  // What spare_bytes() found, by Spare, until something changes; serve() changes the lane's next.
  std::array<std::vector<ByteRange>, 5> spared_;
  std::uint8_t spared_known_ = 0;  // a bit for each
  PlanLookup::SlotIndex spared_at_ = 0;
  // What keeps_page() goes by, and how many times more.
  std::vector<ByteRange> in_use_;
  std::size_t looks_left_ = 0;

  ArenaMemory memory_;
  Occupancy occupancy_;
  Walk walk_{occupancy_};
  Lanes lanes_;
  Pins pins_;
  Guards guards_{events_};
  Lending lending_;
  std::unordered_map<Bytes, std::vector<LaneKey>> uses_;  // of live blocks, on lanes not their own
  std::vector<Growth> growth_;
  struct Outgrown {
    Bytes room = 0;  // of the slot
    Growth growth;
  };
  std::optional<Outgrown> outgrown_;                    // by the last request
  std::unordered_map<std::uint64_t, Bytes> came_once_;  // the most, at a place of a bucket
};

}  // namespace berth
