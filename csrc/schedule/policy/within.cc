#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/graph/hash.h"
#include "csrc/graph/schedule.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/offload/paging.h"

#include <berth/referee.h>
#include <berth/schedule.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

namespace berth::schedule {
namespace {

// So many times as long is searched for what fits a budget where nothing was found that does.
constexpr double kHarder = 5;

// Shares of the memory that the step's own values may take beside residents that move.
constexpr std::array kOwnShares = {1.0, 0.7, 0.5, 0.35};

// Shares of the host memory by which the schedule that is paged may exceed the budget. Paging takes
// whole buffers away, so that it needs more there than what is missing.
constexpr std::array kHostShares = {1.0, 0.75, 0.5, 0.25};

std::vector<graph::OperatorId> recorded_order(const graph::Graph& graph) {
  std::vector<graph::OperatorId> order(graph.order);
  if (order.empty()) {
    order.resize(graph.operators.size());
    std::iota(order.begin(), order.end(), 0U);
  }
  return order;
}

// The step in its recorded order: its peak, and what of it is resident.
graph::Verdict as_recorded(const graph::Graph& graph) {
  return graph::replay(graph, graph::schedule_of_order(graph, recorded_order(graph)));
}

// Takes the fastest alternatives of each operator that leave the peak as it is.
void take_faster_ways(const graph::Graph& graph, graph::Schedule& schedule) {
  const graph::Verdict verdict = graph::replay(graph, schedule);
  for (std::size_t k = 0; k < schedule.steps.size(); ++k) {
    graph::ScheduleStep& step = schedule.steps[k];
    if (step.kind != graph::ScheduleStep::Kind::kRun) continue;
    const auto& alternatives = graph.operators[step.op].alternatives;
    const Bytes room = verdict.peak - verdict.live[k] + alternatives[step.alternative].workspace;
    for (std::uint32_t n = 0; n < alternatives.size(); ++n)
      if (alternatives[n].ns < alternatives[step.alternative].ns &&
          alternatives[n].workspace <= room)
        step.alternative = n;
  }
}

}  // namespace

StepResult plan_within(const graph::Graph& graph, const StepOptions& options) {
  StepResult result = plan_step(graph, options);
  if (result.schedule || options.engine != "auto" || result.missing_bytes > 0) return result;
  StepOptions longer = options;
  longer.time_limit_seconds *= kHarder;
  if (options.rates) {
    StepOptions alone = longer;
    alone.rates.reset();
    StepResult without = plan_step(graph, alone);
    if (without.schedule) return without;
  }
  return plan_step(graph, longer);
}

Bytes most_from_outside(const graph::Graph& graph) {
  Bytes most = 0;
  for (const graph::Operator& op : graph.operators) {
    std::set<graph::StorageId> taken;
    for (const graph::Read& read : op.alternatives.front().reads) taken.insert(read.value.storage);
    for (const graph::ValueId& written : op.alternatives.front().writes)
      taken.insert(written.storage);
    Bytes bytes = 0;
    for (const graph::StorageId one : taken)
      if (graph.storages[one].kind != graph::StorageClass::kStep)
        bytes += graph.storages[one].bytes;
    most = std::max(most, bytes);
  }
  return most;
}

StepResult plan_with_residents_away(const graph::Graph& graph, const StepOptions& options,
                                    const std::vector<bool>& movable) {
  BERTH_CHECK(options.rates, kUsage, "residents are copied to the host: that wants rates");
  BERTH_CHECK(movable.size() == graph.storages.size(), kUsage,
              "movable names {} storages, the graph has {}", movable.size(), graph.storages.size());
  const graph::Verdict recorded = as_recorded(graph);
  const Bytes own = std::min(recorded.peak - recorded.resident, options.budget);
  StepResult best;
  best.why_not =
      fmt::format("no copies of residents let the step fit {}", format_bytes(options.budget));
  const auto offer = [&](StepResult plan, graph::Schedule schedule) {
    graph::Verdict verdict = graph::replay(graph, schedule, *options.rates);
    if (best.schedule && verdict.ns >= best.verdict.ns) return;
    schedule.peak = verdict.peak;
    schedule.ns = verdict.ns;
    best = std::move(plan);
    best.schedule = std::move(schedule);
    best.verdict = std::move(verdict);
    best.proven_optimal = best.verdict.ns <= best.ns_bound;
  };
  // The step as recorded: of its own values those leave as well that are used last. With the bounds
  // of `plan`.
  const auto page_all = [&](const StepResult& plan) {
    std::vector<bool> all = offload::made_in(graph);
    for (graph::StorageId s = 0; s < all.size(); ++s) all[s] = all[s] || movable[s];
    std::optional<graph::Schedule> paged =
        offload::best_paging(graph, graph::schedule_of_order(graph, recorded_order(graph)), all,
                             options.budget, *options.rates);
    if (!paged) return;
    paged->engine = "paging";
    paged->seed = options.seed;
    paged->graph_hash = graph::hash_of(graph);
    paged->operators = graph::identities_of(graph);
    offer(plan, *std::move(paged));
  };
  StepOptions planning = options;
  planning.time_limit_seconds /= static_cast<double>(kOwnShares.size());
  for (graph::Schedule& given : planning.given) {
    given = offload::without_resident_offloads(graph, std::move(given));
    given.budget = 0;  // that was one with residents away
  }
  Bytes before = 0;
  for (const double share : kOwnShares) {
    planning.budget = recorded.resident + static_cast<Bytes>(share * static_cast<double>(own));
    if (before != 0 && planning.budget >= before) continue;
    StepResult plan = plan_step(graph, planning);
    if (before == 0) page_all(plan);
    if (!plan.schedule) break;  // less memory does not help
    before = plan.verdict.peak;
    std::optional<graph::Schedule> moved =
        offload::best_paging(graph, *plan.schedule, movable, options.budget, *options.rates);
    if (moved) offer(std::move(plan), *std::move(moved));
  }
  return best;
}

StepResult plan_within_host(const graph::Graph& graph, const StepOptions& options,
                            const std::vector<bool>& movable, Bytes host) {
  BERTH_CHECK(options.rates, kUsage, "buffers are copied to the host: that wants rates");
  BERTH_CHECK(movable.empty() || movable.size() == graph.storages.size(), kUsage,
              "movable names {} storages, the graph has {}", movable.size(), graph.storages.size());
  StepOptions planning = options;
  planning.rates.reset();
  planning.given.clear();
  planning.time_limit_seconds /= static_cast<double>(1 + kHostShares.size());
  StepResult best = plan_step(graph, planning);
  std::vector<bool> pages = offload::made_in(graph);
  for (graph::StorageId s = 0; s < movable.size(); ++s) pages[s] = pages[s] || movable[s];
  Bytes least = kMaxBytes;  // that a schedule within the budget has on the host
  for (const double share : kHostShares) {
    planning.budget = options.budget + static_cast<Bytes>(share * static_cast<double>(host));
    StepResult plan = plan_step(graph, planning);
    if (!plan.schedule) break;
    std::optional<graph::Schedule> paged =
        offload::best_paging(graph, *plan.schedule, pages, options.budget, *options.rates);
    if (!paged) continue;
    graph::Verdict verdict = graph::replay(graph, *paged, *options.rates);
    least = std::min(least, verdict.host_peak);
    // mutant: copies-allowed
    if (verdict.host_peak > host) continue;
    if (best.schedule && verdict.ns >= best.verdict.ns) continue;
    paged->engine = "paging";
    paged->seed = options.seed;
    paged->graph_hash = graph::hash_of(graph);
    paged->operators = graph::identities_of(graph);
    paged->peak = verdict.peak;
    paged->ns = verdict.ns;
    best = std::move(plan);
    best.schedule = std::move(paged);
    best.verdict = std::move(verdict);
    best.proven_optimal = best.verdict.ns <= best.ns_bound;
  }
  if (!best.schedule)
    best.why_not = fmt::format(
        "no schedule was found that fits {} with at most {} on the host{}",
        format_bytes(options.budget), format_bytes(host),
        least == kMaxBytes ? std::string()
                           : fmt::format(": one that fits has {} there", format_bytes(least)));
  return best;
}

StepResult plan_beside_spills(const graph::Graph& graph, const StepOptions& options,
                              const std::vector<bool>& movable, std::optional<Bytes> outside) {
  StepResult within = plan_step(graph, options);
  if (options.rates && (!within.schedule || within.verdict.ns > within.base_ns))
    if (StepResult away = plan_with_residents_away(graph, options, movable);
        away.schedule && (!within.schedule || away.verdict.ns < within.verdict.ns))
      return away;
  // The longer search is for where neither has found anything.
  if (!within.schedule) within = plan_within(graph, options);
  if (within.schedule || !outside) return within;
  const graph::Verdict recorded = as_recorded(graph);
  const Bytes least = least_budget(graph).bytes;
  const Bytes found_easily = least + (recorded.peak - std::min(recorded.peak, least)) / 10;
  StepOptions planning = options;
  planning.budget = recorded.resident + options.budget - std::min(options.budget, *outside);
  StepResult result = plan_step(graph, planning);
  if (result.schedule) return result;
  planning.budget = std::max(planning.budget, found_easily);
  result = plan_within(graph, planning);
  if (result.schedule) return result;
  if (options.engine != "auto") return within;
  LeastMemory memory(graph, options);
  const StepResult* const any = memory.find();
  return any != nullptr && any->schedule ? *any : within;
}

std::optional<graph::Schedule> plan_unbudgeted(const graph::Graph& graph,
                                               const StepOptions& options, bool faster_ways) {
  graph::Graph as_written = graph;
  for (graph::Operator& op : as_written.operators) op.alternatives.resize(1);
  StepOptions planning = options;
  planning.engine = "order";
  planning.rates.reset();
  planning.budget = kMaxBytes;
  std::optional<graph::Schedule> found = plan_step(as_written, planning).schedule;
  if (found) found->graph_hash = found->budget = 0;  // of a graph with these alternatives alone
  if (found && faster_ways) take_faster_ways(graph, *found);
  return found;
}

}  // namespace berth::schedule
