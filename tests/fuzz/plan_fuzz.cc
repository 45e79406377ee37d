// The reader of plans: what it accepts is legal, makes tables, and is written as it was read.
#include "csrc/core/check.h"
#include "csrc/plan/file.h"
#include "csrc/plan/lookup.h"
#include "csrc/plan/verify.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair_file.h"
#include "tests/plan/brute_force.h"
#include "tests/plan/plans.h"

#include <algorithm>

namespace berth {
namespace {

void require(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

fuzz::Input as_input(const std::vector<std::byte>& file) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(file.data());
  return {bytes, bytes + file.size()};
}

// Whether the brute-force run can follow the plan.
bool is_small(const Plan& plan) {
  std::size_t ticks = 0;
  for (const Sequence& sequence : plan.sequences) ticks += sequence.period;
  return ticks <= 20 && plan.lane_keys.size() <= 8 && plan.sequences.size() <= 5 &&
         plan.arena_bytes <= 4096 && plan.alignment >= 64 && plan.edges.size() <= 5 &&
         std::all_of(plan.edges.begin(), plan.edges.end(),
                     [](const PlanEdge& edge) { return edge.delta <= 2; });
}

void check(const Plan& plan) {
  require(verify(plan) == std::nullopt, "what is read is legal");
  if (is_small(plan)) require(test::is_legal_by_force(plan), "what is read is legal when run");
  require(parse_plan(serialize_plan(plan), "again") == plan, "what is written reads back");
  const PlanLookup lookup(plan);
  require(lookup.slot_count() == plan.slot_count(), "all slots have entries");
  for (PlanLookup::SlotIndex i = 0; i < lookup.slot_count(); ++i) {
    const PlanLookup::Entry& entry = lookup.entry(i);
    require(lookup.slot(i).birth == entry.birth, "entries are those of the slots");
    if (entry.cell == PlanLookup::kNone) continue;
    require(lookup.cell_at(entry.offset) == entry.cell, "cells are found by their offset");
    const std::uint32_t sequence = lookup.sequence_of(i);
    const std::uint32_t period = plan.sequences[sequence].period;
    const auto ends = lookup.ends_at(
        sequence, static_cast<std::uint32_t>((std::uint64_t{entry.birth} + entry.length) % period));
    require(std::count(ends.begin(), ends.end(), i) == 1, "slots end where they do");
  }
}

}  // namespace

namespace fuzz {

std::vector<std::pair<std::string, Input>> seeds() {
  using namespace test;
  const Plan branches =
      plan_of({sequence(0, {{0, 64, 3}, {64, 64, 1}, {64, 64, 1}}),
               branch(0, 0, 1, {{64, 640, 2}, {704, 64, 1}}), branch(0, 1, 2, {{704, 64, 2}})});
  const Plan turns = plan_of({sequence(0, {{0, 64, 1}, {64, 64, 1}, {Slot::kUnplanned, 64, 0}}),
                              sequence(1, {{Slot::kUnplanned, 64, 0}, {0, 128, 1}})},
                             {{0, 2, 1, 1, 0}, {1, 2, 0, 0, 1}});
  return {{"golden", as_input(serialize_plan(golden_plan()))},
          {"branches", as_input(serialize_plan(branches))},
          {"turns", as_input(serialize_plan(turns))},
          {"empty", as_input(serialize_plan(Plan{}))}};
}

void repair(Input& input) { repair_file(input); }

}  // namespace fuzz
}  // namespace berth

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace berth;
  // A copy of its own, so that a read beyond the end is seen, aligned as a file that was read.
  const std::vector<std::byte> file(reinterpret_cast<const std::byte*>(data),
                                    reinterpret_cast<const std::byte*>(data) + size);
  try {
    check(parse_plan(file, "input"));
  } catch (const Error& error) {
    require(error.kind() == ErrorKind::kInput, "refusals are input errors");
  }
  return 0;
}
