#include "csrc/schedule/joint/plan.h"

#include "csrc/core/check.h"
#include "csrc/graph/hash.h"
#include "csrc/schedule/joint/addresses.h"
#include "csrc/schedule/baselines/cheapest.h"
#include "csrc/schedule/baselines/knapsack.h"
#include "csrc/schedule/offload/from_graph.h"
#include "csrc/schedule/offload/plan.h"
#include "csrc/schedule/offload/to_schedule.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "csrc/schedule/retention/from_graph.h"
#include "csrc/schedule/retention/retention.h"
#include "csrc/schedule/retention/saved_sets.h"
#include "csrc/schedule/stopwatch.h"

#include <algorithm>
#include <limits>

namespace berth::schedule {
namespace {

using Operators = std::vector<graph::OperatorId>;

// Of what a search begins with: shares that the knapsack tries, and of the time.
constexpr std::size_t kStartShares = 100;
constexpr double kStartShare = 0.1;

// Its reads, results and workspace; a result that can take over a read counts once.
Bytes needed(const graph::Graph& graph, const graph::Alternative& way) {
  std::vector<graph::StorageId> storages;
  for (const graph::Read& read : way.reads) storages.push_back(read.value.storage);
  for (const graph::ValueId& written : way.writes) storages.push_back(written.storage);
  std::sort(storages.begin(), storages.end());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  Bytes bytes = way.workspace, spared = 0;
  for (const graph::StorageId s : storages)
    if (graph.storages[s].kind != graph::StorageClass::kResident) bytes += graph.storages[s].bytes;
  for (const auto& [input, result] : way.in_place)
    spared += std::min(graph.storages[input.storage].bytes, graph.storages[result.storage].bytes);
  return bytes - std::min(bytes, spared);
}

class Planning {
 public:
  Planning(const graph::Graph& graph, const StepOptions& options)
      : graph_(graph), options_(options), hash_(graph::hash_of(graph)) {}

  StepResult run() {
    find_bounds();
    const OrderProblem problem = order_problem(graph_);
    first_ = graph_.order.empty() ? problem.first_order() : graph_.order;
    result_.base_peak = peak_of(problem, first_);
    if (result_.least_budget > options_.budget) {
      result_.missing_bytes = result_.least_budget - options_.budget;
      result_.why_not =
          fmt::format("{} needs {} alone, the budget is {}: {} are missing", result_.largest,
                      format_bytes(result_.least_budget), format_bytes(options_.budget),
                      format_bytes(result_.missing_bytes));
      return finish();
    }
    for (const graph::Schedule& given : options_.given) offer(given, given.engine);
    find_orders(problem);
    if (wants("retain") && !done()) retain();
    if (wants("copies") && options_.rates && !done()) copy();
    if (!result_.schedule)
      result_.why_not = fmt::format(
          "nothing was found within {}: in the best order {} are needed at once, nothing made "
          "again",
          format_bytes(options_.budget), format_bytes(*result_.order_peak));
    return finish();
  }

 private:
  [[nodiscard]] bool wants(const char* engine) const {
    return options_.engine == "auto" || options_.engine == engine;
  }
  [[nodiscard]] bool done() const {
    return watch_.stopped() || (result_.schedule && result_.verdict.ns <= result_.ns_bound);
  }

  StepResult finish() {
    result_.proven_optimal = result_.schedule && result_.verdict.ns <= result_.ns_bound;
    if (result_.schedule) {
      graph::Schedule& schedule = *result_.schedule;
      schedule.budget = options_.budget;
      schedule.seed = options_.seed;
      schedule.graph_hash = hash_;
      schedule.peak = result_.verdict.peak;
      schedule.peak_bound = result_.least_budget;
      schedule.ns = result_.verdict.ns;
      schedule.ns_bound = result_.ns_bound;
    }
    result_.seconds = watch_.seconds();
    return std::move(result_);
  }

  // Takes a schedule that the referee allows, that fits and is faster, or as fast and smaller.
  void offer(const graph::Schedule& schedule, const std::string& engine) {
    graph::Verdict verdict =
        graph::replay(graph_, schedule, options_.rates.value_or(graph::CopyRates{}));
    BERTH_CHECK(verdict.violation.empty(), kUsage, "a schedule by '{}' is not legal: {}", engine,
                verdict.violation);
    if (verdict.peak > options_.budget) return;
    if (result_.schedule &&
        std::pair(verdict.ns, verdict.peak) >= std::pair(result_.verdict.ns, result_.verdict.peak))
      return;
    result_.schedule = schedule;
    result_.schedule->engine = engine;
    result_.verdict = std::move(verdict);
    if (options_.progress)
      options_.progress(
          {watch_.seconds(), result_.verdict.ns, result_.ns_bound, result_.verdict.peak, engine});
  }

  // Of all operators, each in its fastest way.
  void find_bounds() {
    LeastBudget least = least_budget(graph_);
    result_.least_budget = least.bytes;
    result_.largest = std::move(least.largest);
    for (const graph::Operator& op : graph_.operators) {
      std::uint64_t fastest = op.alternatives.front().ns;
      for (const graph::Alternative& way : op.alternatives) fastest = std::min(fastest, way.ns);
      result_.ns_bound += fastest;
    }
    result_.base_ns = result_.ns_bound;
  }

  // As given, and the one with the least peak.
  void find_orders(const OrderProblem& problem) {
    OrderOptions order;
    order.seed = options_.seed;
    order.cancel = options_.cancel;
    order.given.assign(graph_.order.begin(), graph_.order.end());
    order.iteration_budget = options_.iteration_budget;
    order.time_limit_seconds = 0.15 * options_.time_limit_seconds;
    const OrderResult found = plan_order(problem, order);
    result_.order_peak = found.peak;
    orders_ = {first_};
    if (found.peak < found.given_peak)
      orders_.insert(orders_.begin(), Operators(found.order.begin(), found.order.end()));
    for (const Operators& one : orders_)
      if (!done()) keep(one);
  }

  // Nothing made again: the ways follow by what there is room for.
  void keep(const Operators& order) {
    const StageGraph stages = stage_graph(graph_, order, options_.budget);
    offer(to_schedule(graph_, stages, keep_everything(stages.problem)), "order");
  }

  void retain() {
    for (std::size_t k = 0; k < orders_.size() && !done(); ++k) {
      const StageGraph stages = stage_graph(graph_, orders_[k], options_.budget);
      RetentionOptions how;
      how.seed = options_.seed;
      how.cancel = options_.cancel;
      how.iteration_budget = options_.iteration_budget;
      how.given = start(stages);
      const double shares =
          static_cast<double>(orders_.size() - k) + (wants("copies") && options_.rates ? 1.0 : 0.0);
      how.time_limit_seconds = watch_.left() / shares;
      const RetentionResult found = plan_retention(stages.problem, how);
      if (found.plan) offer(to_schedule(graph_, stages, *found.plan), "retain");
    }
  }

  // What a compiler would keep, which knows products from what is cheap to make again by their
  // names; then the best of the plans that save a value all the time or make it again once.
  [[nodiscard]] std::optional<Retention> start(const StageGraph& stages) const {
    CheapestPlan cheapest(stages.problem);
    const double until = watch_.seconds() + kStartShare * options_.time_limit_seconds;
    const auto stop = [&] { return watch_.stopped() || watch_.seconds() > until; };
    knapsack_plans(
        graph_, stages, kStartShares, [&](const Retention& plan) { cheapest.offer(plan); }, stop);
    SavedSetOptions how;
    how.seed = options_.seed;
    how.start = cheapest.best();
    how.stop = stop;
    if (options_.iteration_budget != 0) how.moves = options_.iteration_budget / 4;
    return search_saved_sets(stages.problem, how);
  }

  void copy() {
    for (std::size_t k = 0; k < orders_.size() && !done(); ++k) {
      const offload::Problem problem = offload::from_graph(graph_, orders_[k]);
      offload::Machine machine;
      machine.out = {options_.rates->out, options_.rates->out};
      machine.in = {options_.rates->in, options_.rates->in};
      machine.budget = options_.budget;
      offload::CopyOptions how;
      how.seed = options_.seed;
      how.cancel = options_.cancel;
      how.iteration_budget = options_.iteration_budget;
      how.time_limit_seconds = watch_.left() / static_cast<double>(orders_.size() - k);
      const offload::CopyResult found = offload::plan_copies(problem, machine, how);
      offer(offload::to_schedule(graph_, problem, found.plan, found.outcome, orders_[k]), "copies");
    }
  }

  const graph::Graph& graph_;
  const StepOptions& options_;
  const std::uint64_t hash_;
  const Stopwatch watch_{options_};
  Operators first_;  // as recorded
  std::vector<Operators> orders_;
  StepResult result_;
};

}  // namespace

namespace {

// Gives a schedule its addresses. Returns by how much its arena is above the budget.
Bytes place(const graph::Graph& graph, const StepOptions& options, StepResult& result) {
  graph::Schedule& schedule = *result.schedule;
  const Bytes resident = result.verdict.resident;
  AddressOptions how;
  how.capacity = options.budget - std::min(resident, options.budget);
  how.time_limit_seconds = options.time_limit_seconds;
  how.iteration_budget = options.iteration_budget;
  how.seed = options.seed;
  how.cancel = options.cancel;
  how.rates = options.rates.value_or(graph::CopyRates{});
  schedule.budget = 0;
  result.addresses = place_addresses(graph, schedule, how);
  if (resident + schedule.arena_bytes > options.budget)
    return resident + schedule.arena_bytes - options.budget;
  schedule.budget = options.budget;
  result.verdict = graph::replay(graph, schedule, how.rates);
  BERTH_CHECK(result.verdict.violation.empty(), kUsage,
              "a schedule with addresses is not legal: {}", result.verdict.violation);
  schedule.ns = result.verdict.ns;
  return 0;
}

}  // namespace

LeastBudget least_budget(const graph::Graph& graph) {
  Bytes residents = 0;
  for (const graph::Storage& storage : graph.storages)
    if (storage.kind == graph::StorageClass::kResident) residents += storage.bytes;
  LeastBudget least{residents, "what is resident"};
  for (graph::OperatorId op = 0; op < graph.operators.size(); ++op) {
    Bytes bytes = kMaxBytes;
    for (const graph::Alternative& way : graph.operators[op].alternatives)
      bytes = std::min(bytes, needed(graph, way));
    if (residents + bytes > least.bytes)
      least = {residents + bytes, fmt::format("operator {} ({})", op, graph.operators[op].name)};
  }
  return least;
}

const std::vector<std::string>& step_engines() {
  static const std::vector<std::string> kEngines = {"auto", "order", "retain", "copies"};
  return kEngines;
}

StepResult plan_step(const graph::Graph& graph, const StepOptions& options) {
  const auto& engines = step_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.engine) != engines.end(), kUsage,
              "no engine '{}' plans a step, legal are: {}", options.engine,
              fmt::join(engines, ", "));
  const std::string wrong = graph::violation(graph);
  BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
  constexpr int kMostPlans = 4;
  StepOptions how = options;
  for (int plans = 1;; ++plans) {
    StepResult result = Planning(graph, how).run();
    if (!options.addresses || !result.schedule) return result;
    const Bytes overhang = place(graph, options, result);
    if (overhang == 0) return result;
    if (plans == kMostPlans || overhang >= how.budget || (how.cancel != nullptr && *how.cancel)) {
      result.schedule.reset();
      result.why_not = fmt::format(
          "schedules were found, but none whose arena fits {}: the last was {} above it",
          format_bytes(options.budget), format_bytes(overhang));
      return result;
    }
    how.budget -= overhang;
  }
}

std::vector<StepResult> plan_budgets(const graph::Graph& graph, const std::vector<Bytes>& budgets,
                                     const StepOptions& options) {
  std::vector<StepResult> results;
  StepOptions one = options;
  for (const Bytes budget : budgets) {
    BERTH_CHECK(results.empty() || budget >= one.budget, kUsage,
                "the budget {} comes after {}: the least comes first", budget, one.budget);
    one.budget = budget;
    results.push_back(plan_step(graph, one));
    if (results.back().schedule) one.given.push_back(*results.back().schedule);
  }
  return results;
}

}  // namespace berth::schedule
