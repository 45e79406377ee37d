#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/device/page_store.h"
#include "csrc/runtime/arena.h"
#include "csrc/runtime/foretold.h"
#include "csrc/runtime/learner.h"
#include "csrc/runtime/notes.h"
#include "csrc/runtime/plan_finder.h"
#include "csrc/runtime/planner.h"
#include "csrc/runtime/trial.h"

#include <berth/stats.h>

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace berth {

// How an allocator comes to its plan and keeps one that fits: what was recorded is searched for a
// step when that is worth it (learner.h), planned in the background (planner.h) and switched to;
// where misses persist it is learned again, at growing distances; an arena that was refused is
// asked for again, at growing distances, where memory may be there. A plan of a folder that begins
// as the run does (plan_finder.h) is read in the background and served like a given one.
//
// Steps are those between marks; where none came for long (kUnmarkedRequests), windows of requests
// stand for them. All is called under the allocator's lock but run_errands(): what allocates, frees
// much or starts threads waits for it. The arena outlives it. O(1) a request and O(marks) a step,
// beside the switch itself and a search (O(chunks) under the lock).
class Learning {
 public:
  struct Options {
    bool learns = false;  // else plans are only given: load_plan() and mode serve
    Planner::Options planner;
    // Whether the memory of its arena may be there now.
    std::function<bool(const PlanLookup& plan)> has_room;
    // Makes room for it where no more would be held with it than was held before.
    enum class Room : std::uint8_t {
      kMade,
      kInUse,  // there would be room, but for what lives in the arena
      kNone,
    };
    std::function<Room(const PlanLookup& plan)> make_room;
    // The largest arena that a plan may have to serve now, unless it may need less of it.
    std::function<Bytes(bool may_need_less)> room_for_arena;
  };
  // `counters` outlives it: hits are read there, plans counted.
  Learning(Options options, Arena& arena, PageStore& store, Stats& counters);

  // Whether it wants to hear of every request, free and use.
  [[nodiscard]] bool listens() const noexcept { return learner_.listens() || looks(); }
  void request(trace::BlockId id, Bytes bytes, LaneKey lane, trace::Tag tag) noexcept {
    if (learner_.listens()) learner_.request(id, bytes, lane, tag);
    if (looks()) finder_->request(lane, bytes);
    note_errands();
  }
  void free(trace::BlockId id) noexcept {
    learner_.free(id);
    note_errands();
  }
  void use(trace::BlockId id, LaneKey lane) noexcept {
    learner_.use(id, lane);
    note_errands();
  }

  // Starts learning.
  void start() noexcept;
  // The planner's; null where there is none.
  // Whether a plan is being made. Needs no lock.
  [[nodiscard]] bool planning() const noexcept { return planner_.busy(); }
  [[nodiscard]] PlanFolder* folder() const noexcept { return options_.planner.folder.get(); }
  // Looks among its plans for that of this run, until one serves.
  void look_among(std::vector<PlanFolder::Found> plans);
  // Serves a plan that was not learned here, from the next start of a step on; false where its
  // arena cannot be reserved.
  bool serve_given(std::shared_ptr<const PlanLookup> plan, Notes& notes);
  // The arena serves a plan that was not learned here.
  void plan_given() noexcept;

  // A step of the lane ends; so many requests were made in all. May switch plans.
  void step_ended(LaneKey lane, std::uint64_t requests, Notes& notes);
  // So many requests were made in all, and the last one missed. May switch plans, where steps are
  // not marked. Not while a graph is captured.
  void missed(std::uint64_t requests, Notes& notes);
  // The plan's arena cannot be had, as `reason()` says, and nothing is served from it.
  template <class Reason>
  void refused(const std::shared_ptr<const PlanLookup>& plan, const Reason& reason,
               Notes& notes) noexcept {
    ++counters_.plan_failures;
    note_refused(plan);
    if (std::exchange(said_refused_, true)) return;
    notes.add("arena-memory", [&] {
      return fmt::format("an arena of {} cannot be allocated, the pool serves all until it can: {}",
                         format_bytes(plan->plan().arena_bytes), reason());
    });
  }

  // The steps that come are others than those before: what was learned is let go of, a plan that is
  // being made, too. False where nothing is learned, or the plan was given.
  [[nodiscard]] bool other_steps_come();
  // The program gave back what lay idle.
  void trimmed() noexcept { trial_.trimmed(); }
  // Serves those that come by a plan that was made before they did, as if it had been learned.
  void serve_foretold(const Foretold& foretold, Notes& notes);

  // Does what waits until the lock is free: call it without the lock after anything above.
  void run_errands(SpinMutex& mutex) noexcept {
    if (errands_.load(std::memory_order_relaxed)) [[unlikely]]
      run_waiting_errands(mutex);
  }

  // Cancels planning and waits for its end. Without the lock.
  void stop_planner() noexcept;
  // Ends learning.
  void stop() noexcept;

 private:
  struct Search {
    std::uint64_t from = 0;
    Learner::Search kind = Learner::Search::kAtMarks;
    std::vector<Arena::Growth> growth = {};
    Planner::Limits limits = {};
  };
  // A plan that fits the steps, but not the memory that there was.
  struct Refused {
    std::shared_ptr<const PlanLookup> plan;
    unsigned times = 0;
    std::uint64_t wait = 0;  // steps
    // What the arena served until it was to be emptied for this plan.
    std::shared_ptr<const PlanLookup> former = {};
  };

  void run_waiting_errands(SpinMutex& mutex) noexcept;
  void note_errands() noexcept {
    const bool wanted = search_.has_value() || learner_.wants_chunk() || learner_.has_waste() ||
                        may_read() || (finder_ && finder_->over()) || to_keep_.has_value();
    errands_.store(wanted, std::memory_order_relaxed);
  }
  [[nodiscard]] bool unmarked(std::uint64_t requests) const noexcept;
  [[nodiscard]] bool looks() const noexcept { return finder_ && !finder_->over(); }
  [[nodiscard]] bool may_read() const noexcept {
    return looks() && finder_->found() != nullptr && planner_idle();
  }
  [[nodiscard]] bool planner_free() const noexcept {
    return !search_ && !reading_ && !to_keep_ && !planner_.busy();
  }
  [[nodiscard]] bool planner_idle() const noexcept { return planner_free() && !planner_.ready(); }
  void search(Search search);
  bool adopt(Notes& notes);
  bool serve_learned(const std::shared_ptr<const PlanLookup>& plan,
                     std::span<const KnownKind> kinds, bool cycle, Notes& notes);
  bool adopt_read(std::shared_ptr<const PlanLookup> plan, Notes& notes);
  void watch_finder(std::uint64_t requests, Notes& notes);
  void watch_searches(std::uint64_t requests, Notes& notes);
  bool serve(const std::shared_ptr<const PlanLookup>& plan, Notes& notes);
  bool serve_beside_pool(const std::shared_ptr<const PlanLookup>& plan, Notes& notes);
  void serve_former(const std::shared_ptr<const PlanLookup>& plan);
  void note_refused(const std::shared_ptr<const PlanLookup>& plan) noexcept;
  bool give_way_to_limit();
  void end_window(std::uint64_t requests, Notes& notes);
  void try_again(Notes& notes);
  void compare_with_pool(bool hit, Notes& notes);
  void keep_no_worse(std::shared_ptr<const PlanLookup> plan) noexcept;
  void end_trial() noexcept;
  void watch_fit(std::uint64_t requests, std::uint64_t hits, Notes& notes);
  void watch_misses(std::uint64_t requests, std::uint64_t hits, std::uint64_t astray);

  const Options options_;
  Arena& arena_;
  PageStore& store_;
  Stats& counters_;
  Learner learner_;
  Planner planner_;
  std::optional<Search> search_;        // waits for run_errands()
  std::shared_ptr<PlanFinder> finder_;  // null: there is no folder, or it is over
  bool reading_ = false;                // what it found
  std::atomic<bool> errands_{false};

  std::uint64_t marks_ = 0, requests_at_mark_ = 0, longest_step_ = 0;
  // When the current window began.
  std::uint64_t window_requests_ = 0, window_hits_ = 0, window_astray_ = 0;
  Learner::Fit fit_ = Learner::Fit::kAll;  // of the window before
  unsigned missing_steps_ = 0;
  std::uint64_t relearn_after_ = 0;  // windows to wait before learning again
  unsigned relearns_ = 0;
  std::uint64_t look_after_ = 0;  // windows to wait before looking for kinds again
  unsigned looks_ = 0;            // for kinds, in vain
  // Of buckets that were too small: when one grew last, how often in a row, marks to wait.
  std::uint64_t grown_at_ = 0, growth_after_ = 0;
  unsigned growths_ = 0;
  bool cycle_ = false;  // the plan has steps in the same turns always

  Trial trial_;
  std::shared_ptr<const PlanLookup> set_aside_;  // by the trial
  // Waits for run_errands(): what is to be on disk; null: no plan.
  std::optional<std::shared_ptr<const PlanLookup>> to_keep_;

  Refused refused_;
  // Of arenas that were to be emptied in vain: steps to wait, how often.
  std::uint64_t drain_after_ = 0;
  unsigned drains_ = 0;
  bool said_refused_ = false, said_no_period_ = false, said_too_long_ = false;

  // Of a plan that was given: windows in a row that it hardly served.
  bool given_ = false, said_misfit_ = false;
  unsigned misfits_ = 0;
  std::uint64_t misfit_requests_ = 0, misfit_hits_ = 0;
};

// Runs the errands of a section under the lock at its end, when the lock is free again.
class Errands {
 public:
  Errands(Learning& learning, SpinMutex& mutex) noexcept : learning_(learning), mutex_(mutex) {}
  ~Errands() { learning_.run_errands(mutex_); }
  Errands(const Errands&) = delete;
  Errands& operator=(const Errands&) = delete;

 private:
  Learning& learning_;
  SpinMutex& mutex_;
};

}  // namespace berth
