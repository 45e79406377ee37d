// Steps and plans: marks, the switch to a plan, learning again.

#include "csrc/core/check.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/allocator_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace berth {
namespace {

// A plan is learned again when this share of a step's requests missed, in so many steps in a row.
constexpr double kMissShare = 0.01;
constexpr unsigned kMissingSteps = 3;

}  // namespace

void Allocator::mark_step(LaneKey lane) noexcept {
  Notes notes;
  State& state = *state_;
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

void Allocator::State::step_ended(LaneKey lane, Notes& notes) {
  ++counters.steps;
  if (recorder) recorder->append(trace::StepMark{recorded_lane(lane)});
  if (captured()) return;  // no event may be asked, no memory given back
  pool.process_events();
  if (options.config.mode == Mode::kLearn && !shut) {
    watch_misses();
    if (learner.active() && learner.mark(lane) && !planner.busy() && !planner.ready()) {
      planner.submit(learner.snapshot(options.program));
    }
    if (planner.ready()) adopt_plan(notes);
  }
  counters.realigned += arena.mark(lane);
  takeover.step_ended(next_id);
  if (arena.commit_due()) commit_arena(notes);
  mobility.mark_step();
}

// Switches to the plan that the planner made. Blocks still alive stay where they are.
void Allocator::State::adopt_plan(Notes& notes) {
  const std::optional<Planner::Result> result = planner.take();
  if (!result || !result->plan) return;  // nothing repeats yet
  const Status status = arena.activate(result->plan, Arena::Commit::kAtStepStart);
  if (!status.ok()) {
    refuse_arena(
        result->plan->plan().arena_bytes, [&] { return device.describe(status); }, notes);
    return;
  }
  ++counters.plans_learned;
  learner.stop();
  decide_watched();
  missing_steps = 0;
}

// Gives the arena its memory at the start of a step, which takes what the pool does not need now.
void Allocator::State::commit_arena(Notes& notes) {
  pool.set_thrift(0);
  pool.trim();
  const Bytes needed = takeover.needed(*arena.plan());
  if (!takeover.allows(needed)) {
    arena.rest();
    refuse_arena(
        needed, [&] { return over_limit(); }, notes);
  } else if (!takeover.begin(next_id)) {
    arena.rest();
    refuse_arena(
        needed, [] { return "the device has not got that much"; }, notes);
  }
  share_memory();
}

std::string Allocator::State::over_limit() const {
  return fmt::format("BERTH_MEMORY_LIMIT is {}, the pool has {}",
                     format_bytes(options.config.memory_limit), format_bytes(pool.reserved()));
}

// Learns again when the plan no longer describes the steps.
void Allocator::State::watch_misses() {
  const std::uint64_t requests = next_id - window_requests;
  const std::uint64_t hits = counters.hits - window_hits;
  window_requests = next_id;
  window_hits = counters.hits;
  if (!arena.plan() || learner.active() || requests == 0) return;
  if (relearn_after > 0) {
    --relearn_after;
    return;
  }
  const auto unplanned = static_cast<double>(arena.unplanned_slots());
  const double missed = static_cast<double>(requests) - static_cast<double>(hits) - unplanned;
  missing_steps =
      missed > std::max(2.0, kMissShare * static_cast<double>(requests)) ? missing_steps + 1 : 0;
  if (missing_steps < kMissingSteps) return;
  missing_steps = 0;
  relearn_after = std::uint64_t{8} << std::min(relearns++, 10u);
  learner.start();
  decide_watched();
}

void Allocator::load_plan(Plan plan) {
  State& state = *state_;
  if (!state.options.trust_plans) {
    const std::optional<std::string> violation = verify(plan);
    BERTH_CHECK(!violation, kInput, "the plan is refused: {}", *violation);
  }
  BERTH_CHECK(plan.alignment == state.options.alignment, kInput,
              "the plan aligns to {} bytes, this allocator to {}: plan the trace again",
              plan.alignment, state.options.alignment);
  std::shared_ptr<const PlanLookup> lookup = state.freeze(std::move(plan));
  const Bytes needed = state.takeover.needed(*lookup);
  const std::lock_guard lock(state.mutex);
  const State::NotesHeld notes_held{state};
  if (!state.takeover.allows(needed)) {
    throw Error(ErrorKind::kSystem, fmt::format("an arena of {} cannot be had: {}",
                                                format_bytes(needed), state.over_limit()));
  }
  const Status status = state.arena.activate(std::move(lookup), Arena::Commit::kNow);
  if (!status.ok()) {
    throw Error(ErrorKind::kSystem,
                fmt::format("an arena of {} cannot be had: {}", format_bytes(needed),
                            state.device.describe(status)));
  }
  state.share_memory();
}

std::optional<Plan> Allocator::plan() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->arena.plan()) return std::nullopt;
  return state_->arena.plan()->plan();
}

}  // namespace berth
