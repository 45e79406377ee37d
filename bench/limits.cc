// Random programs, and programs of one to five kinds of steps that repeat, under a limit of what
// lives in them at most (tests/support/random_program.h): how many run out of memory, though their
// live bytes fit. A row a kind of device and a margin over the live bytes as one packed range
// rounded up to pages, which is the strictest reading: no allocator that rounds each block to pages
// could keep to it. Reserved / live is at their peaks, of the programs that ran to their end. Calls
// are those of CUDA's that bring memory or take it back; ms is what they cost the host on an H100
// (csrc/device/driver_costs.h). PyTorch's allocators are beside berth by their models.
//
//   build/release/bench/limits [--seeds N] [--operations N] [--live BYTES] [--margins P,P,..]
//                              [--device NAME] [--verbose] [--smoke]

#include "csrc/device/driver_costs.h"
#include "csrc/replay/through_caching_model.h"
#include "tests/support/limited_run.h"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

using namespace berth;

namespace {

// How the programs of a row fared.
struct Row {
  std::uint64_t programs = 0, failed = 0, whole = 0, calls = 0;
  double ratios = 0, worst = 0, microseconds = 0;

  void ran_out() { ++programs, ++failed; }
  void ran(Bytes reserved, Bytes live, const MemoryCallCounts& memory_calls) {
    ++programs, ++whole;
    calls += memory_calls.all();
    microseconds += driver_costs("H100").of(memory_calls);
    const double ratio = static_cast<double>(reserved) / static_cast<double>(live);
    ratios += ratio;
    worst = std::max(worst, ratio);
  }
  void print(const char* load, const char* device, const std::string& limit, bool priced) const {
    std::string figures = " | | | | |";
    if (whole != 0) {
      const auto count = static_cast<double>(whole);
      figures =
          fmt::format(" {:.3f} | {:.3f} | {} |", ratios / count, worst,
                      priced ? fmt::format("{:.0f} | {:.1f}", static_cast<double>(calls) / count,
                                           microseconds / count / 1000)
                             : std::string(" | "));
    }
    fmt::print("| {} | {} | {} | {} of {} |{}\n", load, device, limit, failed, programs, figures);
    std::fflush(stdout);
  }
};

replay::Workload workload_of(const test::RandomProgram& program) {
  using Kind = replay::Operation::Kind;
  replay::Workload workload;
  workload.block_count = program.blocks;
  workload.lane_keys = {0, 1};
  for (const test::ProgramOperation& operation : program.operations)
    workload.operations.push_back({.kind = operation.size == 0 ? Kind::kFree : Kind::kAllocate,
                                   .lane = static_cast<std::uint32_t>(operation.lane),
                                   .block = operation.block,
                                   .size = operation.size});
  return workload;
}

}  // namespace

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
      "| ms, mean |\n"
      "| --- | --- | --: | --: | --: | --: | --: | --: |\n");
  // Without a limit first: what is reserved then.
  const auto each_limit = [&](const auto& row) {
    row(std::optional<double>(), std::string("none"));
    for (const double margin : margins)
      row(std::optional(margin / 100), fmt::format("{} %", margin));
  };
  for (const Load& load : loads) {
    for (const test::DeviceKind& kind : test::kDeviceKinds) {
      if (!only.empty() && only != kind.name) continue;
      each_limit([&](std::optional<double> margin, const std::string& name) {
        Row row;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          const test::RandomProgram program = load.program(seed, kind.alignment);
          const Bytes limit = margin ? test::limit_of(program, kind, *margin) : 0;
          const test::LimitedRun run = test::run_limited(program, kind, limit, load.mode);
          if (!run.failed_at) {
            row.ran(run.reserved_peak, program.live_peak, run.memory_calls);
            continue;
          }
          row.ran_out();
          if (verbose)
            fmt::print(stderr, "{} + {}: seed {} ran out at operation {}\n", kind.name, name, seed,
                       *run.failed_at);
        }
        row.print(load.name, kind.name, name, kind.asynchronous);
      });
    }
    if (!only.empty() || load.mode == Mode::kOff) continue;
    const test::DeviceKind& gpu = test::kDeviceKinds[0];
    for (const bool expandable : {false, true}) {
      each_limit([&](std::optional<double> margin, const std::string& name) {
        Row row;
        for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
          const test::RandomProgram program = load.program(seed, gpu.alignment);
          const Bytes limit = margin ? test::limit_of(program, gpu, *margin) : 0;
          const replay::Result run =
              replay::through_caching_model(workload_of(program), expandable, limit);
          if (run.out_of_memory)
            row.ran_out();
          else
            row.ran(*run.reserved_peak, program.live_peak, *run.memory_calls);
        }
        row.print(load.name, expandable ? "PyTorch, expandable" : "PyTorch, caching", name, true);
      });
    }
  }
}
