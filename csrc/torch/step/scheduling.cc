#include "csrc/torch/step/scheduling.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/facts/rounding.h"
#include "csrc/graph/hash.h"
#include "csrc/torch/step/account.h"
#include "csrc/torch/step/algorithms.h"
#include "csrc/torch/step/operator_facts.h"
#include "csrc/torch/step/program_graph.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace berth::torch::step {

namespace {

bool on_host(const Program& program) {
  return std::all_of(program.storages.begin(), program.storages.end(),
                     [](const RecordedStorage& storage) { return storage.device.is_cpu(); });
}

Bytes alignment_of(const Program& program) {
  return on_host(program) ? facts::kHostAlignment : facts::kCudaUnit;
}

graph::Schedule as_recorded(const ProgramGraph& of) {
  std::vector<graph::OperatorId> order(of.graph.operators.size());
  std::iota(order.begin(), order.end(), 0U);
  return graph::schedule_of_order(of.graph, order);
}

// As it may be replayed: times of operators are others in each record, so the graph is another by
// its hash; and the budget is what the schedule was found within, by those times.
graph::Schedule fitted(graph::Schedule schedule) {
  schedule.graph_hash = 0;
  schedule.budget = 0;
  return schedule;
}

// A program is planned again where it takes this part more or less than was predicted.
constexpr std::uint64_t kWorthPlanning = 10;

// Bytes a second, where nobody says: PCIe 4, and memcpy() of one thread.
constexpr std::uint64_t kCopyRate = 20'000'000'000, kCopyRateOfCpu = 4'000'000'000;

// By this part of a budget a step may exceed it before that is told.
constexpr Bytes kWorthTelling = 20;

// So long allocators may look for better places of what is foretold. Steps of more requests and
// frees than that, all together, are learned: planning takes some 200 bytes for each.
constexpr double kForetellSeconds = 0.2;
constexpr std::size_t kMostForetold = std::size_t{1} << 17;

// In words why the step cannot be run by the schedule; empty where it can.
std::string why_not_for(const graph::Graph& graph, const graph::Schedule& schedule) {
  std::string different = graph::difference(schedule, graph);
  return different.empty() ? graph::replay(graph, fitted(schedule)).violation : different;
}

// The forms in which files have a program: as it was written, as traces do, and as planners took
// it, by save_graph().
constexpr std::array kGivenForms{
    GraphForm{.twins = false, .split = false}, GraphForm{.twins = true, .split = true},
    GraphForm{.twins = true, .split = false}, GraphForm{.twins = false, .split = true}};

bool has_budget(const SchedulingOptions& options) {
  return options.budget > 0 || options.share > 0 || options.more_time >= 0;
}

bool is_one_of(std::string_view engine, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), engine) != names.end();
}

}  // namespace

graph::Graph planning_graph(const Program& program) {
  return graph_of(program, alignment_of(program), {.split = true}).graph;
}

graph::Graph written_graph(const Program& program) {
  return graph_of(program, alignment_of(program), {.twins = false}).graph;
}

std::string why_not(const SchedulingOptions& options) {
  return schedule::why_not(options.engine, has_budget(options), options.copy_rate > 0);
}

namespace {

// A program's graph and the schedule that is to be followed.
struct Planned {
  ProgramGraph of;
  bool split = false;
  graph::Schedule chosen;
  graph::Verdict verdict;
  std::uint64_t ns_bound = 0;
  bool spills = false;  // it fits the budget where tensors leave that it does not name
  std::string not_met;
};

std::optional<graph::CopyRates> rates_of(const SchedulingOptions& options) {
  if (options.copy_rate == 0) return std::nullopt;
  return graph::CopyRates{options.copy_rate, options.copy_rate};
}

// What a planner or a file says is proven before anything is run by it.
void prove(Planned& planned, const SchedulingOptions& options) {
  planned.verdict = graph::replay(planned.of.graph, planned.chosen,
                                  rates_of(options).value_or(graph::CopyRates{}));
  BERTH_CHECK(planned.verdict.violation.empty(), kUsage, "the schedule of a step is wrong: {}",
              planned.verdict.violation);
}

// Where nobody waits for a plan any more, the rest of it is not worth a search.
void check_not_cancelled(const SchedulingOptions& options) {
  BERTH_CHECK(options.cancel == nullptr || !*options.cancel, kUsage,
              "the step program was over before its step was planned");
}

// What a step has beside what is there before it and after it, at its peak.
Bytes added(const graph::Verdict& recorded) { return recorded.peak - recorded.resident; }

Bytes budget_of(const SchedulingOptions& options, const graph::Verdict& recorded) {
  if (options.share == 0) return options.budget;
  return recorded.resident +
         static_cast<Bytes>(options.share * static_cast<double>(added(recorded)));
}

// Why a budget is not met, in the words of shares as well.
std::string not_met(const schedule::StepResult& within, Bytes budget,
                    const graph::Verdict& recorded) {
  const auto share = [&](Bytes bytes) {
    const Bytes own = bytes - std::min(bytes, recorded.resident);
    return 100 * static_cast<double>(own) /
           static_cast<double>(std::max<Bytes>(added(recorded), 1));
  };
  return fmt::format(
      "{}; the step adds {} to {} that live between steps: the budget leaves {:.1f}% of the added "
      "bytes, and no budget below {:.1f}% can be met",
      within.why_not, format_bytes(added(recorded)), format_bytes(recorded.resident), share(budget),
      share(within.least_budget));
}

// The most that one call takes of what is there between steps. Of a call over lists one element
// each: it may run in parts.
Bytes most_taken_from_outside(const Program& program) {
  Bytes most = 0;
  for (const Call& call : program.calls) {
    std::uint32_t elements = 1;
    if (facts_of(call.op).listwise)
      for (const Argument& argument : call.arguments)
        if (argument.form == Form::kTensors) elements = std::max(elements, argument.tensors);
    std::vector<StorageNumber> taken;
    for (const Operand& one : call.operands)
      if (one.storage != kNoStorage && program.kinds[one.storage] != StorageKind::kMade)
        taken.push_back(one.storage);
    std::sort(taken.begin(), taken.end());
    taken.erase(std::unique(taken.begin(), taken.end()), taken.end());
    Bytes bytes = 0;
    for (const StorageNumber one : taken) bytes += program.storages[one].bytes;
    most = std::max(most, bytes / elements);
  }
  return most;
}

// The storages of the graph that are the same in every step and that may be on the host while no
// call uses them, by storage. Others know the address of foreign ones, and of what a barrier took.
std::vector<bool> may_be_away(const Program& program, const ProgramGraph& of) {
  std::vector<bool> movable(of.graph.storages.size(), false);
  const auto set = [&](StorageNumber n, bool may) {
    if (program.kinds[n] == StorageKind::kResident) movable[of.room[n]] = may;
  };
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    set(n, !program.storages[n].foreign && !program.storages[n].shared &&
               of.graph.storages[of.room[n]].bytes > 0);
  for (const Call& call : program.calls)
    for (const Operand& one : call.operands)
      if (call.barrier && facts_of(call.op).opaque && one.storage != kNoStorage)
        set(one.storage, false);
  return movable;
}

// By storage of the graph, whether a schedule must not copy it that is not the same in every step.
std::vector<bool> must_stay(const Program& program, const ProgramGraph& of) {
  std::vector<bool> stays(of.graph.storages.size(), false);
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    if (program.stays(n) && program.kinds[n] != StorageKind::kResident) stays[of.room[n]] = true;
  return stays;
}

// Planners do not know what has to stay on the device: it stays. Whether that changes anything.
bool keep_what_stays(const Program& program, const ProgramGraph& of, graph::Schedule& schedule) {
  if (!program.several_streams) return false;
  const std::vector<bool> stays = must_stay(program, of);
  using Kind = graph::ScheduleStep::Kind;
  const std::size_t copies = std::erase_if(schedule.steps, [&](const graph::ScheduleStep& step) {
    return (step.kind == Kind::kOffload || step.kind == Kind::kReload) &&
           stays[schedule.buffers[step.buffer].storage];
  });
  if (copies == 0) return false;
  for (graph::Buffer& buffer : schedule.buffers) buffer.offsets.clear();
  for (graph::ScheduleStep& step : schedule.steps)
    step.workspace_offset = step.host_offset = graph::Buffer::kNoOffset;
  schedule.arena_bytes = schedule.host_bytes = schedule.budget = 0;
  return true;
}

// Within the budget of `planning`.
schedule::StepResult plan_budget(const Program& program, const ProgramGraph& of,
                                 const schedule::StepOptions& planning,
                                 const SchedulingOptions& options, bool within_host) {
  const graph::Graph& graph = of.graph;
  const std::vector<bool> movable =
      options.spills() ? may_be_away(program, of) : std::vector<bool>();
  if (within_host) return schedule::plan_within_host(graph, planning, movable, options.host_memory);
  if (options.offload_if_needed && planning.rates) {
    schedule::StepOptions alone = planning;
    alone.rates.reset();
    schedule::StepResult found = schedule::plan_step(graph, alone);
    if (found.schedule) return found;
  }
  if (!options.spills()) return schedule::plan_within(graph, planning);
  return schedule::plan_beside_spills(
      graph, planning, movable,
      options.share > 0 ? std::nullopt : std::optional(most_taken_from_outside(program)));
}

Planned plan(const Program& program, const SchedulingOptions& options,
             const graph::Verdict& recorded, bool split, const Refinement* before,
             bool within_host) {
  Planned result;
  result.split = split;
  result.of = graph_of(program, alignment_of(program),
                       {.twins = options.engine != "release", .split = split});
  const graph::Graph& graph = result.of.graph;
  result.chosen = as_recorded(result.of);
  if (options.engine != "release") {
    schedule::StepOptions planning;
    planning.time_limit_seconds = options.time_limit_seconds;
    planning.budget = budget_of(options, recorded);
    planning.engine = options.engine;
    planning.rates = rates_of(options);
    planning.cancel = options.cancel;
    if (before != nullptr && before->split == split) planning.given = {before->schedule};
    std::optional<graph::Schedule> found;
    if (options.more_time >= 0) {
      schedule::LeastMemory least(
          graph, planning,
          options.spills() ? may_be_away(program, result.of) : std::vector<bool>());
      if (const schedule::StepResult* const within = least.find(static_cast<std::uint64_t>(
              (1 + options.more_time) * static_cast<double>(recorded.ns))))
        found = within->schedule;
    } else if (planning.budget > 0) {
      schedule::StepResult within = plan_budget(program, result.of, planning, options, within_host);
      found = std::move(within.schedule);
      if (found) result.ns_bound = within.ns_bound;
      result.spills = found && within.verdict.peak > planning.budget;
      if (!found) result.not_met = not_met(within, planning.budget, recorded);
    }
    check_not_cancelled(options);
    if (!found) found = schedule::plan_unbudgeted(graph, planning, options.engine != "order");
    BERTH_CHECK(found, kUsage, "the step program was over before its step was planned");
    result.chosen = std::move(*found);
  }
  const bool stays = keep_what_stays(program, result.of, result.chosen);
  prove(result, options);
  const Bytes budget = budget_of(options, recorded);
  if (stays && result.not_met.empty() && budget > 0 && result.verdict.peak > budget)
    result.not_met = fmt::format(
        "values that several streams use, or that an event of the step orders, stay on the device: "
        "it takes {} with the copies that are left, the budget is {}",
        format_bytes(result.verdict.peak), format_bytes(budget));
  return result;
}

// What a step takes beside what of its own is there when none runs.
Bytes room_between_steps(const Program& program, const graph::Graph& graph,
                         const graph::Verdict& recorded) {
  Bytes there = 0;
  for (StorageNumber n = 0; n < program.storages.size(); ++n)
    if (program.kinds[n] != StorageKind::kMade || program.storages[n].outlives)
      there += graph.storages[n].bytes;
  return recorded.peak - std::min(recorded.peak, there);
}

// What the schedule that was given copies of the residents, where the program's have to stay.
std::string moves_what_stays(const Program& program, const ProgramGraph& of,
                             const SchedulingOptions& options) {
  const std::vector<bool> movable = may_be_away(program, of), stays = must_stay(program, of);
  for (const graph::ScheduleStep& step : options.given->steps) {
    if (step.kind != graph::ScheduleStep::Kind::kOffload) continue;
    const graph::StorageId storage = options.given->buffers[step.buffer].storage;
    if (stays[storage])
      return fmt::format("it copies storage {} to the host, which has to stay on the device",
                         storage);
    if (of.graph.storages[storage].kind != graph::StorageClass::kResident) continue;
    if (!options.spills())
      return "it keeps state on the host between uses, which needs host_memory";
    if (!movable[storage])
      return fmt::format("it copies {} of storage {} to the host, which has to stay here",
                         format_bytes(of.graph.storages[storage].bytes), storage);
  }
  return {};
}

bool fits_the_host(const Planned& planned, const SchedulingOptions& options) {
  return !options.spills() || planned.verdict.host_peak <= options.host_memory;
}

std::string too_much_on_host(const Planned& planned, const SchedulingOptions& options) {
  return fmt::format("it has {} on the host at one time, host_memory allows {}",
                     format_bytes(planned.verdict.host_peak), format_bytes(options.host_memory));
}

// By the schedule that was given, in the first form that it is for; where there is none, `why` says
// what is different from the form that it comes closest to.
std::optional<Planned> follow(const Program& program, const SchedulingOptions& options,
                              std::string& why) {
  const bool splits = can_split(program);
  for (const GraphForm& form : kGivenForms) {
    if (form.split && !splits) continue;
    Planned result;
    result.of = graph_of(program, alignment_of(program), form);
    const graph::Graph& graph = result.of.graph;
    std::string different = why_not_for(graph, *options.given);
    if (different.empty()) different = moves_what_stays(program, result.of, options);
    if (different.empty()) {
      // Copies take another part of the time here than where the schedule was found. Within its
      // budget what has no room waits for them.
      result.chosen = fitted(*options.given);
      result.chosen.budget = options.given->budget;
      if (!graph::replay(graph, result.chosen, rates_of(options).value_or(graph::CopyRates{}))
               .violation.empty())
        result.chosen.budget = 0;
      prove(result, options);
      if (fits_the_host(result, options)) return result;
      different = too_much_on_host(result, options);
    }
    if (why.empty() || graph.operators.size() == options.given->operators.size())
      why = std::move(different);
  }
  return std::nullopt;
}

// Whether one is to be had rather than the other: budgets first, then what was asked for.
bool better(const Planned& a, const Planned& b, const SchedulingOptions& options) {
  if (a.not_met.empty() != b.not_met.empty()) return a.not_met.empty();
  if (a.spills != b.spills) return b.spills;
  const bool time_first = options.budget > 0 || options.share > 0;
  const auto key = [&](const Planned& one) {
    return time_first ? std::pair(one.verdict.ns, one.verdict.peak)
                      : std::pair(one.verdict.peak, one.verdict.ns);
  };
  return key(a) < key(b);
}

// Whether times decide how a program is scheduled.
bool goes_by_times(const SchedulingOptions& options) {
  return has_budget(options) && !is_one_of(options.engine, {"release", "order"});
}

// What the program's schedule takes by the times that another one of the same calls has.
std::uint64_t ns_by_times_of(const Program& program, const Scheduled& scheduled) {
  std::uint64_t ns = scheduled.predicted_ns;
  for (const Instruction& one : scheduled.instructions.list) {
    if (one.kind != Instruction::Kind::kRun || one.alternative != Instruction::kAsRecorded ||
        one.count != Instruction::kAll)
      continue;
    ns += program.calls[one.call].ns;
    ns -= std::min(ns, scheduled.program.calls[one.call].ns);
  }
  return ns;
}

void count_barriers(Scheduled& of) {
  std::map<std::string, std::size_t> calls;
  for (const Call& call : of.program.calls)
    if (call.barrier) ++calls[words_of(call.op)];
  for (const auto& [name, count] : calls) {
    of.barriers += count;
    of.barrier_operators +=
        fmt::format("{}{} {}", of.barrier_operators.empty() ? "" : ", ", name, count);
  }
}

// The best plan of the program as it is, and of its calls taken apart.
Planned plan_each_form(const Program& program, const SchedulingOptions& options,
                       const graph::Verdict& recorded, const Refinement* before,
                       bool within_host = false) {
  Planned best = plan(program, options, recorded, false, before, within_host);
  check_not_cancelled(options);
  if (options.engine == "release" || !can_split(program)) return best;
  Planned split = plan(program, options, recorded, true, before, within_host);
  return better(split, best, options) ? std::move(split) : std::move(best);
}

// Instead of one that has more on the host than is allowed: with fewer copies, or with none.
Planned fitted_to_host(const Program& program, const SchedulingOptions& options,
                       const graph::Verdict& recorded, const Planned& found) {
  const std::string too_much = too_much_on_host(found, options);
  if (options.engine == "auto" && budget_of(options, recorded) > 0) {
    Planned fewer = plan_each_form(program, options, recorded, nullptr, true);
    if (fewer.not_met.empty() && fits_the_host(fewer, options)) return fewer;
  }
  SchedulingOptions without = options;
  without.copy_rate = 0;
  if (!why_not(without).empty()) {
    Planned same = found;
    if (same.not_met.empty()) same.not_met = too_much;
    return same;
  }
  Planned none = plan_each_form(program, without, recorded, nullptr);
  if (!none.not_met.empty())
    none.not_met = fmt::format("{}; without copies: {}", too_much, none.not_met);
  return none;
}

// Of a program that was scheduled before planners begin with what they found.
Scheduled scheduled_from(Program& program, SchedulingOptions options, const Refinement* before) {
  if (options.offload_if_needed && options.engine == "auto" && options.given == nullptr &&
      (options.budget > 0 || options.share > 0))
    options.copy_rate = on_host(program) ? kCopyRateOfCpu : kCopyRate;
  const ProgramGraph written = graph_of(program, alignment_of(program), {.twins = false});
  const graph::Verdict recorded = graph::replay(written.graph, as_recorded(written));
  std::string not_taken;
  std::optional<Planned> given;
  if (options.given != nullptr) given = follow(program, options, not_taken);
  if (given) not_taken.clear();
  Planned best = given ? *std::move(given) : plan_each_form(program, options, recorded, before);
  if (!fits_the_host(best, options)) best = fitted_to_host(program, options, recorded, best);
  Scheduled result;
  const graph::Verdict& verdict = best.verdict;
  result.instructions = instructions_of(program, best.of, best.chosen, verdict.peak);
  result.offloaded_bytes = verdict.offloaded_bytes;
  result.host_peak = verdict.host_peak;
  result.program = std::move(program);
  result.predicted_peak = verdict.peak;
  result.resident = verdict.resident;
  result.recorded_peak = recorded.peak;
  result.recorded_ns = recorded.ns;
  // Where nothing runs twice, no schedule takes less time.
  result.bound_ns = best.ns_bound > 0 ? best.ns_bound : std::min(recorded.ns, verdict.ns);
  result.predicted_ns = verdict.ns;
  if (on_host(result.program)) {
    const StepMemory memory = memory_of(result.program, result.instructions);
    result.predicted_peak = memory.peak;
    result.resident = memory.resident;
    // The planners know nothing of what the body has while it reads something back, nor that what
    // a barrier gave it stays.
    const Bytes budget = budget_of(options, recorded);
    if (best.not_met.empty() && !options.spills() && budget > 0 &&
        memory.peak > budget + budget / kWorthTelling)
      best.not_met = fmt::format(
          "the schedule takes {} with what the body has of it meanwhile, the budget is {}",
          format_bytes(memory.peak), format_bytes(budget));
  }
  result.may_be_followed =
      !result.program.several_streams &&
      std::all_of(result.program.calls.begin(), result.program.calls.end(), [](const Call& call) {
        const std::string& name = call.op.operator_name().name;
        // mutant: followed-barriers
        return call.barrier || call.host_read || name.starts_with("aten::");
      });
  count_barriers(result);
  result.draws_again =
      std::any_of(result.instructions.list.begin(), result.instructions.list.end(),
                  [&](const Instruction& one) {
                    return one.again_later && result.program.calls[one.call].random;
                  });
  result.recomputed = verdict.recomputed;
  for (const Call& call : result.program.calls)
    result.alternatives += call.alternatives.empty() ? 0 : 1;
  for (const Instruction& one : result.instructions.list)
    result.chosen += one.alternative == Instruction::kAsRecorded ? 0 : 1;
  if (goes_by_times(options) && !given && best.not_met.empty())
    result.refinement = std::make_unique<Refinement>(Refinement{
        KernelTimes(result.program.calls.size()), fitted(std::move(best.chosen)), best.split});
  result.budget_not_met = std::move(best.not_met);
  result.schedule_not_taken = std::move(not_taken);
  return result;
}

}  // namespace

Instructions instructions_as_recorded(const Program& program) {
  const ProgramGraph written = graph_of(program, alignment_of(program), {.twins = false});
  return instructions_of(program, written, as_recorded(written), kMaxBytes);
}

void find_ways(Program& program, const SchedulingOptions& options) {
  if (options.engine == "release" || options.engine == "order") return;
  const ProgramGraph written = graph_of(program, alignment_of(program), {.twins = false});
  const graph::Verdict recorded = graph::replay(written.graph, as_recorded(written));
  find_algorithms(program, {.other_bits = options.other_bits,
                            .room = room_between_steps(program, written.graph, recorded),
                            .file = options.algorithms});
}

Scheduled schedule(Program& program, const SchedulingOptions& options) {
  return scheduled_from(program, options, nullptr);
}

Scheduled schedule_again(Program& program, const Refinement& before,
                         const SchedulingOptions& options) {
  Scheduled found = scheduled_from(program, options, &before);
  found.refinement.reset();
  return found;
}

Scheduled schedule_meanwhile(Program program, const SchedulingOptions& options) {
  Scheduled result = scheduled_from(program, {.engine = "release"}, nullptr);
  if (has_budget(options)) result.budget_not_met = "the step is still being planned";
  return result;
}

void foretell(Scheduled& scheduled, std::span<const RequestsOn> beside) {
  if (backend(0) == nullptr) return;
  std::vector<c10::Device> devices;
  for (const RecordedStorage& one : scheduled.program.storages)
    if (one.bytes > 0 && std::find(devices.begin(), devices.end(), one.device) == devices.end())
      devices.push_back(one.device);
  for (const c10::Device device : devices) {
    std::vector<StepRequests> kinds{requests_of(scheduled.program, scheduled.instructions, device)};
    for (const RequestsOn& one : beside)
      if (one.device == device) kinds.push_back(one.requests);
    scheduled.requests.push_back({device, kinds.front()});
    std::size_t events = 0;
    for (const StepRequests& one : kinds) events += one.events.size();
    if (events > kMostForetold) continue;
    if (auto steps = berth::torch::foretell(device, kinds, kForetellSeconds))
      scheduled.foretold.push_back({device, std::move(steps)});
  }
}

std::optional<Program> measured_anew(Scheduled& ran, std::unique_ptr<Refinement>& before) {
  using Measured = KernelTimes::Measured;
  if (ran.refinement == nullptr) return std::nullopt;
  const Measured measured = ran.refinement->times.end_step();
  if (measured == Measured::kNotYet) return std::nullopt;
  before = std::move(ran.refinement);
  if (measured == Measured::kGivenUp) return std::nullopt;
  Program program = ran.program;
  before->times.give(program.calls);
  const std::uint64_t ns = ns_by_times_of(program, ran);
  const std::uint64_t most = std::max(ns, ran.predicted_ns), least = std::min(ns, ran.predicted_ns);
  if (most - least < ran.predicted_ns / kWorthPlanning) return std::nullopt;
  return program;
}

bool take_if_better(Scheduled& ran, Scheduled found, const SchedulingOptions& options) {
  const std::uint64_t ns = ns_by_times_of(found.program, ran);
  const bool by_time = options.more_time >= 0;
  const bool over_budget =
      by_time &&
      static_cast<double>(ns) > (1 + options.more_time) * static_cast<double>(found.recorded_ns);
  const bool better =
      by_time ? over_budget || found.predicted_peak < ran.predicted_peak : found.predicted_ns < ns;
  if (better && found.budget_not_met.empty()) {
    ran = std::move(found);
    return true;
  }
  for (std::size_t n = 0; n < ran.program.calls.size(); ++n)
    ran.program.calls[n].ns = found.program.calls[n].ns;
  ran.predicted_ns = ns;
  ran.recorded_ns = found.recorded_ns;
  ran.bound_ns = std::min(found.bound_ns, ns);
  return false;
}

}  // namespace berth::torch::step
