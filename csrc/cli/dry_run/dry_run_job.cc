#include "csrc/cli/dry_run/dry_run_job.h"

#include "csrc/cli/core/host_watch.h"
#include "csrc/cli/core/output.h"
#include "csrc/cli/core/python_program.h"
#include "csrc/cli/core/scratch_folder.h"
#include "csrc/core/check.h"
#include "csrc/replay/child_process.h"
#include "csrc/replay/standin_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

namespace berth::cli {
namespace {

namespace fs = std::filesystem;

// Device memory that the host can read: loss values, sizes that ranks exchange. What is larger is a
// weight or a batch, whose values nobody needs.
constexpr Bytes kCopyLimit = Bytes{1} << 20;
// More than any program will need of one GPU; only addresses.
constexpr Bytes kRoom = 16;        // times the total
constexpr int kLooksPerSize = 20;  // a second

std::string preload_of(const replay::StandinFiles& standin) {
  std::string preload;
  std::vector<std::string> libraries = standin.libraries();
  libraries.push_back(berth_library("libberth_torch_cuda.so"));
  for (const std::string& library : libraries) {
    BERTH_CHECK(library.find_first_of(": ") == std::string::npos, kSystem,
                "LD_PRELOAD cannot hold '{}': it has a space or a colon", library);
    preload += (preload.empty() ? "" : ":") + library;
  }
  if (const char* const others = std::getenv("LD_PRELOAD"); others != nullptr && *others != '\0')
    preload += std::string(":") + others;
  return preload;
}

// What makes the program record its step as `python -m berth run --fit` does, and save it.
void record_step(const DryRunJob& job,
                 std::vector<std::pair<std::string, std::string>>& variables) {
  const char* const path = std::getenv("PYTHONPATH");
  const std::string start = python_package() + "/start";
  const GpuModel& gpu = *job.gpu;
  variables.insert(variables.end(),
                   {{"BERTH_RECORD", "requests"},
                    {"BERTH_BUDGET", "fit"},
                    {"BERTH_STANDIN_STEP_GRAPHS", job.step_graphs},
                    {"BERTH_STANDIN_ROOFLINE",
                     fmt::format("{},{},{}", 1e12 * gpu.fp32_tflops, 1e12 * gpu.half_tflops,
                                 1e9 * gpu.gigabytes_per_second)},
                    {"PYTHONPATH", path == nullptr || *path == '\0' ? start : start + ":" + path}});
}

// Adds what one process said of itself.
void add_report(const fs::path& path, DryRun& run) {
  std::ifstream file(path);
  const Json report = Json::parse(file, nullptr, false);
  if (!report.is_object()) return;  // it was ended while it wrote
  const auto number = [&](const char* name) { return report.value(name, std::uint64_t{0}); };
  run.calls += number("calls");
  run.unknown_reads += number("unknown_reads");
  run.unknown_read_bytes += number("unknown_read_bytes");
  run.skipped_reads += number("skipped_reads");
  int index = 0;
  for (const Json& device : report.value("devices", Json::array())) {
    run.standin_host_bytes += device.value("host_bytes", std::uint64_t{0});
    run.held.push_back({.pid = std::strtoull(path.stem().c_str(), nullptr, 10),
                        .device = index++,
                        .peak = device.value("peak_bytes", Bytes{0}),
                        .communicators = device.value("communicators", std::vector<unsigned>())});
  }
  for (const Json& one : report.value("lacking_code", Json::array())) {
    const LackingCode lacking{.library = one.value("library", ""),
                              .compiled = one.value("compiled", std::vector<unsigned>()),
                              .translated = one.value("translated", std::vector<unsigned>())};
    if (std::ranges::find(run.lacking, lacking) == run.lacking.end())
      run.lacking.push_back(lacking);
  }
}

}  // namespace

const HeldInRun* DryRun::find_held(const RankTraces::File& trace) const {
  const auto found = std::ranges::find_if(held, [&](const HeldInRun& one) {
    return one.pid == trace.pid && one.device == trace.device;
  });
  return found == held.end() ? nullptr : &*found;
}

DryRun run_dry(const DryRunJob& job) {
  const auto standin = replay::find_standin();
  BERTH_CHECK(
      standin.has_value(), kSystem,
      "this berth has no stand-in runtime: build it with a libtorch for CUDA (cmake/setup), "
      "target berth_standin_libraries");
  const ScratchFolder scratch("berth-dry-run");
  const RankTraces traces(job.trace);
  std::vector<std::pair<std::string, std::string>> variables = {
      {"LD_PRELOAD", preload_of(*standin)},
      // As the launcher, csrc/standin/berth-standin, sets them.
      {"BERTH_STANDIN_LAUNCHED", "1"},
      {"USE_PYTORCH_KERNEL_CACHE", "0"},
      {"TRITON_LIBCUDA_PATH", (standin->folder / "lib").string()},
      {"BERTH_STANDIN_GPU", std::string(job.gpu->short_name)},
      {"BERTH_STANDIN_DEVICES", std::to_string(job.gpus)},
      {"BERTH_STANDIN_MEMORY", std::to_string(job.total)},
      {"BERTH_STANDIN_OVERCOMMIT", "1"},
      {"BERTH_STANDIN_PACE", "eager"},
      {"BERTH_STANDIN_CHECK", "off"},
      {"BERTH_STANDIN_COPY_LIMIT", std::to_string(kCopyLimit)},
      {"BERTH_STANDIN_VALUES", job.values},
      {"BERTH_STANDIN_STEPS", std::to_string(job.steps)},
      {"BERTH_STANDIN_REPORT", (scratch.path() / "{pid}.json").string()},
      {"BERTH_MODE", "record"},
      {"BERTH_TRACE", traces.written_to()},
      {"BERTH_TAG", job.tag},
      {"BERTH_MEMORY_LIMIT", std::to_string(kRoom * job.total)}};
  if (job.step_graphs.empty())
    variables.emplace_back("BERTH_RECORD", "operators");
  else
    record_step(job, variables);
  // Nor may a GPU find what was compiled here.
  if (std::getenv("TORCHINDUCTOR_CACHE_DIR") == nullptr)
    variables.emplace_back(
        "TORCHINDUCTOR_CACHE_DIR",
        (fs::temp_directory_path() / fmt::format("berth-standin-{}", ::getuid())).string());

  HostWatch watch;
  int looks = 0;
  bool trace_too_large = false;
  const auto look = [&](pid_t program) {
    watch.look(program);
    if (++looks % kLooksPerSize != 0 || watch.stopped()) return;
    const Bytes bytes = traces.largest();
    trace_too_large = bytes > kMostTraceBytes;
    if (trace_too_large)
      watch.stop(program, fmt::format("its trace has {}, the limit is {}", format_bytes(bytes),
                                      format_bytes(kMostTraceBytes)));
  };
  const auto begin = std::chrono::steady_clock::now();
  const replay::ChildExit ended = replay::run_child(
      job.program, variables, {.watch = look, .output_to_error = job.output_to_error});
  DryRun run;
  run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  run.code = ended.code;
  run.signal = ended.signal;
  run.stopped = watch.stopped();
  run.trace_too_large = trace_too_large;
  run.why_stopped = watch.why();
  run.host_peak = watch.peak();
  run.traces = traces.take();
  std::error_code ignored;
  for (const auto& report : fs::directory_iterator(scratch.path(), ignored))
    add_report(report.path(), run);
  return run;
}

bool torch_has_cuda(const std::string& program) {
  const std::string python = interpreter_of(program);
  if (python.empty()) return true;
  // 3: there is a torch, and it has none.
  const replay::ChildExit ended = replay::run_child(
      {python, "-c",
       "import os, sys\n"
       "import importlib.util as u\n"
       "spec = u.find_spec('torch')\n"
       "root = os.path.dirname(spec.origin) if spec and spec.origin else None\n"
       "sys.exit(3 if root and not os.path.exists(root + '/lib/libtorch_cuda.so') else 0)"},
      {}, {.output_to_error = true});
  return ended.signal != 0 || ended.code != 3;
}

}  // namespace berth::cli
