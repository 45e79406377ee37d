#include "csrc/cli/dry_run/fitted_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace berth::cli {
namespace {

Bytes fitted_budget(const DryRunJob& job) {
  return static_cast<Bytes>(kFittedShare * static_cast<double>(reservable(job)));
}

schedule::StepOptions options_for(double time_limit_seconds) {
  schedule::StepOptions options;
  options.rates = graph::CopyRates{kFittedRate, kFittedRate};
  options.time_limit_seconds = time_limit_seconds;
  return options;
}

std::string more_time(const schedule::StepResult& result) {
  return format_percent(share(result.verdict.ns, result.base_ns) - 1);
}

std::string line(const char* name, const std::string& what) {
  return fmt::format("  {:<14}{}", name, wrap(what, 16, 98));
}

}  // namespace

FittedStep fit_step(const RecordedStep& step, const DryRunJob& job, double time_limit_seconds) {
  const auto begin = std::chrono::steady_clock::now();
  FittedStep found{.rank = step.rank,
                   .device = step.device,
                   .why_not = step.why_not,
                   .operators = 0,
                   .budget = fitted_budget(job),
                   .within = {},
                   .least = {},
                   .bound = {}};
  if (!step.graph) return found;
  const graph::Graph& graph = *step.graph;
  found.operators = graph.operators.size();
  schedule::StepOptions options = options_for(time_limit_seconds);
  options.budget = found.budget;
  std::vector<bool> movable;
  for (const graph::Storage& one : graph.storages) {
    movable.push_back(one.role != trace::RoleKind::kInput);
    if (one.kind == graph::StorageClass::kResident) found.resident += one.bytes;
  }
  found.bound = schedule::least_budget(graph, movable);
  schedule::LeastMemory least(graph, options, movable);
  if (const schedule::StepResult* const any = least.find()) {
    found.least = *any;
    options.given = {*any->schedule};
  }
  found.within =
      schedule::plan_beside_spills(graph, options, movable, schedule::most_from_outside(graph));
  if (found.within.schedule) {
    const Bytes peak = found.within.verdict.peak;
    found.spilled = peak - std::min(peak, found.budget);
    if (found.spilled == 0 && (!found.least || peak < found.least->verdict.peak))
      found.least = found.within;
  }
  found.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return found;
}

std::array<std::optional<Bytes>, kTimeShares.size()> least_memory_within_shares(
    const graph::Graph& graph, double time_limit_seconds) {
  std::array<std::optional<Bytes>, kTimeShares.size()> least;
  schedule::LeastMemory memory(graph, options_for(time_limit_seconds));
  const schedule::StepResult* const fastest = memory.fastest();
  if (fastest == nullptr) return least;
  const auto base_ns = static_cast<double>(fastest->base_ns);
  for (std::size_t k = 0; k < kTimeShares.size(); ++k) {
    const auto most_ns = static_cast<std::uint64_t>((1 + kTimeShares[k]) * base_ns);
    const schedule::StepResult* const found = memory.find(most_ns);
    if (found->verdict.ns <= most_ns) least[k] = found->verdict.peak;
  }
  return least;
}

std::string to_text(const FittedStep& step, const DryRunJob& job) {
  const std::string run = command_that_fits(job.program, "");
  if (!step.why_not.empty())
    return line("schedule", fmt::format("none: berth cannot schedule the step: {}. `{}` then runs "
                                        "it as it is, and moves tensors to the host and back",
                                        step.why_not, run));
  const schedule::StepResult& within = step.within;
  std::string text;
  text += line("command", run);
  text += line("step", fmt::format("{}; {} as written, of which {} stay between steps",
                                   format_number_of(step.operators, "operator"),
                                   format_bytes(within.base_peak), format_bytes(step.resident)));
  text += line("budget", fmt::format("{}: {:.0f} % of the GPU's memory without the context",
                                     format_bytes(step.budget), 100 * kFittedShare));
  if (within.schedule) {
    const graph::Verdict& verdict = within.verdict;
    text += line("peak", step.spilled == 0
                             ? format_bytes(verdict.peak)
                             : fmt::format("{}, {} of it on the host", format_bytes(verdict.peak),
                                           format_bytes(step.spilled)));
    text += line("time", fmt::format("{} more by the roofline of {}: {} of operators and waits for "
                                     "copies, {} as written",
                                     more_time(within), job.gpu->name, format_ms(verdict.ns),
                                     format_ms(within.base_ns)));
    text += line("recomputed",
                 verdict.recomputed == 0
                     ? "nothing"
                     : fmt::format("{}, {}", format_number_of(verdict.recomputed, "operator"),
                                   format_ms(verdict.recomputed_ns)));
    text += line("offloaded", verdict.offloaded_bytes == 0
                                  ? "nothing"
                                  : fmt::format("{} to the host and {} back, at {} GB/s each way",
                                                format_bytes(verdict.offloaded_bytes),
                                                format_bytes(verdict.reloaded_bytes),
                                                kFittedRate / 1'000'000'000));
    text += line("host memory", format_bytes(verdict.host_peak + step.spilled));
    if (step.spilled > 0)
      text += line(
          "spilled",
          fmt::format("{} of tensors that no operator uses leave for the host at the peak. "
                      "The time above is without that; it takes {} at least",
                      format_bytes(step.spilled),
                      format_ms(static_cast<std::uint64_t>(2e9 * static_cast<double>(step.spilled) /
                                                           static_cast<double>(kFittedRate)))));
  } else {
    text += line("schedule",
                 fmt::format("none was found for the budget: {}. The step then runs as it is, and "
                             "berth moves tensors to the host and back",
                             within.why_not));
  }
  if (step.least)
    text += line("least memory",
                 fmt::format("{} was found, with {} more time; {} alone needs {}",
                             format_bytes(step.least->verdict.peak), more_time(*step.least),
                             step.bound.largest, format_bytes(step.bound.bytes)));
  if (!step.file.empty())
    text += line("written", fmt::format("{}. A run follows it without a search: {}", step.file,
                                        command_that_fits(job.program, step.named)));
  return text;
}

Json to_json(const FittedStep& step, const DryRunJob& job) {
  Json json = {{"rank", step.rank}, {"device", step.device}, {"budget_bytes", step.budget}};
  if (!step.why_not.empty()) {
    json["fits"] = false;
    json["reason"] = step.why_not;
    return json;
  }
  const schedule::StepResult& within = step.within;
  json["operators"] = step.operators;
  json["fits"] = within.schedule.has_value();
  json["times"] = "roofline";
  json["base_peak_bytes"] = within.base_peak;
  json["base_time_ns"] = within.base_ns;
  json["bound_bytes"] = step.bound.bytes;
  json["least_bytes"] = step.least ? Json(step.least->verdict.peak) : Json(nullptr);
  json["least_time_ns"] = step.least ? Json(step.least->verdict.ns) : Json(nullptr);
  json["seconds"] = step.seconds;
  json["command"] = command_that_fits(job.program, step.named);
  json["schedule"] = step.file.empty() ? Json(nullptr) : Json(step.file);
  if (!within.schedule) {
    json["reason"] = within.why_not;
    return json;
  }
  const graph::Verdict& verdict = within.verdict;
  json["peak_bytes"] = verdict.peak;
  json["resident_bytes"] = step.resident;
  json["time_ns"] = verdict.ns;
  json["recomputed"] = verdict.recomputed;
  json["recomputed_ns"] = verdict.recomputed_ns;
  json["offloaded_bytes"] = verdict.offloaded_bytes;
  json["reloaded_bytes"] = verdict.reloaded_bytes;
  json["host_peak_bytes"] = verdict.host_peak + step.spilled;
  json["spilled_bytes"] = step.spilled;
  return json;
}

}  // namespace berth::cli
