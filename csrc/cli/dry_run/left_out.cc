#include "csrc/cli/dry_run/left_out.h"

#include <fmt/format.h>

#include <algorithm>

namespace berth::cli {
namespace {

constexpr Bytes kEstimateUnit = Bytes{1} << 20;
constexpr Bytes kEager = 900 * kEstimateUnit;
constexpr Bytes kOfTwoRanks = 544 * kEstimateUnit;
constexpr Bytes kOfMoreRanks = 688 * kEstimateUnit;

}  // namespace

LeftOut find_left_out(const DryRunJob& job, const DryRun& run) {
  LeftOut out{.context = job.gpu->context_bytes, .eager_context = kEager};
  for (const HeldInRun& one : run.held) {
    Bytes bytes = 0;
    for (const unsigned ranks : one.communicators) bytes += ranks == 2 ? kOfTwoRanks : kOfMoreRanks;
    if (bytes < out.nccl) continue;
    out.nccl = bytes;
    out.communicators = static_cast<unsigned>(one.communicators.size());
  }
  return out;
}

Json LeftOut::to_json() const {
  return {{"context", {{"bytes", context}, {"counted", true}, {"estimate", true}}},
          {"eager_loading", {{"bytes", eager_context}, {"counted", false}, {"estimate", true}}},
          {"nccl",
           {{"bytes", nccl},
            {"communicators", communicators},
            {"counted", false},
            {"estimate", true}}}};
}

std::vector<std::string> LeftOut::to_text() const {
  std::vector<std::string> lines = {
      fmt::format("The context, with kernels and libraries, is taken for {} of each process (an "
                  "estimate, counted above). Before CUDA 11.7, or with CUDA_MODULE_LOADING=EAGER, "
                  "it has some {} more. Other processes on the GPU need theirs.",
                  format_bytes(context), format_bytes(eager_context)),
      "Workspaces of cuBLAS are those that this torch allocates, counted above; another version "
      "may take others. Those of cuDNN are modelled, not measured."};
  if (communicators > 0)
    lines.push_back(fmt::format(
        "NCCL's buffers are not counted: about {} of each process for {} (an estimate, from A100 "
        "with NVLink; less without NVLink, more after an all-to-all).",
        format_bytes(nccl), format_number_of(communicators, "communicator")));
  return lines;
}

}  // namespace berth::cli
