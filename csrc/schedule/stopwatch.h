#pragma once

#include <berth/schedule.h>

#include <algorithm>
#include <chrono>

namespace berth::schedule {

// How long a search has run, and whether its options let it go on. They outlive it.
class Stopwatch {
 public:
  explicit Stopwatch(const PlannerOptions& options) : options_(options) {}

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  // Of the time limit, from 0 on.
  [[nodiscard]] double left() const {
    return std::max(options_.time_limit_seconds - seconds(), 0.0);
  }
  [[nodiscard]] bool stopped() const {
    return (options_.cancel != nullptr && options_.cancel->load(std::memory_order_relaxed)) ||
           seconds() > options_.time_limit_seconds;
  }

 private:
  using Clock = std::chrono::steady_clock;

  const PlannerOptions& options_;
  const Clock::time_point start_ = Clock::now();
};

}  // namespace berth::schedule
