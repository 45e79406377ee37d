#include "csrc/cli/core/command.h"
#include "csrc/cli/core/exit_code.h"
#include "csrc/cli/core/help_format.h"
#include "csrc/cli/core/option_values.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/output_file.h"
#include "csrc/cli/core/python_program.h"
#include "csrc/cli/core/spelling.h"
#include "csrc/cli/dry_run/batch_argument.h"
#include "csrc/cli/dry_run/dry_run_fit.h"
#include "csrc/cli/dry_run/dry_run_job.h"
#include "csrc/cli/dry_run/dry_run_needs.h"
#include "csrc/cli/dry_run/dry_run_report.h"
#include "csrc/cli/dry_run/fitted_step.h"
#include "csrc/cli/dry_run/gpu_use.h"
#include "csrc/cli/dry_run/recorded_step.h"
#include "csrc/core/check.h"
#include "csrc/graph/schedule_file.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

struct DryRunOptions {
  std::string gpu = "H100-80";
  unsigned gpus = 1;
  std::string total;
  std::string trace = "berth.trace";
  std::string values = "zeros";
  unsigned steps = 0;
  std::string fit;
  std::optional<unsigned> fit_runs;  // nothing: few
  std::string tag, schedule;
  double time_limit = 2;
  bool json = false;
  std::vector<std::string> program;  // and its arguments
};

std::string is_value(const std::string& text) {
  char* end = nullptr;
  std::strtod(text.c_str(), &end);
  const bool number = end != text.c_str() && *end == '\0';
  return number || text == "zeros" || text == "memory"
             ? ""
             : fmt::format("'{}' is none of zeros, memory or a number", text);
}

const GpuModel& gpu_of(const std::string& name) {
  const std::vector<const GpuModel*> found = gpus_named(name);
  if (found.empty()) {
    std::vector<std::string> names;
    for (const GpuModel& one : gpus()) names.emplace_back(one.short_name);
    throw_if_unknown("GPU", name, names);
  }
  BERTH_CHECK(found.size() == 1, kUsage, "'{}' fits several GPUs: {}", name, gpu_names(found));
  return *found.front();
}

DryRunJob job_of(const DryRunOptions& options) {
  BERTH_CHECK(!options.program.empty(), kUsage,
              "no program to run: write it after --, as in `berth dry-run -- python train.py`");
  DryRunJob job;
  job.gpu = &gpu_of(options.gpu);
  job.gpus = options.gpus;
  job.total = options.total.empty() ? job.gpu->total_memory : size_option("--total", options.total);
  job.values = options.values;
  job.steps = options.steps;
  job.tag = options.tag;
  job.trace = fs::absolute(options.trace).string();
  static_cast<void>(expand_file_name(job.trace, {}, 0));  // names a word that is none
  check_trace_output(job.trace);
  if (!options.schedule.empty()) {
    static_cast<void>(expand_file_name(options.schedule, {}, 0));
    BERTH_CHECK(options.gpus == 1 || options.schedule.find("{rank}") != std::string::npos, kUsage,
                "--schedule is '{}': with several GPUs each rank has a schedule, so that the name "
                "must hold {{rank}}",
                options.schedule);
    check_trace_output(fs::absolute(options.schedule).string());
    check_distinct({}, {{"-o", job.trace}, {"--schedule", options.schedule}});
  }
  job.program = options.program;
  job.output_to_error = options.json;
  return job;
}

// Why there is nothing to report. Returns the exit code.
int nothing_traced(const DryRunJob& job, const DryRun& run) {
  const std::string& program = job.program[0];
  if (is_python(program) && run.calls == 0 && !torch_has_cuda(program)) {
    print_error(
        fmt::format("the torch of '{}' is built without CUDA: nothing to run dry", program));
    return kSystemFailure;
  }
  if (run.code != 0) return kSystemFailure;  // it has said why itself
  if (run.calls == 0) {
    print_error(fmt::format("'{}' never used CUDA: nothing to report", program));
  } else {
    print_error(
        fmt::format("'{}' used CUDA, but allocated no memory there through libtorch", program));
  }
  return kBadInput;
}

// Says how the program ended where it did not end well. The exit code, 0 where it did: a program
// that fails may have wanted its data, or have a fault, and that is no word on memory.
int judge_end(const DryRunJob& job, const DryRun& run) {
  if (run.trace_too_large) {
    print_error(fmt::format("stopped '{}': {}. {}", job.program[0], run.why_stopped,
                            job.steps == 0 ? "Four steps are enough as a rule: --steps 4"
                                           : "It makes no steps that --steps could count"));
    return kSystemFailure;
  }
  if (run.stopped) {
    print_error(
        fmt::format("stopped '{}' before the system would have: {}. The program itself "
                    "uses this host memory: make the model on the device "
                    "(torch.device(\"cuda\") around it), load less, or use a machine with more",
                    job.program[0], run.why_stopped));
    return kSystemFailure;
  }
  if (run.signal != 0) {
    print_note(fmt::format("'{}' was ended by signal {}", job.program[0], run.signal));
    return 128 + run.signal;
  }
  if (run.code == 0) return kDone;
  print_note(fmt::format("'{}' ended with exit code {}", job.program[0], run.code));
  return kSystemFailure;
}

// Runs that the user has asked for are spent until nothing is open.
DryRunFitOptions fit_options(const DryRunOptions& options) {
  DryRunFitOptions fit{.plan_time_limit_seconds = options.time_limit};
  if (options.fit_runs) fit.most_runs = fit.few_runs = *options.fit_runs;
  return fit;
}

// How steps run by schedules within the GPU's memory. The report says why where none can be
// planned.
std::vector<FittedStep> fit_steps(DryRunReport& report, const DryRunOptions& options) {
  const DryRunJob& job = report.job;
  report.why_no_steps = why_not_recorded(job);
  if (!report.why_no_steps.empty()) return {};
  if (std::ranges::any_of(report.gpus(), &GpuUse::shared)) {
    report.why_no_steps = "several processes share a GPU";
    return {};
  }
  print_note(report.fits() ? "the program runs once more, to record its step"
                           : "it does not fit: the program runs once more, to record its step");
  const std::vector<RecordedStep> steps = record_steps(job);
  if (steps.empty()) report.why_no_steps = "the program failed when its step was recorded";
  std::vector<FittedStep> fitted;
  ProgressLine line;
  for (const RecordedStep& step : steps) {
    line.show(fmt::format("planning the step of rank {}", step.rank));
    fitted.push_back(fit_step(step, job, options.time_limit));
  }
  return fitted;
}

// Each rank has a schedule of its own.
void write_schedules(std::vector<FittedStep>& steps, const std::string& name) {
  std::size_t found = 0;
  for (FittedStep& step : steps) {
    if (!step.within.schedule) continue;
    ++found;
    trace::Program program;
    program.rank = step.rank;
    step.named = fs::absolute(name).string();
    step.file = expand_file_name(step.named, program, 0);
    write_output(step.file, graph::serialize_schedule(*step.within.schedule));
  }
  if (found == 0)
    print_note(fmt::format("--schedule: '{}' is not written, nothing was found", name));
}

int dry_run(const DryRunOptions& options) {
  DryRunReport report;
  report.job = job_of(options);
  std::optional<BatchArgument> argument;
  if (!options.fit.empty()) argument.emplace(options.fit, options.program);
  if (options.steps > 0 && !is_python(options.program[0]))
    print_note(
        fmt::format("--steps ends '{}' where it marks steps (berth::torch::mark_step()); it is not "
                    "known as Python, whose optimizers' steps are seen",
                    options.program[0]));
  report.run = run_dry(report.job);
  const int code = judge_end(report.job, report.run);

  std::vector<Needs> all;
  {
    ProgressLine line;
    for (const RankTraces::File& trace : report.run.traces) {
      line.show(fmt::format("serving {} on paper", trace.path));
      try {
        Needs needs = find_needs(trace, {.plan_time_limit_seconds = options.time_limit,
                                         .limit = reservable(report.job)});
        if (needs.requests > 0) all.push_back(std::move(needs));
      } catch (const Error& error) {
        if (code == kDone) throw;
        print_error(error.what());  // the program's own exit code says more
      }
    }
  }
  if (all.empty()) {
    if (report.run.stopped || report.run.signal != 0) return code;
    return nothing_traced(report.job, report.run);
  }
  if (code != kDone) print_note("what follows is what it needed up to there");
  if (options.steps > 0 && code == kDone &&
      std::ranges::all_of(all, [](const Needs& needs) { return needs.steps == 0; }))
    print_note(
        fmt::format("--steps ended nothing: '{}' makes no step of an optimizer in Python and marks "
                    "none (berth.mark_step(), berth::torch::mark_step()); it ran to its end",
                    options.program[0]));
  if (argument && code == kDone)
    report.fit = find_fit(report.job, *argument, all, fit_options(options));
  for (Needs& needs : all) {
    std::string file;
    if (needs.plan && code == kDone) {
      file = fs::path(needs.file.path).replace_extension(".plan").string();
      write_output(file, serialize_plan(*needs.plan));
    }
    report.ranks.push_back({std::move(needs), file});
  }
  if (code == kDone && (!report.fits() || !options.schedule.empty())) {
    report.steps = fit_steps(report, options);
    if (!options.schedule.empty()) write_schedules(report.steps, options.schedule);
  }
  if (options.json)
    print_json(report.to_json());
  else
    print(report.to_text());
  if (code != kDone) return code;
  return report.fits() ? kDone : kNo;
}

// The table of GPUs, for the help.
std::string gpu_table() {
  std::string text;
  for (const GpuModel& gpu : gpus()) {
    text += fmt::format("  {:<17} {:<32} {:>9} {:>9}\n", gpu.short_name, gpu.name,
                        format_bytes(gpu.total_memory), format_bytes(gpu.context_bytes));
  }
  return text;
}

}  // namespace

Command add_dry_run(CLI::App& program, std::vector<std::string> arguments) {
  CLI::App* app = program.add_subcommand(
      "dry-run", "Run a CUDA program without a GPU; report which GPU it fits");
  const auto options = std::make_shared<DryRunOptions>();
  options->program = std::move(arguments);
  app->formatter(std::make_shared<HelpFormat>("berth dry-run [OPTIONS] -- PROGRAM [ARGUMENTS...]"));
  app->add_option("--gpu", options->gpu, "Which GPU: see the table below")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--gpus", options->gpus, "How many of it the program sees")
      ->check(CLI::Range(1u, 64u))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--total", options->total, "Memory of each, instead of the GPU's own, e.g. 40GiB")
      ->type_name("SIZE");
  app->add_option("-o,--trace", options->trace,
                  "Trace to write; may hold {rank}, {device} and {pid}. Each rank and GPU has its "
                  "own; without "
                  "these words its name gets -RANK-DEVICE. The plan is written beside it, as .plan")
      ->type_name("FILE")
      ->capture_default_str();
  app->add_option("--steps", options->steps,
                  "End the program, as exit() would, after so many steps: of an optimizer in "
                  "Python, or that it marks (mark_step()); 0: let it run to its end")
      ->check(CLI::Range(0u, 1'000'000'000u))
      ->type_name("N")
      ->capture_default_str();
  app->add_option("--fit", options->fit,
                  "Find the largest batch that fits, as it is and with a step program. ARG is the "
                  "program's option for it "
                  "(batch=--batch-size), or the place of that argument (batch=2). The program runs "
                  "several times")
      ->type_name("NAME=ARG");
  app->add_option("--fit-runs", options->fit_runs,
                  "Runs at most. The search ends earlier once each answer is exact, after 8 runs "
                  "once all are within 1 % [16]")
      ->check(CLI::Range(1u, 1000u))
      ->type_name("N");
  app->add_option("--schedule", options->schedule,
                  "Write the schedule by which the step runs within the GPU's memory, for "
                  "BERTH_SCHEDULE. With several GPUs the name must hold {rank}")
      ->type_name("FILE");
  app->add_option("--values", options->values,
                  "Values that the program reads in place of kernels' results: zeros, a number, or "
                  "memory (the bytes that are there)")
      ->check(is_value)
      ->type_name("VALUE")
      ->capture_default_str();
  app->add_option("--time-limit", options->time_limit,
                  "Seconds to improve the plan for; the same for each search of a schedule")
      ->check(CLI::PositiveNumber)
      ->type_name("S")
      ->capture_default_str();
  app->add_option("--tag", options->tag, "A text that trace and plan carry");
  app->add_flag("--json", options->json,
                "Print one JSON object; the program's output goes to standard error");
  app->footer(
      "The program is not changed: Python under PyTorch, torchrun, or C++ linked to\n"
      "libtorch for CUDA. It runs on a stand-in for CUDA, on which kernels do not run.\n"
      "Memory figures are real; times and losses are not. Four steps are enough as a\n"
      "rule; --steps ends the program then. It may use more memory than the GPU has, so\n"
      "the report shows by how much it exceeds it. PyTorch's allocators return their\n"
      "cache at a limit and try again. So the report has two figures: their reserved\n"
      "memory without a limit, and the smallest GPU on which the run finishes.\n\n"
      "If a program in Python does not fit, it runs once more to record its step. The\n"
      "report then has a schedule with which `python -m berth run --fit` trains it: its\n"
      "memory, what it recomputes and copies, and its time. Times come from a roofline\n"
      "of the GPU (arithmetic and memory at their maker's rates); they are estimates.\n\n"
      "  --gpu             as its driver names it              memory   context\n" +
      gpu_table() +
      "\nThe last parts of a name may be left out where one GPU is left: L4, H100-PCIe.\n"
      "The context is the memory of a process beside its allocator: kernels, libraries.\n"
      "It is an estimate by multiprocessors, from an RTX 3090's 256 MiB before the first\n"
      "kernel.\n\n"
      "Exit codes:\n"
      "  0        it fits\n"
      "  1        it fits under no allocator\n"
      "  2        wrong usage\n"
      "  3        the program never used CUDA\n"
      "  4        the program failed, or its torch has no CUDA; or berth stopped it:\n"
      "           no host memory was left, or the trace grew beyond 1 GiB\n"
      "  128 + N  signal N ended the program\n"
      "The program's own exit code is in the report.\n\n"
      "Example:\n"
      "  berth dry-run --gpu H100-80 -o gpt.trace -- python train.py\n"
      "  berth dry-run --gpu A100-40 --fit batch=--batch-size -- python train.py --batch-size 8\n"
      "  berth dry-run --gpus 2 -o 'gpt-{rank}.trace' -- torchrun --nproc-per-node 2 train.py\n\n"
      "For a step that does not fit:\n"
      "  berth dry-run --gpu L4 --schedule gpt.schedule -- python train.py\n"
      "  BERTH_SCHEDULE=gpt.schedule python -m berth run --fit train.py");
  return {app, [options] { return dry_run(*options); }};
}

}  // namespace berth::cli
