// What one change costs: a recorded run is learned, then replayed with one request of its last
// steps inserted, dropped, resized or swapped with the next, at one place after the other. A table
// of misses. With --share a share of the requests of every step is changed: a table of hits.

#include "bench/repeated_run.h"
#include "csrc/replay/perturbation.h"
#include "csrc/replay/through_berth.h"
#include "csrc/trace/file.h"
#include "tests/support/one_change.h"

#include <berth/error.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace berth;
using namespace berth::replay;

void print(const std::string& file, const char* kind, std::vector<std::uint64_t> misses) {
  if (misses.empty()) return;
  std::sort(misses.begin(), misses.end());
  const auto count = static_cast<double>(misses.size());
  const double mean =
      static_cast<double>(std::accumulate(misses.begin(), misses.end(), std::uint64_t{0})) / count;
  const auto at = [&](double share) {
    return misses[static_cast<std::size_t>(share * (count - 1))];
  };
  fmt::print("| {:<16} | {:<10} | {:>7} | {:>6.2f} | {:>6} | {:>6} | {:>6} |\n", file, kind,
             misses.size(), mean, at(0.5), at(0.95), at(1.0));
  std::fflush(stdout);
}

double percent(const StepResult& step) {
  return 100 * static_cast<double>(step.hits) /
         static_cast<double>(std::max<std::uint64_t>(step.requests, 1));
}

// How many of the requests after the third step hit, where a share of them is changed.
void print_hits(const std::string& name, const Workload& run, double share) {
  constexpr std::size_t kLearned = 3;
  const double each = share / 4;
  const std::pair<const char*, Perturbation> kinds[] = {
      {"insert", {.insert = share}},
      {"drop", {.drop = share}},
      {"resize", {.resize = share}},
      {"swap", {.swap = share}},
      {"all", {.insert = each, .drop = each, .resize = each, .swap = each}},
  };
  for (const auto& [kind, perturbation] : kinds) {
    const Result result = through_berth(perturb(run, perturbation, 7), {.steps = true});
    const Stats stats = result.stats.value_or(Stats());
    StepResult sum, worst;
    for (std::size_t i = kLearned; i < result.steps.size(); ++i) {
      const StepResult& step = result.steps[i];
      sum.requests += step.requests;
      sum.hits += step.hits;
      if (worst.requests == 0 || percent(step) < percent(worst)) worst = step;
    }
    fmt::print(
        "| {:<16} | {:<6} | {:>8} | {:>6.2f} | {:>6.2f} | {:>6} | {:>5.3f} | {:>6} | {:>8} |\n",
        name, kind, sum.requests, percent(sum), percent(worst), stats.lent,
        static_cast<double>(stats.reserved_peak) /
            static_cast<double>(std::max<Bytes>(1, stats.live_peak)),
        stats.plans_learned, stats.plan_searches);
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "What one inserted, dropped, resized or swapped request costs once a run was learned");
  std::vector<std::string> files;
  std::size_t changes = 200;
  app.add_option("FILE", files, "traces or event CSVs")->required();
  app.add_option("--changes", changes, "places a kind, evenly over the learned part");
  bool verbose = false;
  app.add_flag("--verbose", verbose, "a line a change");
  double share = 0;
  app.add_option("--share", share, "change this share of the requests of every step, in a table");
  std::size_t steps = 40, before = 0;
  app.add_option("--before", before,
                 "without --share: the last step of a run comes so often again, and the change in "
                 "the last of them");
  app.add_option("--steps", steps, "with --share: the last step of a run comes so often again");
  CLI11_PARSE(app, argc, argv);
  try {
    if (share > 0) {
      fmt::print(
          "| run | change | requests | hits % | worst step | lent | reserved / live | plans | "
          "searches |\n"
          "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n");
      for (const std::string& file : files) {
        print_hits(std::filesystem::path(file).stem().stem().string(),
                   bench::repeat_last_step(make_workload(read_trace(file)), steps), share);
      }
      return 0;
    }
    fmt::print("| {:<16} | {:<10} | {:>7} | {:>6} | {:>6} | {:>6} | {:>6} |\n", "run", "change",
               "changes", "mean", "median", "95 %", "worst");
    fmt::print("| --- | --- | ---: | ---: | ---: | ---: | ---: |\n");
    for (const std::string& file : files) {
      const Workload workload = bench::repeat_last_step(make_workload(read_trace(file)), before);
      const auto misses = [](const Workload& run) {
        return through_berth(run, BerthOptions{.planned = true}).misses.value_or(0);
      };
      const std::uint64_t undisturbed = misses(workload);
      const std::vector<std::size_t> places = test::places_to_change(workload, 3 + before);
      const std::size_t stride = std::max<std::size_t>(1, places.size() / changes);
      const std::string name = std::filesystem::path(file).stem().stem().string();
      for (const test::Change& change : test::kChanges) {
        std::vector<std::uint64_t> costs;
        for (std::size_t k = 0; k < places.size(); k += stride) {
          Workload changed = workload;
          if (!change.apply(changed, places[k])) continue;
          const std::uint64_t now = misses(changed);
          costs.push_back(now > undisturbed ? now - undisturbed : 0);
          if (verbose) fmt::print("{} {} at {}: {}\n", name, change.name, k, costs.back());
        }
        print(name, change.name, std::move(costs));
      }
    }
  } catch (const Error& error) {
    fmt::print(stderr, "divergence: {}\n", error.what());
    return 1;
  }
}
