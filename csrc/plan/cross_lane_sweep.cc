#include "csrc/plan/end_tree.h"
#include "csrc/plan/lane_bytes.h"
#include "csrc/plan/lane_order.h"
#include "csrc/plan/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace berth {
namespace {

using Violation = std::optional<std::string>;

struct Use {
  std::uint32_t lane = 0;
  std::uint32_t sequence = 0;
  std::uint32_t slot = 0;
};

// Some slot of a lane that touches `bytes`.
Use find_use(const Plan& plan, std::uint32_t lane, ByteRange bytes) {
  for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
    if (plan.sequences[s].lane != lane) continue;
    for (std::uint32_t k = 0; k < plan.sequences[s].slots.size(); ++k) {
      const Slot& slot = plan.sequences[s].slots[k];
      if (slot.planned() && bytes_of(slot).touches(bytes)) return {lane, s, k};
    }
  }
  return {};
}

std::string not_ordered(const Plan& plan, const Use& a, const Use& b) {
  return fmt::format("{} and {} share bytes, and no edges order lanes {} and {} there",
                     slot_text(plan, a.sequence, a.slot), slot_text(plan, b.sequence, b.slot),
                     a.lane, b.lane);
}

// One lane's slots and the shadows of another's, over two turns of the lane's circle. The shadow of
// a slot on another lane is the time between the last tick that is known to lie before its birth
// and the first tick that knows of its end: no slot of that lane which lives then is ordered.
class PairSweep {
 public:
  // `clocks` are those of the other lanes.
  PairSweep(const Plan& plan, std::uint32_t lane, std::uint32_t shadowing)
      : plan_(plan), lane_(lane), shadowing_(shadowing) {
    for (std::uint32_t s = 0; s < plan.sequences.size(); ++s) {
      // Lanes that edges name have one sequence.
      if (plan.sequences[s].lane == lane) sequence_ = s;
      if (plan.sequences[s].lane == shadowing) shadowing_sequence_ = s;
    }
  }

  Violation run(const LaneOrder::Clocks& of_lane, const LaneOrder::Clocks& of_shadowing) {
    make_shadows(of_lane, of_shadowing);
    const Sequence& sequence = plan_.sequences[sequence_];
    // Over the boundaries of both lanes, so that a span of one tree is a span of the other.
    const std::vector<Bytes> boundaries = all_boundaries();
    EndTree slots(boundaries, plan_.alignment);
    EndTree shadows(boundaries, plan_.alignment);
    std::uint64_t last_end = 0;
    for (std::uint64_t turn = 0; turn < 2; ++turn) {
      const std::uint64_t start = turn * sequence.period;
      std::size_t next = 0;
      // What lives in the second turn was born in the first: the rest would be found twice.
      for (std::uint32_t k = 0; k < sequence.slots.size() && (turn == 0 || start + k < last_end);
           ++k) {
        // Shadows first: one without length lies between a tick and the one before it.
        for (; next < shadows_.size() && shadows_[next].begin == k; ++next) {
          const Shadow& shadow = shadows_[next];
          const EndTree::Span span = slots.own_span(bytes_of(slot_of(shadow)));
          const EndTree::Value latest = slots.max(span);
          if (EndTree::end_of(latest) > start + k) {
            return violation(EndTree::slot_of(latest), shadow.slot);
          }
          if (turn == 0 && shadow.length > 0) {
            shadows.raise(span, EndTree::value(k + shadow.length, shadow.slot));
            last_end = std::max(last_end, k + shadow.length);
          }
        }
        const Slot& slot = sequence.slots[k];
        if (!slot.planned()) continue;
        const EndTree::Span span = slots.own_span(bytes_of(slot));
        const EndTree::Value latest = shadows.max(span);
        if (EndTree::end_of(latest) > start + k) return violation(k, EndTree::slot_of(latest));
        if (turn == 0) {
          slots.raise(span, EndTree::value(std::uint64_t{k} + slot.length, k));
          last_end = std::max(last_end, std::uint64_t{k} + slot.length);
        }
      }
    }
    return std::nullopt;
  }

 private:
  struct Shadow {
    std::uint64_t begin = 0;  // in [0, period)
    std::uint64_t length = 0;
    std::uint32_t slot = 0;
  };

  const Slot& slot_of(const Shadow& shadow) const {
    return plan_.sequences[shadowing_sequence_].slots[shadow.slot];
  }

  std::vector<Bytes> all_boundaries() const {
    std::vector<Bytes> result;
    for (const std::uint32_t s : {sequence_, shadowing_sequence_}) {
      for (const Slot& slot : plan_.sequences[s].slots) {
        if (!slot.planned()) continue;
        result.push_back(slot.offset);
        result.push_back(slot.offset + slot.size);
      }
    }
    return result;
  }

  void make_shadows(const LaneOrder::Clocks& of_lane, const LaneOrder::Clocks& of_shadowing) {
    const auto period = static_cast<std::int64_t>(plan_.sequences[sequence_].period);
    const Sequence& shadowing = plan_.sequences[shadowing_sequence_];
    for (std::uint32_t k = 0; k < shadowing.slots.size(); ++k) {
      const Slot& slot = shadowing.slots[k];
      if (!slot.planned()) continue;
      const auto birth = std::int64_t{slot.birth};
      const auto known = of_lane.known(shadowing_, birth);
      const auto learned = of_shadowing.learned(lane_, birth + slot.length);
      Shadow shadow{.begin = 0, .length = static_cast<std::uint64_t>(period), .slot = k};
      if (known && learned && *learned - *known < period) {
        // Edges that do not contradict each other never let an end be known before its birth.
        const std::int64_t rest = *known % period;
        shadow.begin = static_cast<std::uint64_t>(rest < 0 ? rest + period : rest);
        shadow.length = static_cast<std::uint64_t>(std::max<std::int64_t>(0, *learned - *known));
      }
      shadows_.push_back(shadow);
    }
    std::stable_sort(shadows_.begin(), shadows_.end(),
                     [](const Shadow& a, const Shadow& b) { return a.begin < b.begin; });
  }

  std::string violation(std::uint32_t slot, std::uint32_t shadow) const {
    return not_ordered(plan_, {lane_, sequence_, slot}, {shadowing_, shadowing_sequence_, shadow});
  }

  const Plan& plan_;
  std::uint32_t lane_, shadowing_;
  std::uint32_t sequence_ = 0, shadowing_sequence_ = 0;
  std::vector<Shadow> shadows_;
};

}  // namespace

std::optional<std::string> lanes_violation(const Plan& plan) {
  const LaneOrder order(plan);
  if (const auto lane = order.contradiction()) {
    return fmt::format("edges make lane {} wait for itself", *lane);
  }
  std::vector<bool> joined(plan.lane_keys.size(), false);
  for (const PlanEdge& edge : plan.edges) joined[edge.from_lane] = joined[edge.to_lane] = true;

  // Lanes that share bytes, by address. At one address at most those that edges join are open.
  std::set<std::pair<std::uint32_t, std::uint32_t>> sharing;
  std::vector<LaneBytes> open;
  if (plan.lane_keys.size() > 1) {
    for (const LaneBytes& lane : bytes_of_lanes(plan)) {
      std::erase_if(open,
                    [&](const LaneBytes& other) { return other.bytes.last <= lane.bytes.first; });
      for (const LaneBytes& other : open) {
        if (!joined[lane.lane] || !joined[other.lane]) {
          const ByteRange both{lane.bytes.first, std::min(lane.bytes.last, other.bytes.last)};
          const Use a = find_use(plan, other.lane, both);
          const ByteRange bytes = bytes_of(plan.sequences[a.sequence].slots[a.slot]);
          return not_ordered(plan, a, find_use(plan, lane.lane, bytes));
        }
        sharing.emplace(std::minmax(lane.lane, other.lane));
      }
      open.push_back(lane);
    }
  }
  std::map<std::uint32_t, LaneOrder::Clocks> clocks;  // of the present first lane, and of others
  for (const auto& [lane, other] : sharing) {
    if (!clocks.count(lane)) {
      clocks.clear();
      clocks.emplace(lane, order.clocks_of(lane));
    }
    if (Violation bad = PairSweep(plan, lane, other).run(clocks.at(lane), order.clocks_of(other))) {
      return bad;
    }
  }
  return std::nullopt;
}

}  // namespace berth
