#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/held_memory.h"
#include "csrc/device/lane_events.h"
#include "csrc/device/page_store.h"
#include "csrc/device/parked_pages.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/accounts.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"
#include "csrc/runtime/fallback.h"
#include "csrc/runtime/hit_share.h"
#include "csrc/runtime/learning.h"
#include "csrc/runtime/miss_table.h"
#include "csrc/runtime/notes.h"
#include "csrc/runtime/overlap_check.h"
#include "csrc/runtime/recording.h"
#include "csrc/runtime/settings.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

// What the files of the allocator share (allocator.cc, allocator_release.cc, allocator_steps.cc);
// nobody else includes it.
namespace berth {

// All that the lock covers.
struct Allocator::State {
  State(Device& the_device, Options the_options)
      : device(the_device),
        options(std::move(the_options)),
        mutex(options.lock != nullptr ? *options.lock : own_mutex),
        held(options.memory_listener),
        store(the_device, &held),
        parked(store),
        lane_events(store, options.captures),
        pool(store, lane_events, pool_options()),
        arena(store, lane_events, options.alignment, &pool),
        fallback(options, store, lane_events, arena, pool, counters),
        learning(learning_options(), arena, store, counters) {
    store.set_limit(options.config.memory_limit);
    store.set_handle(options.config.handle);
    pool.borrow_from(&arena);
    if (options.config.check == CheckLevel::kFull) overlap_check.emplace();
  }

  [[nodiscard]] std::string plan_file() const {
    return expand_file_name(options.config.plan, options.program, options.device_index);
  }
  [[nodiscard]] PoolOptions pool_options();
  [[nodiscard]] Learning::Options learning_options();
  [[nodiscard]] std::shared_ptr<PlanFolder> plan_folder() const;
  [[nodiscard]] std::unique_ptr<Recorder> open_trace(const std::string& file) const;
  [[nodiscard]] Bytes rounded(Bytes size) const noexcept {
    return align_up(size, options.alignment);
  }

  void open();
  void open_folder();
  void warn_of_other_program(const Plan& plan);
  std::shared_ptr<const PlanLookup> freeze(Plan plan) const;

  // Cold: allocate() keeps its hits apart from what it cleans up here. Else they take a jump more.
  [[gnu::cold]] void* allocate_slowly(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id,
                                      Notes& notes);
  Arena::Outcome ask_arena(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id) noexcept;
  void note_miss(Served missed, Bytes size, LaneKey lane, trace::Tag tag) noexcept;
  void* allocate_elsewhere(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id,
                           Notes& notes);
  void watch_request(void* pointer, Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id);
  void decide_watched() noexcept {
    watched = overlap_check || learning.listens() || recording.active();
  }
  void give_back(void* pointer);
  FreeOutcome free_slowly(void* pointer, std::optional<LaneKey> freeing) noexcept;
  void for_each_stretch(const std::function<void(const Stretch&, bool arena)>& visit) const;
  [[nodiscard]] std::string check_held() const;
  [[nodiscard]] bool captured() const noexcept { return lane_events.captured(); }
  void tell_served(void* pointer, Bytes size, LaneKey lane) noexcept {
    if (options.listener != nullptr) options.listener->served({pointer, size, rounded(size), lane});
  }

  // Arena::take_back(). Whose the block was costs a look at the lanes: only for who asks.
  [[nodiscard]] bool take_back_quickly(void* pointer) noexcept {
    Bytes asked = 0;
    LaneKey owner = 0;
    if (options.listener == nullptr) [[likely]] {
      if (!arena.take_back(pointer, &asked)) return false;
    } else {
      if (!arena.take_back(pointer, &asked, &owner)) return false;
      options.listener->freed({pointer, asked, rounded(asked), owner}, false);
    }
    ++counters.frees;
    counters.taken_back(rounded(asked), asked);
    return true;
  }

  // The contents that release() took come back. Throws as Allocator::resume().
  void unpark();

  void step_ended(LaneKey lane, Notes& notes);
  // Allocator::trim().
  Bytes trim() noexcept;
  // The pages that the arena still needs, as far as that raises no peak.
  void fill_arena(bool marked) noexcept;
  // Whether there is room for twice what lived at most.
  [[nodiscard]] bool is_ample() noexcept;
  void drop_leftover() noexcept;
  [[nodiscard]] bool has_room(const PlanLookup& plan) noexcept;
  // Whether no more is held with a plan than was before, or than should be. Where no pages are
  // mapped, idle segments of the pool go back for its arena. O(chunks of the pool).
  [[nodiscard]] Learning::Options::Room make_room(const PlanLookup& plan) noexcept;
  // The largest arena beside which that is so, where pages have several addresses; no limit
  // elsewhere. Of a plan that may need less than it says only a near limit counts.
  [[nodiscard]] Bytes room_for_arena(bool may_need_less) const noexcept;
  // The pages in the pool of what lives longer than steps: they stay beside a plan.
  [[nodiscard]] Bytes beside_plan() const noexcept;
  // The most that lived, will where that is foretold, or does with so much more.
  [[nodiscard]] Bytes live_with(Bytes asked) const noexcept;
  // What may be held for the sake of a request while pages of the arena could serve it.
  [[nodiscard]] Bytes allowance(Bytes asked) const noexcept;
  [[nodiscard]] Bytes slack(Bytes live) const noexcept;
  // Whether parts of pages are to be used before whole ones.
  void look_at_parts() noexcept;
  // What should be held at most once so much more is asked for.
  [[nodiscard]] Bytes target(Bytes asked) const noexcept;
  // Whether the target holds for the pool alone. A page with one address is the arena's or the
  // pool's: a plan's blocks get theirs, whatever is held.
  [[nodiscard]] bool pool_has_target() const noexcept;
  void note_held() noexcept;
  // Notes at the end of a call, however it ends.
  struct NotesHeld {
    State& state;
    ~NotesHeld() { state.note_held(); }
  };

  Device& device;
  const Options options;
  SpinMutex own_mutex;
  SpinMutex& mutex;
  Accounts counters;
  MissTable misses;
  HeldMemory held;                     // where it is in use
  PageStore store;                     // of what arena and pool hold
  ParkedPages parked;                  // what release() took of it
  LaneEvents lane_events;              // that they wait for
  std::uint64_t synchronizations = 0;  // of the device, that the arena has heard of
  Pool pool;
  Arena arena;
  Fallback fallback;
  Recording recording;
  std::optional<OverlapCheck> overlap_check;  // under BERTH_CHECK=full
  bool watched = false;  // one of those that hear of all requests and frees is at work

  Learning learning;
  std::uint64_t next_id = 0;    // of blocks; also counts requests
  unsigned leftover_looks = 0;  // for pages of an earlier plan, in vain
  std::uint64_t leftover_wait = 0;
  HitShare hit_share;                         // of the plan that serves
  std::uint64_t parts_at = 0;                 // the request at which look_at_parts() looks next
  bool made_room = false;                     // make_room() did, ever
  std::array<std::uint64_t, 16> marked_at{};  // next_id at the last marks
  std::uint64_t begun_at = 0;                 // and at the first one
  Bytes foretold_live = 0;                    // in the first step that was foretold; 0 behind it
  unsigned foretold_marks = 0;                // until then
  std::uint64_t fill_at = 0;     // the request at which the arena is filled where no mark comes
  std::uint64_t filled_for = 0;  // the hits that were counted then
  bool forked = false, shut = false;
};

}  // namespace berth
