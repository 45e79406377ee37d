#include "csrc/plan/verify.h"

#include "csrc/cli/command.h"
#include "csrc/cli/exit_code.h"
#include "csrc/cli/input.h"
#include "csrc/cli/output.h"
#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/file.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"

#include <fmt/format.h>

#include <memory>
#include <optional>

namespace berth::cli {
namespace {

struct Options {
  std::string plan, trace;
  bool json = false;
};

// The first thing that is wrong, or nothing.
std::optional<std::string> find_violation(const Plan& plan, const std::string& trace_path) {
  if (auto violation = verify(plan)) return violation;
  if (trace_path.empty()) return std::nullopt;
  const Trace trace = read_trace(trace_path);
  std::string why_not;
  const auto step = extract_step(trace, {}, &why_not);
  if (!step) return fmt::format("'{}' has no step to compare with: {}", trace_path, why_not);
  return verify(plan, *step);
}

int verify(const Options& options) {
  const Plan plan =
      parse_plan(read_file(options.plan, kMaxPlanFileBytes), options.plan, PlanCheck::kFile);
  const auto violation = find_violation(plan, options.trace);
  if (options.json) {
    print_json(Json{{"legal", !violation},
                    {"violation", violation ? Json(*violation) : Json(nullptr)},
                    {"slots", plan.slot_count()},
                    {"arena_bytes", plan.arena_bytes}});
  } else if (!violation) {
    print(printable(
        fmt::format("{}: legal, {} in {}{}\n", options.plan,
                    format_number_of(plan.slot_count(), "slot"), format_bytes(plan.arena_bytes),
                    options.trace.empty() ? "" : ", and covers the step of " + options.trace)));
  }
  if (!violation) return kDone;
  print_error(fmt::format("'{}' is not legal: {}", options.plan, *violation));
  return kNo;
}

}  // namespace

Command add_verify(CLI::App& program) {
  CLI::App* app = program.add_subcommand("verify", "Check a plan, alone or against a trace");
  const auto options = std::make_shared<Options>();
  app->add_option("plan", options->plan, "A plan")->required();
  app->add_option("trace", options->trace,
                  "A trace: does the plan serve its step, request by request?");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Exit code 0: no two blocks that live together share a byte, whatever program follows the "
      "plan.\n"
      "1: they do; the first violation is said.\n\n"
      "Example:\n  berth verify gpt.plan gpt.trace");
  return {app, [options] { return verify(*options); }};
}

}  // namespace berth::cli
