// One cell of the tables of bench/schedule: plans a published graph and prints what came out, as a
// line of JSON. Sizes are bytes and times nanoseconds, but those of `recomputation`: the problem's
// units.
#include "csrc/core/check.h"
#include "csrc/graph/file.h"
#include "csrc/papers/published.h"
#include "csrc/schedule/offload/from_graph.h"
#include "csrc/schedule/offload/plan.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"
#include "csrc/schedule/recomputation/recomputation.h"

#include <berth/papers.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <cmath>
#include <exception>
#include <string>

namespace {

using nlohmann::ordered_json;
using namespace berth;

struct Asked {
  std::string file, engine = "auto";
  double time_limit = 10, budget_gb = 0, share = 1;
  std::uint64_t seed = 1;
};

ordered_json order(const Asked& asked) {
  const schedule::OrderProblem problem = schedule::order_problem(graph::read_graph(asked.file));
  OrderOptions options;
  options.time_limit_seconds = asked.time_limit;
  options.seed = asked.seed;
  options.engine = asked.engine;
  const OrderResult result = schedule::plan_order(problem, options);
  const std::string wrong = problem.violation(result.order);
  BERTH_CHECK(wrong.empty(), kUsage, "berth is wrong: {}", wrong);
  return {{"operators", problem.nodes.size()},
          {"resident", problem.constant},
          {"given", result.given_peak},
          {"peak", result.peak},
          {"bound", result.bound},
          {"proven", result.proven_optimal},
          {"engine", result.engine},
          {"seconds", result.seconds}};
}

// Of the tables that a file has, the one that its plan for this budget names; else the first.
ordered_json recomputation(const Asked& asked) {
  std::vector<schedule::PublishedGraph> graphs = schedule::read_published(asked.file);
  schedule::PublishedGraph* graph = &graphs.front();
  ordered_json json;
  for (schedule::PublishedGraph& one : graphs)
    for (const schedule::PublishedPlan& plan : one.plans)
      if (std::abs(plan.budget_gb - asked.budget_gb) < 1e-9) {
        graph = &one;
        json["published"] = plan.cost;
      }
  schedule::StageProblem& problem = graph->problem;
  problem.budget = schedule::published_budget(asked.budget_gb);
  schedule::RecomputationOptions options;
  options.time_limit_seconds = asked.time_limit;
  options.seed = asked.seed;
  options.engine = asked.engine;
  const schedule::RecomputationResult result = schedule::plan_recomputation(problem, options);
  json["values"] = problem.values.size();
  json["stages"] = problem.stages.size();
  json["budget"] = problem.budget;
  json["base"] = result.base_cost;
  json["bound"] = result.cost_bound;
  if (result.plan) {
    json["cost"] = result.cost;
    json["peak"] = result.peak;
  } else {
    json["why_not"] = result.why_not;
  }
  json["engine"] = result.engine;
  json["seconds"] = result.seconds;
  json["moves"] = result.moves;
  return json;
}

// The budget is a share of the peak with everything kept, residents aside on both sides.
ordered_json offloads(const Asked& asked) {
  const auto problem = schedule::offload::from_graph(graph::read_graph(asked.file));
  schedule::offload::Machine machine;
  schedule::offload::OffloadOptions options;
  options.time_limit_seconds = asked.time_limit;
  options.seed = asked.seed;
  options.engine = "keep";
  const auto kept = schedule::offload::plan_offload(problem, machine, options);
  const auto most = static_cast<double>(kept.kept_peak - problem.constant);
  machine.budget = problem.constant + static_cast<Bytes>(most * asked.share);
  options.engine = asked.engine;
  const auto result = schedule::offload::plan_offload(problem, machine, options);
  return {
      {"kept_ns", result.kept_ns},       {"kept_peak", result.kept_peak - problem.constant},
      {"ns", result.outcome.ns},         {"peak", result.outcome.device_peak - problem.constant},
      {"excess", result.outcome.excess}, {"engine", result.engine},
      {"seconds", result.seconds},       {"simulations", result.simulations}};
}

}  // namespace

int main(int argc, char** argv) {
  berth::use_papers();
  CLI::App app{"Plans one published graph and prints the result as JSON"};
  app.require_subcommand(1);
  Asked asked;
  const auto add = [&](const char* name, const char* what) {
    CLI::App* const command = app.add_subcommand(name, what);
    command->add_option("file", asked.file, "the graph")->required();
    command->add_option("--time-limit", asked.time_limit, "seconds");
    command->add_option("--engine", asked.engine, "of the planner");
    command->add_option("--seed", asked.seed, "of the search");
    return command;
  };
  const CLI::App* const orders = add("order", "the order of least memory");
  CLI::App* const recomputes = add("recomputation", "what to recompute, of a file of MONeT's");
  recomputes->add_option("--budget", asked.budget_gb, "in units of 2^30 bytes")->required();
  CLI::App* const moves = add("offload", "what to offload to the host");
  moves->add_option("--share", asked.share, "budget, of what is needed with everything kept");
  CLI11_PARSE(app, argc, argv);
  try {
    const ordered_json json = *orders       ? order(asked)
                              : *recomputes ? recomputation(asked)
                                            : offloads(asked);
    std::puts(json.dump().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "schedule: %s\n", error.what());
    return 1;
  }
  return 0;
}
