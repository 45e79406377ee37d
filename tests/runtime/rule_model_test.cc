// The rule of serving (csrc/runtime/README.md) as a throwaway model, beside rules that leave
// something out: what is left out must show as overlaps, else the model proves nothing.

#include "tests/catch.h"
#include "tests/support/random_plan.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

using namespace berth;

namespace {

enum class Rule {
  kNone,            // trusts position alone
  kPreviousTenant,  // looks whether the last block on these bytes is still live
  kOffSchedule,     // the set of blocks that are live and not where the plan has them now
};

struct Variant {
  Rule rule = Rule::kOffSchedule;
  bool test_live = true;    // a slot that is itself live is not handed out
  bool end_is_open = true;  // a slot whose last tick is the position has ended
  bool test_shared =
      true;  // a slot that shares bytes with a live slot of another lane is not handed out
};

struct Live {
  std::size_t lane = 0;
  std::uint32_t slot = 0;
  Bytes first = 0, last = 0;
  bool overstays = false;
};

struct ModelLane {
  const Sequence* sequence = nullptr;
  std::uint32_t next = 0;      // slot
  std::uint32_t position = 0;  // tick
};

class Model {
 public:
  Model(const Plan& plan, Variant variant, unsigned seed) : variant_(variant), random_(seed) {
    for (const Sequence& sequence : plan.sequences) lanes_.push_back({&sequence, 0, 0});
  }

  std::uint64_t hand_outs = 0;
  std::uint64_t overlaps = 0;

  // One request of a lane; before it the program frees what ends now, but for some blocks that it
  // keeps longer.
  void request(std::size_t lane_index, double keeps) {
    ModelLane& lane = lanes_[lane_index];
    const std::uint32_t period = lane.sequence->period;
    const Slot& slot = lane.sequence->slots[lane.next];
    // The program's own frees: at a block's planned end, or, where it keeps one, at random later.
    std::erase_if(live_, [&](Live& block) {
      if (block.overstays) return random_() % 40 == 0;
      if (block.lane != lane_index) return false;
      const Slot& its = lane.sequence->slots[block.slot];
      const bool ends_now = (its.birth + its.length) % period == slot.birth;
      if (!ends_now) return false;
      block.overstays = std::uniform_real_distribution<>(0, 1)(random_) < keeps;
      return !block.overstays;
    });
    lane.position = slot.birth;
    const bool served = may_have(lane_index, lane.next, slot);
    if (served) {
      ++hand_outs;
      const Bytes first = slot.offset, last = slot.offset + slot.size;
      for (const Live& other : live_) overlaps += other.first < last && first < other.last;
      live_.push_back({lane_index, lane.next, first, last, false});
    }
    lane.next = (lane.next + 1) % static_cast<std::uint32_t>(lane.sequence->slots.size());
  }

  // An early mark, or a skip: the lane goes on at another slot. What would have ended in between is
  // kept by the program.
  void jump(std::size_t lane_index, std::uint32_t slot) {
    lanes_[lane_index].next = slot;
    const ModelLane& lane = lanes_[lane_index];
    for (Live& block : live_) {
      if (block.lane == lane_index &&
          !contains(lane, block.slot, lane.sequence->slots[slot].birth)) {
        block.overstays = true;
      }
    }
  }

 private:
  [[nodiscard]] bool contains(const ModelLane& lane, std::uint32_t slot, std::uint32_t tick) const {
    const Slot& its = lane.sequence->slots[slot];
    const std::uint32_t age = (tick + lane.sequence->period - its.birth) % lane.sequence->period;
    return variant_.end_is_open ? age < its.length : age <= its.length;
  }

  bool may_have(std::size_t lane_index, std::uint32_t index, const Slot& slot) {
    const Bytes first = slot.offset, last = slot.offset + slot.size;
    const ModelLane& lane = lanes_[lane_index];
    if (variant_.rule == Rule::kNone) return true;
    if (variant_.rule == Rule::kPreviousTenant) {
      // The block that the plan last had on each of these bytes.
      for (Bytes byte = first; byte < last; byte += 64) {
        std::uint32_t tenant = index, least = ~0u;
        for (std::uint32_t other = 0; other < lane.sequence->slots.size(); ++other) {
          const Slot& its = lane.sequence->slots[other];
          if (other == index || byte < its.offset || byte >= its.offset + its.size) continue;
          const std::uint32_t ago =
              (slot.birth + lane.sequence->period - its.birth) % lane.sequence->period;
          if (ago < least) {
            least = ago;
            tenant = other;
          }
        }
        for (const Live& block : live_) {
          if (block.slot == tenant && tenant != index) return false;
        }
      }
      return true;
    }
    for (const Live& block : live_) {
      const bool own = block.lane == lane_index;
      if (own && block.slot == index) {
        if (variant_.test_live) return false;
        continue;
      }
      const bool touches = block.first < last && first < block.last;
      if (!touches) continue;
      if (!own) {
        if (variant_.test_shared) return false;
        continue;
      }
      if (!contains(lane, block.slot, lane.position)) return false;
    }
    return true;
  }

  Variant variant_;
  std::mt19937 random_;
  std::vector<ModelLane> lanes_;
  std::vector<Live> live_;
};

struct Count {
  std::uint64_t hand_outs = 0, overlaps = 0;
};

Count run(Variant variant, bool with_jumps, unsigned plans, std::uint32_t requests) {
  Count count;
  for (unsigned seed = 1; seed <= plans; ++seed) {
    std::mt19937 random(seed);
    const Plan plan = test::random_plan(60, 8, random);
    Model model(plan, variant, seed);
    for (std::uint32_t i = 0; i < requests; ++i) {
      if (with_jumps && random() % 50 == 0) {
        const std::uint32_t back_or_ahead = random() % 2 == 0 ? 0 : random() % 60;
        model.jump(0, back_or_ahead);
      }
      model.request(0, 0.05);
    }
    count.hand_outs += model.hand_outs;
    count.overlaps += model.overlaps;
  }
  return count;
}

}  // namespace

TEST_CASE("Late frees overlap without a check and with a check of the previous tenant alone",
          "[rule]") {
  const Count none = run({.rule = Rule::kNone}, false, 60, 3000);
  const Count tenant = run({.rule = Rule::kPreviousTenant}, false, 20, 1500);
  const Count whole = run({}, false, 60, 3000);
  REQUIRE(none.overlaps > 1000);
  REQUIRE(tenant.overlaps > 100);
  REQUIRE(whole.hand_outs > 50000);
  REQUIRE(whole.overlaps == 0);
}

TEST_CASE("With jumps and early marks each part of the rule is needed", "[rule]") {
  const Count whole = run({}, true, 60, 3000);
  REQUIRE(whole.hand_outs > 50000);
  REQUIRE(whole.overlaps == 0);
  const Count without_live = run({.test_live = false}, true, 60, 3000);
  REQUIRE(without_live.overlaps > 0);
  const Count closed_end = run({.end_is_open = false}, true, 60, 3000);
  REQUIRE(closed_end.overlaps > 0);
}

TEST_CASE("Two lanes that drift apart need the test of shared bytes", "[rule]") {
  // Both lanes' slots on the same bytes, ordered by edges that hold only while the lanes keep step.
  const auto overlaps = [](bool test_shared) {
    std::uint64_t found = 0;
    for (unsigned seed = 1; seed <= 40; ++seed) {
      std::mt19937 random(seed);
      Plan plan = test::random_plan(40, 4, random);
      Plan other = test::random_plan(40, 4, random);
      plan.sequences.push_back(other.sequences.front());
      plan.sequences.back().lane = 1;
      Model model(plan, {.test_shared = test_shared}, seed);
      for (int i = 0; i < 2000; ++i) {
        model.request(0, 0.0);
        model.request(1, 0.0);
        if (random() % 100 == 0) model.request(random() % 2, 0.0);  // one tick adrift
      }
      found += model.overlaps;
    }
    return found;
  };
  REQUIRE(overlaps(false) > 0);
  REQUIRE(overlaps(true) == 0);
}
