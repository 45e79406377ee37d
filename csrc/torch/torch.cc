#include "csrc/core/checksum.h"
#include "csrc/core/setup_mutex.h"
#include "csrc/torch/cpu_allocator.h"
#include "csrc/torch/installation.h"
#include "csrc/torch/recording/operator_recorder.h"
#include "csrc/torch/recording/range_observer.h"
#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/program.h"
#include "csrc/torch/shared/range_numbers.h"

#include <berth/torch.h>

#include <iterator>
#include <mutex>
#include <span>
#include <string_view>

namespace berth::torch {

namespace {

std::atomic<bool> is_installed{false};

// The same for equal names in every run, since plans carry it; never 0, which is no scope.
trace::Tag tag_of(std::string_view name) noexcept {
  const auto tag = static_cast<trace::Tag>(checksum(std::as_bytes(std::span(name))));
  return tag != 0 ? tag : 1;
}

Recorder* live_recorder(int n) noexcept {
  Backend* const here = backend(n);
  return here != nullptr ? here->recorder() : nullptr;
}

}  // namespace

void install() { install(Config::from_environment()); }

void install(const Config& config) {
  static constinit SetupMutex mutex;
  const std::lock_guard lock(mutex);
  if (config.mode == Mode::kOff || installed()) return;
  check_libtorch();
  Installation* here = Installation::get();
  if (here == nullptr) here = &Installation::create(config);
  set_cpu_allocator(*here);
  observe_ranges();
  Recorder* const recorder = here->allocator().recorder();
  if (config.record == RecordDetail::kOperators && recorder != nullptr)
    record_operators(here->allocator(), *recorder, c10::kCPU);
  is_installed.store(true, std::memory_order_release);
}

bool installed() noexcept { return is_installed.load(std::memory_order_acquire); }

void mark_step() noexcept { mark_step_by_user(); }

Stats stats() {
  Installation* const here = Installation::get();
  return here != nullptr ? here->stats() : Stats{};
}

std::uint64_t release_memory() {
  Installation* const here = Installation::get();
  return here == nullptr || here->forked() ? 0 : here->allocator().release(false);
}

std::uint64_t resume_memory() {
  Installation* const here = Installation::get();
  return here == nullptr || here->forked() ? 0 : here->allocator().resume();
}

Scope::Scope(const char* name) noexcept : previous_(thread_tag()) {
  static_assert(std::size(decltype(ranges_){}) == kMaxBackends);
  thread_tag() = tag_of(name);
  for (int n = 0; n < kMaxBackends; ++n) {
    try {
      if (Recorder* const recorder = live_recorder(n))
        ranges_[n] = begin_range(*recorder, name, trace::RangeKind::kUser);
    } catch (...) {  // no memory for the name: the trace lacks this range
    }
  }
}

Scope::~Scope() {
  thread_tag() = previous_;
  for (int n = 0; n < kMaxBackends; ++n) {
    if (ranges_[n] == 0) continue;
    if (Recorder* const recorder = live_recorder(n))
      recorder->append(trace::RangeEnd{.range = ranges_[n]});
  }
}

}  // namespace berth::torch
