#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/interrupt.h"
#include "csrc/cli/core/lifetimes.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/core/search_options.h"
#include "csrc/cli/summaries/step_summary.h"
#include "csrc/core/check.h"
#include "csrc/place/plan_trace.h"
#include "csrc/plan/file.h"
#include "csrc/plan/folder.h"
#include "csrc/trace/csv_forms.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step_kinds.h"

#include <berth/place.h>
#include <berth/place_ilp.h>

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace berth::cli {
namespace {

struct PlanOptions {
  std::string input, output;
  SearchOptions search;
  unsigned threads = 1;
  std::string capacity, alignment;  // sizes as typed; empty: none
  bool json = false;
};

Bytes alignment_of(const PlanOptions& options, Bytes otherwise) {
  if (options.alignment.empty()) return otherwise;
  const Bytes alignment = size_option("--alignment", options.alignment);
  BERTH_CHECK(is_power_of_two(alignment), kUsage, "--alignment is {}: a power of two is wanted",
              alignment);
  return alignment;
}

std::string describe(const PlaceProgress& progress) {
  const double gap = progress.lower_bound == 0 ? 0
                                               : static_cast<double>(progress.high_water_mark) /
                                                         static_cast<double>(progress.lower_bound) -
                                                     1;
  return fmt::format("planning: best {}, bound {}, gap {}, {}, {:.1f} s",
                     format_bytes(progress.high_water_mark), format_bytes(progress.lower_bound),
                     format_percent(gap), progress.engine, progress.seconds);
}

PlaceOptions place_options(const PlanOptions& options, ProgressLine& line,
                           const CancelOnInterrupt& interrupt) {
  PlaceOptions place;
  place.engine = options.search.engine;
  place.time_limit_seconds = options.search.seconds_left(place.time_limit_seconds);
  place.iteration_budget = options.search.iterations;
  place.seed = options.search.seed;
  place.threads = options.threads;
  if (!options.capacity.empty()) place.capacity = size_option("--capacity", options.capacity);
  place.cancel = &interrupt.cancelled();
  if (line.shown()) {
    place.progress = [&line](const PlaceProgress& progress) { line.show(describe(progress)); };
  }
  return place;
}

constexpr std::string_view kBeforeFit = "interrupted before a placement was found that fits";

// What `plan` says, whatever was planned.
struct Outcome {
  std::string unit;  // what was placed: "request", "buffer"
  std::size_t buffers = 0;
  Bytes arena = 0, bound = 0;
  bool proven_optimal = false, proven_infeasible = false;
  std::string engine;
  double seconds = 0;
  std::optional<std::string> overload = {};  // why the capacity cannot do
  std::optional<StepSummary> step = {};      // of a trace
  std::span<const StepKind> kinds = {};      // of steps, where these are planned instead
};

int report(const PlanOptions& options, const std::optional<Bytes>& capacity,
           const Outcome& outcome) {
  const bool fits = !capacity || outcome.arena <= *capacity;
  const bool proven = outcome.proven_infeasible || outcome.overload;
  const int code = fits ? kDone : CancelOnInterrupt::happened() && !proven ? kInterrupted : kNo;
  if (options.json) {
    Json json = {
        {"buffers", outcome.buffers},         {"arena_bytes", outcome.arena},
        {"lower_bound_bytes", outcome.bound}, {"proven_optimal", outcome.proven_optimal},
        {"engine", outcome.engine},           {"seconds", outcome.seconds},
        {"seed", options.search.seed},        {"cancelled", CancelOnInterrupt::happened()}};
    if (outcome.step) outcome.step->add_to(json);
    if (!outcome.kinds.empty()) json["kinds"] = outcome.kinds.size();
    if (capacity) {
      if (outcome.overload) json["reason"] = *outcome.overload;
      json["capacity_bytes"] = *capacity;
      json["fits"] = fits;
      json["proven_infeasible"] = outcome.proven_infeasible;
    }
    print_json(json);
    if (code == kInterrupted) print_error(kBeforeFit);
    return code;
  }
  const double gap =
      outcome.bound == 0
          ? 0
          : static_cast<double>(outcome.arena) / static_cast<double>(outcome.bound) - 1;
  std::string text =
      fmt::format("{}: {}\n", options.input, format_number_of(outcome.buffers, outcome.unit));
  if (outcome.step) {
    text += fmt::format("  step         {}\n", outcome.step->whose());
    text += fmt::format("  covers       {}\n", outcome.step->covers());
  }
  for (const StepKind& kind : outcome.kinds) {
    text += fmt::format("  kind         {} of lane {}, seen {} times{}\n",
                        format_number_of(kind.requests.size(), "request"), kind.lane, kind.seen,
                        kind.bucket() ? ", of many lengths" : "");
  }
  text += fmt::format("  arena        {}\n", format_exactly(outcome.arena));
  text += fmt::format("  lower bound  {}\n", format_exactly(outcome.bound));
  text += fmt::format("  gap          {}{}\n", format_percent(gap),
                      outcome.proven_optimal ? ", proven optimal" : "");
  text += fmt::format("  planned in   {:.3f} s by {}, seed {}{}\n", outcome.seconds, outcome.engine,
                      options.search.seed, CancelOnInterrupt::happened() ? ", stopped by you" : "");
  if (capacity) {
    text += fmt::format("  capacity     {}: {}\n", format_exactly(*capacity),
                        fits                        ? "it fits"
                        : outcome.proven_infeasible ? "it does not fit, proven"
                                                    : "nothing that fits was found");
    if (outcome.overload) text += fmt::format("               {}\n", *outcome.overload);
  }
  if (!options.output.empty() && fits) text += fmt::format("wrote {}\n", options.output);
  print(printable(text));
  if (code == kInterrupted) print_error(kBeforeFit);
  return code;
}

int plan_lifetimes(const PlanOptions& options) {
  const std::vector<Lifetime> rows = read_lifetimes(options.input);
  const Problem problem = make_problem(rows, alignment_of(options, 1));
  Placement placement;
  std::optional<Bytes> capacity;
  {
    ProgressLine line;
    const CancelOnInterrupt interrupt;
    const PlaceOptions place_with = place_options(options, line, interrupt);
    capacity = place_with.capacity;
    placement = place_buffers(problem, place_with);
  }
  const auto overlap = find_overlap(rows, placement.offsets);
  BERTH_CHECK(!overlap, kUsage, "berth is wrong: its placement is not legal and is not written: {}",
              *overlap);
  const bool fits = !capacity || placement.high_water_mark <= *capacity;
  if (!options.output.empty() && fits) {
    if (is_stream(options.output)) {
      write_output(options.output, csv::format_lifetimes(rows, placement.offsets));
    } else {
      write_lifetimes(options.output, rows, placement.offsets);
    }
  }
  return report(
      options, capacity,
      {"buffer", rows.size(), placement.high_water_mark, placement.lower_bound,
       placement.proven_optimal, placement.proven_infeasible, placement.engine, placement.seconds,
       capacity ? find_overload(rows, problem.alignment, *capacity) : std::nullopt});
}

// Into a folder it goes under a name of the folder's.
void write_plan_to(const std::string& output, const Plan& plan) {
  if (!PlanFolder::is_named_by(output)) {
    write_output(output, serialize_plan(plan));
    return;
  }
  PlanFolder(output, plan.program, plan.alignment, PlanFolder::Access::kWrite).keep(plan);
}

int plan_trace(const PlanOptions& options) {
  const Trace trace = read_trace(options.input);
  const Repeats repeats = find_repeats(trace);
  if (!repeats.any()) {
    print_error(fmt::format("'{}' has no step to plan: {}", options.input, repeats.why_not));
    if (options.json) print_json(Json{{"repeats", false}, {"reason", repeats.why_not}});
    return kNo;
  }
  std::optional<StepSummary> summary;
  if (repeats.step) {
    summary.emplace(trace, *repeats.step);
    if (const auto warning = summary->warning()) print_note("warning: " + *warning);
  }
  Plan plan;
  std::optional<Bytes> capacity;
  {
    ProgressLine line;
    const CancelOnInterrupt interrupt;
    const PlaceOptions place_with = place_options(options, line, interrupt);
    capacity = place_with.capacity;
    plan = plan_repeats(repeats, trace, alignment_of(options, trace.alignment), place_with);
  }
  const bool fits = !capacity || plan.arena_bytes <= *capacity;
  if (!options.output.empty() && fits) write_plan_to(options.output, plan);
  return report(options, capacity,
                {"request", plan.slot_count(), plan.arena_bytes, plan.lower_bound,
                 plan.arena_bytes == plan.lower_bound, capacity && plan.lower_bound > *capacity,
                 plan.engine, plan.plan_seconds, std::nullopt, summary, repeats.kinds});
}

int plan(const PlanOptions& options) {
  use_ilp();
  const InputKind kind = identify(OpenedFile(options.input));
  const bool to_folder = kind == InputKind::kTrace && PlanFolder::is_named_by(options.output);
  if (!to_folder) check_files(std::array{options.input}, {{"-o", options.output}}, options.json);
  switch (kind) {
    case InputKind::kLifetimes:
      return plan_lifetimes(options);
    case InputKind::kTrace:
      return plan_trace(options);
    case InputKind::kPlan:
    case InputKind::kSchedule:
    case InputKind::kGraph:
    case InputKind::kStatistics:
    case InputKind::kPickle:
      break;
  }
  throw Error(ErrorKind::kInput,
              fmt::format("'{}' is {}: a trace or a CSV is wanted", options.input,
                          kind == InputKind::kPlan ? "a plan already" : name_of(kind)));
}

}  // namespace

Command add_plan(CLI::App& program) {
  CLI::App* app = program.add_subcommand("plan", "Place every request of a trace's step");
  const auto options = std::make_shared<PlanOptions>();
  app->add_option("input", options->input,
                  "A trace, an events CSV or a lifetimes CSV, plain or gzip")
      ->required();
  app->add_option(
         "-o,--output", options->output,
         "File for the plan, or folder of plans for BERTH_PLAN. For a lifetimes CSV it gets "
         "the same rows with a column offset")
      ->type_name("FILE");
  add_search_options(*app, options->search, place_engines(), "plan");
  app->add_option("--threads", options->threads, "Threads to search with; 0: one a core")
      ->check(CLI::Range(0u, 1024u))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--capacity", options->capacity,
                  "Stop at the first placement that fits this, e.g. 8GiB; exit 1 if none is found")
      ->type_name("SIZE");
  app->add_option("--alignment", options->alignment,
                  "Alignment of offsets; sizes are rounded up to it [the trace's; 1 for lifetimes]")
      ->type_name("SIZE");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "A terminal shows the best placement so far; Ctrl-C ends the search with it. Without -o\n"
      "nothing is written. \"covers\" is the share of the run in whole repeats of the step. It is\n"
      "about the share of hits when the plan serves.\n\nExample:\n  berth plan gpt.trace -o "
      "gpt.plan --time-limit 5");
  return {app, [options] { return plan(*options); }};
}

}  // namespace berth::cli
