#include "csrc/runtime/planner.h"

#include "csrc/place/plan_step.h"
#include "csrc/plan/build.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/notes.h"
#include "csrc/trace/step.h"

#include <berth/place.h>
#include <berth/warnings.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <exception>
#include <limits>
#include <utility>

namespace berth {
namespace {

// A plan that is better by this share of the arena is worth a switch: while the search goes on, and
// in the end.
constexpr double kWorthSwitching = 0.01, kWorthSwitchingInTheEnd = 0.001;

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
  if (step || search == Learner::Search::kAtMarks) return step;
  // Marks did not help: a period of the requests is one however many there are in it, as it would
  // be without any.
  options.most_marks = std::numeric_limits<std::uint32_t>::max();
  return extract_step(trace, options);
}

}  // namespace

Planner::Planner(Options options) : options_(std::move(options)) {}

Planner::~Planner() { stop(); }

void Planner::submit(Learner::Excerpt excerpt, Learner::Search search) {
  std::unique_lock lock(mutex_);
  if (stopped_) return;
  busy_.store(true, std::memory_order_release);
  if (options_.in_place) {
    lock.unlock();
    plan({std::move(excerpt), search});
    busy_.store(false, std::memory_order_release);
    return;
  }
  job_ = Job{std::move(excerpt), search};
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
    plan(std::move(job));
    if (large) give_memory_back();
    busy_.store(false, std::memory_order_release);
    lock.lock();
  }
}

void Planner::plan(Job job) {
  try {
    Trace trace = job.excerpt.trace(options_.program, options_.alignment);
    job.excerpt.share = {};  // the learner may write its chunks anew
    const std::optional<Step> step = find_step(trace, job.search, &cancel_);
    if (!step || step->requests.empty()) return publish(nullptr);
    double worth = std::numeric_limits<double>::infinity();  // bytes of an arena worth a switch
    const auto offer = [&](const Plan& plan, double share) {
      if (static_cast<double>(plan.arena_bytes) > worth * (1 - share)) return;
      worth = static_cast<double>(plan.arena_bytes);
      publish(std::make_shared<const PlanLookup>(plan));
    };
    const Plan frame = skeleton(*step, trace, options_.alignment);
    trace = {};
    PlaceOptions options;
    options.cancel = &cancel_;
    options.time_limit_seconds = options_.time_limit_seconds;
    options.improved = [&](const Placement& better) {
      offer(with_placement(frame, *step, better, options), kWorthSwitching);
    };
    const Plan best =
        with_placement(frame, *step, place_buffers(make_problem(frame), options), options);
    offer(best, kWorthSwitchingInTheEnd);
    if (!options_.plan_file.empty()) write(best);
  } catch (const std::exception& error) {
    Notes().add("plan-failed", [&] { return error.what(); });
    if (!ready()) publish(nullptr);
  }
}

// What is there now may be another file than the one that was looked at in the beginning.
void Planner::write(const Plan& plan) const {
  (void)read_plan_if_there(options_.plan_file);
  write_plan(options_.plan_file, plan);
}

void Planner::publish(std::shared_ptr<const PlanLookup> plan) {
  const std::lock_guard lock(mutex_);
  result_ = Result{std::move(plan)};
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
