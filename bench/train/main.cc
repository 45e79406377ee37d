// Trains a model and reports what each step cost: `train --model gpt --json run.json`.
//
// The same program for every allocator: berth is there in the mode that BERTH_MODE says ("off":
// libtorch's own allocator, over glibc's or a preloaded malloc).
#include "bench/train/process.h"
#include "bench/train/step_peak.h"
#include "bench/train/target.h"
#include "bench/train/workload.h"

#include <berth/step_program.h>
#include <berth/torch.h>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <optional>
#include <thread>
#include <utility>

namespace berth::bench {

namespace {

struct Options {
  std::string model;
  WorkloadOptions workload{.data_folder = "build/data"};
  int steps = 20;
  int warmup = 3;
  int settle = 0;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  bool mark = true;
  bool program = false, step_peak = false;
  // Each plan is waited for, so that steps that are measured have theirs.
  berth::torch::StepProgramOptions scheduling{.plan_wait_seconds =
                                                  std::numeric_limits<double>::infinity()};
  bool cudnn = true;
  bool quiet = false;
  std::string device = "cpu";
  std::string json, graph, written_graph;
};

struct StepCost {
  double ms = 0;
  double thread_ms = 0;
  std::uint64_t minor_faults = 0;
};

// Progress goes to standard error: over one line on a terminal, else a line now and then.
void report(const Options& options, int done, float loss, const StepCost& cost) {
  const int total = options.warmup + options.steps;
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const bool last = done == total;
  if (options.quiet || (!terminal && !last && done % std::max(1, total / 5) != 0)) return;
  fmt::print(stderr, "{}{} step {:3}/{}  loss {:.4f}  {:7.1f} ms  {:7} page faults{}",
             terminal ? "\r" : "", options.model, done, total, loss, cost.ms, cost.minor_faults,
             terminal && !last ? "" : "\n");
  std::fflush(stderr);
}

// Whether most of what was asked for between two readings of the counters came from a plan.
bool planned(const nlohmann::json& before, const nlohmann::json& after) {
  if (!before.is_object() || !after.is_object()) return false;
  const auto more = [&](const char* name) {
    return after.at(name).get<std::uint64_t>() - before.at(name).get<std::uint64_t>();
  };
  return more("hits") * 2 > more("requests");
}

void train(Options options) {
  prepare_libtorch(options.workload.seed, options.threads, options.cudnn);
  std::unique_ptr<Workload> workload;
  for (const WorkloadKind& kind : workload_kinds())
    if (kind.name == options.model) workload = kind.make(options.workload);
  if (!options.quiet)
    fmt::print(stderr, "{}, {} threads\n", workload->description(), options.threads);

  std::optional<berth::torch::StepProgram> program;
  if (options.program) program.emplace(options.scheduling);
  const auto one_step = [&] {
    if (!program) return workload->train();
    const auto scope = program->step();
    return workload->train();
  };
  nlohmann::json steps = nlohmann::json::array(), losses = nlohmann::json::array(), warm, before;
  for (int step = 0; step < options.warmup + options.steps; ++step) {
    if (step == options.warmup) {
      warm = statistics();
      reset_memory();
    }
    const std::uint64_t faults = minor_faults();
    const double thread_before = thread_ms();
    const auto start = std::chrono::steady_clock::now();
    workload->load();
    const float loss = one_step();
    if (options.mark) berth::torch::mark_step();
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    const StepCost cost{took.count(), thread_ms() - thread_before, minor_faults() - faults};
    losses.push_back(fmt::format("{:08x}", std::bit_cast<std::uint32_t>(loss)));
    if (step >= options.warmup)
      steps.push_back(
          {{"ms", cost.ms}, {"thread_ms", cost.thread_ms}, {"minor_faults", cost.minor_faults}});
    report(options, step + 1, loss, cost);
    if (options.settle > 0 && step + 1 == options.warmup) {
      const nlohmann::json now = statistics();
      if (!planned(std::exchange(before, now), now)) {
        ++options.warmup;
        --options.settle;
      }
    }
  }
  if (program && !options.quiet) {
    const berth::torch::StepProgramStats stats = program->stats();
    fmt::print(stderr, "{} of {} steps by a schedule, {} diverged, {} refused{}{}\n",
               stats.scheduled, stats.steps, stats.diverged, stats.refused,
               stats.last_divergence.empty() ? "" : "; last: ", stats.last_divergence);
  }
  if (program && !options.graph.empty()) program->save_graph(options.graph);
  if (program && !options.written_graph.empty()) program->save_graph(options.written_graph, true);
  if (options.json.empty()) return;
  nlohmann::json stats = statistics(), step_peak;
  if (options.step_peak) {
    StepPeak peak;
    for (int step = 0; step < 2; ++step) {
      peak.begin_load();
      workload->load();
      peak.begin_step();
      (void)one_step();
      step_peak = peak.bytes();
    }
  }
  const nlohmann::json result = {
      {"model", options.model},
      {"description", workload->description()},
      {"seed", options.workload.seed},
      {"threads", options.threads},
      {"warmup", options.warmup},
      {"steps", std::move(steps)},
      {"losses_hex", std::move(losses)},
      {"peak_rss_bytes", peak_resident_bytes()},
      {"user_seconds", processor_time().user},
      {"system_seconds", processor_time().system},
      {"stats_after_warmup", std::move(warm)},
      {"stats", std::move(stats)},
      {"step_peak_bytes", std::move(step_peak)},
      {"device", options.device},
      {"memory", memory()},
      {"program", program ? nlohmann::json::parse(program->stats().to_json()) : nlohmann::json()},
  };
  std::ofstream file(options.json);
  file << result.dump(1) << '\n';
  file.close();
  if (!file) throw std::runtime_error(fmt::format("{}: cannot be written", options.json));
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a model and reports time, page faults and memory of each step.");
  std::vector<std::string> names;
  std::string models;
  for (const WorkloadKind& kind : workload_kinds()) {
    names.push_back(kind.name);
    models += fmt::format("\n{}: {}", kind.name, kind.summary);
  }
  app.add_option("--model", options.model, "What to train:" + models)
      ->required()
      ->check(CLI::IsMember(names));
  app.add_option("--steps", options.steps, "Steps to measure")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--warmup", options.warmup, "Steps before them")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--settle", options.settle,
                 "At most this many more, until a step comes from a plan")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--seed", options.workload.seed, "Of weights and batches")->capture_default_str();
  app.add_option("--threads", options.threads, "Of libtorch's operators")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--batch", options.workload.batch, "Samples a step [the model's own]")
      ->check(CLI::PositiveNumber);
  app.add_option("--data", options.workload.data_folder, "Folder of digits.csv and text.txt")
      ->capture_default_str();
  app.add_flag("--mark,!--no-mark", options.mark, "Mark the end of each step [yes]");
  CLI::Option* const program =
      app.add_flag("--program", options.program, "Run the steps as a step program: by a schedule");
  app.add_option("--engine", options.scheduling.engine, "Who plans the steps")
      ->capture_default_str()
      ->needs(program);
  app.add_option("--memory-budget", options.scheduling.memory_budget,
                 "Bytes that a step may take, what is there between steps included")
      ->needs(program);
  app.add_option("--time-budget", options.scheduling.time_budget,
                 "How much more time it may take, 0.1 for a tenth")
      ->needs(program);
  app.add_option("--copy-rate", options.scheduling.copy_rate,
                 "Bytes a second that may be copied away and back")
      ->needs(program);
  app.add_flag("--step-peak", options.step_peak,
               "Also what a step holds at most beside what is there between steps, by two more");
  app.add_option("--graph", options.graph, "With --program: write the step's graph to this file");
  app.add_option("--written-graph", options.written_graph,
                 "With --program: the same as the step is written, as traces have it");
  app.add_flag("--cudnn,!--no-cudnn", options.cudnn, "Let libtorch use cuDNN on CUDA [yes]");
  app.add_option("--device", options.device, "Where to train")
      ->capture_default_str()
      ->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_flag("--quiet", options.quiet, "No progress");
  app.add_option("--json", options.json, "Write the result to this file");
  CLI11_PARSE(app, argc, argv);
  options.workload.cuda = options.device == "cuda";
  if (options.device != kTarget) run_program_for(options.device, argv);
  install();
  train(options);
  return 0;
}

}  // namespace

}  // namespace berth::bench

int main(int argc, char** argv) {
  try {
    return berth::bench::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "train: {}\n", error.what());
    return 1;
  }
}
