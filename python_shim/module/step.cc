#include "python_shim/module/step.h"

#include <algorithm>

namespace berth::python {
namespace {

// The slots of the path that ends in a sequence, the root's first.
void append_path(const Plan& plan, const Sequence& sequence, std::size_t count,
                 std::vector<const Slot*>& path) {
  if (sequence.parent >= 0) {
    const Sequence& parent = plan.sequences[static_cast<std::size_t>(sequence.parent)];
    append_path(plan, parent, sequence.fork, path);
  }
  for (std::size_t k = 0; k < sequence.slots.size() && path.size() < count; ++k)
    path.push_back(&sequence.slots[k]);
}

}  // namespace

std::vector<LaneStep> steps_of(const Repeats& repeats) {
  std::vector<LaneStep> steps;
  if (repeats.step) {
    const Step& step = *repeats.step;
    for (const StepLane& lane : step.lanes) {
      LaneStep& made = steps.emplace_back();
      made.lane = lane.key;
      made.seen = step.repeats;
      made.requests.reserve(lane.period);
    }
    for (const StepRequest& request : step.requests)
      steps[request.lane].requests.push_back(
          {request.bytes, request.bytes, 0, request.length, request.planned ? 1u : 0u});
    std::erase_if(steps, [](const LaneStep& made) { return made.requests.empty(); });
  }
  for (const StepKind& kind : repeats.kinds) {
    LaneStep& made = steps.emplace_back();
    made.lane = kind.lane;
    made.seen = kind.seen;
    made.bucket = kind.bucket();
    made.requests.reserve(kind.requests.size());
    for (const StepKind::Request& request : kind.requests)
      made.requests.push_back({request.bytes, request.least, 0,
                               request.length + request.wrapped + request.behind,
                               request.planned() ? 1u : 0u});
  }
  return steps;
}

std::vector<LaneStep> steps_of(const Plan& plan) {
  std::vector<bool> left(plan.sequences.size(), false);  // by a branch at its end: not a path
  for (const Sequence& sequence : plan.sequences) {
    if (sequence.parent < 0) continue;
    const auto parent = static_cast<std::size_t>(sequence.parent);
    if (sequence.fork == plan.sequences[parent].period) left[parent] = true;
  }
  std::vector<LaneStep> steps;
  std::vector<const Slot*> path;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    if (left[i]) continue;
    const Sequence& sequence = plan.sequences[i];
    path.clear();
    append_path(plan, sequence, sequence.period, path);
    LaneStep& made = steps.emplace_back();
    made.lane = plan.lane_keys[sequence.lane];
    made.placed = true;
    made.requests.reserve(path.size());
    for (const Slot* const slot : path) {
      made.bucket |= slot->bucket();
      made.requests.push_back({slot->requested, slot->bucket() ? slot->least : slot->requested,
                               slot->offset, slot->length, slot->planned() ? 1u : 0u});
    }
  }
  return steps;
}

}  // namespace berth::python
