#include "csrc/cli/dry_run/dry_run_fit.h"

#include "csrc/cli/core/output.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/cli/dry_run/gpu_use.h"
#include "csrc/core/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace berth::cli {
namespace {

// In the order in which they are searched.
constexpr std::array kFitted = {"planned", "caching", "expandable", "learning"};

std::vector<GpuUse> gpus_of(const std::vector<Needs>& all) {
  std::vector<const Needs*> processes;
  for (const Needs& needs : all) processes.push_back(&needs);
  return gpu_uses(processes);
}

// The most that any GPU must have under each allocator.
BatchSearch::Needs most_needed(const std::vector<Needs>& all, Bytes context) {
  BatchSearch::Needs most(kFitted.size());
  for (const GpuUse& gpu : gpus_of(all))
    for (std::size_t i = 0; i < kFitted.size(); ++i)
      if (const auto needed = gpu.needed(kFitted[i], context))
        most[i] = std::max(most[i].value_or(0), *needed);
  return most;
}

// What of it no batch changes: contexts and what outlives steps.
Bytes fixed_part(const std::vector<Needs>& all, Bytes context) {
  Bytes most = 0;
  for (const GpuUse& gpu : gpus_of(all)) {
    Bytes fixed = 0;
    for (const Needs* const needs : gpu.processes)
      fixed += context + (needs->planned ? needs->planned->residents : 0);
    most = std::max(most, fixed);
  }
  return most;
}

}  // namespace

DryRunFit find_fit(const DryRunJob& job, const BatchArgument& argument,
                   const std::vector<Needs>& all, const DryRunFitOptions& options) {
  const Bytes context = job.gpu->context_bytes;
  const auto run = [&](std::uint64_t batch) -> std::optional<BatchSearch::Needs> {
    const ScratchFolder scratch("berth-fit");
    DryRunJob one = job;
    one.program = argument.with(batch);
    one.trace = (scratch.path() / "x.trace").string();
    one.output_to_error = true;
    const DryRun ended = run_dry(one);
    const std::string who = fmt::format("{} {}", argument.label(), batch);
    if (ended.stopped) {
      print_note(fmt::format("{}: stopped, {}", who, ended.why_stopped));
      return std::nullopt;
    }
    if (ended.code != 0 || ended.signal != 0 || ended.traces.empty()) {
      print_note(fmt::format("{}: the program refuses it, {}", who,
                             ended.signal != 0 ? fmt::format("signal {}", ended.signal)
                                               : fmt::format("exit code {}", ended.code)));
      return std::nullopt;
    }
    std::vector<Needs> found;
    for (const RankTraces::File& trace : ended.traces)
      found.push_back(find_needs(trace, {.plan_time_limit_seconds = options.plan_time_limit_seconds,
                                         .holders = false,
                                         .limit = reservable(job)}));
    BatchSearch::Needs most = most_needed(found, context);
    Bytes least = 0;
    for (const auto& one_need : most)
      if (one_need) least = std::min(least == 0 ? *one_need : least, *one_need);
    print_note(
        fmt::format("{}: needs {} at least, {:.1f} s", who, format_bytes(least), ended.seconds));
    return most;
  };

  BatchSearch::Options search_options{.limit = job.total,
                                      .fixed = fixed_part(all, context),
                                      .most_runs = options.most_runs,
                                      .few_runs = options.few_runs,
                                      .first = argument.given().value_or(1)};
  if (argument.given()) search_options.first_needs = most_needed(all, context);
  BatchSearch search(search_options, run);
  const auto answers = search.find();
  BERTH_CHECK(search.ran(), kUsage,
              "--fit: the program refuses '{}', which it was told to be run with",
              argument.described(search.refused().value_or(search_options.first)));
  DryRunFit fit{.argument = argument.label(), .runs = search.runs()};
  for (const char* const name : {"caching", "expandable", "learning", "planned"}) {
    const auto at = static_cast<std::size_t>(std::ranges::find(kFitted, std::string_view(name)) -
                                             kFitted.begin());
    if (at < answers.size() && answers[at]) fit.rows.push_back({name, *answers[at]});
  }
  return fit;
}

}  // namespace berth::cli
