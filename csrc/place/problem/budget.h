#pragma once

#include <berth/place.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace berth::place {

// When to stop: the clock, the caller's cancel flag, and the iterations that a run may use. Threads
// may share one.
class Budget {
 public:
  explicit Budget(const PlaceOptions& options)
      : start_(std::chrono::steady_clock::now()),
        seconds_(options.time_limit_seconds),
        iterations_(options.iteration_budget == 0 ? std::numeric_limits<std::uint64_t>::max()
                                                  : options.iteration_budget),
        cancel_(options.cancel) {}

  [[nodiscard]] double elapsed() const noexcept {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  // The clock or the caller says stop. Reads the clock: ask every microsecond at most.
  [[nodiscard]] bool expired() const noexcept {
    return (cancel_ != nullptr && cancel_->load(std::memory_order_relaxed)) ||
           elapsed() >= seconds_;
  }
  [[nodiscard]] std::uint64_t iterations() const noexcept { return iterations_; }

 private:
  std::chrono::steady_clock::time_point start_;
  double seconds_;
  std::uint64_t iterations_;
  const std::atomic<bool>* cancel_;
};

}  // namespace berth::place
