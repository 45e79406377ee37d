#include "csrc/schedule/recomputation/recomputation.h"

#include "csrc/core/check.h"
#include "csrc/schedule/recomputation/bound.h"
#include "csrc/schedule/recomputation/chen.h"
#include "csrc/schedule/recomputation/cut_plans.h"
#include "csrc/schedule/recomputation/search.h"
#include "csrc/schedule/stopwatch.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

namespace berth::schedule {
namespace {

constexpr double kChoosing = 15;  // times as warm, in one squeeze where alternatives are chosen
constexpr std::uint64_t kMeasured = 4096;      // moves that say how fast moves are
constexpr std::uint64_t kLeastMoves = 20'000;  // of a squeeze that is worth its start
constexpr double kSqueezing = 0.58;            // share of the moves; the rest is for branches
constexpr double kBounding = 0.1;              // share of the time, for the bound
constexpr double kChen = 0.05;                 // share of the time, for Chen's plans as a start
constexpr std::size_t kCutGrid = 24;           // prices of plans by cuts, with as much time
constexpr std::size_t kChenCells = 20'000'000,
                      kMostChenGrid = 400;  // values times stages times grid
constexpr unsigned kFirstRounds = 60, kRounds = 340;
constexpr std::size_t kBoundedCells = 40'000'000;  // values times stages times rounds
constexpr std::size_t kSmall = 12'000, kMiddle = 30'000, kDeep = 200'000;  // values times stages

// Whether a plan of the caller's has the problem's form.
bool is_plan_of(const StageProblem& problem, const Recomputation& plan) {
  const std::size_t stages = problem.stages.size();
  if (!plan.kept.alike(Recomputation(problem).kept) || plan.alternatives.size() != stages)
    return false;
  for (std::size_t t = 0; t < stages; ++t)
    if (plan.alternatives[t] >= std::max<std::size_t>(problem.stages[t].alternatives.size(), 1))
      return false;
  bool legal = true;
  for (std::size_t row = 0; row <= stages; ++row)
    for_each_bit(plan.kept.row(row), [&](std::size_t value) {
      legal = legal && row != 0 && row != stages && value < problem.values.size() &&
              problem.values[value].keepable;
    });
  return legal;
}

class RecomputationPlanning {
 public:
  RecomputationPlanning(const StageProblem& problem, const RecomputationOptions& options)
      : problem_(problem),
        options_(options),
        model_(StageModel::make(problem)),
        random_(options.seed) {
    search_.stop = [this] { return watch_.stopped(); };
  }

  RecomputationResult run() {
    const Recomputation everything = keep_everything(problem_);
    start(everything);
    if (result_.why_not.empty() && best_.cost != result_.cost_bound &&
        (options_.engine == "auto" || options_.engine == "recompute") && !watch_.stopped())
      recompute(everything);
    result_.moves = search_.moves;
    result_.seconds = watch_.seconds();
    if (best_.plan) {
      const RecomputationCost found = evaluate(*model_, *best_.plan);
      BERTH_CHECK(found.cost == best_.cost && found.excess == 0, kUsage,
                  "berth is wrong: its plan costs {}, not {}, with {} over the budget", found.cost,
                  best_.cost, found.excess);
      result_.cost = found.cost;
      result_.peak = found.peak;
      result_.plan = std::move(best_.plan);
      result_.engine = best_by_;
      result_.proven_optimal = result_.cost <= result_.cost_bound;
    } else if (result_.why_not.empty()) {
      result_.why_not = fmt::format("nothing was found that fits {}, in {} moves", problem_.budget,
                                    search_.moves);
    }
    return std::move(result_);
  }

 private:
  [[nodiscard]] std::size_t cells() const {
    return std::max<std::size_t>(problem_.values.size() * problem_.stages.size(), 1);
  }
  // Whether it fits. `near`: where it does not, it is worth going on from all the same.
  bool offer(const Recomputation& plan, const char* engine, bool near = false) {
    const RecomputationCost cost = evaluate(*model_, plan);
    if (cost.cost >= StageProblem::kNever) return false;
    if (cost.excess != 0) {
      if (near && (!nearest_ || cost.excess < nearest_excess_)) {
        nearest_ = plan;
        nearest_excess_ = cost.excess;
      }
      return false;
    }
    if (best_.plan && cost.cost >= best_.cost) return true;
    best_.plan = plan;
    best_.cost = cost.cost;
    best_by_ = engine;
    return true;
  }

  void start(const Recomputation& everything) {
    // Without a budget every operator takes its fastest alternative, once.
    StageProblem free = problem_;
    free.budget = std::numeric_limits<std::int64_t>::max() / 4;
    const auto free_model = StageModel::make(free);
    const RecomputationCost base = evaluate(*free_model, everything);
    result_.base_cost = base.cost;
    result_.base_peak = base.peak;
    result_.least_budget = least_budget_of(problem_);
    if (result_.least_budget > problem_.budget) {
      result_.why_not = fmt::format("some operator alone needs {}, the budget is {}",
                                    result_.least_budget, problem_.budget);
      return;
    }
    bound_ = std::make_unique<RecomputationBound>(problem_);
    if (bound_->impossible()) {
      result_.why_not = fmt::format(
          "whatever is kept, some operator or what it reads does not fit {}", problem_.budget);
      return;
    }
    result_.cost_bound = bound_->cost();
    (void)offer(everything, "keep");
    // mutant: kept-given
    if (options_.given && !offer(*options_.given, "given", true)) nearest_is_given_ = true;
    if (options_.engine == "cut" || options_.engine == "auto") offer_cuts();
    if (options_.engine == "chen" || options_.engine == "auto") offer_chen();
    tighten(kFirstRounds);
  }

  // All its plans, with a smaller share of the time where they are only a start.
  void offer_chen() {
    const double most = options_.engine == "chen"
                            ? options_.time_limit_seconds
                            : watch_.seconds() + kChen * options_.time_limit_seconds;
    const std::size_t grid = std::clamp<std::size_t>(kChenCells / cells(), 4, kMostChenGrid);
    chen_plans(
        problem_, grid, [&](const Recomputation& plan) { (void)offer(plan, "chen"); },
        [&] { return done() || watch_.seconds() > most; });
  }

  void offer_cuts() {
    const double most = options_.engine == "cut"
                            ? options_.time_limit_seconds
                            : watch_.seconds() + kChen * options_.time_limit_seconds;
    cut_plans(
        problem_, kCutGrid, [&](const Recomputation& plan) { return offer(plan, "cut", true); },
        [&] { return done() || watch_.seconds() > most; });
  }

  // Raises the bound, for so many rounds (fewer for large problems) and a share of the time.
  void tighten(unsigned rounds) {
    if (done()) return;
    const double before = watch_.seconds();
    const double share = kBounding * options_.time_limit_seconds - bounding_seconds_;
    rounds = std::min(rounds, static_cast<unsigned>(kBoundedCells / cells() + 10));
    bound_->refine(rounds, best_.plan ? best_.cost : 0,
                   [&] { return watch_.stopped() || watch_.seconds() - before > share; });
    bounding_seconds_ += watch_.seconds() - before;
    result_.cost_bound = std::max(result_.cost_bound, bound_->cost());
  }

  // Squeezes from everything kept, then branches from the best.
  void recompute(const Recomputation& everything) {
    // What prices and temperatures are measured in, as they were tuned on: a step of 10^5 units of
    // time in 5 x 10^6 units of bytes.
    const double time = static_cast<double>(std::max<std::int64_t>(result_.base_cost, 1));
    const double price_unit =
        time / 1e5 / (static_cast<double>(std::max<std::int64_t>(problem_.budget, 1)) / 5e6);
    Squeeze how{.moves = 0,
                .temperature = 0.00015 * time,
                .price = 1e-6 * price_unit,
                .least_price = 1e-7 * price_unit,
                .most_price = price_unit};
    const double warmest = how.temperature;
    WorkingPlan plan(*model_, everything);
    const std::uint64_t moves = budget_of(plan, how);

    std::uint64_t squeezes = cells() < kSmall ? 20 : cells() < kMiddle ? 3 : 1;
    const auto share = static_cast<std::uint64_t>(kSqueezing * static_cast<double>(moves));
    squeezes = std::clamp<std::uint64_t>(share / kLeastMoves, 1, squeezes);
    const double warmer = squeezes == 1 && has_choices() ? kChoosing : 1;
    // Cool ones squeeze large problems best, warm ones small ones, which have many squeezes.
    constexpr std::array<double, 10> kTemperatures = {1, 10, 80, 3, 30, 0.3, 50, 20, 5, 100};
    // There is a start to go on from; in a deep net a single squeeze seldom comes to a better one.
    const bool deep = cells() >= kDeep;
    if (deep && (best_by_ == "given" || best_by_ == "cut")) squeezes = 0;
    if (((deep && squeezes == 1) || nearest_is_given_) && !best_.plan && nearest_ && !done()) {
      plan.assign(*nearest_);
      how.moves = share / (deep ? 1 : 2);
      how.temperature = warmest * 0.3;
      how.price = 0.1 * price_unit;
      run(plan, how, {});
      if (deep) squeezes = 0;
    }
    for (std::uint64_t k = 0; k < squeezes && !done(); ++k) {
      if (k > 0) plan.assign(everything);
      how.moves = share / squeezes;
      how.price = 1e-6 * price_unit;
      how.temperature = warmest * warmer * kTemperatures[k % kTemperatures.size()];
      run(plan, how, {});
    }
    // Nothing fits: from nothing kept as well as from everything, ever warmer, and dearer from the
    // beginning.
    constexpr std::uint64_t kTries = 12;
    for (std::uint64_t k = 0; k < kTries && !best_.plan && !done(); ++k) {
      plan.assign(k % 2 == 0 ? everything : Recomputation(problem_));
      how.moves = (moves - std::min(moves, search_.moves)) / (kTries - k);
      how.temperature = warmest * std::pow(10.0, static_cast<double>(k / 3));
      how.price = price_unit * std::pow(10.0, static_cast<double>(k % 3) - 3);
      run(plan, how, {});
    }
    if (!best_.plan) return;
    tighten(kRounds);  // with a plan that says how far there is to go
    const std::uint64_t cycle = std::max<std::uint64_t>(moves / 100, 1000);
    const bool counted = options_.iteration_budget != 0;  // else the clock says when to end
    for (std::uint64_t k = 0; (!counted || search_.moves < moves) && !done(); ++k) {
      plan.assign(*best_.plan);
      how.moves = counted ? std::min(cycle, moves - search_.moves) : cycle;
      how.temperature = warmest * (0.1 + 0.4 * static_cast<double>(random_() % 1024) / 1024.0);
      how.price = 0.1 * price_unit;
      run(plan, how, branch(plan, k));
    }
  }

  [[nodiscard]] bool has_choices() const {
    return std::ranges::any_of(problem_.stages,
                               [](const auto& stage) { return stage.alternatives.size() > 1; });
  }
  [[nodiscard]] bool done() const {
    return watch_.stopped() || (best_.plan && best_.cost <= result_.cost_bound);
  }

  void run(WorkingPlan& plan, const Squeeze& how, const std::vector<StageValue>& held) {
    const std::int64_t before = best_.plan ? best_.cost : std::numeric_limits<std::int64_t>::max();
    const std::uint64_t evaluations = plan.evaluations();
    squeeze(plan, *model_, how, held, random_, search_, best_);
    result_.evaluations += plan.evaluations() - evaluations;
    if (best_.plan && best_.cost < before) best_by_ = "recompute";
  }

  // How many moves there are: as asked, or by the time that some of them take.
  std::uint64_t budget_of(WorkingPlan& plan, Squeeze how) {
    if (options_.iteration_budget != 0) return options_.iteration_budget;
    const double before = watch_.seconds();
    how.moves = kMeasured;
    how.price *= 100;
    const Recomputation start = plan.plan();
    run(plan, how, {});
    plan.assign(start);
    const double each = (watch_.seconds() - before) / static_cast<double>(kMeasured);
    const double left = watch_.left();
    return static_cast<std::uint64_t>(std::clamp(left / std::max(each, 1e-8), 1e4, 1e12));
  }

  // A value that is not kept over the first row although the best has it there, or is although not.
  std::vector<StageValue> branch(WorkingPlan& plan, std::uint64_t k) {
    if (k % 3 == 2 || problem_.stages.size() < 3 || problem_.values.empty()) return {};
    const bool forbid = k % 3 == 0;
    RecomputationMove move;
    for (int tries = 0; tries < 64; ++tries) {
      const auto value = static_cast<StageValue>(random_() % problem_.values.size());
      if (plan.plan().kept.has(1, value) != forbid || !problem_.values[value].keepable) continue;
      const MoveMaker maker(*model_, plan, random_, {});
      if (forbid) {
        move.flips = {maker.gap_around(value, 1)};
      } else {
        std::uint32_t last = 1;
        const auto stages = static_cast<std::uint32_t>(problem_.stages.size());
        while (last + 1 < stages && !plan.plan().kept.has(last, value) && !plan.uses(last, value))
          ++last;
        if (!plan.uses(last, value) && !plan.plan().kept.has(last, value)) continue;
        move.flips = {{value, 1, last, true}};
      }
      if (!plan.apply(move)) continue;
      plan.accept();
      return {value};
    }
    return {};
  }

  const StageProblem& problem_;
  const RecomputationOptions& options_;
  const Stopwatch watch_{options_};
  std::unique_ptr<StageModel> model_;
  std::mt19937_64 random_;
  RecomputationSearch search_;
  FoundRecomputation best_;
  std::string best_by_;
  std::optional<Recomputation> nearest_;  // of those that do not fit, the least above
  std::int64_t nearest_excess_ = 0;
  bool nearest_is_given_ = false;
  RecomputationResult result_;
  std::unique_ptr<RecomputationBound> bound_;
  double bounding_seconds_ = 0;
};

}  // namespace

const std::vector<std::string>& recomputation_engines() {
  static const auto& kEngines =
      *new const std::vector<std::string>{"auto", "chen", "cut", "keep", "recompute"};
  return kEngines;
}

std::int64_t least_budget_of(const StageProblem& problem) {
  std::int64_t least = 0;
  for (const StageProblem::StageOf& stage : problem.stages) {
    least = std::max(least, stage.fixed);
    std::int64_t closing = std::numeric_limits<std::int64_t>::max();
    for (const StageProblem::AlternativesOf& one : stage.alternatives) {
      std::int64_t bytes = stage.closing;
      for (const StageValue value : one.reads) bytes += problem.values[value].bytes;
      std::int64_t workspace = one.all.front().workspace;
      for (const StageAlternative& alternative : one.all)
        workspace = std::min(workspace, alternative.workspace);
      closing = std::min(closing, bytes + workspace);
    }
    if (!stage.alternatives.empty()) least = std::max(least, closing);
    for (const StageNode n : stage.must_run) {
      const StageProblem::NodeOf& node = problem.nodes[n];
      std::int64_t bytes = stage.fixed;
      for (const StageValue value : node.reads) bytes += problem.values[value].bytes;
      for (const StageValue value : node.makes) bytes += problem.values[value].bytes;
      std::int64_t workspace = std::numeric_limits<std::int64_t>::max();
      for (const auto* alternatives : {&node.first, &node.in_place})
        for (const StageAlternative& alternative : *alternatives)
          workspace = std::min(workspace, alternative.workspace);
      if (problem.rules == StageRules::kCheckmate) workspace = 0;
      least = std::max(least, bytes + workspace);
    }
  }
  return least;
}

RecomputationResult plan_recomputation(const StageProblem& problem,
                                       const RecomputationOptions& options) {
  const auto& engines = recomputation_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.engine) != engines.end(), kUsage,
              "no engine '{}' plans what to keep, legal are: {}", options.engine,
              fmt::join(engines, ", "));
  RecomputationPlanning planning(problem, options);
  BERTH_CHECK(!options.given || is_plan_of(problem, *options.given), kUsage,
              "the given plan is none of this problem of {} results in {} stages",
              problem.values.size(), problem.stages.size());
  return planning.run();
}

}  // namespace berth::schedule
