// Whoever plans a step, in whatever order it runs and wherever its values are: the bits stay.
#include "csrc/graph/edges.h"
#include "csrc/graph/schedule.h"
#include "tests/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/torch_step/subjects.h"

#include <berth/graph.h>
#include <berth/schedule.h>

#include <torch/torch.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace berth::test;

namespace {

namespace nn = torch::nn;
using berth::torch::StepProgram;
using torch::Tensor;

}  // namespace

TEST_CASE("Whoever plans a step, its bits are those of the step as written", "[step]") {
  const Outcome plain = train(make_deep, false);
  for (const char* engine : {"release", "order", "recompute", "chen", "knapsack", "monet"}) {
    const bool again = std::string(engine) != "release" && std::string(engine) != "order";
    const Outcome planned =
        train(make_deep, true, kSteps, {.engine = engine, .memory_share = again ? 0.85 : 0});
    CAPTURE(engine, planned.stats.budget_not_met);
    REQUIRE(planned.stats.scheduled >= kSteps - 4);
    REQUIRE((planned.stats.recomputed > 0) == again);
    REQUIRE(planned.stats.budget_not_met.empty());
    REQUIRE(same(plain, planned));
  }
}

TEST_CASE("Engines go by the names that papers and users give them", "[step]") {
  const Outcome plain = train(make_deep, false), order = train(make_deep, true);
  for (const char* engine : {"olla", "berth", "order", "auto"}) {
    const Outcome named = train(make_deep, true, kSteps, {.engine = engine});
    CAPTURE(engine);
    REQUIRE(named.stats.predicted_peak == order.stats.predicted_peak);
    REQUIRE(same(plain, named));
  }
  const Outcome eager = train(make_deep, true, kSteps, {.engine = "eager"});
  REQUIRE(eager.stats.steps == kSteps);
  REQUIRE(eager.stats.scheduled + eager.stats.programs + eager.stats.refused == 0);
  REQUIRE(same(plain, eager));
}

TEST_CASE("What is copied to the host comes back to the bit, wherever the step goes",
          "[step][copies]") {
  const Outcome plain = train(make_wide, false), free = train(make_wide, true);
  const std::uint64_t activations = free.stats.predicted_peak - free.stats.resident;
  for (const char* engine : {"offload", "auto", "vdnn", "dymem"}) {
    // The last two move what their rules say, whatever the budget.
    const bool by_rule = std::string(engine) == "vdnn" || std::string(engine) == "dymem";
    const std::uint64_t budget =
        by_rule ? free.stats.recorded_peak : free.stats.resident + activations * 3 / 5;
    const Outcome copied =
        train(make_wide, true, kSteps,
              {.engine = engine, .memory_budget = budget, .copy_rate = 1'000'000'000'000});
    CAPTURE(engine, copied.stats.budget_not_met);
    REQUIRE(copied.stats.budget_not_met.empty());
    REQUIRE(copied.stats.scheduled >= kSteps - 4);
    if (!by_rule) REQUIRE(copied.stats.offloaded_bytes > 0);
    if (!by_rule) REQUIRE(copied.stats.host_peak > 0);
    REQUIRE(same(plain, copied));
  }
  // A step that goes another way, or fails, while some of it is on the host.
  for (int at = 0; at < 24; ++at) {
    const auto make = [at] {
      auto layers = std::make_shared<nn::SequentialImpl>();
      for (int n = 0; n < 12; ++n) layers->push_back(nn::Linear(32, 32));
      auto sgd = std::make_shared<torch::optim::SGD>(layers->parameters(), 0.1);
      const Tensor data = torch::randn({16384, 32});
      return Subject{
          layers, sgd, [=](int step) {
            sgd->zero_grad();
            Tensor x = data;
            for (int n = 0; n < 12; ++n) {
              x = layers->ptr<nn::LinearImpl>(static_cast<std::size_t>(n))->forward(x);
              x = step == 5 && n == at ? x.sigmoid() : x.tanh();
            }
            const Tensor loss = x.pow(2).mean();
            // The forward part has run then, and some of what the backward part takes is away.
            if (loss.item<float>() < 0) throw std::runtime_error("no square");
            (step == 5 && at == 12 ? loss * 2 : loss).backward();
            if (step == 5 && at > 12)
              layers->parameters()[static_cast<std::size_t>(at - 12)].mutable_grad().mul_(2);
            sgd->step();
            return loss.detach();
          }};
    };
    const Outcome other = train(make, false);
    const Outcome copied =
        train(make, true, kSteps,
              {.engine = "offload", .memory_share = 0.6, .copy_rate = 1'000'000'000'000});
    CAPTURE(at, copied.stats.last_divergence, copied.stats.budget_not_met);
    REQUIRE(copied.stats.offloaded_bytes > 0);
    REQUIRE(copied.stats.diverged >= 1);
    REQUIRE(same(other, copied));
  }
}

TEST_CASE("What comes from outside stays where it is, and is resident only where it stays",
          "[step][copies]") {
  // A loader's memory, another tensor in each step, to which the step writes at its end.
  const auto make = [] {
    Subject subject = make_wide();
    const auto net = std::dynamic_pointer_cast<nn::SequentialImpl>(subject.model);
    const auto sgd = subject.optimizer;
    const auto memory = std::make_shared<std::vector<float>>(16384 * 32, 0.5F);
    subject.body = [=](int) {
      const Tensor x = torch::from_blob(memory->data(), {16384, 32});
      sgd->zero_grad();
      const Tensor loss = net->forward(x).pow(2).mean() + x.mean();
      loss.backward();
      sgd->step();
      const torch::NoGradGuard no_grad;
      static_cast<void>(const_cast<Tensor&>(x).mul_(0.9));
      return loss.detach();
    };
    return subject;
  };
  const Outcome plain = train(make, false);
  const Outcome free = train(make, true, kSteps, {.engine = "release"});
  const Outcome copied =
      train(make, true, kSteps,
            {.engine = "offload", .memory_share = 0.6, .copy_rate = 1'000'000'000'000});
  CAPTURE(copied.stats.last_divergence, copied.stats.budget_not_met);
  REQUIRE(copied.stats.scheduled >= kSteps - 4);
  REQUIRE(copied.stats.offloaded_bytes > 0);
  REQUIRE(same(plain, free));
  REQUIRE(same(plain, copied));
  REQUIRE(free.stats.resident < 16384 * 32 * sizeof(float));
}

TEST_CASE("A step's graph is saved, and a schedule that was planned for it elsewhere is followed",
          "[step]") {
  const berth::test::TemporaryFolder folder;
  const std::string graph = folder / "x.graph", file = folder / "x.schedule";
  const auto save = [&](const Make& make) {
    const Subject subject = make();
    StepProgram program(waiting());
    REQUIRE_THROWS_WITH(program.save_graph(graph), Catch::Contains("no step is known yet"));
    std::vector<Tensor> losses;  // what outlives the step is part of it
    for (int step = 0; step < 3; ++step) {
      const auto scope = program.step();
      losses.push_back(subject.body(step));
    }
    program.save_graph(graph);
  };
  save(make_deep);
  const berth::graph::Graph step = berth::graph::read_graph(graph);
  berth::schedule::StepOptions planning;
  const Outcome free = train(make_deep, true);
  planning.budget = free.stats.resident + (free.stats.predicted_peak - free.stats.resident) / 2;
  planning.iteration_budget = 1000;
  const auto planned = berth::schedule::plan_step(step, planning);
  REQUIRE(planned.schedule);
  REQUIRE(planned.verdict.recomputed > 0);
  berth::graph::write_schedule(file, *planned.schedule);

  const Outcome plain = train(make_deep, false);
  const Outcome given = train(make_deep, true, kSteps, {.schedule = file});
  CAPTURE(given.stats.schedule_not_taken);
  REQUIRE(given.stats.schedule_not_taken.empty());
  REQUIRE(given.stats.recomputed == planned.verdict.recomputed);
  // Planners round sizes up.
  REQUIRE(given.stats.predicted_peak <= planned.verdict.peak);
  REQUIRE(planned.verdict.peak - given.stats.predicted_peak < 64 * given.stats.operators);
  REQUIRE(same(plain, given));

  ::setenv("BERTH_SCHEDULE", file.c_str(), 1);
  const Outcome by_variable = train(make_deep, true);
  const Outcome other = train(make_mlp, true), other_plain = train(make_mlp, false);
  ::unsetenv("BERTH_SCHEDULE");
  REQUIRE(by_variable.stats.recomputed == planned.verdict.recomputed);
  REQUIRE_THAT(other.stats.schedule_not_taken, Catch::Contains("it is for a step of"));
  REQUIRE(other.stats.scheduled >= kSteps - 4);
  REQUIRE(same(other_plain, other));
  REQUIRE_THROWS_WITH(StepProgram({.schedule = folder / "none"}), Catch::Contains("none"));
}

namespace {

// The step's graph, as it is without a budget.
berth::graph::Graph graph_of_step(const Make& make, const std::string& file) {
  const Subject subject = make();
  StepProgram program(waiting());
  std::vector<Tensor> losses;  // what outlives the step is part of it
  for (int step = 0; step < 5; ++step) {
    const auto scope = program.step();
    losses.push_back(subject.body(step));
  }
  program.save_graph(file);
  return berth::graph::read_graph(file);
}

std::vector<berth::graph::OperatorId> random_order(const berth::graph::Graph& graph,
                                                   std::mt19937& random) {
  std::vector<std::vector<berth::graph::OperatorId>> later(graph.operators.size());
  std::vector<std::size_t> before(graph.operators.size(), 0);
  const auto add = [&](const auto& pairs) {
    for (const auto& [first, second] : pairs) {
      later[first].push_back(second);
      ++before[second];
    }
  };
  add(berth::graph::edges_of(graph).order);
  add(graph.control);
  std::vector<berth::graph::OperatorId> ready, order;
  for (berth::graph::OperatorId op = 0; op < before.size(); ++op)
    if (before[op] == 0) ready.push_back(op);
  while (!ready.empty()) {
    std::swap(ready[random() % ready.size()], ready.back());
    order.push_back(ready.back());
    ready.pop_back();
    for (const berth::graph::OperatorId op : later[order.back()])
      if (--before[op] == 0) ready.push_back(op);
  }
  return order;
}

}  // namespace

TEST_CASE("Any legal order leaves the bits, whatever is made again", "[step][orders]") {
  const berth::test::TemporaryFolder folder;
  const std::string file = folder / "x.schedule";
  int with_drops = 0;
  for (const Make& make : {Make(make_mlp), Make(make_normalized), Make(make_elementwise)}) {
    const Outcome plain = train(make, false);
    torch::manual_seed(7);
    const berth::graph::Graph graph = graph_of_step(make, folder / "x.graph");
    const auto follows = [&](const berth::graph::Schedule& schedule) {
      berth::graph::write_schedule(file, schedule);
      const Outcome given = train(make, true, kSteps, {.schedule = file});
      CHECK(given.stats.schedule_not_taken.empty());
      CHECK(given.stats.scheduled >= kSteps - 4);
      return same(plain, given);
    };
    berth::schedule::StepOptions unlimited;
    unlimited.budget = berth::kMaxBytes;
    const berth::Bytes most = berth::schedule::plan_step(graph, unlimited).verdict.peak;
    for (std::uint32_t seed = 1; seed <= 34; ++seed) {
      CAPTURE(seed);
      std::mt19937 random(seed);
      REQUIRE(follows(berth::graph::schedule_of_order(graph, random_order(graph, random))));
      // And what a planner that is cut short makes again within a random budget.
      berth::schedule::StepOptions planning;
      planning.seed = seed;
      planning.iteration_budget = 20;
      planning.budget = most - random() % (most / 4);
      const auto planned = berth::schedule::plan_step(graph, planning);
      if (!planned.schedule || planned.verdict.recomputed == 0) continue;
      ++with_drops;
      REQUIRE(follows(*planned.schedule));
    }
  }
  REQUIRE(with_drops > 10);
}
