#include "csrc/torch/installation.h"

#include "csrc/core/check.h"
#include "csrc/device/host_device.h"
#include "csrc/facts/rounding.h"
#include "csrc/torch/shared/program.h"
#include "csrc/torch/thread_lane.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace berth::torch {

namespace {

// libtorch's promise to kernels (c10::gAlignment).
constexpr int kHost = -1;  // is no GPU

// Whose lock the calling thread's fork holds: an installation may be made between two of its
// handlers.
constinit thread_local Installation* held_over_fork = nullptr;

}  // namespace

std::atomic<Installation*> Installation::instance_{nullptr};

Installation::Installation(const Config& config)
    : device_(make_host_device()),
      allocator_(std::make_unique<Allocator>(
          *device_, Allocator::Options{.config = config,
                                       .program = this_program(config, device_->properties()),
                                       .alignment = facts::kHostAlignment,
                                       .device_index = kHost})) {}

Installation& Installation::create(const Config& config) {
  std::unique_ptr<Installation> made(new Installation(config));
  BERTH_CHECK(::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0,
              kSystem, "pthread_atfork has no memory left to register berth's handlers");
  BERTH_CHECK(std::atexit(+[] { at_exit(); }) == 0, kSystem,
              "atexit has no memory left to register berth's shutdown");
  claim_first_lane();
  Installation& installation = *made.release();
  instance_.store(&installation, std::memory_order_release);
  add_backend(installation);
  return installation;
}

Stats Installation::stats() const {
  Stats stats = allocator_->stats();
  stats.misuses += foreign_frees_.load(std::memory_order_relaxed);
  return stats;
}

void Installation::mark_step() noexcept {
  if (!forked()) allocator_->mark_step(thread_lane());
}

void Installation::expect_other_steps(std::span<const ForetoldOn> foretold) noexcept {
  if (forked()) return;
  const auto own = std::find_if(foretold.begin(), foretold.end(),
                                [](const ForetoldOn& one) { return one.device.is_cpu(); });
  allocator_->expect_other_steps(own == foretold.end() ? nullptr : own->steps.get());
}

std::shared_ptr<const Foretold> Installation::foretell(c10::Device device,
                                                       std::span<const StepRequests> kinds,
                                                       double seconds) {
  return device.is_cpu() && !forked() ? allocator_->foretell(kinds, seconds) : nullptr;
}

Bytes Installation::requested(c10::Device device, const void* block) noexcept {
  if (!device.is_cpu() || forked()) return 0;
  const auto found = allocator_->find(block);
  return found ? found->requested : 0;
}

void Installation::trim(c10::Device device) {
  if (device.is_cpu() && !forked()) (void)allocator_->trim();
}

// A child of a child needs no handlers any more: nothing of berth runs in either.
void Installation::before_fork() noexcept {
  Installation* const here = get();
  if (here == nullptr || here->forked()) return;
  here->allocator_->before_fork();
  held_over_fork = here;
}

void Installation::after_fork_in_parent() noexcept {
  if (Installation* const here = std::exchange(held_over_fork, nullptr))
    here->allocator_->after_fork_in_parent();
}

void Installation::after_fork_in_child() noexcept {
  Installation* here = get();
  if (here == nullptr || here->forked()) return;
  here->allocator_->after_fork_in_child();
  here->forked_.store(true, std::memory_order_relaxed);
}

void Installation::at_exit() noexcept {
  if (Installation* here = get(); here != nullptr && !here->forked()) here->allocator_->shut_down();
}

trace::Tag& thread_tag() noexcept {
  thread_local trace::Tag tag = 0;
  return tag;
}

}  // namespace berth::torch
