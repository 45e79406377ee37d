// Steps and plans: marks, the switch to a plan, learning again.

#include "csrc/core/check.h"
#include "csrc/plan/verify.h"
#include "csrc/runtime/allocator_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <utility>

namespace berth {

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

void Allocator::State::step_ended(LaneKey lane, Notes& notes) {
  ++counters.steps;
  recording.append(trace::StepMark{recording.lane(lane)});
  if (captured()) return;  // no event may be asked, no memory given back
  // As the pool does for its own: what no event covers is not kept until memory runs out.
  if (arena.unproven() > Pool::kMostUnproven && lane_events.synchronize()) note_held();
  pool.process_events();
  learning.step_ended(lane, next_id, notes);
  counters.realigned += arena.mark(lane);
  takeover.step_ended(next_id);
  if (arena.commit_due()) commit_arena(notes);
  fallback.mark_step();
  decide_watched();
}

// Gives the arena its memory at the start of a step, which takes what the pool does not need now.
void Allocator::State::commit_arena(Notes& notes) {
  pool.set_thrift(0);
  pool.trim();
  const Bytes needed = takeover.needed(*arena.plan());
  if (!takeover.allows(needed)) {
    refuse_arena([&] { return over_limit(); }, notes);
  } else if (!takeover.begin(next_id)) {
    refuse_arena([] { return "the device has not got that much"; }, notes);
  }
  share_memory();
}

std::string Allocator::State::over_limit() const {
  return fmt::format("BERTH_MEMORY_LIMIT is {}, the pool has {}",
                     format_bytes(options.config.memory_limit), format_bytes(pool.reserved()));
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
  const Bytes needed = state.takeover.needed(*plan);
  const std::lock_guard lock(state.mutex);
  BERTH_CHECK(
      !state.captured(), kUsage,
      "a plan was loaded while a graph is being captured: its arena would void the capture");
  const State::NotesHeld notes_held{state};
  if (!state.takeover.allows(needed)) {
    throw Error(ErrorKind::kSystem, fmt::format("an arena of {} cannot be had: {}",
                                                format_bytes(needed), state.over_limit()));
  }
  const Status status = state.arena.activate(std::move(plan), Arena::Commit::kNow);
  if (!status.ok()) {
    throw Error(ErrorKind::kSystem,
                fmt::format("an arena of {} cannot be had: {}", format_bytes(needed),
                            state.device.describe(status)));
  }
  state.learning.plan_given();
  state.share_memory();
}

std::optional<Plan> Allocator::plan() const {
  const std::lock_guard lock(state_->mutex);
  if (!state_->arena.plan()) return std::nullopt;
  return state_->arena.plan()->plan();
}

}  // namespace berth
