#include "csrc/cli/dry_run/dry_run_fit.h"

#include "csrc/cli/core/output.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/cli/dry_run/fitted_step.h"
#include "csrc/cli/dry_run/gpu_use.h"
#include "csrc/cli/dry_run/recorded_step.h"
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

// What a GPU must have for the step with a step program, by shares of time: `--fit` leaves a part
// of it alone.
std::optional<BatchSearch::Needs> scheduled_needs(const DryRunJob& job, double time_limit_seconds) {
  BatchSearch::Needs most(kTimeShares.size());
  const std::vector<RecordedStep> steps = record_steps(job);
  if (steps.empty()) return std::nullopt;
  for (const RecordedStep& step : steps) {
    if (!step.graph) return BatchSearch::Needs(kTimeShares.size());
    const auto least = least_memory_within_shares(*step.graph, time_limit_seconds);
    for (std::size_t k = 0; k < least.size(); ++k) {
      const Bytes needed =
          least[k] ? job.gpu->context_bytes +
                         static_cast<Bytes>(static_cast<double>(*least[k]) / kFittedShare)
                   : job.total + 1;
      most[k] = std::max(most[k].value_or(0), needed);
    }
  }
  return most;
}

// The largest with a step program; begins with the largest that fits as it is.
void find_scheduled(const DryRunJob& job, const BatchArgument& argument,
                    const DryRunFitOptions& options, DryRunFit& fit) {
  const unsigned runs = std::max(1U, options.most_runs / 2);
  BatchSearch::Options search_options{.limit = job.total,
                                      .fixed = job.gpu->context_bytes,
                                      .most_runs = runs,
                                      .few_runs = std::min(runs, options.few_runs)};
  for (const DryRunFit::Row& row : fit.rows)
    search_options.first = std::max(search_options.first, row.answer.largest);
  BatchSearch search(search_options, [&](std::uint64_t batch) {
    DryRunJob one = job;
    one.program = argument.with(batch);
    const auto needs = scheduled_needs(one, options.plan_time_limit_seconds);
    const std::string who = fmt::format("{} {} with a step program", argument.label(), batch);
    if (!needs)
      print_note(fmt::format("{}: the program refuses it", who));
    else if (!needs->front())
      print_note(fmt::format("{}: berth cannot schedule the step", who));
    else
      print_note(fmt::format("{}: needs {} for {:.0f} % more time", who,
                             format_bytes(*needs->back()), 100 * kTimeShares.back()));
    return needs;
  });
  const auto answers = search.find();
  fit.runs += search.runs();
  for (std::size_t k = 0; k < std::min(answers.size(), kTimeShares.size()); ++k)
    if (answers[k]) fit.scheduled.push_back({kTimeShares[k], *answers[k]});
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
  BERTH_CHECK(search.ran(), kUsage, "--fit: the program refuses '{}', with which --fit ran it",
              argument.described(search.refused().value_or(search_options.first)));
  DryRunFit fit{.argument = argument.label(), .runs = search.runs()};
  for (const char* const name : {"caching", "expandable", "learning", "planned"}) {
    const auto at = static_cast<std::size_t>(std::ranges::find(kFitted, std::string_view(name)) -
                                             kFitted.begin());
    if (at < answers.size() && answers[at]) fit.rows.push_back({name, *answers[at]});
  }
  const bool shared = std::ranges::any_of(gpus_of(all), &GpuUse::shared);
  if (why_not_recorded(job).empty() && !shared) find_scheduled(job, argument, options, fit);
  return fit;
}

}  // namespace berth::cli
