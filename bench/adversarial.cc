// Families of problems that are hard for some planner (tests/support/problem_families.h), placed
// and checked: how far above max load they end, and whether that is proven to be the least. One row
// a problem, as a table in Markdown. `--refuted N` counts instead how many of N problems whose
// sections are all full have no placement at max load.
//
//   build/release/bench/adversarial [--time-limit S] [--counts N,N,...] [--refuted N] [--smoke]

#include "csrc/place/exact/exact_search.h"
#include "csrc/place/problem/strip.h"
#include "tests/support/placement_check.h"
#include "tests/support/problem_families.h"

#include <berth/place.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

using namespace berth;

namespace {

double gap(Bytes peak, Bytes bound) {
  return 100 * (static_cast<double>(peak) / static_cast<double>(bound) - 1);
}

std::string optimum(double over_max_load) {
  return over_max_load == 0 ? "" : fmt::format("{:.4f}", 100 * (over_max_load - 1));
}

// False: a placement is illegal.
bool print_families(const std::vector<std::uint64_t>& counts, const PlaceOptions& options) {
  fmt::print(
      "| family | n | max load | peak | gap, % | optimum's gap, % | bound's gap, % | proven | s | "
      "engine |\n| --- | --: | --: | --: | --: | --: | --: | --- | --: | --- |\n");
  bool all_legal = true;
  for (const test::ProblemFamily& family : test::problem_families()) {
    std::size_t last = 0;
    for (const std::uint64_t count : counts) {
      const Problem problem = family.make(count, options.seed);
      if (problem.buffers.size() == last) continue;
      last = problem.buffers.size();
      const Bytes load = lower_bound(problem);
      const Placement best = place_buffers(problem, options);
      const auto violation = test::sweep_placement(problem, best);
      all_legal &= !violation;
      fmt::print("| {} | {} | {} | {} | {:.4f} | {} | {:.4f} | {} | {:.3f} | {}{} |\n", family.name,
                 last, load, best.high_water_mark, gap(best.high_water_mark, load),
                 optimum(family.optimum), gap(best.lower_bound, load),
                 best.proven_optimal ? "yes" : "", best.seconds, best.engine,
                 violation ? " ILLEGAL: " + *violation : "");
    }
  }
  return all_legal;
}

void print_refuted(std::uint64_t count) {
  constexpr std::size_t kMost = 40;
  fmt::print(
      "| ticks | load | problems | refuted | open | buffers |\n"
      "| --: | --: | --: | --: | --: | --- |\n");
  for (const std::uint64_t ticks : {8u, 12u, 16u, 20u, 24u}) {
    for (const Bytes load : {6u, 12u, 20u, 50u}) {
      std::uint64_t all = 0, refuted = 0, open = 0;
      std::size_t least = kMost, most = 0;
      for (std::uint64_t seed = 1; seed <= count; ++seed) {
        const Problem problem = test::filled_problem(seed, ticks, load);
        if (problem.buffers.size() > kMost) continue;
        ++all;
        const place::Conflicts conflicts(problem);
        const auto strips = place::make_strips(conflicts);
        place::ExactSearch exact(strips->front(), place::max_load(strips->front()), 1);
        std::uint64_t nodes = 1'000'000;
        const place::Answer answer = exact.run(nodes, nullptr);
        open += answer == place::Answer::kOpen ? 1 : 0;
        if (answer != place::Answer::kRefuted) continue;
        ++refuted;
        least = std::min(least, problem.buffers.size());
        most = std::max(most, problem.buffers.size());
      }
      fmt::print("| {} | {} | {} | {} | {} | {} |\n", ticks, load, all, refuted, open,
                 refuted == 0 ? "" : fmt::format("{} to {}", least, most));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Places families of hard problems and prints how close to the bound they come"};
  std::vector<std::uint64_t> counts = {60, 300, 1000, 10000};
  std::uint64_t refuted = 0;
  bool smoke = false;
  PlaceOptions options;
  options.time_limit_seconds = 5;
  app.add_option("--counts", counts, "buffers, about")->delimiter(',');
  app.add_option("--time-limit", options.time_limit_seconds, "seconds a problem");
  app.add_option("--engine", options.engine, "of the planner");
  app.add_option("--seed", options.seed, "of the families and of the noise");
  app.add_option("--threads", options.threads, "0: one a core");
  app.add_option("--refuted", refuted, "count what is refuted, of this many full problems a size");
  app.add_flag("--smoke", smoke, "small problems and little time");
  CLI11_PARSE(app, argc, argv);
  if (smoke) {
    counts = {30};
    options.time_limit_seconds = 0.1;
  }
  if (refuted > 0) {
    print_refuted(refuted);
    return 0;
  }
  return print_families(counts, options) ? 0 : 1;
}
