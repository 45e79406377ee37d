#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/help_format.h"
#include "csrc/cli/core/input.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/core/python_program.h"
#include "csrc/cli/dry_run/written_files.h"
#include "csrc/cli/summaries/step_summary.h"
#include "csrc/core/check.h"
#include "csrc/replay/child_process.h"
#include "csrc/trace/file.h"
#include "csrc/trace/step.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <variant>

namespace berth::cli {
namespace {

struct RecordOptions {
  std::string trace = "berth.trace";
  std::string record = "requests";
  bool operators = false, verbose = false;
  std::string check, stats, tag, memory_limit;
  std::string device = "auto";       // of a program in Python
  std::vector<std::string> program;  // and its arguments
};

// Says what a trace holds. Returns its number of requests.
std::size_t summarize_recorded(const std::string& path, off_t size) {
  const Trace trace = read_trace(path);
  std::size_t requests = 0, marks = 0;
  for (const trace::Entry& entry : trace.entries) {
    requests += std::holds_alternative<trace::Request>(entry.event) ? 1 : 0;
    marks += std::holds_alternative<trace::StepMark>(entry.event) ? 1 : 0;
  }
  print_note(fmt::format("{}: {} entries, {}, {} marked, {}", path,
                         format_count(trace.entries.size()), format_number_of(requests, "request"),
                         format_number_of(marks, "step"), format_bytes(static_cast<Bytes>(size))));
  if (trace.cut_bytes > 0) {
    print_note(
        fmt::format("{}: {} of a torn tail are left out", path, format_bytes(trace.cut_bytes)));
  }
  std::string why_not;
  if (const auto step = extract_step(trace, {}, &why_not)) {
    print_note(fmt::format("the step repeats: {}, seen {} times; next: berth plan {} -o {}",
                           format_number_of(step->requests.size(), "request"), step->repeats, path,
                           std::filesystem::path(path).replace_extension(".plan").string()));
    if (const auto warning = StepSummary(trace, *step).warning())
      print_note("warning: " + *warning);
  } else if (requests > 0) {
    print_note(fmt::format("no step that repeats was found: {}", why_not));
  }
  return requests;
}

int record(const RecordOptions& options) {
  BERTH_CHECK(!options.program.empty(), kUsage,
              "no program to record: write it after --, as in `berth record -- ./train`");
  // An argument may be a file that the program reads, as the script of an interpreter.
  check_distinct(options.program, {{"-o", options.trace}, {"--stats", options.stats}});
  check_trace_output(options.trace);
  const std::string path = std::filesystem::absolute(options.trace).string();
  std::vector<std::pair<std::string, std::string>> variables = {
      {"BERTH_MODE", "record"},
      {"BERTH_TRACE", path},
      {"BERTH_RECORD", options.operators ? "operators" : options.record}};
  if (!options.check.empty()) variables.emplace_back("BERTH_CHECK", options.check);
  if (!options.stats.empty())
    variables.emplace_back("BERTH_STATS", std::filesystem::absolute(options.stats).string());
  if (options.verbose) variables.emplace_back("BERTH_VERBOSE", "1");
  if (!options.tag.empty()) variables.emplace_back("BERTH_TAG", options.tag);
  if (!options.memory_limit.empty())
    variables.emplace_back("BERTH_MEMORY_LIMIT", options.memory_limit);

  if (is_python(options.program[0])) {
    BERTH_CHECK(options.device != "all" || path.find("{device}") != std::string::npos, kUsage,
                "--device all writes a trace for the CPU and one for each GPU: the name '{}' must "
                "hold {{device}}",
                options.trace);
    for (auto& variable : python_variables(options.device))
      variables.push_back(std::move(variable));
  }

  const WrittenFiles files(path);
  const replay::ChildExit ended = replay::run_child(options.program, variables);
  const int code = ended.signal != 0 ? 128 + ended.signal : ended.code;
  if (ended.signal != 0)
    print_note(fmt::format("'{}' was ended by signal {}", options.program[0], ended.signal));

  std::size_t requests = 0, written = 0;
  for (const auto& [file, size] : files.written()) {
    ++written;
    try {
      requests += summarize_recorded(file, size);
    } catch (const Error& error) {
      if (code == kDone) throw;
      print_error(error.what());  // the program's own exit code says more
    }
  }
  if (requests == 0) {
    print_error(
        written == 0
            ? fmt::format("'{}' wrote no trace '{}': it is not linked to berth, or does not "
                          "install it before its first tensor",
                          options.program[0], options.trace)
            : fmt::format("the trace '{}' holds no request: '{}' allocated nothing", options.trace,
                          options.program[0]));
    if (code == kDone) return kNo;
  }
  return code;
}

}  // namespace

Command add_record(CLI::App& program, std::vector<std::string> arguments) {
  CLI::App* app =
      program.add_subcommand("record", "Run a program and write a trace of its requests");
  const auto options = std::make_shared<RecordOptions>();
  options->program = std::move(arguments);
  app->formatter(std::make_shared<HelpFormat>("berth record [OPTIONS] -- PROGRAM [ARGUMENTS...]"));
  app->add_option("-o,--trace", options->trace,
                  "File to write; may hold {rank}, {device} and {pid}")
      ->type_name("FILE")
      ->capture_default_str();
  app->add_flag("--operators", options->operators, "The same as --record operators");
  app->add_option("--record", options->record,
                  "Detail of the trace: requests alone, or operators with their operands as well")
      ->capture_default_str()
      ->check(CLI::IsMember({"requests", "operators"}));
  app->add_option("--check", options->check, "How much to check: normal or full")
      ->check(CLI::IsMember({"normal", "full"}));
  app->add_option("--stats", options->stats, "File for the program's statistics, as JSON")
      ->type_name("FILE");
  app->add_flag("--verbose", options->verbose,
                "Print one line at the program's exit: steps, hits, misses, memory");
  app->add_option("--tag", options->tag, "A text that plans of this trace carry");
  app->add_option("--memory-limit", options->memory_limit,
                  "Memory that the program may hold, e.g. 8GiB")
      ->type_name("SIZE");
  app->add_option("--device", options->device,
                  "Of a program in Python: cpu, cuda, all, or auto for CUDA where there is a GPU")
      ->check(CLI::IsMember({"auto", "cpu", "cuda", "all"}))
      ->capture_default_str();
  app->footer(
      "The program is linked to berth, or runs in Python under PyTorch; it stays unchanged. Its\n"
      "exit code is passed on. It is 1 where the program wrote no trace, and 128 + N where signal\n"
      "N ended it.\n\n"
      "Example:\n"
      "  berth record -o gpt.trace -- ./train --steps 20\n"
      "  berth record -o gpt-{rank}.trace -- torchrun --nproc-per-node 2 train.py");
  return {app, [options] { return record(*options); }};
}

}  // namespace berth::cli
