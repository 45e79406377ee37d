#pragma once

#include <berth/config.h>
#include <berth/stats.h>

#include <cstdint>

// berth for C++ programs that use libtorch on CUDA. Link berth::torch_cuda.
namespace berth::torch {

// Makes berth the CUDA allocator of libtorch on all GPUs of this process, in the mode of `config`
// (from the environment where none is given; learn by default). Call it once, before anything
// initialises CUDA: the first tensor on a GPU, torch::cuda::synchronize(), set_device() or
// pin_memory(). After that the call throws Error(kUsage) that names these. Harmless before it are
// is_available(), device_count(), manual_seed(), and new streams, events and graphs. A second call
// does nothing. Mode off: does nothing. Throws Error(kUsage) for wrong settings, or where the
// loaded libtorch is not the one that berth was built for. Throws Error(kInput) for a plan that
// cannot be read.
//
// Memory of the CPU stays with libtorch's allocator, or with what install() of <berth/torch.h> put
// in its place. mark_step(), StepGuard and Scope of that header serve both. One plan and one trace
// a GPU: their file names may hold {device} and {rank}; without it the second GPU's get ".1".
//
// Of PyTorch's settings (PYTORCH_ALLOC_CONF) berth follows roundup_power2_divisions and
// per_process_memory_fraction. expandable_segments has no effect: BERTH_MEMORY decides whether
// pages are mapped. One warning names the other settings.
void install_cuda();
void install_cuda(const Config& config);

[[nodiscard]] bool cuda_installed() noexcept;

// Counters of one GPU so far, private pools not counted; all zero where it was not used.
// Thread-safe.
[[nodiscard]] Stats cuda_stats(int device = 0);

// For programs that share a GPU with others. cuda_release_memory() gives memory without live
// tensors back to the driver. Addresses and the plan stay.
//
// With `keep_contents` berth also moves the live tensors to pinned host memory.
// cuda_resume_memory() brings them back to their addresses. Until then nobody may use them, or
// replay graphs that use them. New tensors get memory of their own. Memory of CUDA graphs and
// MemPools stays. Do not move tensors that other processes have opened (torch.multiprocessing):
// those processes would keep the old memory.
//
// Both wait for the GPU, and return the bytes that they gave back or allocated; 0 where the GPU was
// not used. They throw Error(kUsage) while a graph is captured and, with contents, where the driver
// maps no pages. They throw OutOfMemory where the host, or later the GPU, has no room; nothing is
// lost then. Thread-safe.
std::uint64_t cuda_release_memory(int device = 0, bool keep_contents = false);
std::uint64_t cuda_resume_memory(int device = 0);

}  // namespace berth::torch
