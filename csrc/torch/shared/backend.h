#pragma once

#include "csrc/trace/recorder.h"

#include <cstdint>

namespace berth::torch {

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
  // Allocator::expect_other_steps().
  virtual void expect_other_steps() noexcept = 0;
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
void expect_other_steps() noexcept;

// How many forks lie between the process that installed berth and this one. What was made at
// another count is another process's.
[[nodiscard]] std::uint32_t fork_count() noexcept;

}  // namespace berth::torch
