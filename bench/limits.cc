// Random programs, and programs of one to five kinds of steps that repeat, under a limit of what
// lives in them at most (tests/support/random_program.h): how many run out of memory, though their
// live bytes fit. A row a kind of device and a margin over the live bytes as one packed range
// rounded up to pages, which is the strictest reading: no allocator that rounds each block to pages
// could keep to it. Reserved / live is at their peaks, of the programs that ran to their end.
//
//   build/release/bench/limits [--seeds N] [--operations N] [--live BYTES] [--margins P,P,..]
//                              [--device NAME] [--verbose] [--smoke]

#include "tests/support/limited_run.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

using namespace berth;

int main(int argc, char** argv) {
  CLI::App app{"Runs random programs under limits close to what lives in them"};
  std::uint64_t seeds = 100;
  std::size_t operations = 4000;
  Bytes live = Bytes{512} << 20;
  std::vector<double> margins = {0, 2, 5, 10};
  std::string only;
  bool verbose = false, smoke = false;
  app.add_option("--seeds", seeds, "programs");
  app.add_option("--operations", operations, "of a program");
  app.add_option("--live", live, "bytes, at most");
  app.add_option("--margins", margins, "percent")->delimiter(',');
  app.add_option("--device", only, "mapping, host or segments");
  app.add_flag("--verbose", verbose, "a line a program that ran out");
  app.add_flag("--smoke", smoke, "few and small programs");
  CLI11_PARSE(app, argc, argv);
  if (smoke) seeds = 4, operations = 800, live = Bytes{128} << 20;
  struct Load {
    const char* name;
    Mode mode;
    std::function<test::RandomProgram(std::uint64_t seed, Bytes alignment)> program;
  };
  const auto random = [&](std::uint64_t seed, Bytes alignment) {
    return test::random_program(seed, operations, live, alignment);
  };
  const auto repeating = [&](std::uint64_t seed, Bytes alignment) {
    return test::repeating_program(seed, smoke ? 30 : 300, alignment);
  };
  const Load loads[] = {{"random", Mode::kLearn, random},
                        {"steps that repeat, learning", Mode::kLearn, repeating},
                        {"steps that repeat, pool alone", Mode::kOff, repeating}};
  fmt::print(
      "| programs | device | limit: live + | ran out | reserved / live, mean | worst | calls, mean "
      "|\n"
      "| --- | --- | --: | --: | --: | --: | --: |\n");
  for (const Load& load : loads)
    for (const test::DeviceKind& kind : test::kDeviceKinds) {
      if (!only.empty() && only != kind.name) continue;
      // Without a limit first: what is reserved then.
      for (std::size_t row = 0; row <= margins.size(); ++row) {
        const bool limited = row > 0;
        const double margin = limited ? margins[row - 1] / 100 : 0;
        std::uint64_t failed = 0, calls = 0, whole = 0;
        double ratios = 0, worst = 0;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          const test::RandomProgram program = load.program(seed, kind.alignment);
          const Bytes limit = limited ? test::limit_of(program, kind, margin) : 0;
          const test::LimitedRun run = test::run_limited(program, kind, limit, load.mode);
          if (run.failed_at) {
            ++failed;
            if (verbose)
              fmt::print(stderr, "{} + {} %: seed {} ran out at operation {}\n", kind.name,
                         100 * margin, seed, *run.failed_at);
            continue;
          }
          ++whole;
          calls += run.driver_calls;
          const double ratio =
              static_cast<double>(run.reserved_peak) / static_cast<double>(program.live_peak);
          ratios += ratio;
          worst = std::max(worst, ratio);
        }
        const std::string ran_out = fmt::format("{} of {}", failed, seeds);
        const std::string below = limited ? fmt::format("{} %", 100 * margin) : "none";
        if (whole == 0) {
          fmt::print("| {} | {} | {} | {} | | | |\n", load.name, kind.name, below, ran_out);
        } else {
          const auto count = static_cast<double>(whole);
          fmt::print("| {} | {} | {} | {} | {:.3f} | {:.3f} | {:.0f} |\n", load.name, kind.name,
                     below, ran_out, ratios / count, worst, static_cast<double>(calls) / count);
        }
        std::fflush(stdout);
      }
    }
}
