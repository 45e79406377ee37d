// Steps and plans: marks, the switch to a plan, learning again.

#include "csrc/core/check.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/allocator_state.h"
#include "csrc/runtime/foretold.h"
#include "csrc/runtime/plan_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace berth {
namespace {

// The longest distance between looks for pages that an earlier plan left: 2 to the power of this.
constexpr unsigned kMostLooks = 6;
// The step that ends when others are expected has its mark still to come.
constexpr unsigned kForetoldMarks = 2;
// Where no pages are mapped and the limit is less than a third above what lives, a range for a plan
// is one more that nothing else can use a part of.
constexpr Bytes kPartOfRange = 3;
// Where the limit leaves less than this part of what lives beside that, a plan of buckets may not
// need more than the limit leaves, whatever of it will be in use at one time.
constexpr Bytes kPartForBuckets = 16;
// What a plan may hold beyond the target, as a part of what lives: its hits are worth it.
constexpr Bytes kWorthPart = 256;

}  // namespace

void Allocator::mark_step(LaneKey lane) noexcept {
  State& state = *state_;
  const Errands errands(state.learning, state.mutex);
  Notes notes;
  const std::lock_guard lock(state.mutex);
  if (state.forked) return;
  const State::NotesHeld notes_held{state};
  try {
    state.step_ended(lane, notes);
  } catch (const std::exception& error) {
    ++state.counters.plan_failures;
    notes.add("plan-failed", [&] { return error.what(); });
  }
}

std::shared_ptr<const Foretold> Allocator::foretell(std::span<const StepRequests> kinds,
                                                    double seconds) const {
  if (state_->options.config.mode != Mode::kLearn) return nullptr;
  return berth::foretell(kinds, state_->options.program, state_->options.alignment, seconds);
}

void Allocator::expect_other_steps(const Foretold* foretold) noexcept {
  State& state = *state_;
  const Errands errands(state.learning, state.mutex);
  Notes notes;
  const std::lock_guard lock(state.mutex);
  if (state.forked || state.captured() || state.parked.parked()) return;
  const State::NotesHeld notes_held{state};
  try {
    if (!state.learning.other_steps_come()) return;
  } catch (const std::exception&) {  // no memory: the next steps are learned beside these
    return;
  }
  state.arena.deactivate();
  (void)state.trim();
  // What those steps held is no measure of what these may.
  state.store.forget_peak();
  state.counters.begin_other_steps();
  if (foretold == nullptr) return;
  try {
    // mutant: foretold-live
    state.foretold_live = state.counters.live + foretold->plan->plan().lower_bound;
    state.foretold_marks = kForetoldMarks;
    state.learning.serve_foretold(*foretold, notes);
  } catch (const std::exception&) {  // no memory: they are learned
    ++state.counters.plan_failures;
  }
}

void Allocator::State::step_ended(LaneKey lane, Notes& notes) {
  marked_at[++counters.steps % marked_at.size()] = next_id;
  if (counters.steps == 1) begun_at = next_id;
  recording.append(trace::StepMark{recording.lane(lane)});
  // No event may be asked, no memory given back.
  // mutant: s13-step, parked-step
  if (captured() || parked.parked()) return;
  if (foretold_marks > 0 && --foretold_marks == 0) foretold_live = 0;
  // As the pool does for its own: what no event covers is not kept until memory runs out.
  // mutant: s2-arena-kept
  if (arena.unproven() > Pool::kMostUnproven && lane_events.synchronize()) note_held();
  pool.process_events();
  learning.step_ended(lane, next_id, notes);
  counters.realigned += arena.mark(lane);
  if (arena.missing() != 0) fill_arena(true);
  // mutant: leftover-stays
  if (arena.has_leftover()) drop_leftover();
  fallback.mark_step();
  decide_watched();
}

void Allocator::State::fill_arena(bool marked) noexcept {
  // Before its first step starts, what comes lives on: weights, which would have the arena's bytes.
  // mutant: s13-fill, fill-entered
  if (captured() || !arena.entered()) return;
  fill_at = next_id + arena.slot_count();
  // Nor between marks where no request came to it since: its lanes may be over.
  const std::uint64_t hits = counters.hits + counters.hits_bucket;
  // mutant: pages-unasked
  if (std::exchange(filled_for, hits) == hits && !marked) return;
  // Others come with the blocks on them: what no step uses any more stays away after trim().
  // mutant: fill-grows
  (void)arena.fill(false);
}

// What an earlier plan had and this one does not need goes where more is held than ever lived. What
// still lives there keeps it: then the next look is after 2, 4, 8, .. marks.
void Allocator::State::drop_leftover() noexcept {
  if (leftover_wait > 0) {
    --leftover_wait;
    return;
  }
  if (store.held() <= counters.live_peak + slack(counters.live_peak)) return;
  leftover_looks = arena.give_back_leftover() != 0 ? 0 : std::min(leftover_looks + 1, kMostLooks);
  leftover_wait = leftover_looks == 0 ? 0 : std::uint64_t{1} << leftover_looks;
}

bool Allocator::State::has_room(const PlanLookup& plan) noexcept {
  Bytes free = 0;
  return store.free_bytes(&free).ok() &&
         free + arena.committed() + pool.reserved() - pool.stats().live >= arena.needed(plan);
}

bool Allocator::State::is_ample() noexcept {
  Bytes free = 0;
  // mutant: trim-ample
  return store.free_bytes(&free).ok() && store.held() + free >= 2 * counters.live_peak;
}

// The first step makes what lives on. Of later blocks those of the last steps may end with others
// like them, in the arena then.
Bytes Allocator::State::beside_plan() const noexcept {
  const std::uint64_t oldest = marked_at[(counters.steps + 1) % marked_at.size()];
  // mutant: room-resident
  return pool.pages_of_blocks(std::max(begun_at, oldest));
}

Bytes Allocator::State::room_for_arena(bool may_need_less) const noexcept {
  // What a foretold step holds is not known before.
  if (!device.properties().aliases || foretold_live != 0) return kMaxBytes;
  // mutant: room-buckets
  if (may_need_less && !store.is_near_limit(counters.live_peak, kPartForBuckets)) return kMaxBytes;
  const Bytes room = store.room();
  const Bytes limit = room == kMaxBytes ? kMaxBytes : store.held() + room;
  const Bytes worth = target(0) + counters.live_peak / kWorthPart;
  // mutant: room-declined
  const Bytes wanted = may_need_less ? kMaxBytes : std::max(store.peak(), worth);
  const Bytes most = std::min(wanted, limit);
  const Bytes beside = beside_plan();
  return most - std::min(most, beside);
}

Learning::Options::Room Allocator::State::make_room(const PlanLookup& plan) noexcept {
  using Room = Learning::Options::Room;
  if (device.properties().aliases)
    return plan.plan().arena_bytes <= room_for_arena(may_need_less(plan)) ? Room::kMade
                                                                          : Room::kNone;
  if (device.properties().maps_pages) return Room::kMade;
  const Bytes more = arena.growth_for(plan);
  // mutant: plain-near-limit
  if (store.is_near_limit(counters.live_peak, kPartOfRange)) return Room::kNone;
  if (more == 0) return Room::kMade;
  // The former range goes before the new one comes.
  const auto held = [&] { return store.held() - arena.committed() + more; };
  // mutant: plain-judged
  if (held() - pool.idle() > store.peak()) return Room::kNone;
  if (arena.in_use()) return Room::kInUse;
  made_room = true;
  // mutant: plain-idle
  if (held() > store.peak()) (void)pool.trim();
  return held() <= store.peak() ? Room::kMade : Room::kNone;
}

void Allocator::load_plan(Plan plan) {
  const std::optional<std::string> violation = verify(plan);
  BERTH_CHECK(!violation, kInput, "the plan is refused: {}", *violation);
  BERTH_CHECK(plan.alignment == state_->options.alignment, kInput,
              "the plan aligns to {} bytes, this allocator to {}: plan the trace again",
              plan.alignment, state_->options.alignment);
  serve(state_->freeze(std::move(plan)));
}

void Allocator::serve(std::shared_ptr<const PlanLookup> plan) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  BERTH_CHECK(
      !state.captured(), kUsage,
      "a plan was loaded while a graph is being captured: its arena would void the capture");
  const State::NotesHeld notes_held{state};
  // mutant: parked-plan
  if (state.parked.parked()) state.unpark();
  const Bytes needed = state.arena.needed(*plan);
  const auto refuse = [&](const std::string& why) {
    throw Error(
        ErrorKind::kSystem,
        fmt::format("an arena of {} cannot be allocated: {}; {} are held, BERTH_MEMORY_LIMIT is {}",
                    format_bytes(needed), why, format_bytes(state.store.held()),
                    format_bytes(state.options.config.memory_limit)));
  };
  // A page that comes with its first block is the pool's until then: what a first step keeps that
  // is unlike the others does not lie in the arena for good.
  const bool as_used = state.device.properties().aliases;
  if (as_used && !state.has_room(*plan)) refuse("no more is free");
  const PageStore::Exceeding exceeding(state.store);
  const Status status =
      state.arena.activate(std::move(plan), as_used ? Arena::Pages::kAsUsed : Arena::Pages::kNow);
  if (!status.ok()) refuse(state.device.describe(status));
  state.learning.plan_given();
}

std::optional<Plan> Allocator::plan() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->arena.plan()) return std::nullopt;
  return state_->arena.plan()->plan();
}

}  // namespace berth
