#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/learner.h"
#include "csrc/trace/trace.h"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace berth {

// Plans in the background: takes what was recorded, cuts out its step, places it, and hands back
// plans that are verified and frozen: a first one within moments, then better ones as the same
// search comes upon them.
//
// Thread-safe. One thread of its own, started with the first excerpt; with `in_place` none:
// submit() plans. While a step is looked for that takes up to 200 bytes an entry, 200 MiB for the
// longest record.
class Planner {
 public:
  struct Options {
    Bytes alignment = 64;
    double time_limit_seconds = 2;
    std::string plan_file;  // where the best plan is written in the end, unless empty
    trace::Program program;
    bool in_place = false;
  };
  explicit Planner(Options options);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // Starts planning. Requires !busy(). May throw where no thread can be started.
  void submit(Learner::Excerpt excerpt, Learner::Search search);

  // Whether a plan is being made.
  [[nodiscard]] bool busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  // Whether take() has something.
  [[nodiscard]] bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  [[nodiscard]] bool in_place() const noexcept { return options_.in_place; }

  struct Result {
    std::shared_ptr<const PlanLookup> plan;  // null: no plan came of it
  };
  [[nodiscard]] std::optional<Result> take();

  // Cancels what is under way and joins the thread; the best plan so far is written. Later submits
  // do nothing.
  void stop() noexcept;

 private:
  struct Job {
    Learner::Excerpt excerpt;
    Learner::Search search = Learner::Search::kAtMarks;
  };
  void run();
  void plan(Job job);
  void write(const Plan& plan) const;
  void publish(std::shared_ptr<const PlanLookup> plan);

  const Options options_;
  std::atomic<bool> busy_{false}, ready_{false}, cancel_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Job> job_;
  std::optional<Result> result_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace berth
