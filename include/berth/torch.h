#pragma once

#include <berth/config.h>
#include <berth/stats.h>

#include <cstdint>

// berth for C++ programs that use libtorch on the CPU.
namespace berth::torch {

// Makes berth the CPU allocator of libtorch, in the mode of `config` (from the environment where
// none is given; learn by default). Call it once, before the first tensor, from the thread that
// trains; blocks that were made earlier stay with the allocator that made them. A second call does
// nothing. Mode off: does nothing. Throws Error(kUsage) for wrong settings, Error(kInput) where
// BERTH_PLAN names an existing file that is no whole plan. Mode learn does not overwrite it.
//
// From then on libtorch's operators throw c10::OutOfMemoryError where memory is exhausted. A forked
// child keeps its parent's tensors, and allocates new ones with the system's allocator.
//
// A program that links the object library berth::torch_auto needs no call. The library installs
// berth before main where BERTH_MODE is set.
void install();
void install(const Config& config);

[[nodiscard]] bool installed() noexcept;

// Ends a step. Call it once a step from the thread that trains, or never. Without a call berth
// finds the steps by the ranges of PyTorch's optimizers (in Python; C++'s have none) or in the
// requests.
void mark_step() noexcept;

// Counters so far; all zero where berth is not installed. Thread-safe.
[[nodiscard]] Stats stats();

// release_memory() gives memory without live tensors back to the system. Addresses and the plan
// stay. Its pages come back with the next requests, or at once with resume_memory(). Both return
// the bytes that they gave back or allocated; 0 where berth is not installed. Thread-safe.
std::uint64_t release_memory();
std::uint64_t resume_memory();

// Ends a step at the end of its scope.
class StepGuard {
 public:
  StepGuard() = default;
  ~StepGuard() { mark_step(); }
  StepGuard(const StepGuard&) = delete;
  StepGuard& operator=(const StepGuard&) = delete;
};

// Gives a name to the requests of this thread in its scope. `berth show` reports the name, and the
// pool learns lifetimes by it.
class Scope {
 public:
  explicit Scope(const char* name) noexcept;
  ~Scope();
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::uint32_t previous_ = 0;
  std::uint64_t ranges_[2] = {};  // in the open traces
};

}  // namespace berth::torch
