#pragma once

#include "csrc/cli/dry_run/rank_traces.h"
#include "csrc/core/bytes.h"
#include "csrc/device/gpu_models.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace berth::cli {

// How a program is to run without a GPU.
struct DryRunJob {
  const GpuModel* gpu = nullptr;
  unsigned gpus = 1;
  Bytes total = 0;               // of each
  std::string values = "zeros";  // what the host reads of bytes that kernels would have computed
  unsigned steps = 0;  // of an optimizer in Python, after which the program is ended; 0: none
  std::string tag;
  std::string trace;  // absolute; what RankTraces takes
  std::vector<std::string> program;
  // A folder that gets the step of each process as a graph: the program then ends once two steps
  // were the same, and its trace has requests alone. See recorded_step.h. Empty: none.
  std::string step_graphs = {};
  bool output_to_error = false;  // where standard output is ours
};

// Kernels that the GPU cannot run: what torch would end with "no kernel image is available" for.
struct LackingCode {
  std::string library;                         // its path
  std::vector<unsigned> compiled, translated;  // for which GPUs it has code, or PTX: sm_90 is 90

  friend bool operator==(const LackingCode&, const LackingCode&) = default;
};

// What one process did on one GPU, by the stand-in's word.
struct HeldInRun {
  std::uint64_t pid = 0;
  int device = 0;
  Bytes peak = 0;                       // of all device memory that it took
  std::vector<unsigned> communicators;  // of NCCL: the ranks of each, where those are several
};

// How it went.
struct DryRun {
  int code = 0;    // the program's own, where signal is 0
  int signal = 0;  // that ended it
  // By us: since the host's memory ran out, or since its trace grew too large.
  bool stopped = false, trace_too_large = false;
  std::string why_stopped;
  double seconds = 0;
  Bytes host_peak = 0;                   // of the program and what it started
  std::vector<RankTraces::File> traces;  // one for each GPU that a process used

  // Of all its processes that used CUDA and ended by themselves.
  std::uint64_t calls = 0;          // of CUDA
  std::uint64_t unknown_reads = 0;  // copies to the host of what kernels would have computed
  std::uint64_t unknown_read_bytes = 0;
  std::uint64_t skipped_reads = 0;  // copies to the host that were too large to be made
  Bytes standin_host_bytes = 0;     // of the device's memory that took host memory at the end
  std::vector<HeldInRun> held;
  std::vector<LackingCode> lacking;  // of any of its libraries

  // What the process of a trace held on its GPU; null where it did not end by itself.
  [[nodiscard]] const HeldInRun* find_held(const RankTraces::File& trace) const;
};

// What one process may reserve on the GPU, beside its context.
[[nodiscard]] constexpr Bytes reservable(const DryRunJob& job) noexcept {
  return job.total - std::min<Bytes>(job.total, job.gpu->context_bytes);
}

// What a trace may grow to: a program that nobody ends would fill the disk.
inline constexpr Bytes kMostTraceBytes = Bytes{1} << 30;

// Runs the program on the stand-in runtime, under berth in mode `record`, and waits for it. Device
// memory has no limit, so that what the program needs is known where it is more than there is.
//
// Throws Error(kSystem) where the stand-in or berth's library for CUDA is missing, or the program
// cannot be started.
[[nodiscard]] DryRun run_dry(const DryRunJob& job);

// Whether the torch of a program in Python has CUDA; true where that cannot be told.
[[nodiscard]] bool torch_has_cuda(const std::string& program);

}  // namespace berth::cli
