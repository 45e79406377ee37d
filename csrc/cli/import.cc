#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/summaries/step_summary.h"
#include "csrc/core/check.h"
#include "csrc/trace/snapshot.h"
#include "csrc/trace/step.h"
#include "csrc/trace/write.h"

#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>

namespace berth::cli {
namespace {

struct ImportOptions {
  std::string input, output;
  std::optional<std::uint32_t> device;
  bool json = false;
};

int import(const ImportOptions& options) {
  check_files(std::array{options.input}, {{"-o", options.output}}, options.json);
  const Snapshot snapshot = read_snapshot(options.input, options.device);
  write_output(options.output, serialize_trace(snapshot.trace));

  std::string why_not;
  const auto step = extract_step(snapshot.trace, {}, &why_not);
  std::optional<StepSummary> summary;
  if (step) summary.emplace(snapshot.trace, *step);
  const std::vector<std::string> notes = snapshot.notes();
  if (options.json) {
    Json devices = Json::array();
    for (const Snapshot::Device& device : snapshot.devices) {
      devices.push_back({{"device", device.index},
                         {"entries", device.entries},
                         {"requests", device.requests},
                         {"reserved_bytes", device.reserved}});
    }
    print_json(Json{{"device", snapshot.device},
                    {"entries", snapshot.entries},
                    {"requests", snapshot.requests},
                    {"frees", snapshot.frees},
                    {"steps", snapshot.marks},
                    {"step_found", step.has_value()},
                    {"streams", snapshot.trace.lanes.size()},
                    {"reserved_bytes", snapshot.reserved_at_end},
                    {"reserved_peak_bytes", snapshot.reserved_peak},
                    {"expandable_segments", snapshot.expandable},
                    {"of_berth", snapshot.of_berth},
                    {"cut", snapshot.cut()},
                    {"blocks_before", snapshot.old_blocks},
                    {"bytes_before", snapshot.old_bytes},
                    {"reserved_before_bytes", snapshot.reserved_at_start},
                    {"out_of_memory", snapshot.out_of_memory},
                    {"notes", notes},
                    {"devices", devices}});
    return kDone;
  }
  std::string text = fmt::format(
      "{}: device {}, {} of history: {}, {}, {}\n", options.input, snapshot.device,
      snapshot.entries == 1 ? "1 entry" : fmt::format("{} entries", format_count(snapshot.entries)),
      format_number_of(snapshot.requests, "request"), format_number_of(snapshot.frees, "free"),
      format_number_of(snapshot.trace.lanes.size(), "stream"));
  text += fmt::format("  reserved   {} at most, {} at the end{}\n",
                      format_bytes(snapshot.reserved_peak), format_bytes(snapshot.reserved_at_end),
                      snapshot.expandable ? ", in expandable segments"
                      : snapshot.of_berth
                          ? ", in segments of berth, whose pages count at each of their addresses"
                          : "");
  text += fmt::format("  steps      {}\n",
                      snapshot.marks == 0
                          ? "not marked: the snapshot has no annotation of an Optimizer.step"
                          : format_number_of(snapshot.marks, "Optimizer.step"));
  text += fmt::format("  step       {}\n",
                      summary ? summary->whose() : fmt::format("none found: {}", why_not));
  if (summary) text += fmt::format("  covers     {}\n", summary->covers());
  if (snapshot.out_of_memory != 0)
    text += fmt::format("  refused    {}, the largest of {}\n",
                        format_number_of(snapshot.out_of_memory, "request"),
                        format_bytes(snapshot.refused));
  for (const std::string& note : notes) text += "  note       " + wrap(note, 13, kLineWidth);
  text += fmt::format("wrote {}\n", options.output);
  print(printable(text));
  return kDone;
}

}  // namespace

Command add_import(CLI::App& program) {
  CLI::App* app =
      program.add_subcommand("import", "Make a trace of a memory snapshot that PyTorch wrote");
  const auto options = std::make_shared<ImportOptions>();
  app->add_option("snapshot", options->input,
                  "A snapshot that torch.cuda.memory._dump_snapshot() wrote, plain or gzip")
      ->required();
  app->add_option("-o,--output", options->output, "The trace")->required()->type_name("FILE");
  app->add_option("--device", options->device, "The device, if several have a history")
      ->type_name("N");
  app->add_flag("--json", options->json, "Print one JSON object");
  app->footer(
      "In the program, without berth:\n"
      "  torch.cuda.memory._record_memory_history()  # at its start\n"
      "  ...  # some steps\n"
      "  torch.cuda.memory._dump_snapshot('snapshot.pickle')\n"
      "From torch 2.5 on PyTorch notes each Optimizer.step, which then ends a step. Without these\n"
      "notes berth finds the steps in the requests. It runs nothing of the pickle.\n\n"
      "Example:\n  berth import snapshot.pickle -o x.trace\n  berth plan x.trace -o x.plan");
  return {app, [options] { return import(*options); }};
}

}  // namespace berth::cli
