#include "csrc/plan/verify.h"

#include "csrc/plan/structure.h"
#include "csrc/plan/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace berth {
namespace {

using Violation = std::optional<std::string>;

// The first difference between the path that ends with a sequence and the requests of one lane.
Violation path_difference(const Plan& plan, std::uint32_t last, const StepLane& lane,
                          const std::vector<const StepRequest*>& requests) {
  if (plan.sequences[last].period != requests.size()) {
    return fmt::format("lane {} of the step has {} requests, sequence {} of the plan has {}",
                       lane.key, requests.size(), last, plan.sequences[last].period);
  }
  // Root first, so that the first difference is the first of the path.
  std::vector<std::uint32_t> path;
  for (auto s = static_cast<std::int32_t>(last); s >= 0;
       s = plan.sequences[static_cast<std::size_t>(s)].parent) {
    path.insert(path.begin(), static_cast<std::uint32_t>(s));
  }
  for (std::size_t i = 0; i < path.size(); ++i) {
    const Sequence& sequence = plan.sequences[path[i]];
    const std::uint32_t end =
        i + 1 < path.size() ? plan.sequences[path[i + 1]].fork : sequence.period;
    for (std::uint32_t tick = sequence.fork; tick < end; ++tick) {
      const Slot& slot = sequence.slots[tick - sequence.fork];
      const StepRequest& request = *requests[tick];
      const auto name = [&] { return slot_name(path[i], tick - sequence.fork); };
      if (request.bytes != slot.requested) {
        return fmt::format("request {} of lane {} is for {} bytes, {} for {}", tick, lane.key,
                           request.bytes, name(), slot.requested);
      }
      if (!slot.planned()) continue;
      if (!request.planned) {
        return fmt::format("request {} of lane {} outlives the step, {} does not", tick, lane.key,
                           name());
      }
      if (slot.length < request.length) {
        return fmt::format("request {} of lane {} lives for {} ticks, {} for {}", tick, lane.key,
                           request.length, name(), slot.length);
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> verify(const Plan& plan) {
  for (const auto check : {structure_violation, lane_violation, lanes_violation}) {
    if (Violation bad = check(plan)) return bad;
  }
  return std::nullopt;
}

std::optional<std::string> verify(const Plan& plan, const Step& step) {
  if (Violation bad = verify(plan)) return bad;
  std::vector<std::vector<const StepRequest*>> requests(step.lanes.size());
  for (const StepRequest& request : step.requests) {
    if (request.lane >= requests.size()) {
      return fmt::format("a request of the step is of lane {}, there are {}", request.lane,
                         requests.size());
    }
    requests[request.lane].push_back(&request);
  }
  for (std::size_t l = 0; l < step.lanes.size(); ++l) {
    if (requests[l].empty()) continue;
    const StepLane& lane = step.lanes[l];
    const auto key = std::find(plan.lane_keys.begin(), plan.lane_keys.end(), lane.key);
    Violation first = fmt::format("lane {} of the step is not in the plan", lane.key);
    bool covered = false;
    bool compared = false;
    for (std::uint32_t s = 0; s < plan.sequences.size() && !covered; ++s) {
      if (key == plan.lane_keys.end() || plan.sequences[s].lane != key - plan.lane_keys.begin()) {
        continue;
      }
      Violation difference = path_difference(plan, s, lane, requests[l]);
      covered = !difference;
      // Of several paths, what is wrong with the root says most.
      if (!std::exchange(compared, true)) first = std::move(difference);
    }
    if (!covered) return first;
  }
  return std::nullopt;
}

std::optional<std::string> verify(const Plan& plan, std::span<const StepKind> kinds) {
  if (Violation bad = verify(plan)) return bad;
  for (std::size_t k = 0; k < kinds.size(); ++k) {
    const StepKind& kind = kinds[k];
    bool has_path = false;
    for (std::uint32_t s = 0; s < plan.sequences.size() && !has_path; ++s) {
      const Sequence& last = plan.sequences[s];
      if (plan.lane_keys[last.lane] != kind.lane || last.period < kind.requests.size()) continue;
      const Sequence* own = &last;
      auto tick = static_cast<std::uint32_t>(kind.requests.size());
      while (tick > 0) {
        while (tick - 1 < own->fork) own = &plan.sequences[static_cast<std::size_t>(own->parent)];
        const Slot& slot = own->slots[tick - 1 - own->fork];
        const StepKind::Request& request = kind.requests[tick - 1];
        const bool fits = slot.bucket()
                              ? request.bytes <= slot.requested
                              : request.bytes == slot.requested && request.least == slot.requested;
        if (!fits) break;
        --tick;
      }
      has_path = tick == 0;
    }
    if (!has_path) {
      return fmt::format(
          "kind {} of the steps of lane {}, of {} requests and seen {} times, is on "
          "no path",
          k, kind.lane, kind.requests.size(), kind.seen);
    }
  }
  return std::nullopt;
}

}  // namespace berth
