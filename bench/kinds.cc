// Programs whose steps are of several kinds (tests/support/small_program.h), learned in place on a
// GPU on paper: how much of them the plan serves, from the fourth step of each kind on, or from
// step 51 where every step is another. A row a program.
//
//   build/release/bench/kinds [--only WORD] [--steps N] [--verbose] [--smoke]

#include "csrc/replay/paper_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/support/small_program.h"

#include <berth/warnings.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace berth;
using test::Program;
using Random = std::mt19937;

constexpr Bytes kBatch = 4096;  // 1 to 5 MiB a layer

struct NextStep {
  Program::Step step;
  std::size_t kind = 0;
  bool marked = true;
};
// The i-th step of a program.
using Steps = std::function<NextStep(std::size_t i, Random& random)>;

struct Row {
  std::string name;
  double goal = 99.5;       // % of hits
  std::size_t ignored = 3;  // first steps of a kind
  Steps steps;
  bool late = false;  // without marks kinds show when the run has come again and again
};

Program::Shape shape(std::size_t layers, Bytes batch, bool zero_first = true) {
  return {.layers = layers, .batch = batch, .zero_first = zero_first};
}

Steps evaluated(std::size_t every, std::size_t evaluations, Bytes batch, bool zero_first,
                bool marked) {
  return [=](std::size_t i, Random&) -> NextStep {
    const bool evaluates = i % (every + evaluations) >= every;
    if (evaluates) return {Program::evaluation(shape(30, batch)), 1, marked};
    return {Program::training(shape(30, kBatch, zero_first)), 0, marked};
  };
}

NextStep micro_batch(std::size_t micro, std::size_t of, bool marked) {
  return {Program::training({.layers = 20,
                             .batch = kBatch,
                             .zero_first = micro == 0,
                             .accumulates = micro != 0,
                             .optimizes = micro + 1 == of}),
          micro, marked};
}

NextStep one_of(std::size_t kind, bool zero_first, bool marked) {
  const Program::Shape one = shape(15, (1 + kind) * kBatch, zero_first);
  return {kind % 3 == 2 ? Program::evaluation(one) : Program::training(one), kind, marked};
}

// A prompt, and then token after token, each of which needs a larger cache.
NextStep generated(std::size_t token, Bytes prompt) {
  Program::Step step;
  for (std::size_t layer = 0; layer < 12; ++layer) {
    step.push_back({.bytes = 64 * kBatch, .frees_at_once = true});
    step.push_back({.bytes = 1024 * (prompt + token), .name = 1 + layer});  // instead of the last
    step.push_back({.bytes = 128 * kBatch, .frees_at_once = true});
  }
  return {step, 0, true};
}

std::vector<Row> programs() {
  std::vector<Row> rows;
  for (const bool marked : {true, false}) {
    const std::size_t before = rows.size();
    const std::string how = marked ? "" : ", no marks";
    for (const bool first : {true, false}) {
      const std::string zero = first ? ", gradients freed first" : ", gradients freed last";
      rows.push_back({"evaluation every 10 steps" + zero + how, 99.5, 3,
                      evaluated(10, 3, 2 * kBatch, first, marked)});
      rows.push_back({"the same, begins as training does" + zero + how, 99.5, 3,
                      evaluated(10, 3, kBatch, first, marked)});
    }
    rows.push_back({"GAN, a mark after each optimizer" + how, 99.5, 3,
                    [=](std::size_t i, Random&) -> NextStep {
                      Program::Shape one = shape(i % 2 == 0 ? 20 : 33, kBatch);
                      one.network = i % 2;
                      return {Program::training(one), i % 2, marked};
                    }});
    rows.push_back({"accumulation over 4" + how, 99.5, 3,
                    [=](std::size_t i, Random&) { return micro_batch(i % 4, 4, marked); }});
    rows.push_back({"accumulation over 4, evaluation every 40" + how, 99.5, 3,
                    [=](std::size_t i, Random&) -> NextStep {
                      if (i % 43 < 40) return micro_batch(i % 43 % 4, 4, marked);
                      return {Program::evaluation(shape(20, 2 * kBatch)), 4, marked};
                    }});
    rows.push_back(
        {"accumulation over 4 or 3 by chance" + how, 99.5, 3,
         [=, micro = std::size_t{0}, of = std::size_t{4}](std::size_t, Random& random) mutable {
           const NextStep next = micro_batch(micro, of, marked);
           if (++micro == of) micro = 0, of = 3 + random() % 2;
           return next;
         }});
    rows.push_back(
        {"short last batch of 20" + how, 99.5, 3, [=](std::size_t i, Random&) -> NextStep {
           const bool last = i % 21 == 20;
           return {Program::training(shape(25, last ? kBatch / 4 : kBatch)), last, marked};
         }});
    for (const std::size_t kinds : {2, 3, 4, 6}) {
      for (const bool first : {true, false}) {
        rows.push_back({fmt::format("{} kinds in random turns, gradients freed {}{}", kinds,
                                    first ? "first" : "last", how),
                        99.5, 3, [=](std::size_t, Random& random) {
                          return one_of(random() % kinds, first, marked);
                        }});
      }
    }
    for (const bool any : {false, true}) {
      rows.push_back({(any ? "lengths 1 to 1,024" : "20 random lengths") + how, 98, 50,
                      [=](std::size_t, Random& random) -> NextStep {
                        const Bytes length = any ? 1 + random() % 1024 : 64 + 48 * (random() % 20);
                        return {Program::training(shape(20, 16 * length)), 0, marked};
                      }});
    }
    for (std::size_t i = before; i < rows.size(); ++i) rows[i].late = !marked;
  }
  // As where the optimizer marks.
  for (const std::size_t kinds : {3, 4, 6}) {
    rows.push_back({fmt::format("{} kinds in random turns, no marks after evaluations", kinds),
                    99.5, 3, [=](std::size_t, Random& random) {
                      const std::size_t kind = random() % kinds;
                      return one_of(kind, true, kind % 3 != 2);
                    }});
  }
  rows.push_back({"lengths 1 to 1,024, evaluation every 10 steps", 98, 50,
                  [](std::size_t i, Random& random) -> NextStep {
                    const Program::Shape one = shape(20, 16 * (1 + random() % 1024));
                    if (i % 13 < 10) return {Program::training(one), 0, true};
                    return {Program::evaluation(one), 1, true};
                  }});
  rows.push_back({"lengths 1 to 1,024, a request in 100 resized", 90, 50,
                  [](std::size_t, Random& random) -> NextStep {
                    NextStep next{Program::training(shape(20, 16 * (1 + random() % 1024)))};
                    for (Program::Operation& one : next.step)
                      if (one.bytes != 0 && random() % 100 == 0) one.bytes += one.bytes / 3;
                    return next;
                  }});
  rows.push_back({"a request in 100 resized", 90, 10, [](std::size_t i, Random& random) {
                    NextStep next{Program::training(shape(30, kBatch))};
                    for (Program::Operation& one : next.step)
                      if (i > 4 && one.bytes != 0 && random() % 100 == 0)
                        one.bytes += one.bytes / 3;
                    return next;
                  }});
  rows.push_back(
      {"a request in 100 resized from the start", 90, 50, [](std::size_t, Random& random) {
         NextStep next{Program::training(shape(30, kBatch))};
         for (Program::Operation& one : next.step)
           if (one.bytes != 0 && random() % 100 == 0) one.bytes += one.bytes / 3;
         return next;
       }});
  rows.push_back({"batches that grow by 8", 0, 50, [](std::size_t i, Random&) -> NextStep {
                    return {Program::training(shape(20, 2 * kBatch + 8 * i))};
                  }});
  rows.push_back({"generation, 64 tokens, prompts of 512", 90, 130,
                  [](std::size_t i, Random&) { return generated(i % 64, 512); }});
  rows.push_back({"generation, 64 tokens, prompts up to 512", 90, 130,
                  [prompt = Bytes{0}](std::size_t i, Random& random) mutable {
                    if (i % 64 == 0) prompt = 1 + random() % 512;
                    return generated(i % 64, prompt);
                  }});
  for (const bool marked : {true, false}) {
    rows.push_back({marked ? "no period" : "no period, no marks", 0, 0,
                    [=](std::size_t, Random& random) -> NextStep {
                      Program::Step step;
                      for (std::size_t i = 0, count = 1 + random() % 60; i < count; ++i)
                        step.push_back({.bytes = 1 + random() % (kBatch * 256),
                                        .name = 1 + random() % 20,
                                        .frees_at_once = random() % 2 == 0});
                      return {step, 0, marked};
                    }});
  }
  return rows;
}

void run(const Row& row, std::size_t steps, bool verbose) {
  const std::unique_ptr<Device> device = replay::make_paper_device(Bytes{1} << 36);
  Allocator::Options options;
  options.start_threads = false;
  options.alignment = 512;
  options.config.plan_time_limit_seconds = 0.2;
  Allocator allocator(*device, options);
  Program program;
  Random random(7);
  std::vector<std::size_t> seen;
  std::uint64_t requests = 0, hits = 0;
  double worst = 1;
  const auto served = [](const Stats& stats) { return stats.hits + stats.hits_bucket; };
  for (std::size_t i = 0; i < steps; ++i) {
    const NextStep next = row.steps(i, random);
    const Stats before = allocator.stats();
    program.run(next.step, allocator);
    if (next.marked) allocator.mark_step(0);
    const Stats after = allocator.stats();
    if (verbose)
      fmt::print(
          "  step {}, kind {}: {} of {}, {} lent, {} unlike, {} busy, {} unplanned, plan {}\n", i,
          next.kind, served(after) - served(before), after.requests - before.requests,
          after.lent - before.lent, after.misses_size - before.misses_size,
          after.misses_busy - before.misses_busy, after.unplanned - before.unplanned,
          after.plans_learned);
    if (seen.size() <= next.kind) seen.resize(next.kind + 1);
    if (++seen[next.kind] <= (row.late ? steps / 2 / (1 + next.kind) : row.ignored)) continue;
    requests += after.requests - before.requests;
    hits += served(after) - served(before);
    worst = std::min(worst, static_cast<double>(served(after) - served(before)) /
                                static_cast<double>(after.requests - before.requests));
  }
  const Stats stats = allocator.stats();
  const double share =
      100 * static_cast<double>(hits) / static_cast<double>(std::max<std::uint64_t>(1, requests));
  fmt::print("| {} | {:.2f} | {}{:.1f} | {:.0f} | {:.3f} | {} | {} |\n", row.name, share,
             share >= row.goal ? "" : "**below** ", row.goal, 100 * worst,
             static_cast<double>(stats.reserved_peak) / static_cast<double>(stats.live_peak),
             stats.plans_learned, stats.plan_searches);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"How much of programs with several kinds of steps the plan serves"};
  std::string only;
  std::size_t steps = 400;
  bool smoke = false, verbose = false;
  app.add_option("--only", only, "programs whose names hold this");
  app.add_option("--steps", steps, "of each program");
  app.add_flag("--verbose", verbose, "a line a step");
  app.add_flag("--smoke", smoke, "few steps");
  CLI11_PARSE(app, argc, argv);
  if (smoke) steps = 60;
  fmt::print(
      "| program | hits, % | goal | worst step | reserved / live | plans | searches |\n"
      "| --- | --: | --: | --: | --: | --: | --: |\n");
  for (const Row& row : programs())
    if (row.name.find(only) != std::string::npos) run(row, steps, verbose);
}
