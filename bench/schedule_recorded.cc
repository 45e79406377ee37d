// One recorded step of the tables of bench/schedule_recorded, as a line of JSON: what it holds; the
// least memory of any order of it; and within budgets, shares of its free activation peak or bytes,
// what time each engine adds. Sizes are bytes, times nanoseconds. What every plan needs and takes
// the referee says.
#include "bench/roofline.h"
#include "csrc/core/check.h"
#include "csrc/graph/from_trace.h"
#include "csrc/papers/planners.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "csrc/schedule/recomputation/bound.h"
#include "csrc/trace/file.h"

#include <berth/papers.h>
#include <berth/schedule.h>
#include <berth/schedule_ilp.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <ctime>
#include <exception>
#include <limits>
#include <string>
#include <vector>

namespace {

using nlohmann::ordered_json;
using namespace berth;

constexpr double kForever = std::numeric_limits<double>::infinity();

struct Asked {
  std::string file;
  bool roofline = false;
  std::uint64_t moves = 200'000, seed = 1;
  std::vector<double> shares;
  std::vector<Bytes> budgets;
  std::vector<std::string> engines;
  double program_seconds = 60;
};

double processor_seconds() {
  return static_cast<double>(std::clock()) / static_cast<double>(CLOCKS_PER_SEC);
}

class Cells {
 public:
  Cells(const graph::Graph& graph, const Asked& asked) : graph_(graph), asked_(asked) {
    for (const graph::Storage& storage : graph.storages)
      if (storage.kind == graph::StorageClass::kResident) residents_ += storage.bytes;
    order_ = graph.order.empty() ? schedule::order_problem(graph).first_order() : graph.order;
    const schedule::StageGraph free = schedule::stage_graph(graph, order_, Bytes{1} << 50);
    const graph::Verdict kept =
        graph::replay(graph, to_schedule(graph, free, schedule::keep_everything(free.problem)));
    BERTH_CHECK(kept.violation.empty(), kUsage, "berth is wrong: {}", kept.violation);
    peak_ = kept.peak;
    base_ns_ = kept.ns;
    values_ = free.problem.values.size();
    stages_ = free.problem.stages.size();
  }

  ordered_json run() {
    ordered_json json = {{"residents", residents_},
                         {"kept_peak", peak_},
                         {"base_ns", base_ns_},
                         {"values", values_},
                         {"stages", stages_}};
    json["budgets"] = ordered_json::array();
    for (const double share : asked_.shares) {
      const auto activations = static_cast<double>(peak_ - residents_);
      ordered_json cell = at(residents_ + static_cast<Bytes>(activations * share));
      cell["share"] = share;
      json["budgets"].push_back(std::move(cell));
    }
    for (const Bytes budget : asked_.budgets) json["budgets"].push_back(at(budget));
    return json;
  }

 private:
  ordered_json at(Bytes budget) {
    const schedule::StageGraph stages = schedule::stage_graph(graph_, order_, budget);
    ordered_json json = {{"budget", budget}, {"least", schedule::least_budget(graph_).bytes}};
    schedule::RecomputationBound bound(stages.problem);
    bound.refine(200, 0);
    if (!bound.impossible()) json["bound_ns"] = bound.cost();
    for (const std::string& engine : asked_.engines) {
      const double start = processor_seconds();
      ordered_json cell = engine == "ours" ? ours(budget) : baseline(engine, stages);
      cell["seconds"] = processor_seconds() - start;
      json[engine] = std::move(cell);
    }
    return json;
  }

  ordered_json ours(Bytes budget) const {
    schedule::StepOptions options;
    options.budget = budget;
    options.seed = asked_.seed;
    options.iteration_budget = asked_.moves;
    options.time_limit_seconds = kForever;
    const schedule::StepResult found = plan_step(graph_, options);
    if (!found.schedule) return {{"why_not", found.why_not}};
    return verdict(*found.schedule, budget);
  }

  ordered_json baseline(const std::string& engine, const schedule::StageGraph& stages) const {
    if (engine == "checkmate" && schedule::checkmate_engine().unavailable())
      return {{"why_not", *schedule::checkmate_engine().unavailable()}};
    PlannerOptions options;
    options.seed = asked_.seed;
    options.iteration_budget = asked_.moves;
    // Checkmate's is that of four programs; MONeT's search counts moves alone.
    options.time_limit_seconds = engine == "checkmate" ? 4 * asked_.program_seconds : kForever;
    const schedule::BaselinePlan found = schedule::plan_baseline(engine, graph_, stages, options);
    ordered_json json;
    if (const auto& one = found.checkmate; one)
      json = {{"blocks", one->blocks}, {"stages", one->stages},     {"columns", one->columns},
              {"rows", one->rows},     {"programs", one->programs}, {"solved", one->solved}};
    json["plans"] = found.offered;
    if (found.plan)
      json.update(verdict(to_schedule(graph_, stages, *found.plan),
                          static_cast<Bytes>(stages.problem.budget)));
    return json;
  }

  [[nodiscard]] ordered_json verdict(const graph::Schedule& schedule, Bytes budget) const {
    const graph::Verdict verdict = graph::replay(graph_, schedule);
    BERTH_CHECK(verdict.violation.empty(), kUsage, "berth is wrong: {}", verdict.violation);
    BERTH_CHECK(verdict.peak <= budget, kUsage, "berth is wrong: {} bytes are above {}",
                verdict.peak, budget);
    return {{"ns", verdict.ns}, {"peak", verdict.peak}, {"recomputed", verdict.recomputed}};
  }

  const graph::Graph& graph_;
  const Asked& asked_;
  std::vector<graph::OperatorId> order_;  // as recorded
  Bytes residents_ = 0, peak_ = 0;
  std::uint64_t base_ns_ = 0;
  std::size_t values_ = 0, stages_ = 0;
};

ordered_json order(const graph::Graph& graph, const Asked& asked) {
  const schedule::OrderProblem problem = schedule::order_problem(graph);
  OrderOptions options;
  options.seed = asked.seed;
  options.iteration_budget = asked.moves;
  options.time_limit_seconds = kForever;
  options.given.assign(graph.order.begin(), graph.order.end());
  const double start = processor_seconds();
  const OrderResult found = schedule::plan_order(problem, options);
  return {{"resident", problem.constant},
          {"given", found.given_peak},
          {"peak", found.peak},
          {"bound", found.bound},
          {"proven", found.proven_optimal},
          {"seconds", processor_seconds() - start}};
}

}  // namespace

int main(int argc, char** argv) {
  berth::use_papers();
  CLI::App app{"Plans one recorded step and prints the result as JSON"};
  Asked asked;
  bool orders = false;
  app.add_option("trace", asked.file, "recorded with operators")->required();
  app.add_flag("--roofline", asked.roofline,
               "operators take what a model says, not what they took");
  app.add_flag("--order", orders, "the least memory of any order");
  app.add_option("--engines", asked.engines, "of plans within a budget")->delimiter(',');
  app.add_option("--shares", asked.shares, "budgets, of the free activation peak")->delimiter(',');
  app.add_option("--budgets", asked.budgets, "budgets in bytes, residents included")
      ->delimiter(',');
  app.add_option("--moves", asked.moves, "of each search");
  app.add_option("--program-seconds", asked.program_seconds, "of each linear program");
  app.add_option("--seed", asked.seed, "of the searches");
  CLI11_PARSE(app, argc, argv);
  if (asked.shares.empty() && asked.budgets.empty()) asked.shares = {0.8, 0.6, 0.4};
  try {
    use_checkmate();
    Trace trace = read_trace(asked.file);
    if (asked.roofline) bench::time_by_roofline(trace);
    const graph::TracedGraph traced = graph::graph_from_trace(trace);
    ordered_json json = {{"operators", traced.graph.operators.size()},
                         {"storages", traced.graph.storages.size()},
                         {"recorded_peak", traced.recorded_peak},
                         {"peak_as_recorded", graph::peak_as_recorded(traced)},
                         {"steps", traced.steps}};
    if (orders) json["order"] = order(traced.graph, asked);
    if (!asked.engines.empty()) json.update(Cells(traced.graph, asked).run());
    std::puts(json.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "schedule_recorded: %s\n", error.what());
    return 1;
  }
  return 0;
}
