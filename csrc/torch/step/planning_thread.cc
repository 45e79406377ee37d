#include "csrc/torch/step/planning_thread.h"

#include "csrc/core/setup_mutex.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace berth::torch::step {

namespace {

// Longer than anything is planned, seconds; clocks overflow beyond.
constexpr double kForever = 1e6;

struct Job {
  PlanningThread::Ticket ticket = 0;
  Program program;
  SchedulingOptions options;
  std::unique_ptr<Refinement> before;
  std::vector<RequestsOn> beside;
  std::unique_ptr<std::atomic<bool>> cancel = std::make_unique<std::atomic<bool>>(false);
};

PlanningThread::Planned planned(Job& job) {
  PlanningThread::Planned result{.ticket = job.ticket, .scheduled = {}, .error = {}};
  try {
    result.scheduled = job.before == nullptr
                           ? schedule(job.program, job.options)
                           : schedule_again(job.program, *job.before, job.options);
    foretell(*result.scheduled, job.beside);
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  return result;
}

}  // namespace

struct PlanningThread::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;  // the first one is being planned
  std::vector<Planned> done;
  bool stopped = false;
  bool stops_at_exit = false;
  bool working = false;  // whether there is a thread that looks for jobs
  const pid_t process = ::getpid();

  void work() {
    std::unique_lock lock(mutex);
    while (!jobs.empty() && !stopped) {
      Job& job = jobs.front();
      lock.unlock();
      Planned one = planned(job);
      lock.lock();
      done.push_back(std::move(one));
      jobs.pop_front();
      changed.notify_all();
    }
    working = false;
    changed.notify_all();
  }

  void stop() {
    std::unique_lock lock(mutex);
    stopped = true;
    for (const Job& one : jobs) *one.cancel = true;
    changed.wait(lock, [this] { return !working; });
  }

  // Those that may have a thread. What planners read is gone once main() is over, so that they end
  // before.
  static void stop_at_exit(const std::shared_ptr<Shared>& one) {
    struct Live {
      SetupMutex mutex;
      std::vector<std::weak_ptr<Shared>> all;
    };
    static Live* const live = [] {
      static auto* const made = new Live;
      (void)std::atexit([] {
        try {
          const std::lock_guard lock(made->mutex);
          for (const auto& weak : made->all)
            if (const auto shared = weak.lock(); shared != nullptr && shared->process == ::getpid())
              shared->stop();
        } catch (const Error&) {  // a child that was forked while another thread had it
        }
      });
      return made;
    }();
    const std::lock_guard lock(live->mutex);
    std::erase_if(live->all, [](const auto& weak) { return weak.expired(); });
    live->all.push_back(one);
  }
};

PlanningThread::PlanningThread() : shared_(std::make_shared<Shared>()) {}

PlanningThread::~PlanningThread() {
  renew();
  shared_->stop();
}

void PlanningThread::renew() {
  if (shared_->process == ::getpid()) return;
  // The parent's thread may have had its mutex, which nobody unlocks here.
  static_cast<void>(new std::shared_ptr<Shared>(std::move(shared_)));
  shared_ = std::make_shared<Shared>();
  lost_ = true;
}

PlanningThread::Ticket PlanningThread::plan(Program program, const SchedulingOptions& options,
                                            std::unique_ptr<Refinement> before,
                                            std::vector<RequestsOn> beside) {
  renew();
  if (!shared_->stops_at_exit) {
    Shared::stop_at_exit(shared_);
    shared_->stops_at_exit = true;
  }
  Job job{++last_, std::move(program), options, std::move(before), std::move(beside)};
  job.options.cancel = job.cancel.get();
  std::unique_lock lock(shared_->mutex);
  shared_->jobs.push_back(std::move(job));
  if (shared_->working) return last_;
  shared_->working = true;
  lock.unlock();
  try {
    std::thread([shared = shared_] { shared->work(); }).detach();
  } catch (const std::system_error&) {  // no thread is to be had
    shared_->work();
  }
  return last_;
}

void PlanningThread::forget(Ticket ticket) {
  renew();
  const std::lock_guard lock(shared_->mutex);
  for (const Job& one : shared_->jobs)
    if (one.ticket == ticket) *one.cancel = true;
}

std::vector<PlanningThread::Planned> PlanningThread::take() {
  renew();
  const std::lock_guard lock(shared_->mutex);
  return std::exchange(shared_->done, {});
}

void PlanningThread::wait(double seconds) {
  renew();
  std::unique_lock lock(shared_->mutex);
  const auto over = [this] { return shared_->jobs.empty(); };
  if (seconds >= kForever)
    shared_->changed.wait(lock, over);
  else
    shared_->changed.wait_for(lock, std::chrono::duration<double>(seconds), over);
}

bool PlanningThread::lost() {
  renew();
  return std::exchange(lost_, false);
}

}  // namespace berth::torch::step
