#pragma once

#include "csrc/torch/step/instructions.h"
#include "csrc/torch/step/scheduling.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace berth::torch::step {

// Plans programs on a thread of its own, one after the other, so that the loop that trains need not
// wait for it. There is a thread only as long as there is something to plan.
//
// All functions are for one thread at a time. The destructor cancels what is being planned and
// waits until the planner has noticed, as does the end of the process. In a child that was forked
// meanwhile nothing is being planned: what had been asked for is handed back by lost().
class PlanningThread {
 public:
  PlanningThread();
  ~PlanningThread();
  PlanningThread(const PlanningThread&) = delete;
  PlanningThread& operator=(const PlanningThread&) = delete;

  // A plan that was asked for, from 1 on.
  using Ticket = std::uint64_t;
  struct Planned {
    Ticket ticket = 0;
    std::optional<Scheduled> scheduled;  // nothing: it failed
    std::string error;
  };
  // Plans a program whose alternatives are known; with `before` once more, by the times that its
  // calls have now. Allocators plan its addresses beside what other programs ask for. What
  // `options` point to outlives this. Where there is no thread to be had, it is planned before this
  // returns.
  Ticket plan(Program program, const SchedulingOptions& options,
              std::unique_ptr<Refinement> before = nullptr, std::vector<RequestsOn> beside = {});
  // Nobody wants this plan any more: it ends early, as one that failed.
  void forget(Ticket ticket);
  // What has been planned since the last call, in the order in which it was asked for. Does not
  // block.
  [[nodiscard]] std::vector<Planned> take();
  // Waits until all is planned that was asked for, or as long as that.
  void wait(double seconds);
  // Whether what was asked for is never planned, since this is another process than the one that
  // asked. Said once.
  [[nodiscard]] bool lost();

 private:
  struct Shared;
  // In a child that was forked: begins anew.
  void renew();
  std::shared_ptr<Shared> shared_;
  Ticket last_ = 0;
  bool lost_ = false;
};

}  // namespace berth::torch::step
