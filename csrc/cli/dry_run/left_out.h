#pragma once

#include "csrc/cli/core/output.h"
#include "csrc/cli/dry_run/dry_run_job.h"

#include <string>
#include <vector>

namespace berth::cli {

// What a process takes of a GPU beside what libtorch's allocator reserves, which a dry run does not
// see. Estimates, in bytes; only the context is counted where a dry run says what fits.
//
// The context: csrc/device/gpu_models.cc. Of it some 128 MiB are kernels and handles of cuBLAS and
// cuDNN; the workspaces of cuBLAS come from libtorch's allocator and are in the trace. It holds for
// CUDA 11.7 and later, which load kernels as they are used. Without that
// (CUDA_MODULE_LOADING=EAGER) all kernels of torch come first: a V100 with torch 1.10 shows 1,343
// MiB after one tensor (transformers' documentation v4.21), some 900 MiB more.
//
// NCCL: on four A100 with NVLink a communicator of two ranks takes 544 MiB, one of more 688 MiB
// (NVIDIA/nccl#964, 2023). GPUs without NVLink have fewer channels and take less; the first
// all-to-all of eight H100 takes 3.3 GB more (NVIDIA/nccl#1685).
struct LeftOut {
  Bytes context = 0;           // of each process
  Bytes eager_context = 0;     // more, where all kernels are loaded at once
  unsigned communicators = 0;  // of NCCL, of the process that has most
  Bytes nccl = 0;              // for those

  [[nodiscard]] Json to_json() const;
  // One fact a line.
  [[nodiscard]] std::vector<std::string> to_text() const;
};

[[nodiscard]] LeftOut find_left_out(const DryRunJob& job, const DryRun& run);

}  // namespace berth::cli
