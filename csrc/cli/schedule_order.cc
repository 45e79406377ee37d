#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/graph_input.h"
#include "csrc/cli/core/graph_output.h"
#include "csrc/cli/core/interrupt.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/schedule_addresses.h"
#include "csrc/cli/schedule_options.h"
#include "csrc/core/check.h"
#include "csrc/graph/hash.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <optional>

namespace berth::cli {
namespace {

// Of the time, where addresses are looked for afterwards.
constexpr double kOrderingShare = 0.7;

std::string describe(const schedule::OrderProgress& progress) {
  const double gap =
      progress.bound == 0
          ? 0
          : static_cast<double>(progress.peak) / static_cast<double>(progress.bound) - 1;
  return fmt::format("ordering: best {}, bound {}, gap {}, {}, {:.1f} s",
                     format_bytes(progress.peak), format_bytes(progress.bound), format_percent(gap),
                     progress.engine, progress.seconds);
}

void report(const ScheduleOptions& options, const schedule::OrderProblem& problem,
            const schedule::OrderResult& result,
            const std::optional<schedule::Addresses>& addresses, bool cancelled) {
  if (options.json) {
    print_json({{"operators", problem.nodes.size()},
                {"given_peak_bytes", result.given_peak},
                {"peak_bytes", result.peak},
                {"bound_bytes", result.bound},
                {"resident_bytes", problem.constant},
                {"arena_bytes", addresses ? Json(addresses->arena_bytes) : Json(nullptr)},
                {"fragmentation", addresses ? Json(addresses->fragmentation()) : Json(nullptr)},
                {"proven_optimal", result.proven_optimal},
                {"engine", result.engine},
                {"seconds", result.seconds},
                {"seed", options.search.seed},
                {"cancelled", cancelled}});
    return;
  }
  std::string text =
      fmt::format("{}: {}\n", options.input, format_number_of(problem.nodes.size(), "operator"));
  text += fmt::format("  as given     {}\n", format_exactly(result.given_peak));
  text += fmt::format("  peak         {}\n", format_exactly(result.peak));
  text += fmt::format("  lower bound  {}\n", format_exactly(result.bound));
  text += fmt::format("  gap          {}{}\n", format_percent(result.gap()),
                      result.proven_optimal ? ", proven optimal" : "");
  if (problem.constant != 0)
    text +=
        fmt::format("  of which     {} are there all the time\n", format_bytes(problem.constant));
  if (addresses) text += fmt::format("  arena        {}\n", format_addresses(*addresses));
  text += fmt::format("  ordered in   {:.3f} s by {}, seed {}{}\n", result.seconds, result.engine,
                      options.search.seed, cancelled ? ", stopped by you" : "");
  if (!options.output.empty()) text += fmt::format("wrote {}\n", options.output);
  print(printable(text));
}

// The graph in its new order where the name is that of a graph, else the schedule, by the leave of
// the referee. Returns the addresses of a schedule that has got some.
std::optional<schedule::Addresses> write(const ScheduleOptions& options, const graph::Graph& given,
                                         const graph::Graph& ordered,
                                         const schedule::OrderResult& result,
                                         const std::atomic<bool>& cancel) {
  if (is_graph_name(options.output)) {
    write_graph_output(options.output, ordered);
    return std::nullopt;
  }
  graph::Schedule schedule = graph::schedule_of_order(given, result.order);
  const graph::Verdict verdict = graph::replay(given, schedule);
  BERTH_CHECK(verdict.violation.empty() && verdict.peak == result.peak, kUsage,
              "berth has a fault: it does not write its schedule. The referee reports {} bytes and "
              "'{}', the planner {} bytes",
              verdict.peak, verdict.violation, result.peak);
  schedule.engine = result.engine;
  schedule.operators = graph::identities_of(given);
  schedule.seed = options.search.seed;
  schedule.peak = result.peak;
  schedule.peak_bound = result.bound;
  schedule.ns = verdict.ns;
  std::optional<schedule::Addresses> addresses;
  if (!options.no_addresses) addresses = add_addresses(given, schedule, options.search, cancel);
  write_output(options.output, graph::serialize_schedule(schedule));
  return addresses;
}

}  // namespace

int order_step(const ScheduleOptions& options) {
  check_files(std::array{options.input}, {{"-o", options.output}}, options.json);
  graph::Graph graph = read_graph_input(options.input).graph;
  const graph::Graph given = graph;
  const schedule::OrderProblem problem = schedule::order_problem(graph);
  schedule::OrderResult result;
  const CancelOnInterrupt interrupt;
  {
    ProgressLine line;
    schedule::OrderOptions order;
    order.engine = options.search.engine;
    order.seed = options.search.seed;
    order.iteration_budget = options.search.iterations;
    order.given.assign(graph.order.begin(), graph.order.end());
    order.cancel = &interrupt.cancelled();
    const bool addressed =
        !options.output.empty() && !is_graph_name(options.output) && !options.no_addresses;
    order.time_limit_seconds =
        (addressed ? kOrderingShare : 1) * options.search.seconds_left(order.time_limit_seconds);
    if (line.shown())
      order.progress = [&line](const schedule::OrderProgress& now) { line.show(describe(now)); };
    result = schedule::plan_order(problem, order);
  }
  graph.order.assign(result.order.begin(), result.order.end());
  const std::string wrong = problem.violation(result.order);
  BERTH_CHECK(wrong.empty(), kUsage,
              "berth is wrong: its order is not legal and is not written: {}", wrong);
  std::optional<schedule::Addresses> addresses;
  if (!options.output.empty())
    addresses = write(options, given, graph, result, interrupt.cancelled());
  report(options, problem, result, addresses, interrupt.cancelled().load());
  return kDone;
}

}  // namespace berth::cli
