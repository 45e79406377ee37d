#include "tests/plan/brute_force.h"

#include <algorithm>
#include <bitset>
#include <map>
#include <vector>

namespace berth::test {
namespace {

bool share_bytes(const Slot& a, const Slot& b) {
  for (Bytes byte = a.offset; byte < a.offset + a.size; byte += 64) {
    if (byte >= b.offset && byte < b.offset + b.size) return true;
  }
  return false;
}

using PathSlots = std::vector<const Slot*>;

// What a lane asks for on the path that ends with a sequence.
PathSlots slots_on_path(const Plan& plan, std::size_t last) {
  PathSlots result(plan.sequences[last].period);
  std::size_t end = result.size();
  for (auto s = static_cast<std::int32_t>(last); s >= 0;
       s = plan.sequences[static_cast<std::size_t>(s)].parent) {
    const Sequence& sequence = plan.sequences[static_cast<std::size_t>(s)];
    for (std::size_t tick = sequence.fork; tick < end; ++tick) {
      result[tick] = &sequence.slots[tick - sequence.fork];
    }
    end = std::min<std::size_t>(end, sequence.fork);
  }
  return result;
}

std::vector<PathSlots> paths_of_lane(const Plan& plan, std::size_t lane) {
  std::vector<PathSlots> paths;
  for (std::size_t s = 0; s < plan.sequences.size(); ++s) {
    if (plan.sequences[s].lane == lane) paths.push_back(slots_on_path(plan, s));
  }
  return paths;
}

// Of each slot the period of the sequence that has it.
std::map<const Slot*, std::size_t> own_periods(const Plan& plan) {
  std::map<const Slot*, std::size_t> result;
  for (const Sequence& sequence : plan.sequences) {
    for (const Slot& slot : sequence.slots) result[&slot] = sequence.period;
  }
  return result;
}

// A slot wraps around on paths of one length only.
bool has_legal_lifetimes(const Plan& plan, const std::vector<PathSlots>& paths) {
  std::map<const Slot*, std::size_t> own_period = own_periods(plan);
  for (const PathSlots& a : paths) {
    for (const PathSlots& b : paths) {
      for (std::size_t tick = 0; tick < a.size(); ++tick) {
        const Slot* const slot = a[tick];
        if (!slot->planned()) continue;
        if (slot->length == 0 || slot->length > own_period[slot]) return false;
        if (std::count(b.begin(), b.end(), slot) == 0) continue;
        if (a.size() == b.size()) continue;
        const std::size_t longer = std::max(a.size(), b.size()) > own_period[slot] ? 1 : 0;
        if (tick + slot->length + longer > own_period[slot]) return false;
      }
    }
  }
  return true;
}

bool lane_is_legal(const Plan& plan, const std::vector<PathSlots>& paths) {
  if (!has_legal_lifetimes(plan, paths)) return false;
  const std::map<const Slot*, std::size_t> own_period = own_periods(plan);
  const std::size_t steps = paths.size() <= 2 ? 3 : 2;
  std::size_t choices = 1;
  for (std::size_t i = 0; i < steps; ++i) choices *= paths.size();
  for (std::size_t choice = 0; choice < choices; ++choice) {
    struct Live {
      const Slot* slot;
      std::uint32_t left;
    };
    std::vector<Live> live;
    std::size_t rest = choice;
    for (std::size_t step = 0; step < steps; ++step, rest /= paths.size()) {
      for (const Slot* slot : paths[rest % paths.size()]) {
        // Deaths come before births.
        std::erase_if(live, [](const Live& one) { return one.left == 0; });
        if (slot->planned()) {
          for (const Live& one : live) {
            if (share_bytes(*one.slot, *slot)) return false;
          }
          live.push_back({slot, slot->length});
        }
        for (Live& one : live) --one.left;
      }
      // What does not wrap around ends with its step.
      const PathSlots& path = paths[rest % paths.size()];
      std::erase_if(live, [&](const Live& one) {
        const auto at = std::find(path.begin(), path.end(), one.slot);
        const auto birth = static_cast<std::size_t>(at - path.begin());
        return at != path.end() && birth + one.slot->length <= own_period.at(one.slot);
      });
    }
  }
  return true;
}

// All ticks of all lanes over a few steps, and which of them surely come before which.
class Graph {
 public:
  static constexpr std::size_t kSteps = 9;
  static constexpr std::size_t kNodes = 192;

  Graph(const Plan& plan, const std::vector<std::vector<PathSlots>>& lanes) {
    std::size_t nodes = 0;
    for (const std::vector<PathSlots>& paths : lanes) {
      first_.push_back(nodes);
      periods_.push_back(paths.empty() ? 0 : paths[0].size());
      nodes += periods_.back() * kSteps;
    }
    first_.push_back(nodes);
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t node = first_[lane]; node + 1 < first_[lane + 1]; ++node) {
        after_[node].set(node + 1);
      }
    }
    for (const PlanEdge& edge : plan.edges) {
      for (std::size_t step = 0; step < kSteps; ++step) {
        const std::size_t before = step * periods_[edge.from_lane] + edge.from_tick;
        const std::size_t to = (step + edge.delta) * periods_[edge.to_lane] + edge.to_tick;
        if (before == 0 || to >= periods_[edge.to_lane] * kSteps) continue;
        after_[first_[edge.from_lane] + before - 1].set(first_[edge.to_lane] + to);
      }
    }
    // Warshall 1962.
    for (std::size_t middle = 0; middle < nodes; ++middle) {
      for (std::size_t node = 0; node < nodes; ++node) {
        if (after_[node][middle]) after_[node] |= after_[middle];
      }
    }
    for (std::size_t node = 0; node < nodes; ++node) contradicts_ |= after_[node][node];
  }

  [[nodiscard]] bool contradicts() const { return contradicts_; }

  // Whether all copies of the two slots within the steps come one after the other.
  [[nodiscard]] bool ordered(std::size_t lane_a, const Slot& a, std::size_t lane_b,
                             const Slot& b) const {
    for (std::size_t i = 0; i < kSteps; ++i) {
      for (std::size_t j = 0; j < kSteps; ++j) {
        const std::size_t birth_a = i * periods_[lane_a] + a.birth;
        const std::size_t birth_b = j * periods_[lane_b] + b.birth;
        const std::size_t last_a = birth_a + a.length - 1, last_b = birth_b + b.length - 1;
        if (last_a >= periods_[lane_a] * kSteps || last_b >= periods_[lane_b] * kSteps) continue;
        if (!after_[first_[lane_a] + last_a][first_[lane_b] + birth_b] &&
            !after_[first_[lane_b] + last_b][first_[lane_a] + birth_a]) {
          return false;
        }
      }
    }
    return true;
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<std::size_t> periods_;
  std::bitset<kNodes> after_[kNodes];
  bool contradicts_ = false;
};

}  // namespace

bool is_legal_by_force(const Plan& plan) {
  std::vector<std::vector<PathSlots>> lanes;
  for (std::size_t lane = 0; lane < plan.lane_keys.size(); ++lane) {
    lanes.push_back(paths_of_lane(plan, lane));
    if (!lane_is_legal(plan, lanes.back())) return false;
  }
  const Graph graph(plan, lanes);
  if (graph.contradicts()) return false;
  for (std::size_t a = 0; a < lanes.size(); ++a) {
    for (std::size_t b = a + 1; b < lanes.size(); ++b) {
      for (const PathSlots& path_a : lanes[a]) {
        for (const PathSlots& path_b : lanes[b]) {
          for (const Slot* slot_a : path_a) {
            for (const Slot* slot_b : path_b) {
              if (slot_a->planned() && slot_b->planned() && share_bytes(*slot_a, *slot_b) &&
                  !graph.ordered(a, *slot_a, b, *slot_b)) {
                return false;
              }
            }
          }
        }
      }
    }
  }
  return true;
}

}  // namespace berth::test
