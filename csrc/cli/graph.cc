#include "csrc/cli/command.h"
#include "csrc/cli/exit_code.h"
#include "csrc/cli/input.h"
#include "csrc/cli/output.h"
#include "csrc/core/check.h"
#include "csrc/graph/file.h"

#include <fmt/format.h>

#include <memory>

namespace berth::cli {
namespace {

struct Options {
  std::string input, output;
  bool json = false;
};

int run(const Options& options) {
  if (!options.output.empty()) check_output(options.output);
  const graph::Graph graph = graph::read_graph(options.input);
  if (!options.output.empty()) write_output(options.output, graph::to_json(graph));
  Bytes resident = 0, step = 0;
  for (const graph::Storage& storage : graph.storages)
    (storage.kind == graph::StorageClass::kResident ? resident : step) += storage.bytes;
  if (options.json) {
    print_json({{"operators", graph.operators.size()},
                {"storages", graph.storages.size()},
                {"resident_bytes", resident},
                {"step_bytes", step}});
    return kDone;
  }
  print(printable(
      fmt::format("{}: {}, {} of {}, {} of them resident\n{}", options.input,
                  format_number_of(graph.operators.size(), "operator"),
                  format_number_of(graph.storages.size(), "storage"), format_bytes(resident + step),
                  format_bytes(resident),
                  options.output.empty() ? "" : fmt::format("wrote {}\n", options.output))));
  return kDone;
}

}  // namespace

Command add_graph(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("graph", "Read a graph of operators and write it as berth's");
  const auto options = std::make_shared<Options>();
  app->add_option("input", options->input,
                  "A graph: berth's JSON, or one of dnn-partitioning, DTR (a log) or Moccasin")
      ->required();
  app->add_option("-o,--output", options->output, "File for berth's JSON")->type_name("FILE");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer("Example:\n  berth graph bert_training.json -o bert.graph");
  return {app, [options] { return run(*options); }};
}

}  // namespace berth::cli
