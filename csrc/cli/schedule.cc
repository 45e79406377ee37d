#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/graph_input.h"
#include "csrc/cli/core/graph_output.h"
#include "csrc/cli/core/interrupt.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/schedule_addresses.h"
#include "csrc/cli/schedule_options.h"
#include "csrc/core/check.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/schedule/joint/working_set.h"
#include "csrc/schedule/order/from_graph.h"
#include "csrc/schedule/order/order.h"

#include <berth/schedule.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <optional>
#include <vector>

namespace berth::cli {
namespace {

std::string describe(const schedule::StepProgress& progress) {
  return fmt::format("planning: best {}, bound {}, {}, {:.1f} s", format_ms(progress.ns),
                     format_ms(progress.ns_bound), progress.engine, progress.seconds);
}

// A size, or a share of what the step needs as recorded.
Bytes budget_option(const std::string& text, Bytes base) {
  if (!text.ends_with('%')) return size_option("--budget", text);
  char* end = nullptr;
  const double share = std::strtod(text.c_str(), &end) / 100;
  BERTH_CHECK(end + 1 == text.c_str() + text.size() && share > 0 && share <= 10, kUsage,
              "--budget is {}: a size, or a share such as 60% of what the step needs, is wanted",
              text);
  return static_cast<Bytes>(share * static_cast<double>(base));
}

// The least memory within a share of time more. The limit is that of all searches, with half of it
// each: there are seven at most, and three more with state on the host.
schedule::StepResult plan_within_time(const graph::Graph& graph, schedule::StepOptions how,
                                      double more_time, bool offload_state) {
  how.time_limit_seconds *= offload_state ? 2.0 / 10 : 2.0 / 7;
  schedule::LeastMemory least(graph, how,
                              std::vector<bool>(offload_state ? graph.storages.size() : 0, true));
  const schedule::StepResult* const fastest = least.fastest();
  if (fastest == nullptr) {
    schedule::StepResult none;
    none.why_not = fmt::format("no schedule was found in {:.3f} s", how.time_limit_seconds);
    return none;
  }
  const auto most_ns =
      static_cast<std::uint64_t>((1 + more_time) * static_cast<double>(fastest->base_ns));
  return *least.find(most_ns);
}

// Where one way is said alone, it holds for both.
std::optional<graph::CopyRates> rates_of(const ScheduleOptions& options) {
  std::optional<Bytes> out, in;
  if (!options.rate_out.empty()) out = size_option("--rate-out", options.rate_out);
  if (!options.rate_in.empty()) in = size_option("--rate-in", options.rate_in);
  if (!out && !in) return std::nullopt;
  return graph::CopyRates{out ? *out : *in, in ? *in : *out};
}

Json to_json(const schedule::StepResult& result, Bytes budget, const ScheduleOptions& options) {
  Json json = {{"budget_bytes", options.time_budget ? Json(nullptr) : Json(budget)},
               {"time_budget", options.time_budget ? Json(*options.time_budget) : Json(nullptr)},
               {"base_peak_bytes", result.base_peak},
               {"base_time_ns", result.base_ns},
               {"order_peak_bytes", result.order_peak ? Json(*result.order_peak) : Json(nullptr)},
               {"bound_bytes", result.least_budget},
               {"time_bound_ns", result.ns_bound},
               {"fits", result.schedule.has_value()},
               {"proven_optimal", result.proven_optimal},
               {"seconds", result.seconds},
               {"seed", options.search.seed}};
  if (!result.schedule) {
    json["reason"] = result.why_not;
    json["missing_bytes"] = result.missing_bytes;
    return json;
  }
  json["peak_bytes"] = result.verdict.peak;
  json["time_ns"] = result.verdict.ns;
  json["recomputed"] = result.verdict.recomputed;
  json["recomputed_ns"] = result.verdict.recomputed_ns;
  json["offloaded_bytes"] = result.verdict.offloaded_bytes;
  json["host_peak_bytes"] = result.verdict.host_peak;
  json["engine"] = result.schedule->engine;
  if (result.addresses) {
    json["arena_bytes"] = result.addresses->arena_bytes;
    json["fragmentation"] = result.addresses->fragmentation();
    json["host_arena_bytes"] = result.addresses->host_bytes;
  }
  return json;
}

std::string to_text(const schedule::StepResult& result, Bytes budget, const graph::Graph& graph,
                    const ScheduleOptions& options, bool cancelled) {
  const auto over = [&](std::uint64_t ns) {
    return format_percent(static_cast<double>(ns) /
                              static_cast<double>(std::max<std::uint64_t>(result.base_ns, 1)) -
                          1);
  };
  std::string text =
      fmt::format("{}: {}\n", options.input, format_number_of(graph.operators.size(), "operator"));
  text += fmt::format("  as recorded  {}, {} of operators\n", format_exactly(result.base_peak),
                      format_ms(result.base_ns));
  if (result.order_peak)
    text += fmt::format("  best order   {}\n", format_exactly(*result.order_peak));
  text += options.time_budget
              ? fmt::format("  budget       {} more time\n", format_percent(*options.time_budget))
              : fmt::format("  budget       {}\n", format_exactly(budget));
  text += fmt::format("  least        {}, by {}\n", format_exactly(result.least_budget),
                      result.largest);
  if (!result.schedule) return text + fmt::format("  {}\n", result.why_not);
  const graph::Verdict& verdict = result.verdict;
  text += fmt::format("  peak         {}\n", format_exactly(verdict.peak));
  if (result.addresses)
    text += fmt::format("  arena        {}\n", format_addresses(*result.addresses));
  text += fmt::format("  time         {}, {} more\n", format_ms(verdict.ns), over(verdict.ns));
  text +=
      fmt::format("  lower bound  {}, gap {}{}\n", format_ms(result.ns_bound),
                  format_percent(result.gap()), result.proven_optimal ? ", proven optimal" : "");
  if (verdict.recomputed != 0)
    text += fmt::format("  recomputed   {}, {}\n", format_number_of(verdict.recomputed, "operator"),
                        format_ms(verdict.recomputed_ns));
  if (verdict.offloaded_bytes != 0)
    text += fmt::format(
        "  offloaded    {} out, {} in, at most {} on the host{}\n",
        format_bytes(verdict.offloaded_bytes), format_bytes(verdict.reloaded_bytes),
        format_bytes(verdict.host_peak),
        result.addresses ? fmt::format(" in {}", format_bytes(result.addresses->host_bytes)) : "");
  text += fmt::format("  planned in   {:.3f} s by {}, seed {}{}\n", result.seconds,
                      result.schedule->engine, options.search.seed,
                      cancelled ? ", stopped by you" : "");
  if (!options.output.empty()) text += fmt::format("wrote {}\n", options.output);
  return text;
}

// A row a budget.
std::string to_table(const std::vector<schedule::StepResult>& results,
                     const std::vector<Bytes>& budgets) {
  Table table({{"budget"},
               {"peak"},
               {"time"},
               {"more"},
               {"recomputed"},
               {"offloaded"},
               {"engine", Table::Align::kLeft}});
  for (std::size_t k = 0; k < results.size(); ++k) {
    const schedule::StepResult& one = results[k];
    if (!one.schedule) {
      table.add({format_bytes(budgets[k]), "-", "-", "-", "-", "-", "none was found"});
      continue;
    }
    table.add({format_bytes(budgets[k]), format_bytes(one.verdict.peak), format_ms(one.verdict.ns),
               format_percent(static_cast<double>(one.verdict.ns) /
                                  static_cast<double>(std::max<std::uint64_t>(one.base_ns, 1)) -
                              1),
               format_count(one.verdict.recomputed), format_bytes(one.verdict.offloaded_bytes),
               one.schedule->engine});
  }
  return table.to_string();
}

int step(const ScheduleOptions& options) {
  const auto& engines = schedule::step_engines();
  BERTH_CHECK(std::find(engines.begin(), engines.end(), options.search.engine) != engines.end(),
              kUsage, "--engine is {}: with a budget one of {} is wanted", options.search.engine,
              fmt::join(engines, ", "));
  BERTH_CHECK(options.output.empty() || !options.budgets, kUsage,
              "--budgets makes eight schedules: -o writes one, by --budget");
  BERTH_CHECK(!is_graph_name(options.output), kUsage,
              "'{}' is the name of a graph: what fits a budget is a schedule", options.output);
  BERTH_CHECK(!options.offload_state ||
                  ((!options.budget.empty() || options.time_budget) && rates_of(options)),
              kUsage,
              "--offload-state needs --rate-out, and --budget or "
              "--time-budget");
  check_files(std::array{options.input}, {{"-o", options.output}}, options.json);
  const graph::Graph graph = read_graph_input(options.input).graph;
  const schedule::OrderProblem problem = schedule::order_problem(graph);
  const Bytes base =
      schedule::peak_of(problem, graph.order.empty() ? problem.first_order() : graph.order);
  schedule::StepOptions how;
  how.engine = options.search.engine;
  how.rates = rates_of(options);
  how.addresses = !options.output.empty() && !options.no_addresses && !options.offload_state;
  how.seed = options.search.seed;
  how.iteration_budget = options.search.iterations;
  how.time_limit_seconds = options.search.seconds_left(how.time_limit_seconds);
  std::vector<Bytes> budgets;
  if (options.budgets) {
    const Bytes least = schedule::least_budget(graph).bytes;
    for (Bytes k = 0; k < 8; ++k)
      budgets.push_back(least + (std::max(base, least) - least) * k / 7);
  } else if (!options.time_budget) {
    budgets = {budget_option(options.budget, base)};
  }
  std::vector<schedule::StepResult> results;
  bool cancelled = false;
  {
    ProgressLine line;
    const CancelOnInterrupt interrupt;
    how.cancel = &interrupt.cancelled();
    line.show("planning");
    if (line.shown())
      how.progress = [&line](const schedule::StepProgress& now) { line.show(describe(now)); };
    if (options.time_budget) {
      results = {plan_within_time(graph, how, *options.time_budget, options.offload_state)};
      budgets = {results.back().verdict.peak};
    } else if (options.offload_state) {
      how.budget = budgets.back();
      const std::vector<bool> all(graph.storages.size(), true);
      results = {schedule::plan_beside_spills(graph, how, all, std::nullopt)};
    } else {
      results = schedule::plan_budgets(graph, budgets, how);
    }
    cancelled = interrupt.cancelled().load();
  }
  const schedule::StepResult& last = results.back();
  const bool interrupted = cancelled && !last.schedule && last.missing_bytes == 0;
  if (interrupted) results.back().why_not = "interrupted before a schedule was found";
  if (!options.output.empty() && last.schedule)
    write_output(options.output, graph::serialize_schedule(*last.schedule));
  if (options.json) {
    if (options.budgets) {
      Json list = Json::array();
      for (std::size_t k = 0; k < results.size(); ++k)
        list.push_back(to_json(results[k], budgets[k], options));
      print_json({{"operators", graph.operators.size()}, {"budgets", list}});
    } else {
      Json json = to_json(last, budgets.back(), options);
      json["operators"] = graph.operators.size();
      json["cancelled"] = cancelled;
      print_json(json);
    }
  } else if (options.budgets || !interrupted) {
    print(printable(options.budgets ? to_table(results, budgets)
                                    : to_text(last, budgets.back(), graph, options, cancelled)));
  }
  if (interrupted) {
    print_error(fmt::format("{} that fits {}", last.why_not, format_bytes(budgets.back())));
    return kInterrupted;
  }
  return last.schedule ? kDone : kNo;
}

int run(const ScheduleOptions& options) {
  const int modes = (options.order_only ? 1 : 0) + (options.budget.empty() ? 0 : 1) +
                    (options.budgets ? 1 : 0) + (options.time_budget ? 1 : 0);
  BERTH_CHECK(
      modes == 1, kUsage,
      "one of --budget SIZE, --time-budget SHARE, --budgets and --order-only is wanted: a limit of "
      "the step, or only the order with the least memory");
  return options.order_only ? order_step(options) : step(options);
}

}  // namespace

Command add_schedule(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("schedule", "Schedule a step for least memory, or within a budget");
  const auto options = std::make_shared<ScheduleOptions>();
  app->add_option("input", options->input,
                  "A trace with operators or a graph, as `berth graph` reads it")
      ->required();
  app->add_option(
         "-o,--output", options->output,
         "File for the schedule. With --order-only and a name that ends in .graph or .json: "
         "for the graph in its new order")
      ->type_name("FILE");
  app->add_option("--budget", options->budget,
                  "Memory on the device, everything counted: e.g. 8GiB, or 60% of the peak of the "
                  "recorded step; exit 1 if no schedule that fits is found")
      ->type_name("SIZE");
  app->add_option("--time-budget", options->time_budget,
                  "Instead of a size: the least memory within this share of time more than the "
                  "recorded step, e.g. 0.1")
      ->check([](const std::string& text) {
        const double share = std::strtod(text.c_str(), nullptr);
        return share >= 0 && share <= 1000 ? std::string()
                                           : fmt::format("{} is no share from 0 to 1000", text);
      })
      ->type_name("SHARE");
  app->add_flag("--budgets", options->budgets,
                "Plan for eight budgets, from the need of the largest operator to the whole peak");
  app->add_flag("--order-only", options->order_only,
                "Order operators only: no recomputation, no offload");
  app->add_option("--rate-out", options->rate_out,
                  "Bytes a second that the device copies to the host; without rates no offload")
      ->type_name("SIZE");
  app->add_option("--rate-in", options->rate_in,
                  "The same for copies back; each of the two defaults to the other")
      ->type_name("SIZE");
  app->add_flag("--offload-state", options->offload_state,
                "With rates: parameters and optimizer state may be on the host between their uses. "
                "Such a schedule has no offsets");
  app->add_flag("--no-addresses", options->no_addresses,
                "Write the schedule without offsets in an arena or on the host");
  std::vector<std::string> engines = schedule::step_engines();
  const std::string papers = fmt::to_string(fmt::join(engines.begin() + 4, engines.end(), ", "));
  for (const std::string& engine : schedule::order_engines())
    if (std::find(engines.begin(), engines.end(), engine) == engines.end())
      engines.push_back(engine);
  add_search_options(*app, options->search, engines, "schedule");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "A terminal shows the best schedule so far; Ctrl-C ends the search with it. Before the "
      "first\n"
      "schedule Ctrl-C ends berth with exit code 130. Addresses are found afterwards, within the\n"
      "same limit.\n\n"
      "Engines for a budget: auto, order, recompute, offload. On the recorded order: " +
      papers +
      ". auto and the others are for --order-only.\n\n"
      "Example:\n  berth schedule gpt.trace --budget 60% -o gpt.schedule\n"
      "  berth schedule bert.graph --order-only -o bert.schedule");
  return {app, [options] { return run(*options); }};
}

}  // namespace berth::cli
