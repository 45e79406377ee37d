// The pool alone, without any plan: what its split into two ends gives, on recorded runs and random
// ones.
//
//   build/release/bench/pool splits FILES      # reserved / live by how requests are told apart
//   build/release/bench/pool margins FILES     # steps that fail under tight limits
//   build/release/bench/pool unusable FILES    # free memory that a request cannot use, over time
//   build/release/bench/pool random            # 24 mixtures, beside other allocators
//
// FILES are traces or event CSVs. Peaks are over whole runs and beside the weights, live bytes
// rounded to 512; devices run behind the host, with pages of 2 MiB. Calls are those of CUDA's that
// bring memory or take it back, and what they cost the host on an H100
// (csrc/device/driver_costs.h).
#include "bench/pool/mixes.h"
#include "bench/pool/pool_run.h"
#include "bench/pool/tlsf.h"
#include "csrc/device/driver_costs.h"
#include "csrc/replay/through_malloc.h"
#include "csrc/replay/through_torch.h"
#include "csrc/trace/file.h"

#include <berth/error.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace berth;
using namespace berth::bench;
using replay::Workload;

std::string name_of(const std::string& file) {
  return std::filesystem::path(file).stem().stem().string();
}

double over(Bytes bytes, Bytes live) {
  return static_cast<double>(bytes) / static_cast<double>(live);
}

double mean(const std::vector<double>& values) {
  return values.empty() ? 0
                        : std::accumulate(values.begin(), values.end(), 0.0) /
                              static_cast<double>(values.size());
}

void row(const std::vector<std::string>& cells) {
  fmt::print("| {} |\n", fmt::join(cells, " | "));
  std::fflush(stdout);
}

void header(const std::vector<std::string>& cells) {
  row(cells);
  std::string ruler = "| ---";
  for (std::size_t i = 1; i < cells.size(); ++i) ruler += " | ---:";
  fmt::print("{} |\n", ruler);
}

constexpr std::pair<DeviceForm, const char*> kForms[] = {
    {DeviceForm::kSegments, "segments"},
    {DeviceForm::kMapping, "pages"},
    {DeviceForm::kAliasing, "pages at several addresses"}};

struct Way {
  const char* name;
  Split split;
  std::uint64_t brief;
};
constexpr Way kWays[] = {
    {"one end", Split::kOneEnd, 0},      {"by size", Split::kSize, 0},
    {"by class", Split::kClass, 2},      {"by class, 128", Split::kClass, 128},
    {"foresight", Split::kForesight, 2}, {"foresight, 128", Split::kForesight, 128}};

// "12, 0.4": calls, and what they cost.
std::string price(const MemoryCallCounts& calls) {
  return fmt::format("{}, {:.1f}", calls.all(), driver_costs("H100").of(calls) / 1000);
}

void splits(const std::vector<std::string>& files) {
  for (const auto& [form, form_name] : kForms) {
    fmt::print("\n**{}**: reserved / live (memory calls, ms)\n\n", form_name);
    std::vector<std::string> cells = {"run", "live, MiB"};
    for (const Way& way : kWays) cells.emplace_back(way.name);
    header(cells);
    std::vector<std::vector<double>> ratios(std::size(kWays));
    for (const std::string& file : files) {
      const Workload workload = replay::make_workload(read_trace(file));
      const Bytes live = workload.live_peak(512);
      cells = {name_of(file), fmt::format("{:.0f}", static_cast<double>(live) / (1 << 20))};
      for (std::size_t i = 0; i < std::size(kWays); ++i) {
        const PoolRun run =
            run_pool(workload, {.device = form, .split = kWays[i].split, .brief = kWays[i].brief});
        ratios[i].push_back(over(run.reserved_peak, live));
        cells.push_back(fmt::format("{:.3f} ({})", ratios[i].back(), price(run.memory_calls)));
      }
      row(cells);
    }
    cells = {"mean", ""};
    for (const auto& one : ratios) cells.push_back(fmt::format("{:.3f}", mean(one)));
    row(cells);
  }
}

constexpr Bytes kMargins[] = {0, 100'000'000, 300'000'000, 500'000'000};

// Dymem's table. A limit is a size and a margin; the size is what lives at most, or what the pool
// held after the first step, less the gap between its ends, which is never committed here.
void margins(const std::vector<std::string>& files) {
  struct Form {
    DeviceForm device;
    bool gives_back;
    const char* name;
  };
  constexpr Form kLimitedForms[] = {{DeviceForm::kSegments, true, "segments"},
                                    {DeviceForm::kMapping, false, "one range whose pages stay"},
                                    {DeviceForm::kMapping, true, "pages"},
                                    {DeviceForm::kAliasing, true, "pages at several addresses"}};
  for (const bool first_step : {false, true}) {
    for (const Form& form : kLimitedForms) {
      fmt::print("\n**{}**, limit: {} and a margin of 0, 100, 300, 500 MB; failed steps\n\n",
                 form.name, first_step ? "what the first step took" : "the live peak");
      std::vector<std::string> cells = {"run", "steps"};
      for (const Way& way : kWays) cells.emplace_back(way.name);
      header(cells);
      std::vector<std::vector<std::uint64_t>> sums(std::size(kWays),
                                                   std::vector<std::uint64_t>(std::size(kMargins)));
      for (const std::string& file : files) {
        const Workload workload = replay::make_workload(read_trace(file));
        cells = {name_of(file), fmt::format("{}", workload.steps)};
        for (std::size_t i = 0; i < std::size(kWays); ++i) {
          PoolRunOptions options{
              .device = form.device, .split = kWays[i].split, .brief = kWays[i].brief};
          const Bytes size = first_step ? run_pool(workload, options).reserved_first_step
                                        : workload.live_peak(512);
          options.gives_back = form.gives_back;
          std::vector<std::uint64_t> failed;
          for (std::size_t k = 0; k < std::size(kMargins); ++k) {
            options.limit = size + kMargins[k];
            failed.push_back(run_pool(workload, options).failed_steps);
            sums[i][k] += failed.back();
          }
          cells.push_back(fmt::format("{}", fmt::join(failed, ", ")));
        }
        row(cells);
      }
      cells = {"all", ""};
      for (const auto& sum : sums) cells.push_back(fmt::format("{}", fmt::join(sum, ", ")));
      row(cells);
    }
  }
}

void unusable(const std::vector<std::string>& files, bool each) {
  constexpr std::size_t kTenths = 10;
  for (const auto& [form, form_name] : kForms) {
    fmt::print("\n**{}**: unusable free space index in percent, mean of each tenth of the run\n\n",
               form_name);
    std::vector<std::string> cells = {"run", "way"};
    for (std::size_t i = 1; i <= kTenths; ++i) cells.push_back(fmt::format("{}", i));
    header(cells);
    const auto print = [](const std::string& run, const char* way,
                          const std::vector<double>& tenths) {
      std::vector<std::string> row_of = {run, way};
      for (const double tenth : tenths) row_of.push_back(fmt::format("{:.1f}", 100 * tenth));
      row(row_of);
    };
    for (const Way& way : kWays) {
      std::vector<double> sums(kTenths);
      for (const std::string& file : files) {
        const std::vector<double> index =
            run_pool(replay::make_workload(read_trace(file)),
                     {.device = form, .split = way.split, .brief = way.brief, .samples = 2000})
                .unusable;
        std::vector<double> tenths;
        for (std::size_t i = 0; i < kTenths; ++i) {
          const auto at = [&](std::size_t tenth) {
            return index.begin() + static_cast<std::ptrdiff_t>(index.size() * tenth / kTenths);
          };
          tenths.push_back(mean({at(i), at(i + 1)}));
          sums[i] += tenths.back() / static_cast<double>(files.size());
        }
        if (each) print(name_of(file), way.name, tenths);
      }
      print("mean", way.name, sums);
    }
  }
}

struct RandomOptions {
  std::uint64_t operations = 1'000'000;
  Bytes live = Bytes{1} << 30;
  std::uint64_t seed = 1;
  std::string tlsf;
  bool others = true;
};

// Of one allocator; nothing where it could not be asked.
struct Compared {
  std::optional<double> ratio;  // reserved / live
  std::optional<MemoryCallCounts> calls;
};

std::vector<Compared> compare(const Workload& workload, const RandomOptions& options,
                              const std::optional<Tlsf>& tlsf) {
  const Bytes live = workload.live_peak(512);
  std::vector<Compared> compared;
  const auto add = [&](std::optional<Bytes> bytes,
                       std::optional<MemoryCallCounts> calls = std::nullopt) {
    compared.push_back({bytes ? std::optional(over(*bytes, live)) : std::nullopt, calls});
  };
  const auto add_pool = [&](const PoolRunOptions& how) {
    const PoolRun run = run_pool(workload, how);
    add(run.reserved_peak, run.memory_calls);
  };
  for (const auto& form : kForms) add_pool({.device = form.first});
  add_pool({.split = Split::kOneEnd});
  add(tlsf ? tlsf->highest_byte(workload) : std::nullopt);
  if (options.others) {
    for (const replay::MallocLibrary& library : replay::malloc_libraries())
      if (std::string_view(library.name) == "jemalloc")
        add(replay::through_malloc(library, workload).reserved_peak);
    for (const std::string& name : replay::torch_allocators()) {
      const replay::Result run = replay::through_torch(name, workload);
      add(run.reserved_peak, run.memory_calls);
    }
  }
  return compared;
}

void random(const RandomOptions& options) {
  std::optional<Tlsf> tlsf;
  if (!options.tlsf.empty()) tlsf.emplace(options.tlsf);
  std::vector<std::string> names = {"pool, segments", "pool, pages", "pool, several addresses",
                                    "one end, pages", "TLSF"};
  if (options.others) names.insert(names.end(), {"jemalloc", "caching", "expandable"});
  std::vector<std::uint64_t> lengths;
  for (std::uint64_t length = 10'000; length < options.operations; length *= 10)
    lengths.push_back(length);
  lengths.push_back(options.operations);
  std::vector<std::vector<std::vector<double>>> curve(
      lengths.size(), std::vector<std::vector<double>>(names.size()));
  fmt::print("\n**{} operations**: reserved / live (memory calls, ms)\n\n", options.operations);
  std::vector<std::string> cells = {"sizes", "lives"};
  cells.insert(cells.end(), names.begin(), names.end());
  header(cells);
  for (std::size_t sizes = 0; sizes < kSizeNames.size(); ++sizes) {
    for (std::size_t lives = 0; lives < kLifeNames.size(); ++lives) {
      std::vector<Compared> compared;
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        // The beginning of the same program.
        const Workload workload = random_mix(static_cast<Sizes>(sizes), static_cast<Lives>(lives),
                                             lengths[i], options.live, options.seed);
        compared = compare(workload, options, tlsf);
        for (std::size_t k = 0; k < compared.size(); ++k)
          if (compared[k].ratio) curve[i][k].push_back(*compared[k].ratio);
      }
      cells = {kSizeNames[sizes], kLifeNames[lives]};
      for (const auto& [ratio, calls] : compared) {
        std::string text = ratio ? fmt::format("{:.3f}", *ratio) : std::string();
        if (calls) text += fmt::format(" ({})", price(*calls));
        cells.push_back(std::move(text));
      }
      row(cells);
    }
  }
  fmt::print("\n**Over time**: the mean of the mixtures after so many operations\n\n");
  cells = {"operations"};
  cells.insert(cells.end(), names.begin(), names.end());
  header(cells);
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    cells = {fmt::format("{}", lengths[i])};
    for (const auto& ratios : curve[i])
      cells.push_back(ratios.empty() ? "" : fmt::format("{:.3f}", mean(ratios)));
    row(cells);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && argv[1] == replay::kMallocChild) return replay::malloc_child(argv[2]);
  CLI::App app("What the pool alone needs");
  app.require_subcommand(1);
  std::vector<std::string> files;
  const auto of_files = [&](const char* name, const char* what) {
    CLI::App* command = app.add_subcommand(name, what);
    command->add_option("FILE", files, "traces or event CSVs")->required();
    return command;
  };
  CLI::App* const on_splits = of_files("splits", "by how requests are told apart");
  CLI::App* const on_margins = of_files("margins", "steps that fail under tight limits");
  CLI::App* const on_unusable = of_files("unusable", "free memory that a request cannot use");
  bool each = false;
  on_unusable->add_flag("--each", each, "of each run, too");
  RandomOptions options;
  CLI::App* const on_random = app.add_subcommand("random", "24 mixtures of random requests");
  on_random->add_option("--operations", options.operations, "of each");
  on_random->add_option("--live", options.live, "bytes, at most");
  on_random->add_option("--seed", options.seed, "of all");
  on_random->add_option("--tlsf", options.tlsf, "a library of it: see bench/pool/tlsf.h");
  on_random->add_flag("!--alone", options.others, "without jemalloc and PyTorch's allocators");
  CLI11_PARSE(app, argc, argv);
  try {
    if (on_splits->parsed()) splits(files);
    if (on_margins->parsed()) margins(files);
    if (on_unusable->parsed()) unusable(files, each);
    if (on_random->parsed()) random(options);
  } catch (const Error& error) {
    fmt::print(stderr, "pool: {}\n", error.what());
    return 1;
  }
}
