#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace berth {

// The slots of one sequence that the plan has alive at a tick, found without a look at all others.
//
// Checkpoints hold what is alive at them, and lie as many ticks apart as that is: what is alive at
// a tick is at the checkpoint before it, or was born since. So the index holds no more entries than
// the sequence has ticks, and a look-up visits about twice what is alive then, 64 at least.
//
// Slots are named by their birth, ticks count from the first. Immutable once built.
class AliveIndex {
 public:
  AliveIndex() = default;
  // For each tick the slots that end there, and whether the slot born there is planned; see
  // PlanLookup::ends_at(). `wrapped`: slots that are alive when the step begins.
  template <class EndsAt, class Planned>
  AliveIndex(std::uint32_t period, const std::vector<std::uint32_t>& wrapped, EndsAt&& ends_at,
             Planned&& planned) {
    std::vector<std::uint32_t> alive;
    std::vector<std::uint32_t> place(period, kNowhere);
    const auto add = [&](std::uint32_t slot) {
      place[slot] = static_cast<std::uint32_t>(alive.size());
      alive.push_back(slot);
    };
    for (const std::uint32_t slot : wrapped) add(slot);
    std::size_t next = 0;
    for (std::uint32_t tick = 0; tick < period; ++tick) {
      for (const std::uint32_t slot : ends_at(tick)) {
        if (place[slot] == kNowhere) continue;
        alive[place[slot]] = alive.back();
        place[alive.back()] = place[slot];
        alive.pop_back();
        place[slot] = kNowhere;
      }
      if (planned(tick)) add(tick);
      if (tick < next) continue;
      checkpoints_.push_back({tick, static_cast<std::uint32_t>(alive_.size())});
      alive_.insert(alive_.end(), alive.begin(), alive.end());
      next = tick + (alive.size() < kLeastApart ? kLeastApart : alive.size());
    }
  }

  // Calls visit(slot) for all that are alive at the tick and for some that are not, each at most
  // twice.
  template <class Visit>
  void visit(std::uint32_t tick, Visit&& visit) const {
    std::size_t at = checkpoints_.size();
    for (std::size_t low = 0; low < at;) {  // the last one that is not behind the tick
      const std::size_t middle = low + (at - low) / 2;
      if (checkpoints_[middle].tick <= tick) {
        low = middle + 1;
      } else {
        at = middle;
      }
    }
    if (at-- == 0) return;
    const std::size_t end =
        at + 1 < checkpoints_.size() ? checkpoints_[at + 1].begin : alive_.size();
    for (std::size_t i = checkpoints_[at].begin; i < end; ++i) visit(alive_[i]);
    for (std::uint32_t slot = checkpoints_[at].tick + 1; slot <= tick; ++slot) visit(slot);
  }

 private:
  static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};
  static constexpr std::size_t kLeastApart = 64;
  struct Checkpoint {
    std::uint32_t tick = 0;
    std::uint32_t begin = 0;  // in alive_
  };
  std::vector<Checkpoint> checkpoints_;
  std::vector<std::uint32_t> alive_;
};

}  // namespace berth
