#include <berth/step_program.h>

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace berth::torch {
namespace {

// All members, in the order of the JSON object.
template <class Number, class Text>
void for_each(const StepProgramStats& stats, const Number& number, const Text& text) {
#define NUMBER(name) number(#name, stats.name)
#define TEXT(name) text(#name, stats.name)
  NUMBER(steps);
  NUMBER(scheduled);
  NUMBER(diverged);
  NUMBER(refused);
  NUMBER(recovered);
  NUMBER(programs);
  NUMBER(planning);
  NUMBER(made);
  NUMBER(refined);
  NUMBER(operators);
  NUMBER(predicted_peak);
  NUMBER(resident);
  NUMBER(recorded_peak);
  NUMBER(predicted_ns);
  NUMBER(recorded_ns);
  NUMBER(bound_ns);
  NUMBER(step_ns);
  NUMBER(schedule_ns);
  NUMBER(ran_beside);
  NUMBER(recomputed);
  NUMBER(alternatives);
  NUMBER(chosen);
  NUMBER(offloaded_bytes);
  NUMBER(host_peak);
  NUMBER(spilled_out);
  NUMBER(spilled_in);
  NUMBER(spilled_peak);
  NUMBER(spill_ns);
  NUMBER(barriers);
  TEXT(barrier_operators);
  TEXT(last_divergence);
  TEXT(last_refusal);
  TEXT(budget_not_met);
  TEXT(schedule_not_taken);
#undef TEXT
#undef NUMBER
}
// A new member belongs into the list.
static_assert(sizeof(StepProgramStats) == 29 * sizeof(std::uint64_t) + 5 * sizeof(std::string));

std::string escaped(const std::string& words) {
  std::string all;
  for (const char c : words) {
    if (c == '"' || c == '\\') all += '\\';
    all += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return all;
}

}  // namespace

std::string StepProgramStats::to_json() const {
  std::string all;
  for_each(
      *this,
      [&](const char* name, std::uint64_t value) {
        all += fmt::format("{}\"{}\": {}", all.empty() ? "{" : ", ", name, value);
      },
      [&](const char* name, const std::string& words) {
        all += fmt::format(", \"{}\": \"{}\"", name, escaped(words));
      });
  return all + "}";
}

}  // namespace berth::torch
