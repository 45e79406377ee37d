#include "csrc/torch/backend.h"

#include "csrc/core/check.h"

#include <pthread.h>

#include <array>
#include <atomic>

namespace berth::torch {
namespace {

std::array<std::atomic<Backend*>, kMaxBackends> backends{};
std::atomic<bool> user_marks{false};
std::atomic<bool> counting_forks{false};
std::atomic<std::uint32_t> forks{0};

void mark_all() noexcept {
  for (const auto& one : backends)
    if (Backend* const here = one.load(std::memory_order_acquire)) here->mark_step();
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

void mark_step_by_user() noexcept {
  user_marks.store(true, std::memory_order_relaxed);
  mark_all();
}

void mark_step_by_optimizer() noexcept {
  if (!user_marks.load(std::memory_order_relaxed)) mark_all();
}

std::uint32_t fork_count() noexcept { return forks.load(std::memory_order_relaxed); }

}  // namespace berth::torch
