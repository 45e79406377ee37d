#include "csrc/plan/verify.h"

#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/graph_input.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/rate_options.h"
#include "csrc/cli/summaries/schedule_summary.h"
#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/graph/file.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/step.h"
#include "csrc/trace/step_kinds.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

namespace berth::cli {
namespace {

struct VerifyOptions {
  std::string plan, trace;
  RateOptions rates;
  bool json = false;
};

// Why a legal plan does not serve the step of a trace, or nothing.
std::optional<std::string> find_mismatch(const Plan& plan, const std::string& path) {
  const Trace trace = read_trace_input(OpenedFile(path));
  if (plan.sequences.size() > plan.lane_keys.size()) {
    StepKinds kinds;
    kinds.learn(trace);
    const auto violation = verify(plan, kinds.kinds());
    if (!violation) return std::nullopt;
    return fmt::format("does not serve the steps of '{}': {}", path, *violation);
  }
  std::string why_not;
  const auto step = extract_step(trace, {}, &why_not);
  if (!step) return fmt::format("'{}' has no step to serve: {}", path, why_not);
  const auto violation = verify(plan, *step);
  if (!violation) return std::nullopt;
  return fmt::format("does not serve the step of '{}': {}", path, *violation);
}

int verify_schedule(const VerifyOptions& options) {
  BERTH_CHECK(
      !options.trace.empty(), kUsage,
      "'{}' is a schedule, which is legal or not by its graph: berth verify x.schedule x.graph",
      options.plan);
  const graph::Schedule schedule = graph::read_schedule(options.plan);
  const graph::Graph graph = read_graph_input(options.trace).graph;
  const ScheduleSummary summary(schedule, graph, options.rates.rates());
  if (options.json) {
    print_json(summary.to_json());
  } else if (summary.violation().empty()) {
    print(printable(fmt::format("{}: legal, {} at the peak\n", options.plan,
                                format_bytes(summary.to_json()["peak_bytes"].get<Bytes>()))));
  }
  if (summary.violation().empty()) return kDone;
  print_error(fmt::format("'{}' is not legal: {}", options.plan, summary.violation()));
  return kNo;
}

int verify(const VerifyOptions& options) {
  constexpr std::string_view kWanted = "a plan or a schedule";
  const InputKind kind = identify(OpenedFile(options.plan), kWanted);
  if (kind == InputKind::kSchedule) return verify_schedule(options);
  BERTH_CHECK(kind == InputKind::kPlan, kInput, "'{}' is {}: {} is wanted", options.plan,
              name_of(kind), kWanted);
  const Plan plan =
      parse_plan(read_file(options.plan, kMaxPlanFileBytes), options.plan, PlanCheck::kFile);
  const bool compares = !options.trace.empty();
  const auto violation = verify(plan);
  const auto mismatch = compares && !violation ? find_mismatch(plan, options.trace) : std::nullopt;
  if (options.json) {
    print_json(Json{{"legal", !violation},
                    {"violation", violation ? Json(*violation) : Json(nullptr)},
                    {"serves", compares && !violation ? Json(!mismatch) : Json(nullptr)},
                    {"mismatch", mismatch ? Json(*mismatch) : Json(nullptr)},
                    {"slots", plan.slot_count()},
                    {"arena_bytes", plan.arena_bytes}});
  } else if (!violation && !mismatch) {
    print(printable(fmt::format(
        "{}: legal, {} in {}{}\n", options.plan, format_number_of(plan.slot_count(), "slot"),
        format_bytes(plan.arena_bytes), compares ? ", and serves " + options.trace : "")));
  }
  if (violation) print_error(fmt::format("'{}' is not legal: {}", options.plan, *violation));
  if (mismatch) print_error(fmt::format("'{}' is legal, but {}", options.plan, *mismatch));
  return violation || mismatch ? kNo : kDone;
}

}  // namespace

Command add_verify(CLI::App& program) {
  CLI::App* app = program.add_subcommand("verify", "Check a plan or a schedule");
  const auto options = std::make_shared<VerifyOptions>();
  app->add_option("plan", options->plan, "A plan, or a schedule")->required();
  app->add_option(
      "trace", options->trace,
      "For a plan, a trace: whether the plan serves its step, request by request. For a schedule, "
      "its graph");
  add_rate_options(*app, options->rates);
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Exit code 0: no two blocks that live together share a byte, whatever program follows the\n"
      "plan. With a trace also: the plan has a slot for each request of its step. Exit code 1: "
      "the\n"
      "first error is printed.\n\n"
      "Of a schedule the same codes: each operator finds what it reads, and buffers that are "
      "alive\n"
      "at one time share no byte.\n\n"
      "Example:\n  berth verify gpt.plan gpt.trace\n  berth verify gpt.schedule gpt.graph");
  return {app, [options] { return verify(*options); }};
}

}  // namespace berth::cli
