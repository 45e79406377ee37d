#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"
#include "csrc/graph/schedule.h"
#include "csrc/torch/step/instructions.h"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace berth::torch::step {

struct SchedulingOptions {
  // Of schedule::step_engines(); "auto" without a budget is "order". Of the three budgets one at
  // most.
  std::string engine = "auto";
  Bytes budget = 0;  // 0: none
  // The same as a share of what the step as recorded adds to what is there between steps; 0: none.
  double share = 0;
  double more_time = -1;          // the least memory that takes so much more time; below 0: none
  double time_limit_seconds = 2;  // of each search
  std::uint64_t copy_rate = 0;    // bytes a second to the host and back; 0: nothing is copied
  // Whether something is copied where the budget is not met without copies, with copy_rate 0: as
  // fast as such devices do it.
  bool offload_if_needed = false;
  // What may be on the host at one time; 0: no limit, and what is there between steps stays. Else
  // that may be on the host meanwhile, too (see spills.h), and a budget that it exceeds leaves room
  // for what a step adds.
  Bytes host_memory = 0;
  [[nodiscard]] bool spills() const { return host_memory > 0; }
  bool other_bits = false;      // whether algorithms may be taken that give other bits
  std::string algorithms = {};  // the file that keeps what was measured of them; empty: none
  // One that is there already: a program that it is for is run by it, whatever the rest says.
  const graph::Schedule* given = nullptr;
  const std::atomic<bool>* cancel = nullptr;  // set by any thread: what is planned throws
};

// The program as planners take it, sizes rounded as its device's allocator rounds them.
[[nodiscard]] graph::Graph planning_graph(const Program& program);

// The same as it was recorded: nothing taken apart, each result in bytes of its own. As traces have
// it (`csrc/graph/step_from_trace`).
[[nodiscard]] graph::Graph written_graph(const Program& program);

// Asks libraries for alternatives of the program's calls, which they measure: no step runs
// meanwhile. Before it is planned.
void find_ways(Program& program, const SchedulingOptions& options);

// How the program is to be run. Where nothing fits the budget, the result is that without one, and
// says why. The program goes into the result, unless something is thrown. On any thread.
[[nodiscard]] Scheduled schedule(Program& program, const SchedulingOptions& options);
// The same once more, for a program whose calls have other times, from the schedule that it has.
[[nodiscard]] Scheduled schedule_again(Program& program, const Refinement& before,
                                       const SchedulingOptions& options);
// By which it may be run meanwhile: as it was recorded, in the least memory without a search.
[[nodiscard]] Scheduled schedule_meanwhile(Program program, const SchedulingOptions& options);

// Has berth's allocators plan the addresses of a schedule that will take over, beside those of
// other programs. On any thread. Nothing where no allocator of berth is installed.
void foretell(Scheduled& scheduled, std::span<const RequestsOn> beside);

// Behind a step by the schedule: once enough of them were measured, and where its calls take a
// tenth more or less there than was predicted, the program with these times, which is worth
// planning again; `before` is what it was planned from. Takes no time but then.
[[nodiscard]] std::optional<Program> measured_anew(Scheduled& ran,
                                                   std::unique_ptr<Refinement>& before);
// Whether the program is to be run by what was found then, which is better by these times: `ran` is
// that then; else it has these times.
bool take_if_better(Scheduled& ran, Scheduled found, const SchedulingOptions& options);

// Each call once, in the order of the record, values released after their last use.
[[nodiscard]] Instructions instructions_as_recorded(const Program& program);

// Why no program can be scheduled so, in words; empty where it can.
[[nodiscard]] std::string why_not(const SchedulingOptions& options);

}  // namespace berth::torch::step
