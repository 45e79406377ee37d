#include "csrc/runtime/plan_limit.h"

#include "csrc/device/device.h"
#include "csrc/place/plan_step.h"

#include <berth/place.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace berth {
namespace {

constexpr double kMostOfPeak = 1.1;
// Of what one step has alive, where its kind leaves blocks to steps of others.
constexpr double kMostCrossing = 1.02;

void leave_to_pool(Slot& slot) noexcept { slot.offset = Slot::kUnplanned; }

void leave_crossing(KindPlan& kinds) {
  for (std::size_t s = 0; s < kinds.plan.sequences.size(); ++s) {
    std::vector<Slot>& slots = kinds.plan.sequences[s].slots;
    for (std::size_t k = 0; k < slots.size(); ++k) {
      if (!kinds.ends[s][k]) continue;
      leave_to_pool(slots[k]);
      kinds.ends[s][k].reset();
    }
  }
}

void leave_crossing(Plan& plan) noexcept {
  for (Sequence& sequence : plan.sequences) {
    for (Slot& slot : sequence.slots) {
      if (std::uint64_t{slot.birth} + slot.length > sequence.period) leave_to_pool(slot);
    }
  }
}

bool plans_any(const Plan& plan) noexcept {
  return std::any_of(plan.sequences.begin(), plan.sequences.end(), [](const Sequence& sequence) {
    return std::any_of(sequence.slots.begin(), sequence.slots.end(),
                       [](const Slot& slot) { return slot.planned(); });
  });
}

// The most bytes that steps of these kinds have alive, lane by lane.
Bytes load_of(std::span<const StepKind> kinds, bool with_crossing) {
  std::map<LaneKey, Bytes> loads;
  for (const StepKind& kind : kinds) {
    Bytes& load = loads[kind.lane];
    load = std::max(load, berth::load_of(kind, with_crossing));
  }
  Bytes sum = 0;
  for (const auto& [lane, load] : loads) sum += load;
  return sum;
}

template <class Frame>
bool fits(const Frame& frame, Bytes most) {
  return lower_bound(make_problem(frame)) <= most;
}

}  // namespace

Bytes most_arena_bytes(Bytes live_peak) noexcept {
  return static_cast<Bytes>(kMostOfPeak * static_cast<double>(live_peak));
}

bool may_need_less(const PlanLookup& plan) noexcept {
  return plan.has_buckets() || plan.plan().lane_keys.size() > 1;
}

std::optional<KindPlan> skeleton_within(std::span<const StepKind> kinds,
                                        const trace::Program& program, Bytes alignment,
                                        Bytes most) {
  for (std::size_t count = kinds.size(); count > 0; count /= 2) {
    const std::span<const StepKind> some = kinds.first(count);
    KindPlan frame = skeleton(some, program, alignment);
    const auto crossing = static_cast<double>(load_of(some, true));
    // mutant: kinds-limit
    if (fits(frame, std::min(most, static_cast<Bytes>(kMostCrossing * crossing)))) return frame;
    leave_crossing(frame);
    if (plans_any(frame.plan) &&
        fits(frame, std::min(most, most_arena_bytes(load_of(some, false)))))
      return frame;
  }
  return std::nullopt;
}

std::optional<Plan> within(Plan skeleton, Bytes most) {
  // mutant: cycle-limit
  if (fits(skeleton, most)) return skeleton;
  leave_crossing(skeleton);
  std::vector<Sequence*> lanes;
  for (Sequence& sequence : skeleton.sequences) lanes.push_back(&sequence);
  std::sort(lanes.begin(), lanes.end(),
            [](const Sequence* a, const Sequence* b) { return a->slots.size() < b->slots.size(); });
  for (Sequence* const lane : lanes) {
    if (plans_any(skeleton) && fits(skeleton, most)) return skeleton;
    for (Slot& slot : lane->slots) leave_to_pool(slot);
  }
  return std::nullopt;
}

}  // namespace berth
