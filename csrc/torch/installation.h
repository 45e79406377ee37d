#pragma once

#include "csrc/runtime/allocator.h"
#include "csrc/torch/shared/backend.h"

#include <atomic>
#include <memory>

namespace berth::torch {

// berth in this process: the host device and its allocator, made once by install() and never
// destroyed, since tensors are freed after main by static destructors.
//
// At exit the allocator is shut down: the trace is closed, statistics are written; blocks are still
// handed out and taken back afterwards. In a forked child the arena is another process's plan of
// this memory: requests go to the system's allocator, and blocks from before the fork stay where
// they are until the child ends.
class Installation final : public Backend {
 public:
  // The one of this process; null before create().
  [[nodiscard]] static Installation* get() noexcept {
    return instance_.load(std::memory_order_acquire);
  }

  // Makes it, with the calling thread as lane 0. Throws what Allocator's constructor throws, and
  // then there is none. Not to be called twice.
  static Installation& create(const Config& config);

  [[nodiscard]] Allocator& allocator() noexcept { return *allocator_; }
  // Whether this process is a forked child of the one that made the installation.
  [[nodiscard]] bool forked() const noexcept { return forked_.load(std::memory_order_relaxed); }

  // A pointer that no memory of berth holds was freed.
  void count_foreign_free() noexcept { foreign_frees_.fetch_add(1, std::memory_order_relaxed); }
  // The allocator's counters; foreign frees are misuses, too.
  [[nodiscard]] Stats stats() const;

  [[nodiscard]] Recorder* recorder() noexcept override {
    return forked() ? nullptr : allocator_->recorder();
  }
  void mark_step() noexcept override;
  void expect_other_steps(std::span<const ForetoldOn> foretold) noexcept override;
  [[nodiscard]] std::shared_ptr<const Foretold> foretell(c10::Device device,
                                                         std::span<const StepRequests> kinds,
                                                         double seconds) override;
  [[nodiscard]] Bytes requested(c10::Device device, const void* block) noexcept override;
  void trim(c10::Device device) override;

 private:
  explicit Installation(const Config& config);
  static void before_fork() noexcept;
  static void after_fork_in_parent() noexcept;
  static void after_fork_in_child() noexcept;
  static void at_exit() noexcept;

  static std::atomic<Installation*> instance_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Allocator> allocator_;
  std::atomic<bool> forked_{false};
  std::atomic<std::uint64_t> foreign_frees_{0};
};

// The tag of the calling thread's requests, set by Scope.
[[nodiscard]] trace::Tag& thread_tag() noexcept;

}  // namespace berth::torch
