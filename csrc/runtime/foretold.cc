#include "csrc/runtime/foretold.h"

#include "csrc/place/plan_step.h"
#include "csrc/runtime/plan_limit.h"
#include "csrc/trace/step_kinds.h"

#include <berth/place.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

namespace berth {
namespace {

// A step shows what it leaves behind in the next one, and counts once it was seen twice.
constexpr int kSteps = 3;

// The run that has each kind's steps in a row. What a kind's last step leaves goes in the first
// step of the next kind that frees what it finds, at the same places. Else it would seem to live on
// through all steps of the others, and had no place in a plan.
class ForetoldRun {
 public:
  explicit ForetoldRun(std::span<const StepRequests> kinds) {
    run_.lanes.emplace_back();
    add(trace::StepMark{});
    for (const StepRequests& kind : kinds) add_steps(kind);
  }
  [[nodiscard]] const Trace& run() const noexcept { return run_; }

 private:
  void add(trace::Event event) {
    run_.entries.push_back({.tick = run_.entries.size(), .event = event});
  }
  void add_steps(const StepRequests& kind) {
    std::vector<std::uint32_t> leaves;  // requests whose blocks the next step frees
    for (const StepRequests::Event& event : kind.events)
      if (event.bytes == 0 && event.of_last) leaves.push_back(event.request);
    trace::BlockId last = 0, first = 0;  // of the steps before and now, the block before the first
    for (int step = 0; step < kSteps; ++step) {
      last = std::exchange(first, made_);
      std::size_t freed = 0;  // of what steps before left
      for (const StepRequests::Event& event : kind.events) {
        if (event.bytes != 0) {
          add(trace::Request{.id = ++made_, .bytes = event.bytes});
        } else if (!event.of_last) {
          add(trace::Free{first + 1 + event.request});
          // mutant: foretold-left
        } else if (step > 0) {
          add(trace::Free{last + 1 + event.request});
        } else {
          ++freed;
          // mutant: foretold-others-left
          free_left(freed < leaves.size() ? 1 : left_.size());
        }
      }
      add(trace::StepMark{});
    }
    for (const std::uint32_t request : leaves) left_.push_back(first + 1 + request);
  }
  void free_left(std::size_t most) {
    const std::size_t count = std::min(most, left_.size());
    for (std::size_t n = 0; n < count; ++n) add(trace::Free{left_[n]});
    left_.erase(left_.begin(), left_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  Trace run_;
  trace::BlockId made_ = 0;
  std::vector<trace::BlockId> left_;  // by kinds before, and not freed yet
};

}  // namespace

std::shared_ptr<const Foretold> foretell(std::span<const StepRequests> kinds,
                                         const trace::Program& program, Bytes alignment,
                                         double seconds) {
  StepKinds steps;
  steps.learn(ForetoldRun(kinds).run());
  const std::optional<KindPlan> frame =
      skeleton_within(steps.kinds(), program, alignment, kMaxBytes);
  if (!frame) return nullptr;
  PlaceOptions options;
  options.time_limit_seconds = seconds;
  const Placement placement = place_buffers(make_problem(*frame), options);
  auto result = std::make_shared<Foretold>();
  result->plan =
      std::make_shared<const PlanLookup>(with_placement(frame->plan, placement, options));
  result->kinds = known(steps.kinds());
  return result;
}

}  // namespace berth
