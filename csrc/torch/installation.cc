#include "csrc/torch/installation.h"

#include "csrc/core/check.h"
#include "csrc/device/host_device.h"
#include "csrc/torch/thread_lane.h"

#include <pthread.h>
#include <torch/headeronly/version.h>

#include <charconv>
#include <cstdlib>
#include <string_view>

namespace berth::torch {

namespace {

// libtorch's promise to kernels (c10::gAlignment).
constexpr Bytes kAlignment = 64;

// A number that a launcher (torchrun) put into the environment, or `otherwise`.
std::uint32_t launcher_number(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return otherwise;
  const std::string_view digits(text);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return error == std::errc() && end == digits.data() + digits.size() ? number : otherwise;
}

trace::Program this_program(const Config& config, const DeviceProperties& device) {
  return {.torch_version = fmt::format("{}.{}.{}", TORCH_VERSION_MAJOR, TORCH_VERSION_MINOR,
                                       TORCH_VERSION_PATCH),
          .device_name = device.name,
          .device_bytes = device.total_bytes,
          .world_size = launcher_number("WORLD_SIZE", 1),
          .rank = launcher_number("RANK", 0),
          .tag = config.tag};
}

}  // namespace

std::atomic<Installation*> Installation::instance_{nullptr};

Installation::Installation(const Config& config)
    : device_(make_host_device()),
      allocator_(std::make_unique<Allocator>(
          *device_, Allocator::Options{.config = config,
                                       .program = this_program(config, device_->properties()),
                                       .alignment = kAlignment})) {}

Installation& Installation::create(const Config& config) {
  std::unique_ptr<Installation> made(new Installation(config));
  BERTH_CHECK(::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) == 0,
              kSystem, "pthread_atfork has no memory left to register berth's handlers");
  BERTH_CHECK(std::atexit(+[] { at_exit(); }) == 0, kSystem,
              "atexit has no memory left to register berth's shutdown");
  claim_first_lane();
  Installation& installation = *made.release();
  instance_.store(&installation, std::memory_order_release);
  return installation;
}

Stats Installation::stats() const {
  Stats stats = allocator_->stats();
  stats.misuses += foreign_frees_.load(std::memory_order_relaxed);
  return stats;
}

void Installation::mark_step_by_user() noexcept {
  user_marks_.store(true, std::memory_order_relaxed);
  if (!forked()) allocator_->mark_step(thread_lane());
}

void Installation::mark_step_by_optimizer() noexcept {
  if (!user_marks_.load(std::memory_order_relaxed) && !forked())
    allocator_->mark_step(thread_lane());
}

// A child of a child needs no handlers any more: nothing of berth runs in either.
void Installation::before_fork() noexcept {
  if (Installation* here = get(); here != nullptr && !here->forked())
    here->allocator_->before_fork();
}

void Installation::after_fork_in_parent() noexcept {
  if (Installation* here = get(); here != nullptr && !here->forked())
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
