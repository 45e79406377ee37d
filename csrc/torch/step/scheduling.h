#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/torch/step/instructions.h"

#include <string>

namespace berth::torch::step {

struct SchedulingOptions {
  // Of schedule::step_engines(); "auto" without a budget is "order". Of the three budgets one at
  // most.
  std::string engine = "auto";
  Bytes budget = 0;       // 0: none
  double share = 0;       // the same as a share of what the step takes as recorded; 0: none
  double more_time = -1;  // the least memory that takes so much more time; below 0: none
  double time_limit_seconds = 2;
  std::uint64_t copy_rate = 0;  // bytes a second to the host and back; 0: nothing is copied
  bool other_bits = false;      // whether algorithms may be taken that give other bits
  std::string algorithms = {};  // the file that keeps what was measured of them; empty: none
  // One that is there already: a program that it is for is run by it, whatever the rest says.
  const graph::Schedule* given = nullptr;
};

// The program as planners take it, sizes rounded as its device's allocator rounds them.
[[nodiscard]] graph::Graph planning_graph(const Program& program);

// The same as it was recorded: nothing taken apart, each result in bytes of its own. As traces have
// it (`csrc/graph/step_from_trace`).
[[nodiscard]] graph::Graph written_graph(const Program& program);

// How the program is to be run. Where nothing fits the budget, the result is that without one, and
// says why.
[[nodiscard]] Scheduled schedule(Program program, const SchedulingOptions& options);

// Behind a step by the schedule: once enough of them were measured, and where its calls take a
// tenth more or less there than was predicted, gives the program these times and plans it once
// more, from the schedule that it has. Whether it is to be run by another one from now on, which is
// better by these times. Takes no time but then.
bool refine(Scheduled& ran, const SchedulingOptions& options);

// Each call once, in the order of the record, values released after their last use.
[[nodiscard]] Instructions instructions_as_recorded(const Program& program);

// The engine that goes by this name here: papers' names are synonyms, "olla" of "order", and
// "berth" of "auto". What is no synonym is itself.
[[nodiscard]] std::string engine_of(const std::string& name);

// Why no program can be scheduled so, in words; empty where it can.
[[nodiscard]] std::string why_not(const SchedulingOptions& options);

}  // namespace berth::torch::step
