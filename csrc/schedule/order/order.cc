#include "csrc/schedule/order/order.h"

#include "csrc/core/check.h"
#include "csrc/schedule/order/greedy.h"
#include "csrc/schedule/order/olla_engine.h"
#include "csrc/schedule/order/search.h"
#include "csrc/schedule/stopwatch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace berth::schedule {
namespace {

constexpr std::size_t kMostExact = 512;                                 // nodes
constexpr std::uint64_t kFirstMoves = 100'000, kMostMoves = 6'400'000;  // of a round of annealing
constexpr std::uint64_t kFirstSets = 20'000, kMostSets = 4'000'000;
constexpr std::uint64_t kMostCuts = 10'000;  // of one descent
constexpr std::uint32_t kFirstFlows = 100;   // of the first look for the bound

class OrderPlanning {
 public:
  OrderPlanning(const OrderProblem& problem, const OrderOptions& options)
      : problem_(problem), options_(options), cuts_(problem), random_(options.seed) {
    limits_.stop = [this] { return watch_.stopped(); };
  }

  OrderResult run() {
    if (options_.engine == "olla") {
      integer_program();
      return end();
    }
    start();
    if (wants("descent")) descend_all();
    if (!done()) find_bound();
    for (std::uint64_t round = 0; !done() && (wants("anneal") || wants("exact")); ++round) {
      const std::uint64_t budget = options_.iteration_budget;
      const std::uint64_t growth = std::uint64_t{1} << std::min<std::uint64_t>(round, 20);
      if (wants("exact")) refute(budget != 0 ? budget : std::min(kFirstSets * growth, kMostSets));
      if (wants("anneal") && !done())
        anneal_round(budget != 0 ? budget : std::min(kFirstMoves * growth, kMostMoves), round);
      if (!done()) find_bound();
      if (budget != 0 || (exhausted_ && !wants("anneal"))) break;
    }
    return end();
  }

 private:
  OrderResult end() {
    report();
    result_.proven_optimal = result_.peak == result_.bound;
    result_.seconds = watch_.seconds();
    return std::move(result_);
  }

  [[nodiscard]] bool wants(const char* engine) const {
    return options_.engine == "auto" || options_.engine == engine ||
           // annealing starts from what descends
           (std::string_view(engine) == "descent" && options_.engine == "anneal");
  }
  [[nodiscard]] bool done() const { return result_.peak == result_.bound || watch_.stopped(); }

  void take(Order order, const char* engine) {
    const Bytes peak = peak_of(problem_, order);
    if (!result_.order.empty() && peak >= result_.peak) return;
    result_.peak = peak;
    result_.order = std::move(order);
    result_.engine = engine;
    report();
  }

  void report() {
    if (options_.progress)
      options_.progress({watch_.seconds(), result_.peak, result_.bound, result_.engine});
  }

  // The given order, else the one by number.
  Order take_first() {
    if (!options_.given.empty()) {
      const std::string wrong = problem_.violation(options_.given);
      BERTH_CHECK(wrong.empty(), kUsage, "the given order is none of this graph: {}", wrong);
    }
    Order first = options_.given.empty() ? problem_.first_order() : options_.given;
    result_.given_peak = peak_of(problem_, first);
    take(first, "given");
    return first;
  }

  void start() {
    starts_.push_back(take_first());
    if (options_.engine != "given") {
      for (NamedOrder& named : constructive_orders(problem_, [this] { return watch_.stopped(); })) {
        starts_.push_back(named.order);
        take(std::move(named.order), "constructive");
      }
    }
    std::stable_sort(starts_.begin(), starts_.end(), [this](const Order& a, const Order& b) {
      return peak_of(problem_, a) < peak_of(problem_, b);
    });
    find_bound();
  }

  // The better the order, the fewer cuts are enough: so a few first, and again later.
  void find_bound() {
    if (bound_of_ == result_.peak) {
      if (flows_ > problem_.nodes.size()) return;
      flows_ *= 4;
    }
    bound_of_ = result_.peak;
    const OrderBound bound =
        min_cut_bound(cuts_, problem_, result_.order, flows_, [this] { return watch_.stopped(); });
    result_.bound = std::max(result_.bound, bound.bytes);
    result_.flows += bound.flows;
  }

  // Alone, an oracle: it gets a first order and no help besides, and its bound is its own.
  void integer_program() {
    OllaSettings settings;
    settings.start = take_first();
    settings.seed = options_.seed;
    settings.nodes = options_.iteration_budget;
    settings.seconds = options_.time_limit_seconds - watch_.seconds();
    const auto prove = [this](Bytes bound) {
      result_.bound = std::max(result_.bound, std::min(bound, result_.peak));
    };
    const OllaResult solved =
        olla_engine().solve(problem_, settings,
                            {[this](Order order) { take(std::move(order), "olla"); },
                             [&](Bytes bound) {
                               prove(bound);
                               return watch_.stopped();
                             }});
    prove(solved.bound);
    result_.sets = solved.nodes;
  }

  // The best two of different peaks.
  void descend_all() {
    const std::size_t most = std::min<std::size_t>(2, starts_.size());
    for (std::size_t k = 0; k < most && !done(); ++k) {
      WorkingOrder order(problem_, starts_[k], 0);
      result_.moves += descend(cuts_, order, {.moves = kMostCuts, .stop = limits_.stop});
      starts_[k] = order.order();
      take(order.order(), "descent");
    }
  }

  void anneal_round(std::uint64_t moves, std::uint64_t round) {
    const std::size_t most = std::min<std::size_t>(2, starts_.size());
    Order& from = starts_[round % most];
    Order found = anneal(problem_, cuts_, from, result_.bound, random_,
                         {.moves = moves, .stop = limits_.stop}, &result_.moves);
    from = found;
    take(std::move(found), "anneal");
  }

  // Whether any order is below the best: in small steps of the capacity, since a tighter one can be
  // easier. A refusal raises the bound.
  void refute(std::uint64_t most_sets) {
    if (problem_.nodes.size() > kMostExact) {
      exhausted_ = true;
      return;
    }
    while (!done()) {
      const ExactAnswer answer =
          search_exactly(problem_, result_.peak - 1, most_sets, {.stop = limits_.stop});
      result_.sets += answer.sets;
      if (answer.kind == ExactAnswer::Kind::kAborted) {
        exhausted_ = most_sets >= kMostSets;
        return;
      }
      if (answer.kind == ExactAnswer::Kind::kRefuted)
        result_.bound = result_.peak;
      else
        take(answer.order, "exact");
    }
  }

  const OrderProblem& problem_;
  const OrderOptions& options_;
  const Stopwatch watch_{options_};
  MinCut cuts_;
  std::mt19937_64 random_;
  SearchLimits limits_;
  std::vector<Order> starts_;
  OrderResult result_;
  bool exhausted_ = false;
  Bytes bound_of_ = ~Bytes{0};  // the peak for which the bound was looked for last
  std::uint32_t flows_ = kFirstFlows;
};

}  // namespace

OrderResult plan_order(const OrderProblem& problem, const OrderOptions& options) {
  const auto& engines = order_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.engine) != engines.end(), kUsage,
              "no engine '{}' orders operators, legal are: {}", options.engine,
              fmt::join(engines, ", "));
  if (options.engine == "olla") {
    const auto& missing = olla_engine().unavailable();
    BERTH_CHECK(!missing, kUsage, "{}", *missing);
  }
  BERTH_CHECK(problem.nodes.size() <= kMostOrdered, kUsage,
              "a graph of {} operators is to be ordered, the most is {}", problem.nodes.size(),
              kMostOrdered);
  if (problem.nodes.empty()) {
    OrderResult nothing;
    nothing.peak = nothing.bound = nothing.given_peak = problem.constant;
    nothing.proven_optimal = true;
    return nothing;
  }
  return OrderPlanning(problem, options).run();
}

}  // namespace berth::schedule

namespace berth {

OrderResult order_operators(const StepOperators& operators, const OrderOptions& options) {
  schedule::OrderProblem problem;
  try {
    problem = schedule::order_problem(operators);
  } catch (const Error& error) {  // no file of ours: the caller's own
    throw Error(ErrorKind::kUsage, error.what());
  }
  return schedule::plan_order(problem, options);
}

const std::vector<std::string>& order_engines() {
  static const auto& kEngines = *new const std::vector<std::string>{
      "auto", "given", "constructive", "descent", "anneal", "exact", "olla"};
  return kEngines;
}

}  // namespace berth
