#include "csrc/runtime/planner.h"

#include "csrc/place/plan_step.h"
#include "csrc/plan/file.h"
#include "csrc/trace/step.h"

#include <berth/place.h>
#include <berth/warnings.h>

#include <algorithm>
#include <exception>
#include <utility>

namespace berth {
namespace {

// Long enough for a first legal plan of 5,000 requests, short beside a step.
constexpr double kFirstPlanSeconds = 0.05;
// A better plan is worth a switch from this share of the arena on.
constexpr double kWorthSwitching = 0.001;

}  // namespace

Planner::Planner(Options options) : options_(std::move(options)) {}

Planner::~Planner() { stop(); }

void Planner::submit(Trace trace) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  busy_.store(true, std::memory_order_release);
  if (options_.in_place) {
    lock.unlock();
    plan(std::move(trace));
    busy_.store(false, std::memory_order_release);
    return;
  }
  job_ = std::move(trace);
  if (!thread_.joinable()) {
    try {
      thread_ = std::thread([this] { run(); });
    } catch (...) {
      job_.reset();
      busy_.store(false, std::memory_order_release);
      throw;
    }
  }
  wake_.notify_one();
}

void Planner::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return job_ || stopped_; });
    if (stopped_) return;
    Trace trace = std::move(*job_);
    job_.reset();
    lock.unlock();
    plan(std::move(trace));
    busy_.store(false, std::memory_order_release);
    lock.lock();
  }
}

void Planner::plan(Trace trace) {
  try {
    const std::optional<Step> step = extract_step(trace);
    if (!step || step->requests.empty()) {
      publish({});
      return;
    }
    PlaceOptions place;
    place.cancel = &cancel_;
    place.time_limit_seconds = std::min(kFirstPlanSeconds, options_.time_limit_seconds);
    Plan best = plan_step(*step, trace, options_.alignment, place);
    publish({std::make_shared<const PlanLookup>(best), false});
    if (best.arena_bytes > best.lower_bound && options_.time_limit_seconds > kFirstPlanSeconds &&
        !cancel_) {
      place.time_limit_seconds = options_.time_limit_seconds;
      Plan better = plan_step(*step, trace, options_.alignment, place);
      if (static_cast<double>(better.arena_bytes) <
          static_cast<double>(best.arena_bytes) * (1 - kWorthSwitching)) {
        best = better;
        publish({std::make_shared<const PlanLookup>(std::move(better)), true});
      }
    }
    if (!options_.plan_file.empty() && !cancel_) write_plan(options_.plan_file, best);
  } catch (const std::exception& error) {
    warn("plan-failed", error.what());
    if (!ready()) publish({});
  }
}

void Planner::publish(Result result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  ready_.store(true, std::memory_order_release);
}

std::optional<Planner::Result> Planner::take() {
  const std::lock_guard lock(mutex_);
  ready_.store(false, std::memory_order_release);
  return std::exchange(result_, std::nullopt);
}

void Planner::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    cancel_.store(true);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace berth
