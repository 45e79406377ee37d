#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/graph_input.h"
#include "csrc/cli/core/graph_output.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/core/check.h"
#include "csrc/graph/file.h"

#include <fmt/format.h>

#include <array>
#include <memory>

namespace berth::cli {
namespace {

struct GraphOptions {
  std::string input, output;
  bool json = false;
};

int run(const GraphOptions& options) {
  check_files(std::array{options.input}, {{"-o", options.output}}, options.json);
  const graph::TracedGraph traced = read_graph_input(options.input);
  const graph::Graph& graph = traced.graph;
  if (!options.output.empty()) write_graph_output(options.output, graph);
  Bytes resident = 0, step = 0;
  for (const graph::Storage& storage : graph.storages)
    (storage.kind == graph::StorageClass::kResident ? resident : step) += storage.bytes;
  const bool from_trace = traced.steps != 0;
  if (options.json) {
    nlohmann::ordered_json report = {{"operators", graph.operators.size()},
                                     {"storages", graph.storages.size()},
                                     {"resident_bytes", resident},
                                     {"step_bytes", step}};
    if (from_trace) {
      report["recorded_peak_bytes"] = traced.recorded_peak;
      report["held_byte_ticks"] = traced.held;
      report["recorded_steps"] = traced.steps;
    }
    print_json(report);
    return kDone;
  }
  std::string text = fmt::format("{}: {}, {} of {}, {} of them resident\n", options.input,
                                 format_number_of(graph.operators.size(), "operator"),
                                 format_number_of(graph.storages.size(), "storage"),
                                 format_bytes(resident + step), format_bytes(resident));
  if (from_trace)
    text += fmt::format("  the run had {} alive at most; times are the medians of {}\n",
                        format_bytes(traced.recorded_peak), format_number_of(traced.steps, "step"));
  if (!options.output.empty()) text += fmt::format("wrote {}\n", options.output);
  print(printable(text));
  return kDone;
}

}  // namespace

Command add_graph(CLI::App& program) {
  CLI::App* app = program.add_subcommand(
      "graph", "Read a graph of operators, of berth or of others, and write it in berth's form");
  const auto options = std::make_shared<GraphOptions>();
  app->add_option("input", options->input,
                  "A trace with operators, or a graph: berth's, or one of dnn-partitioning, DTR (a "
                  "log), MONeT, Moccasin or PipeDream")
      ->required();
  app->add_option("-o,--output", options->output,
                  "File for the graph, JSON where its name ends in .json")
      ->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "Example:\n  berth record --operators -o gpt.trace -- ./train --steps 5\n"
      "  berth graph gpt.trace -o gpt.graph");
  return {app, [options] { return run(*options); }};
}

}  // namespace berth::cli
