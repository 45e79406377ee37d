#pragma once

#include <berth/step_program.h>

#include <cstdint>
#include <string>

namespace berth::torch {

// Calls number(name, value) and text(name, value) for every member, in the order of JSON.
template <class Number, class Text>
void for_each_member(const StepProgramStats& stats, const Number& number, const Text& text) {
#define BERTH_NUMBER(name) number(#name, stats.name)
#define BERTH_TEXT(name) text(#name, stats.name)
  BERTH_NUMBER(steps);
  BERTH_NUMBER(scheduled);
  BERTH_NUMBER(diverged);
  BERTH_NUMBER(refused);
  BERTH_NUMBER(recovered);
  BERTH_NUMBER(programs);
  BERTH_NUMBER(planning);
  BERTH_NUMBER(made);
  BERTH_NUMBER(refined);
  BERTH_NUMBER(operators);
  BERTH_NUMBER(predicted_peak);
  BERTH_NUMBER(resident);
  BERTH_NUMBER(recorded_peak);
  BERTH_NUMBER(predicted_ns);
  BERTH_NUMBER(recorded_ns);
  BERTH_NUMBER(bound_ns);
  BERTH_NUMBER(step_ns);
  BERTH_NUMBER(schedule_ns);
  BERTH_NUMBER(ran_beside);
  BERTH_NUMBER(recomputed);
  BERTH_NUMBER(alternatives);
  BERTH_NUMBER(chosen);
  BERTH_NUMBER(offloaded_bytes);
  BERTH_NUMBER(host_peak);
  BERTH_NUMBER(spilled_out);
  BERTH_NUMBER(spilled_in);
  BERTH_NUMBER(spilled_peak);
  BERTH_NUMBER(spill_ns);
  BERTH_NUMBER(barriers);
  BERTH_TEXT(barrier_operators);
  BERTH_TEXT(last_divergence);
  BERTH_TEXT(last_refusal);
  BERTH_TEXT(budget_not_met);
  BERTH_TEXT(schedule_not_taken);
#undef BERTH_TEXT
#undef BERTH_NUMBER
}
// A new member belongs into the list.
static_assert(sizeof(StepProgramStats) == 29 * sizeof(std::uint64_t) + 5 * sizeof(std::string));

}  // namespace berth::torch
