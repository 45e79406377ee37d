#include "csrc/schedule/offload/plan.h"

#include "csrc/core/check.h"
#include "csrc/schedule/offload/named_rules.h"
#include "csrc/schedule/offload/search.h"
#include "csrc/schedule/stopwatch.h"

#include <algorithm>
#include <optional>

namespace berth::schedule::offload {
namespace {

constexpr std::uint64_t kFirstRound = 2'000;  // simulations of annealing, without a budget
constexpr std::uint64_t kMostRound = 64'000;
constexpr std::uint64_t kUnlimited = std::uint64_t{1} << 62;

class OffloadPlanning {
 public:
  OffloadPlanning(const Problem& problem, const Machine& machine, const OffloadOptions& options)
      : problem_(problem),
        machine_(machine),
        options_(options),
        search_(problem, machine, options.least_bytes) {}

  OffloadResult run() {
    Timeline timeline(problem_, machine_);
    const Outcome kept = timeline.play(keep_all(problem_));
    result_.kept_ns = kept.ns;
    result_.kept_peak = kept.device_peak;
    find_least_peak();
    take({search_.all_kept(), search_.price(search_.all_kept())}, "keep");
    const std::vector<NamedRule> rules = offload_rules();
    const auto rule = std::ranges::find(rules, options_.engine, &NamedRule::name);
    if (rule != rules.end()) {
      result_.plan = rule->plan(problem_);
      result_.engine = options_.engine;
    } else {
      search_all();
      result_.plan = search_.plan_of(best_->draft);
    }
    result_.outcome = timeline.play(result_.plan);
    const Report report = timeline.report();
    result_.offloaded_bytes = report.out_bytes;
    result_.recomputed = static_cast<std::uint64_t>(std::count_if(
        report.runs.begin(), report.runs.end(), [](const RunTime& run) { return run.again; }));
    result_.simulations = search_.simulations() + 2;
    result_.seconds = watch_.seconds();
    return std::move(result_);
  }

 private:
  struct Found {
    Draft draft;
    Score score;
  };

  [[nodiscard]] bool optimal() const {
    return best_ && best_->score.fits() && best_->score.ns == result_.kept_ns;
  }

  void take(const Found& found, const std::string& engine) {
    if (best_ && !found.score.better_than(best_->score)) return;
    best_ = found;
    result_.engine = engine;
  }

  void find_least_peak() {
    result_.least_peak = problem_.constant;
    for (const Problem::OperatorOf& op : problem_.operators) {
      Bytes bytes = problem_.constant + op.workspace;
      for (const std::vector<Value>* values : {&op.makes, &op.reads})
        for (const Value v : *values) bytes += problem_.values[v].bytes;
      result_.least_peak = std::max(result_.least_peak, bytes);
    }
  }

  void search_all() {
    const bool all = options_.engine == "auto";
    if (all || options_.engine == "offload") search_with("offload", {true, false}, all ? 0.25 : 1);
    if (all || options_.engine == "recompute")
      search_with("recompute", {false, true}, all ? 0.5 : 1);
    if (all || options_.engine == "joint") search_with("joint", {true, true}, 1);
  }

  // Until that share of the time limit is over. Goes on from the best of what was found before.
  void search_with(const std::string& engine, const Ways& ways, double time_share) {
    const std::uint64_t since = search_.simulations();
    const std::uint64_t budget =
        options_.iteration_budget != 0 ? options_.iteration_budget : kUnlimited;
    const auto stop = [&] {
      return watch_.stopped() || optimal() ||
             watch_.seconds() > time_share * options_.time_limit_seconds;
    };
    const auto limits = [&](std::uint64_t most) {
      const std::uint64_t used = search_.simulations() - since;
      return SearchLimits{std::min(most, budget - std::min(budget, used)), stop};
    };
    std::optional<Found> best;  // of this search
    const auto keep_best = [&](const Found& found) {
      take(found, engine);
      if (!best || found.score.better_than(best->score)) best = found;
    };
    if (engine == "joint") best = best_;
    // The budget of simulations is shared so that annealing has the larger part of it.
    for (const bool by_sum : {true, false}) {
      if (stop()) return;
      Found found{search_.all_kept(), {}};
      found.score = search_.greedy(found.draft, ways, by_sum, limits(budget / 6));
      keep_best(found);
      found.score = search_.undo(found.draft, limits(budget / 12));
      keep_best(found);
    }
    if (!best->score.fits() && !stop()) {
      Found found{search_.least_kept(ways), {}};
      found.score = search_.undo(found.draft, limits(budget / 6));
      keep_best(found);
    }
    std::mt19937_64 random(options_.seed);
    for (std::uint64_t round = kFirstRound; !stop(); round = std::min(2 * round, kMostRound)) {
      const SearchLimits now = limits(options_.iteration_budget != 0 ? budget : round);
      if (now.simulations == 0) break;
      const std::uint64_t before = search_.simulations();
      Found found = *best;
      found.score = search_.anneal(found.draft, ways, random, now,
                                   [&](const Draft& draft, const Score& score) {
                                     take({draft, score}, engine);
                                   });
      keep_best(found);
      found.score = search_.undo(found.draft, limits(kUnlimited));
      keep_best(found);
      if (search_.simulations() - before < 4) break;  // no move changes anything
    }
  }

  const Problem& problem_;
  const Machine& machine_;
  const OffloadOptions& options_;
  const Stopwatch watch_{options_};
  Search search_;
  std::optional<Found> best_;
  OffloadResult result_;
};

}  // namespace

std::vector<std::string> copy_engines() {
  std::vector<std::string> engines = {"auto", "joint", "offload", "recompute", "keep"};
  for (const NamedRule& rule : offload_rules()) engines.push_back(rule.name);
  return engines;
}

OffloadResult plan_offload(const Problem& problem, const Machine& machine,
                           const OffloadOptions& options) {
  const auto& engines = copy_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.engine) != engines.end(), kUsage,
              "no engine '{}' plans copies, legal are: {}", options.engine,
              fmt::join(engines, ", "));
  return OffloadPlanning(problem, machine, options).run();
}

}  // namespace berth::schedule::offload
