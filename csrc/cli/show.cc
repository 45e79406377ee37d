#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/graph_input.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/core/rate_options.h"
#include "csrc/cli/report/report.h"
#include "csrc/cli/report/report_page.h"
#include "csrc/cli/summaries/address_picture.h"
#include "csrc/cli/summaries/folder_summary.h"
#include "csrc/cli/summaries/picture.h"
#include "csrc/cli/summaries/plan_summary.h"
#include "csrc/cli/summaries/png.h"
#include "csrc/cli/summaries/schedule_summary.h"
#include "csrc/cli/summaries/stats_summary.h"
#include "csrc/cli/summaries/trace_summary.h"
#include "csrc/core/check.h"
#include "csrc/graph/file.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/plan/file.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/workload.h"
#include "csrc/trace/file.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <optional>

namespace berth::cli {
namespace {

struct ShowOptions {
  std::string input, graph, svg, png, html, plan;
  RateOptions rates;
  bool addresses = false, json = false;

  [[nodiscard]] bool drawn() const { return !svg.empty() || !png.empty(); }
};

std::string name_of(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

// Writes the page; returns what is said of it.
std::string write_page(const ShowOptions& options, const Report& report) {
  write_output(options.html, to_html(report));
  return fmt::format("wrote {}\n", options.html);
}

// Writes the picture in the forms that were asked for; returns what is said of it.
std::string write_pictures(const ShowOptions& options, const std::string& svg) {
  std::string text;
  if (!options.svg.empty()) {
    write_output(options.svg, svg);
    text += fmt::format("wrote {}\n", options.svg);
  }
  if (!options.png.empty()) {
    write_output(options.png, to_png(svg));
    text += fmt::format("wrote {}\n", options.png);
  }
  return text;
}

// How a plan would serve the run of a trace.
int show_served(const ShowOptions& options) {
  const Trace trace = read_trace_input(OpenedFile(options.input));
  const Plan plan = read_plan(options.plan);
  const replay::Workload workload = replay::make_workload(trace);
  const replay::Result result = replay::through_berth(workload, {.plan = plan});
  const StatsSummary summary(*result.stats);
  std::string text = summary.to_text(fmt::format("{} under {}", options.input, options.plan));
  if (options.drawn() || !options.html.empty()) {
    const Report report = report_of(
        trace, plan, fmt::format("{} under {}", name_of(options.input), name_of(options.plan)));
    if (options.drawn()) text += write_pictures(options, to_svg(picture_of(report)));
    if (!options.html.empty()) text += write_page(options, report);
  }
  if (options.json) {
    print_json(summary.to_json());
  } else {
    print(printable(text));
  }
  return kDone;
}

int show_folder(const ShowOptions& options) {
  BERTH_CHECK(!options.drawn(), kUsage, "--svg and --png draw a plan, '{}' is a folder of plans",
              options.input);
  BERTH_CHECK(options.html.empty(), kUsage, "--html shows one plan, '{}' is a folder of plans",
              options.input);
  const FolderSummary summary = summarize_folder(options.input);
  if (options.json) {
    print_json(summary.json);
  } else {
    print(printable(summary.text));
  }
  return kDone;
}

int show_schedule(const ShowOptions& options) {
  BERTH_CHECK(!options.drawn() || !options.graph.empty(), kUsage,
              "--svg draws what the operators of a graph have alive: berth show x.schedule x.graph "
              "--svg x.svg");
  BERTH_CHECK(
      options.html.empty() || !options.graph.empty(), kUsage,
      "--html shows what the operators of a graph have alive: berth show x.schedule x.graph "
      "--html x.html");
  const graph::Schedule schedule = graph::read_schedule(options.input);
  graph::Graph graph;
  if (!options.graph.empty()) graph = read_graph_input(options.graph).graph;
  const ScheduleSummary summary = options.graph.empty()
                                      ? ScheduleSummary(schedule)
                                      : ScheduleSummary(schedule, graph, options.rates.rates());
  if (!summary.violation().empty()) {
    if (options.json) print_json(summary.to_json());
    print_error(fmt::format("'{}' is not legal: {}", options.input, summary.violation()));
    return kNo;
  }
  BERTH_CHECK(!options.addresses || schedule.arena_bytes != 0, kUsage,
              "--addresses draws where buffers are, '{}' has no addresses", options.input);
  std::string text = summary.to_text(options.input);
  if (options.drawn()) {
    const std::string name = name_of(options.input);
    text += write_pictures(options,
                           options.addresses
                               ? to_svg(picture_of(schedule, graph, options.rates.rates(), name))
                               : summary.to_svg(name));
  }
  if (!options.html.empty())
    text += write_page(options,
                       report_of(schedule, graph, options.rates.rates(), name_of(options.input)));
  if (options.json) {
    print_json(summary.to_json());
  } else {
    print(printable(text));
  }
  return kDone;
}

int show(const ShowOptions& options) {
  BERTH_CHECK(options.plan.empty() || options.graph.empty(), kUsage,
              "--plan needs a trace, a graph needs a schedule: only one of them is wanted");
  check_files(std::array{options.input, options.graph, options.plan},
              {{"--html", options.html}, {"--svg", options.svg}, {"--png", options.png}},
              options.json);
  if (!options.plan.empty()) return show_served(options);
  BERTH_CHECK(!options.addresses || options.drawn(), kUsage,
              "--addresses needs --svg and a schedule: berth show x.schedule x.graph --svg "
              "x.svg --addresses");
  if (std::filesystem::is_directory(options.input)) return show_folder(options);
  const InputKind kind = identify(
      OpenedFile(options.input),
      fmt::format("a plan, a folder of plans, a schedule, a run's statistics (BERTH_STATS), {}",
                  kTracesAndCsv));
  if (kind == InputKind::kSchedule) return show_schedule(options);
  BERTH_CHECK(kind != InputKind::kGraph, kUsage, "'{}' is a graph: berth graph describes it",
              options.input);
  BERTH_CHECK(options.graph.empty(), kUsage, "'{}' is no schedule: it is shown without a graph",
              options.input);
  BERTH_CHECK(!options.addresses, kUsage, "--addresses needs a schedule, '{}' is none",
              options.input);
  const std::string name = name_of(options.input);
  const bool reported = !options.html.empty() || options.drawn();
  std::optional<Picture> picture;
  std::optional<Report> report;
  std::string text;
  Json json;
  switch (kind) {
    case InputKind::kSchedule:
    case InputKind::kGraph:
    case InputKind::kPickle:
      break;  // not here
    case InputKind::kPlan: {
      const Plan plan = read_plan(options.input);
      if (options.drawn()) picture = picture_of(plan, name);
      if (!options.html.empty()) report = report_of(plan, name);
      json = plan_to_json(plan);
      text = plan_to_text(plan, options.input);
      break;
    }
    case InputKind::kLifetimes: {
      const std::vector<Lifetime> rows = read_lifetimes(options.input);
      if (reported) report = report_of(rows, name);
      json = lifetimes_to_json(rows);
      text = lifetimes_to_text(rows, options.input);
      break;
    }
    case InputKind::kStatistics: {
      const StatsSummary summary = StatsSummary::read(options.input);
      json = summary.to_json();
      text = summary.to_text(options.input);
      if (!options.html.empty()) report = report_of_statistics(summary.to_json(), name);
      break;
    }
    case InputKind::kTrace: {
      const Trace trace = read_trace(options.input);
      const TraceSummary summary = summarize(trace);
      if (reported) report = report_of(trace, std::nullopt, name);
      json = summary.to_json();
      text = summary.to_text(options.input);
      if (summary.coverage) {
        if (const auto warning = summary.coverage->warning()) print_note("warning: " + *warning);
      }
      break;
    }
  }
  if (options.drawn()) {
    if (!picture && report && !report->views.empty()) picture = picture_of(*report);
    BERTH_CHECK(picture.has_value(), kUsage,
                "--svg and --png draw requests or a plan of them, '{}' holds none", options.input);
    text += write_pictures(options, to_svg(*picture));
  }
  if (report && !options.html.empty()) text += write_page(options, *report);
  if (options.json) {
    print_json(json);
  } else {
    print(printable(text));
  }
  return kDone;
}

}  // namespace

Command add_show(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "show", "Report what a trace, a plan, a schedule or statistics hold, or draw it");
  const auto options = std::make_shared<ShowOptions>();
  app->add_option(
         "input", options->input,
         "A trace, a plan, a folder of plans, a schedule, a run's statistics (BERTH_STATS) or "
         "a CSV")
      ->required();
  app->add_option("graph", options->graph, "Of a schedule: the graph that it is for");
  app->add_option("--svg", options->svg,
                  "File for a picture: address over time, of a schedule live bytes over operators")
      ->type_name("FILE");
  app->add_option("--png", options->png, "The same picture as a PNG for reports, by librsvg")
      ->type_name("FILE");
  app->add_option("--html", options->html,
                  "File for a page, which a browser opens without a network. It shows address over "
                  "time, live and reserved bytes, holders of the peak, and misses. Of a trace it "
                  "shows berth and PyTorch's caching allocator side by side")
      ->type_name("FILE");
  app->add_flag("--addresses", options->addresses,
                "Of a schedule: draw address over operators instead");
  app->add_option(
         "--plan", options->plan,
         "Of a trace: report how this plan would serve the run, which requests miss and why")
      ->type_name("FILE");
  add_rate_options(*app, options->rates);
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Of a trace: the peak, its tick and who holds it (recorded with --operators), residents "
      "apart.\n"
      "Of a plan: arena, lower bound, slots by size, lanes and branches.\n"
      "Of a folder of plans: the kinds of steps, arena and program of each.\n"
      "Of a schedule: its peak and time, those of the step as given, who holds the peak, what is\n"
      "recomputed and what is copied.\n"
      "Of statistics: how requests were served, which missed and why, and what to do.\n\n"
      "Example:\n  berth show gpt.trace\n  berth show gpt.plan --svg gpt.svg\n  berth show "
      "gpt.trace --html gpt.html\n  berth show "
      "gpt.schedule gpt.graph\n"
      "  BERTH_STATS=run.json ./train; berth show run.json");
  return {app, [options] { return show(*options); }};
}

}  // namespace berth::cli
