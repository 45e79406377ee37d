#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/trace/trace.h"

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace berth {

// Plans in the background: takes a trace, cuts out its step, places it, and hands back a plan that
// is verified and frozen; a first one within moments, later a better one where time and gap allow.
//
// Thread-safe. One thread of its own, started with the first trace; with `in_place` none: submit()
// plans.
class Planner {
 public:
  struct Options {
    Bytes alignment = 64;
    double time_limit_seconds = 2;
    std::string plan_file;  // where the plan is written too, unless empty
    bool in_place = false;
  };
  explicit Planner(Options options);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // Starts planning. Requires !busy(). May throw where no thread can be started.
  void submit(Trace trace);

  // Whether a plan is being made.
  [[nodiscard]] bool busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  // Whether take() has something.
  [[nodiscard]] bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }

  struct Result {
    std::shared_ptr<const PlanLookup> plan;  // null: no plan came of it
    bool improved = false;                   // of the same requests as the one before
  };
  [[nodiscard]] std::optional<Result> take();

  // Cancels what is under way and joins the thread. Later submits do nothing.
  void stop() noexcept;

 private:
  void run();
  void plan(Trace trace);
  void publish(Result result);

  const Options options_;
  std::atomic<bool> busy_{false}, ready_{false}, cancel_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Trace> job_;
  std::optional<Result> result_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace berth
