#include "csrc/runtime/planner.h"

#include "csrc/place/plan_step.h"
#include "csrc/plan/build.h"
#include "csrc/plan/build_kinds.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/notes.h"
#include "csrc/runtime/plan_limit.h"
#include "csrc/trace/step.h"
#include "csrc/trace/step_bounds.h"

#include <berth/place.h>
#include <berth/warnings.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <exception>
#include <filesystem>
#include <limits>
#include <span>
#include <system_error>
#include <utility>

namespace berth {
namespace {

// A plan that is better by this share of the arena is worth a switch: while the search goes on, and
// in the end.
constexpr double kWorthSwitching = 0.01, kWorthSwitchingInTheEnd = 0.001;

// Entries of a record that shows what steps there are, if it shows any.
constexpr std::size_t kLongRecord = 1 << 15;
// Entries of a record that is more than a program's first step, as a rule.
constexpr std::size_t kMoreThanFirst = 1 << 14;

// A cycle of so many times as many steps as there are kinds is no cycle.
constexpr std::size_t kManyAlike = 2;

// Of a run's own plans in a folder, so many go where they serve worse than none.
constexpr std::size_t kMostKept = 256;

// What a search took, the C library keeps for this thread: 150 MiB for the longest record. Only a
// few searches are so large before none follows.
constexpr std::size_t kLargeExcerpt = std::size_t{1} << 17;
void give_memory_back() noexcept {
#if defined(__GLIBC__)
  (void)::malloc_trim(0);
#endif
}

std::optional<Step> find_step(const Trace& trace, Learner::Search search,
                              const std::atomic<bool>* cancel) {
  StepOptions options;
  options.cancel = cancel;
  std::optional<Step> step = extract_step(trace, options);
  if (step || search == Learner::Search::kAtMarks || search == Learner::Search::kCycle) return step;
  // Marks did not help: a period of the requests is one however many there are in it, as it would
  // be without any.
  options.most_marks = std::numeric_limits<std::uint32_t>::max();
  return extract_step(trace, options);
}

// Whether most of a trace are repeats of a step.
bool explains_most(const Step& step, const Trace& trace) {
  const double repeat = static_cast<double>(step.last_tick - step.first_tick) / step.unrolled;
  return 2 * repeat * step.repeats >= static_cast<double>(trace.entries.size());
}

}  // namespace

Planner::Planner(Options options) : options_(std::move(options)) {}

Planner::~Planner() { stop(); }

void Planner::submit(Learner::Excerpt excerpt, Learner::Search search, Limits limits,
                     std::vector<Arena::Growth> growth) {
  start({std::move(excerpt), search, limits, std::move(growth)});
}

void Planner::read(const PlanFolder::Found& found) { start({.excerpt = {}, .to_read = found}); }

void Planner::withdraw() { start({.excerpt = {}, .to_withdraw = true}); }

void Planner::keep(std::shared_ptr<const PlanLookup> plan) {
  start({.excerpt = {}, .to_keep = std::move(plan)});
}

void Planner::start(Job job) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  busy_.store(true, std::memory_order_release);
  job.era = era_;
  if (options_.in_place) {
    lock.unlock();
    work_on(std::move(job));
    busy_.store(false, std::memory_order_release);
    return;
  }
  job_ = std::move(job);
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
    Job job = std::move(*job_);
    job_.reset();
    lock.unlock();
    const bool large = job.excerpt.share.size() >= kLargeExcerpt;
    work_on(std::move(job));
    if (large) give_memory_back();
    busy_.store(false, std::memory_order_release);
    lock.lock();
  }
}

void Planner::forget() {
  const std::lock_guard lock(mutex_);
  ++era_;
  result_.reset();
  ready_.store(false, std::memory_order_release);
}

void Planner::work_on(Job job) {
  // mutant: planner-era-kinds
  if (std::exchange(working_era_, job.era) != job.era) {
    kinds_ = StepKinds();
    cycle_ = turns_ = false;
  }
  if (job.to_read) {
    publish({.plan = read_from_folder(*job.to_read), .read = true});
  } else if (job.to_withdraw) {
    withdraw_files();
  } else if (job.to_keep) {
    try {
      keep_files(job.to_keep->plan());
    } catch (const std::exception& error) {
      Notes().add("plan-failed", [&] { return error.what(); });
    }
  } else {
    plan(std::move(job));
  }
}

void Planner::plan(Job job) {
  try {
    Trace trace = job.excerpt.trace(options_.program, options_.alignment);
    job.excerpt.share = {};  // the learner may write its chunks anew
    const bool for_period = job.search == Learner::Search::kByPeriod;
    std::optional<Step> step;
    if (job.search != Learner::Search::kKinds) step = find_step(trace, job.search, &cancel_);
    // Without marks, a few steps of one kind look like a period, and layers do, as they look like
    // kinds of steps in a first step, which has no mark but at its end. So kinds are looked for in
    // long records only, and a period that the record does not bear out is planned where those show
    // none.
    bool have_kinds = !for_period;
    const bool for_cycle = job.search == Learner::Search::kCycle;
    StepKinds others;  // than those of a cycle
    const bool turned = turns_;
    if (for_cycle) {
      if (!step || step->requests.empty()) return publish({});
      others = std::exchange(kinds_, StepKinds());
      turns_ = false;
    }
    // What marks say is so: what was guessed before only takes room in the plan.
    // mutant: kinds-guessed
    if (!for_period && job.growth.empty() && std::exchange(guessed_, false)) kinds_ = StepKinds();
    if (for_period && (!step || !explains_most(*step, trace))) {
      const bool is_long = trace.entries.size() >= kLongRecord;
      have_kinds = trace.entries.size() >= kMoreThanFirst && mark_steps(trace, &cancel_);
      if (have_kinds) {
        kinds_ = StepKinds();  // cut anew
        guessed_ = true;
      }
      if (have_kinds || !is_long) step.reset();
    }
    if (have_kinds) kinds_.learn(trace);
    for (const Arena::Growth& one : job.growth)
      kinds_.grow(one.lane, one.requests, one.index, one.bytes);
    // Where a cycle was planned and kinds are asked for, its steps come in other turns, too.
    turns_ |= std::exchange(cycle_, false) && job.search == Learner::Search::kKinds;
    if (step && !step->requests.empty() && (for_period || explains(*step))) {
      const std::optional<Plan> frame =
          within(skeleton(*step, trace, options_.alignment), job.limits.arena);
      if (!frame) return publish({});
      trace = {};
      Result result;
      result.kinds = known(steps_of(*step));
      result.cycle = cycle_ = !for_period && result.kinds.size() > step->unrolled;
      place(make_problem(*frame), job.limits, result,
            [&](const Placement& placement, const auto& how) {
              return with_placement(*frame, *step, placement, how);
            });
    } else if (for_cycle) {
      kinds_ = std::move(others);
      turns_ = turned;
      publish({});
    } else if (have_kinds && !kinds_.kinds().empty()) {
      trace = {};
      const std::optional<KindPlan> frame =
          skeleton_within(kinds_.kinds(), options_.program, options_.alignment, job.limits.arena);
      if (!frame) return publish({});
      Result result;
      if (!for_period) result.kinds = known(kinds_.kinds());
      place(make_problem(*frame), job.limits, result,
            [&](const Placement& placement, const auto& how) {
              return with_placement(frame->plan, placement, how);
            });
    } else {
      publish({});
    }
  } catch (const std::exception& error) {
    Notes().add("plan-failed", [&] { return error.what(); });
    if (!ready()) publish({});
  }
}

// Whether the kinds that are kept are all steps of its cycle.
bool Planner::explains(const Step& step) const {
  const std::size_t steps = step.marks_per_period / step.unrolled;
  // Where most of them are alike they come in turns, and the next turn may be another.
  if (steps > 1 && (turns_ || steps >= kManyAlike * kinds_.kinds().size())) return false;
  return kinds_.are_steps_of(step);
}

template <class Finish>
void Planner::place(const Problem& problem, Limits limits, Result result, const Finish& finish) {
  double worth = std::numeric_limits<double>::infinity();  // bytes of an arena worth a switch
  const auto offer = [&](const Plan& plan, double share) {
    if (plan.arena_bytes > limits.arena) return;
    if (static_cast<double>(plan.arena_bytes) > worth * (1 - share)) return;
    worth = static_cast<double>(plan.arena_bytes);
    result.plan = std::make_shared<const PlanLookup>(plan);
    publish(result);
  };
  PlaceOptions options;
  options.cancel = &cancel_;
  options.time_limit_seconds = options_.time_limit_seconds;
  options.improved = [&](const Placement& better) {
    // mutant: plan-publish
    offer(finish(better, options), kWorthSwitching);
  };
  const Plan best = finish(place_buffers(problem, options), options);
  offer(best, kWorthSwitchingInTheEnd);
  if (result.plan == nullptr) return publish({});
  // mutant: plan-kept-large
  if (best.arena_bytes > limits.kept && !may_need_less(*result.plan)) return;
  keep_files(best);
}

void Planner::keep_files(const Plan& plan) {
  if (!options_.plan_file.empty()) {
    write(plan);
    wrote_ = true;
  }
  if (options_.folder) keep_in_folder(plan);
}

// Files that this run did not write stay.
void Planner::withdraw_files() noexcept {
  std::error_code ignored;
  // mutant: withdraw-file
  if (std::exchange(wrote_, false)) std::filesystem::remove(options_.plan_file, ignored);
  // mutant: withdraw-kept
  for (const std::string& file : std::exchange(kept_, {})) options_.folder->withdraw(file);
}

// What is there now may be another file than the one that was looked at in the beginning.
void Planner::write(const Plan& plan) const {
  // mutant: plan-overwrite
  (void)read_plan_if_there(options_.plan_file);
  write_plan(options_.plan_file, plan);
}

// The run goes on without it: it learns, or stays in the pool.
std::shared_ptr<const PlanLookup> Planner::read_from_folder(const PlanFolder::Found& found) {
  try {
    return std::make_shared<const PlanLookup>(options_.folder->read(found));
  } catch (const std::exception& error) {
    // A better one may have taken its place since: that is no news.
    if (options_.folder->has(found)) Notes().add("plan-folder", [&] { return error.what(); });
    return nullptr;
  }
}

void Planner::keep_in_folder(const Plan& plan) {
  try {
    const std::string file = options_.folder->keep(plan);
    if (!file.empty() && kept_.size() < kMostKept) kept_.insert(file);
  } catch (const std::exception& error) {
    if (std::exchange(said_not_kept_, true)) return;
    Notes().add("plan-folder", [&] { return error.what(); });
  }
}

void Planner::publish(Result result) {
  const std::lock_guard lock(mutex_);
  // mutant: planner-era
  if (working_era_ != era_) return;
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
    // mutant: plan-cancel
    cancel_.store(true);
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace berth
