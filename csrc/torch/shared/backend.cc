#include "csrc/torch/shared/backend.h"

#include "csrc/core/check.h"
#include "csrc/torch/shared/step_limit.h"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace berth::torch {
namespace {

std::array<std::atomic<Backend*>, kMaxBackends> backends{};
// Who marks steps. Higher ones silence lower ones for good.
enum class Marker : std::uint8_t { kOptimizer, kProgram, kUser };
std::atomic<Marker> highest{Marker::kOptimizer};
std::atomic<bool> counting_forks{false};
std::atomic<std::uint32_t> forks{0};

template <class Visit>
void for_all(const Visit& visit) noexcept {
  for (const auto& one : backends)
    if (Backend* const here = one.load(std::memory_order_acquire)) visit(*here);
}

// Whether nobody above marks.
bool claim(Marker by) noexcept {
  Marker before = highest.load(std::memory_order_relaxed);
  while (before < by && !highest.compare_exchange_weak(before, by, std::memory_order_relaxed)) {
  }
  return before <= by;
}

void mark(Marker by) noexcept {
  if (!claim(by)) return;
  for_all([](Backend& one) { one.mark_step(); });
  if (by != Marker::kOptimizer) count_marked_step();
}

}  // namespace

void add_backend(Backend& added) {
  if (!counting_forks.exchange(true))
    BERTH_CHECK(::pthread_atfork(
                    nullptr, nullptr, +[] { forks.fetch_add(1); }) == 0,
                kSystem, "pthread_atfork has no memory left to register berth's handlers");
  for (auto& one : backends) {
    Backend* none = nullptr;
    if (one.compare_exchange_strong(none, &added)) return;
  }
}

Backend* backend(int n) noexcept {
  return n < kMaxBackends ? backends[static_cast<std::size_t>(n)].load(std::memory_order_acquire)
                          : nullptr;
}

void mark_step_by_user() noexcept { mark(Marker::kUser); }
void mark_step_by_program() noexcept { mark(Marker::kProgram); }
void mark_step_by_optimizer() noexcept { mark(Marker::kOptimizer); }
void expect_mark_by_program() noexcept { claim(Marker::kProgram); }

void expect_other_steps(std::span<const ForetoldOn> foretold) noexcept {
  for_all([&](Backend& one) { one.expect_other_steps(foretold); });
}

std::shared_ptr<const Foretold> foretell(c10::Device device, std::span<const StepRequests> kinds,
                                         double seconds) {
  for (int n = 0; backend(n) != nullptr; ++n)
    if (auto found = backend(n)->foretell(device, kinds, seconds)) return found;
  return nullptr;
}

Bytes requested_bytes(c10::Device device, const void* block) noexcept {
  Bytes found = 0;
  for_all([&](Backend& one) { found = std::max(found, one.requested(device, block)); });
  return found;
}

void trim(c10::Device device) {
  for_all([&](Backend& one) { one.trim(device); });
}

std::uint32_t fork_count() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace berth::torch
