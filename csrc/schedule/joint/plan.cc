
#include "csrc/schedule/offload/plan.h"

#include "csrc/core/check.h"
#include "csrc/graph/hash.h"
#include "csrc/schedule/joint/addresses.h"
#include "csrc/schedule/joint/flatten.h"
#include "csrc/schedule/joint/held.h"
#include "csrc/schedule/joint/holes.h"
#include "csrc/schedule/joint/host_room.h"
#include "csrc/schedule/joint/passes.h"
#include "csrc/schedule/joint/reorder.h"
#include "csrc/schedule/joint/time_bound.h"
#include "csrc/schedule/joint/unrolled.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/offload/from_graph.h"
#include "csrc/schedule/offload/named_rules.h"
#include "csrc/schedule/offload/paging.h"
#include "csrc/schedule/offload/to_schedule.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "csrc/schedule/order/postpone.h"
#include "csrc/schedule/recomputation/cheapest.h"
#include "csrc/schedule/recomputation/from_graph.h"
#include "csrc/schedule/recomputation/from_schedule.h"
#include "csrc/schedule/recomputation/knapsack.h"
#include "csrc/schedule/recomputation/named_rules.h"
#include "csrc/schedule/recomputation/recomputation.h"
#include "csrc/schedule/recomputation/saved_sets.h"
#include "csrc/schedule/stopwatch.h"

#include <berth/schedule.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace berth::schedule {
namespace {

using Operators = std::vector<graph::OperatorId>;

// Of what a search begins with: shares that the knapsack tries, and of the time.
constexpr std::size_t kStartShares = 100;
constexpr double kStartShare = 0.1;
// Shares of the time that is left: of the look for an order; of that for a bound; of offload alone
// and of what to keep, where both come together later; of what to keep in the first orders.
constexpr double kOrdering = 0.15, kBounding = 0.05, kOffloading = 0.5, kRecomputing = 0.4,
                 kFirst = 0.8;
constexpr double kFromAbove = 0.3;  // of what a search takes that begins with a schedule too large
// How far behind the least border a search begins, of the backward part that is left.
constexpr std::array kBehind = {0.3, 0.6, 0.1};
constexpr int kRounds = 3;     // of ordering again and keeping
constexpr int kBudgets = 5;    // on the way down to one that nothing was found for
constexpr int kHostRooms = 4;  // sizes of what is thought to lie on the host

const std::vector<std::string>& own_engines() {
  static const auto& kEngines =
      *new const std::vector<std::string>{"auto", "order", "recompute", "offload"};
  return kEngines;
}

bool contains(const std::vector<std::string>& engines, const std::string& engine) {
  return std::find(engines.begin(), engines.end(), engine) != engines.end();
}

std::optional<NamedRecomputationRule> recomputation_rule(const std::string& name) {
  for (const NamedRecomputationRule& rule : recomputation_rules())
    if (rule.name == name) return rule;
  return std::nullopt;
}

class JointPlanning {
 public:
  JointPlanning(const graph::Graph& graph, const StepOptions& options)
      : graph_(graph), options_(options), hash_(graph::hash_of(graph)) {}

  StepResult run() {
    find_bounds();
    problem_ = order_problem(graph_);
    first_ = graph_.order.empty() ? problem_.first_order() : graph_.order;
    result_.base_peak = peak_of(problem_, first_);
    if (result_.least_budget > options_.budget) {
      result_.missing_bytes = result_.least_budget - options_.budget;
      result_.why_not =
          fmt::format("{} needs {} {}, the budget is {}: {} are missing", result_.largest,
                      format_bytes(result_.least_budget),
                      held_ ? "with what later ones take and no schedule recomputes" : "alone",
                      format_bytes(options_.budget), format_bytes(result_.missing_bytes));
      return finish();
    }
    for (const graph::Schedule& given : options_.given) {
      offer(given, given.engine);
      if (!result_.schedule && (!above_ || given.peak < above_->peak))
        above_ = offload::without_resident_offloads(graph_, given);
    }
    if (!contains(own_engines(), options_.engine)) {
      follow();
      return finish();
    }
    find_orders();
    if (!done()) raise_bound();
    const bool offloads = options_.rates && wants("offload");
    if (offloads && !done()) offload_values();
    if (wants("recompute") && !done()) recompute(offloads ? kRecomputing : 1);
    if (offloads && wants("recompute") && !done()) recompute_and_offload();
    // The step as recorded needs no time, and there was none left.
    if (!result_.schedule && result_.base_peak <= options_.budget) offer(kept(first_), "order");
    if (!result_.schedule)
      result_.why_not = fmt::format(
          "nothing was found within {}{}: in the best order {} are needed at once, nothing "
          "recomputed",
          format_bytes(options_.budget),
          cut_short_ || watch_.left() <= 0
              ? fmt::format(" before the search's time was over, after {:.1f} s", watch_.seconds())
              : "",
          format_bytes(*result_.order_peak));
    return finish();
  }

 private:
  [[nodiscard]] bool wants(const char* engine) const {
    return options_.engine == "auto" || options_.engine == engine;
  }

  // What others would do with the step in its recorded order.
  void follow() {
    const StageGraph stages = stage_graph(graph_, first_, options_.budget);
    if (options_.engine == "release") {
      offer(to_schedule(graph_, stages, keep_everything(stages.problem)), options_.engine);
    } else if (const auto rule = recomputation_rule(options_.engine)) {
      const std::optional<Recomputation> plan =
          rule->plan(rule->name, graph_, stages, options_, [this] { return watch_.stopped(); });
      if (plan) offer(to_schedule(graph_, stages, *plan), options_.engine);
    } else {
      BERTH_CHECK(options_.rates, kUsage,
                  "the engine {} offloads to the host: it needs the rates of copies",
                  options_.engine);
      offload_values(kept(first_), 1, options_.engine);
    }
    if (!result_.schedule)
      result_.why_not =
          fmt::format("no plan by {} fits {}", options_.engine, format_bytes(options_.budget));
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
      schedule.operators = graph::identities_of(graph_);
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
    const graph::CopyRates rates = options_.rates.value_or(graph::CopyRates{});
    graph::Verdict verdict = graph::replay(graph_, schedule, rates);
    BERTH_CHECK(verdict.violation.empty(), kUsage, "a schedule by '{}' is not legal: {}", engine,
                verdict.violation);
    if (verdict.peak > options_.budget) {
      // It fits all the same where operators that wait for offloads make it.
      graph::Schedule waiting = schedule;
      waiting.budget = options_.budget;
      verdict = graph::replay(graph_, waiting, rates);
      if (!verdict.violation.empty()) return;
    }
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

  // Of all operators, each by its fastest alternative.
  void find_bounds() {
    LeastBudget least = least_budget(graph_);
    if (!options_.rates) {
      LeastBudget with_held = least_with_held(graph_);
      held_ = with_held.bytes > least.bytes;
      if (held_) least = std::move(with_held);
    }
    result_.least_budget = least.bytes;
    result_.largest = std::move(least.largest);
    for (const graph::Operator& op : graph_.operators) {
      std::uint64_t fastest = op.alternatives.front().ns;
      for (const graph::Alternative& taken : op.alternatives) fastest = std::min(fastest, taken.ns);
      result_.ns_bound += fastest;
    }
    result_.base_ns = result_.ns_bound;
  }

  // By cuts where the best order has most alive.
  void raise_bound() {
    const double until = watch_.seconds() + kBounding * watch_.left();
    result_.ns_bound =
        std::max(result_.ns_bound,
                 time_bound(graph_, orders_.front(),
                            {.budget = options_.budget, .rates = options_.rates, .stop = [&] {
                               return watch_.stopped() || watch_.seconds() > until;
                             }}));
  }

  // As given, and the one with the least peak.
  void find_orders() {
    OrderOptions order = searching<OrderOptions>(kOrdering);
    order.given.assign(graph_.order.begin(), graph_.order.end());
    const OrderResult found = plan_order(problem_, order);
    result_.order_peak = found.peak;
    orders_ = {first_};
    if (found.peak < found.given_peak) orders_.insert(orders_.begin(), found.order);
    for (Operators& one : orders_) {
      if (!done()) offer(kept(one), "order");
      one = postpone_changes(problem_, one);
    }
    recomputed_order_ = orders_.front();
  }

  // Nothing recomputed: alternatives follow by what there is room for.
  [[nodiscard]] graph::Schedule kept(const Operators& order) const {
    const StageGraph stages = stage_graph(graph_, order, options_.budget);
    return to_schedule(graph_, stages, keep_everything(stages.problem));
  }

  // For a search that may take a share of the time that is left.
  template <class Options>
  [[nodiscard]] Options searching(double share) const {
    Options how;
    how.seed = options_.seed;
    how.cancel = options_.cancel;
    how.iteration_budget = options_.iteration_budget;
    how.time_limit_seconds = share * watch_.left();
    return how;
  }

  // What to keep in an order, from a schedule where there is one. `part`: see stages_of().
  void recompute(const Operators& order, double part, const graph::Schedule* start, double share) {
    const StageGraph stages = stages_of(order, part);
    std::optional<Recomputation> given =
        start != nullptr ? recomputation_of(graph_, stages, *start) : started(stages, share);
    auto how = searching<RecomputationOptions>(share);
    how.given = std::move(given);
    const RecomputationResult found = search(stages, how);
    if (found.plan) take(to_schedule(graph_, stages, *found.plan), "recompute");
  }

  RecomputationResult search(const StageGraph& stages, const RecomputationOptions& how) {
    RecomputationResult found = plan_recomputation(stages.problem, how);
    cut_short_ |= found.seconds > how.time_limit_seconds;
    return found;
  }

  // What recomputes and offloads nothing.
  void take(graph::Schedule schedule, const char* engine) {
    const graph::Verdict verdict = graph::replay(graph_, schedule);
    if (verdict.peak > options_.budget || (recomputed_ && verdict.ns > recomputed_ns_)) return;
    recomputed_ns_ = verdict.ns;
    recomputed_ = std::move(schedule);
    offer(*recomputed_, engine);
  }

  // Down to the budget from what the order needs at once: what fits one budget is where the search
  // for the next begins, ever closer to it.
  template <class Left>
  void recompute_from_above(const Left& left) {
    const Bytes most = std::max(*result_.order_peak, options_.budget);
    std::optional<Recomputation> start;
    for (int k = 1; k <= kBudgets && !done(); ++k) {
      const Bytes above = k == kBudgets ? 0 : (most - options_.budget) >> k;
      const StageGraph stages = stage_graph(graph_, orders_.front(), options_.budget + above);
      auto how = searching<RecomputationOptions>(left() * kFirst / (kBudgets - k + 1));
      how.given = std::move(start);
      start = how.given;
      RecomputationResult found = search(stages, how);
      if (!found.plan) continue;
      if (k == kBudgets) take(to_schedule(graph_, stages, *found.plan), "recompute");
      start = std::move(found.plan);
    }
  }

  // Whether each operator alone fits, what is never recomputed beside it: operators behind the
  // border do not, and what they make stays.
  [[nodiscard]] bool have_room(const StageGraph& stages) const {
    return least_budget_of(stages.problem) <= static_cast<std::int64_t>(options_.budget);
  }

  // An order in stages. Where what is never recomputed leaves no room, as gradients of weights that
  // stay to the end, so much of the backward part is before the border as that takes, and `part` of
  // what is left of it.
  [[nodiscard]] StageGraph stages_of(const Operators& order, double part) const {
    StageGraph usual = stage_graph(graph_, order, options_.budget);
    if (have_room(usual) || usual.border + 1 >= order.size()) return usual;
    std::size_t least = usual.border + 1, most = order.size() - 1;
    while (least < most) {
      const std::size_t border = least + (most - least) / 2;
      if (have_room(stage_graph(graph_, order, options_.budget, border)))
        most = border;
      else
        least = border + 1;
    }
    std::size_t end = least;  // of the backward part
    for (std::size_t p = least; p < order.size(); ++p)
      if (graph_.operators[order[p]].phase == graph::Phase::kBackward) end = p + 1;
    const double more = part * static_cast<double>(end - least);
    return stage_graph(graph_, order, options_.budget, least + static_cast<std::size_t>(more));
  }

  // First in each order; then in rounds: the best is ordered again, with all that it recomputes
  // free to move, and what to keep is searched for in the order that comes out.
  void recompute(double share) {
    if (above_ && !result_.schedule) {
      const Unrolled unrolled = unroll(graph_, *above_);
      recompute(postpone_changes(problem_, first_runs(unrolled, unrolled.graph.order)),
                recomputed_part_, &*above_, share * kFromAbove);
    }
    const double until = watch_.seconds() + share * watch_.left();
    const auto left = [&] {
      if (std::isinf(until)) return 1.0;
      return std::max(0.0, until - watch_.seconds()) / std::max(watch_.left(), 1e-9);
    };
    for (std::size_t k = 0; k < orders_.size() && !done(); ++k)
      recompute_first(orders_[k], kBehind.front(),
                      left() * kFirst / static_cast<double>(orders_.size() - k));
    recompute_behind(left);
    if (!result_.schedule && !done()) recompute_from_above(left);
    for (int round = 0; round < kRounds && recomputed_ && !done(); ++round) {
      const std::uint64_t before = recomputed_ns_;
      Reordered again =
          reorder(graph_, *recomputed_, options_.budget,
                  searching<OrderOptions>(left() * kOrdering), [this] { return watch_.stopped(); });
      take(std::move(again.schedule), "reorder");
      recomputed_order_ = postpone_changes(problem_, again.first_runs);
      const graph::Schedule start = *recomputed_;
      recompute(recomputed_order_, recomputed_part_, &start, left() / (kRounds - round));
      if (recomputed_ns_ >= before) break;
    }
  }

  // From nothing; keeps in mind what was best.
  void recompute_first(const Operators& order, double part, double share) {
    const std::uint64_t before = recomputed_ ? recomputed_ns_ : ~std::uint64_t{0};
    recompute(order, part, nullptr, share);
    if (!recomputed_ || recomputed_ns_ >= before) return;
    recomputed_order_ = order;
    recomputed_part_ = part;
  }

  // With other borders, in orders that do not do with the usual one.
  template <class Left>
  void recompute_behind(const Left& left) {
    std::vector<const Operators*> behind;
    for (const Operators& order : orders_)
      if (!done() && !have_room(stage_graph(graph_, order, options_.budget)))
        behind.push_back(&order);
    std::size_t tries = behind.size() * (kBehind.size() - 1);
    for (const Operators* const order : behind)
      for (std::size_t k = 1; k < kBehind.size(); ++k, --tries)
        if (!done())
          recompute_first(*order, kBehind[k], left() * kFirst / static_cast<double>(tries));
  }

  // What a compiler would keep, which knows products from what is cheap to recompute by their
  // names; then the best of the plans that save a value all the time or recompute it once.
  [[nodiscard]] std::optional<Recomputation> started(const StageGraph& stages, double share) const {
    CheapestPlan cheapest(stages.problem);
    const double until = watch_.seconds() + kStartShare * share * watch_.left();
    const auto stop = [&] { return watch_.stopped() || watch_.seconds() > until; };
    knapsack_plans(
        graph_, stages, kStartShares, [&](const Recomputation& plan) { cheapest.offer(plan); },
        stop);
    SavedSetOptions how;
    how.seed = options_.seed;
    how.start = cheapest.best();
    how.stop = stop;
    if (options_.iteration_budget != 0) how.moves = options_.iteration_budget / 4;
    return search_saved_sets(stages.problem, how);
  }

  // Where everything is kept that is not offloaded, or that may be recomputed for each use
  // at once.
  void offload_values() {
    const double share = wants("recompute") ? kOffloading : 1;
    for (std::size_t k = 0; k < orders_.size() && !done(); ++k) {
      const graph::Schedule all = kept(orders_[k]);
      page(all);
      offload_values(all, share / static_cast<double>(orders_.size() - k));
    }
  }

  // What is used last leaves where there is no room: no other way out of the device is as sure.
  void page(const graph::Schedule& schedule) {
    if (const auto paged = offload::best_paging(graph_, schedule, offload::made_in(graph_),
                                                options_.budget, *options_.rates))
      offer(*paged, "paging");
  }

  // Where a search has found what to recompute, with more room than there is.
  void recompute_and_offload() {
    for (int k = 1; k <= kHostRooms && !done(); ++k) {
      StageGraph stages = stages_of(recomputed_order_, recomputed_part_);
      const Bytes most = host_room(stages.problem, *options_.rates);
      add_host_room(stages.problem, most / kHostRooms * static_cast<Bytes>(k), *options_.rates);
      const double share = 1.0 / (kHostRooms - k + 1);
      const RecomputationResult found = search(stages, searching<RecomputationOptions>(share / 2));
      if (found.plan) offload_values(to_schedule(graph_, stages, *found.plan), share / (2 - share));
    }
  }

  // Copies some of what a schedule has to the host and back.
  void offload_values(const graph::Schedule& schedule, double share,
                      const std::string& engine = "auto") {
    const Unrolled unrolled = unroll(graph_, schedule);
    const offload::Problem problem = offload::from_graph(unrolled.graph);
    offload::Machine machine;
    machine.out = {options_.rates->out, options_.rates->out};
    machine.in = {options_.rates->in, options_.rates->in};
    machine.budget = options_.budget;
    machine.out_behind_reader = true;
    auto how = searching<offload::OffloadOptions>(share);
    how.engine = engine;
    const offload::OffloadResult found = offload::plan_offload(problem, machine, how);
    offer(
        rolled_up(unrolled,
                  offload::to_schedule(unrolled.graph, problem, found.plan, found.outcome), hash_),
        engine == "auto" ? "offload" : engine);
  }

  const graph::Graph& graph_;
  const StepOptions& options_;
  const std::uint64_t hash_;
  const Stopwatch watch_{options_};
  OrderProblem problem_;  // of the graph
  Operators first_;       // as recorded
  std::vector<Operators> orders_;
  std::optional<graph::Schedule> above_;       // the smallest given one, where none fits
  std::optional<graph::Schedule> recomputed_;  // the fastest that recomputes and offloads nothing
  std::uint64_t recomputed_ns_ = 0;
  Operators recomputed_order_;
  double recomputed_part_ = kBehind.front();
  bool held_ = false;       // whether the least budget counts what later operators take
  bool cut_short_ = false;  // whether a search ended by its time
  StepResult result_;
};

}  // namespace

namespace {

// Of the time that is left, what a schedule is looked for in where it gets addresses afterwards.
constexpr double kScheduling = 0.7;

// Gives a schedule its addresses. Returns by how much its arena is above the budget.
Bytes place(const graph::Graph& graph, const StepOptions& options, double time_limit_seconds,
            StepResult& result) {
  graph::Schedule& schedule = *result.schedule;
  const Bytes resident = result.verdict.resident;
  AddressOptions how;
  how.capacity = options.budget - std::min(resident, options.budget);
  how.time_limit_seconds = time_limit_seconds;
  how.iteration_budget = options.iteration_budget;
  how.seed = options.seed;
  how.cancel = options.cancel;
  how.rates = options.rates.value_or(graph::CopyRates{});
  result.addresses = place_flattened(graph, schedule, how);
  if (resident + schedule.arena_bytes > options.budget)
    return resident + schedule.arena_bytes - options.budget;
  if (use_holes(graph, schedule, *how.capacity, how.rates) > 0)
    result.addresses->arena_bytes = schedule.arena_bytes;
  result.verdict = graph::replay(graph, schedule, how.rates);
  BERTH_CHECK(result.verdict.violation.empty(), kUsage,
              "a schedule with addresses is not legal: {}", result.verdict.violation);
  schedule.ns = result.verdict.ns;
  return 0;
}

}  // namespace

std::vector<std::string> step_engines() {
  std::vector<std::string> all = own_engines();
  all.emplace_back("release");
  for (const NamedRecomputationRule& rule : recomputation_rules()) all.push_back(rule.name);
  for (const offload::NamedRule& rule : offload::offload_rules()) all.push_back(rule.name);
  return all;
}

StepResult plan_whole(const graph::Graph& graph, const StepOptions& options) {
  BERTH_CHECK(contains(step_engines(), options.engine), kUsage,
              "no engine '{}' plans a step, legal are: {}. Planners of papers are engines from "
              "berth::use_papers() on (berth/papers.h)",
              options.engine, fmt::join(step_engines(), ", "));
  const std::string wrong = graph::violation(graph);
  BERTH_CHECK(wrong.empty(), kInput, "{}", wrong);
  constexpr int kMostPlans = 4;
  StepOptions how = options;
  const Stopwatch watch(options);
  for (int plans = 1;; ++plans) {
    if (options.addresses) how.time_limit_seconds = kScheduling * watch.left();
    StepResult result = JointPlanning(graph, how).run();
    if (!options.addresses || !result.schedule) return result;
    const Bytes overhang = place(graph, options, watch.left(), result);
    result.seconds = watch.seconds();
    if (overhang == 0) return result;
    if (plans == kMostPlans || overhang >= how.budget || watch.stopped()) {
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
  const Stopwatch watch(options);
  for (const Bytes budget : budgets) {
    one.time_limit_seconds = watch.left() / static_cast<double>(budgets.size() - results.size());
    BERTH_CHECK(results.empty() || budget >= one.budget, kUsage,
                "the budget {} comes after {}: the least comes first", budget, one.budget);
    one.budget = budget;
    results.push_back(plan_step(graph, one));
    if (results.back().schedule) one.given.push_back(*results.back().schedule);
  }
  return results;
}

}  // namespace berth::schedule
