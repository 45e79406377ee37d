#pragma once

#include "csrc/plan/folder.h"
#include "csrc/plan/lookup.h"
#include "csrc/runtime/arena.h"
#include "csrc/runtime/learner.h"
#include "csrc/trace/step.h"
#include "csrc/trace/step_kinds.h"
#include "csrc/trace/trace.h"

#include <berth/place.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace berth {

// Plans in the background: takes what was recorded, cuts out its step, places it, and hands back
// plans that are verified and frozen: a first one within moments, then better ones as the same
// search comes upon them.
//
// Keeps the kinds of steps that it has met (32 MiB at most, see step_kinds.h). Where one cycle of
// steps explains them all, that is planned; else all kinds together, as branches of one plan.
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
    std::shared_ptr<PlanFolder> folder = nullptr;  // or kept; used by nobody else from here on
    trace::Program program;
    bool in_place = false;
  };
  explicit Planner(Options options);
  ~Planner();
  Planner(const Planner&) = delete;
  Planner& operator=(const Planner&) = delete;

  // The largest arena of a plan, and of one that is written or kept: a larger one may serve later
  // in this run, and would raise the peak of another. See may_need_less().
  struct Limits {
    Bytes arena = kMaxBytes;
    Bytes kept = kMaxBytes;
  };
  // Starts planning. Requires !busy(). May throw where no thread can be started.
  void submit(Learner::Excerpt excerpt, Learner::Search search, Limits limits,
              std::vector<Arena::Growth> growth = {});
  void submit(Learner::Excerpt excerpt, Learner::Search search) {
    submit(std::move(excerpt), search, {});
  }
  // Starts reading a plan of the folder, under the same conditions.
  void read(const PlanFolder::Found& found);
  // Under the same conditions: deletes the files that it wrote of its plans, which serve worse
  // than none, or writes a plan as it would one that it made. Nothing comes of it for take().
  void withdraw();
  void keep(std::shared_ptr<const PlanLookup> plan);

  // What it knows of steps, and what it is about to hand back, is of no use any more.
  void forget();

  // Whether a plan is being made.
  [[nodiscard]] bool busy() const noexcept { return busy_.load(std::memory_order_acquire); }
  // Whether take() has something.
  [[nodiscard]] bool ready() const noexcept { return ready_.load(std::memory_order_acquire); }
  [[nodiscard]] bool in_place() const noexcept { return options_.in_place; }

  struct Result {
    std::shared_ptr<const PlanLookup> plan = {};  // null: no plan came of it
    bool read = false;                            // it was to be read from the folder
    std::vector<KnownKind> kinds = {};            // that it has, whatever their turns
    bool cycle = false;                           // its steps come in the same turns always
  };
  [[nodiscard]] std::optional<Result> take();

  // Cancels what is under way and joins the thread; the best plan so far is written. Later submits
  // do nothing.
  void stop() noexcept;

 private:
  struct Job {
    Learner::Excerpt excerpt;
    Learner::Search search = Learner::Search::kAtMarks;
    Limits limits = {};
    std::vector<Arena::Growth> growth = {};         // of its buckets
    std::optional<PlanFolder::Found> to_read = {};  // instead
    std::shared_ptr<const PlanLookup> to_keep = {};
    bool to_withdraw = false;
    std::uint64_t era = 0;  // when it was submitted
  };
  void start(Job job);
  void run();
  void work_on(Job job);
  void plan(Job job);
  [[nodiscard]] std::shared_ptr<const PlanLookup> read_from_folder(const PlanFolder::Found& found);
  void keep_files(const Plan& plan);
  void withdraw_files() noexcept;
  void write(const Plan& plan) const;
  void keep_in_folder(const Plan& plan);
  [[nodiscard]] bool explains(const Step& step) const;
  template <class Finish>
  void place(const Problem& problem, Limits limits, Result result, const Finish& finish);
  void publish(Result result);

  const Options options_;
  // Whoever plans has these.
  std::uint64_t working_era_ = 0;  // that the rest is of
  StepKinds kinds_;
  bool guessed_ = false;        // where their steps end
  bool cycle_ = false;          // the last plan is of a cycle of steps
  bool turns_ = false;          // such a cycle did not last
  bool wrote_ = false;          // the plan file
  std::set<std::string> kept_;  // names of files in the folder, kMostKept at most
  std::atomic<bool> busy_{false}, ready_{false}, cancel_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
  std::uint64_t era_ = 0;  // one more each time that all was forgotten
  std::optional<Job> job_;
  std::optional<Result> result_;
  bool stopped_ = false;
  bool said_not_kept_ = false;
  std::thread thread_;
};

}  // namespace berth
