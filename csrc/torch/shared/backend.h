#pragma once

#include "csrc/runtime/foretold.h"
#include "csrc/trace/recorder.h"

#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <span>

namespace berth::torch {

// A plan of steps that are known before they come, for the allocator of one device.
struct ForetoldOn {
  c10::Device device;
  std::shared_ptr<const Foretold> steps;
};

// One installed allocator, the CPU's or CUDA's, as those see it who listen to libtorch: ranges,
// optimizers, the program's own marks. Thread-safe.
//
// In a forked child in which the allocator does not serve, nothing of it may be touched: it has no
// recorder there, and a mark does nothing. The CPU's serves in none; CUDA's in a child of a process
// that had not used CUDA.
class Backend {
 public:
  virtual ~Backend() = default;
  // Where its trace goes; null unless it records.
  [[nodiscard]] virtual Recorder* recorder() noexcept = 0;
  // A step of the calling thread ends.
  virtual void mark_step() noexcept = 0;
  // Allocator::expect_other_steps(), with what is foretold for the devices that are its own.
  virtual void expect_other_steps(std::span<const ForetoldOn> foretold) noexcept = 0;
  // Allocator::foretell(). Null where it is not the device's.
  [[nodiscard]] virtual std::shared_ptr<const Foretold> foretell(
      c10::Device device, std::span<const StepRequests> kinds, double seconds) = 0;
  // What was asked for with the live block that starts there; 0 where it is not its own.
  [[nodiscard]] virtual Bytes requested(c10::Device device, const void* block) noexcept = 0;
  // Allocator::trim(), of the device if it is its own.
  virtual void trim(c10::Device device) = 0;
};

inline constexpr int kMaxBackends = 2;

// Adds one for the life of the process. At most kMaxBackends.
void add_backend(Backend& backend);
// The n-th added, or null.
[[nodiscard]] Backend* backend(int n) noexcept;

// A step ends, for all of them. Marks of the user's own silence those of step programs, and these
// silence those that are guessed from ranges of optimizers.
void mark_step_by_user() noexcept;
void mark_step_by_program() noexcept;
// A step program is to mark the end of the step that begins.
void expect_mark_by_program() noexcept;
void mark_step_by_optimizer() noexcept;

// For all of them.
void expect_other_steps(std::span<const ForetoldOn> foretold = {}) noexcept;
// Of the one that serves the device; null where none does, or no plan fits. On any thread.
[[nodiscard]] std::shared_ptr<const Foretold> foretell(c10::Device device,
                                                       std::span<const StepRequests> kinds,
                                                       double seconds);
// What was asked for with a live block; 0 where it is none of berth's.
[[nodiscard]] Bytes requested_bytes(c10::Device device, const void* block) noexcept;
// Free memory of the device goes back to it, from whichever of them has it.
void trim(c10::Device device);

// How many forks lie between the process that installed berth and this one. What was made at
// another count is another process's.
[[nodiscard]] std::uint32_t fork_count() noexcept;

}  // namespace berth::torch
