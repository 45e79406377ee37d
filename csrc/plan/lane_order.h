#pragma once

#include "csrc/plan/plan.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace berth {

// What the edges of a plan prove about the order of its lanes, in the steady state: steps follow
// each other for ever, on both sides.
//
// Ticks count from the start of some step of a lane, and may be negative or past its period: those
// are the steps before and after. A lane's clock of another lane (Mattern 1988, "Virtual Time and
// Global States") is a staircase that repeats every period, so one period of it is all there is to
// know, however many steps a chain of edges spans.
//
// Requires structure_violation(plan) == nullopt: lanes that edges name have one path, and a period.
class LaneOrder {
 public:
  explicit LaneOrder(const Plan& plan);

  // One lane that the edges make wait for itself, if any: then they prove nothing.
  [[nodiscard]] std::optional<std::uint32_t> contradiction() const;

  // How the other lanes' clocks of one lane run.
  class Clocks {
   public:
    // The largest tick t such that all that the lane did before t happens before all that `lane`
    // does from `tick` on. Nothing where no edges say so.
    [[nodiscard]] std::optional<std::int64_t> known(std::uint32_t lane, std::int64_t tick) const;
    // The first tick of `lane` from which on all that the lane did before `tick` is known.
    [[nodiscard]] std::optional<std::int64_t> learned(std::uint32_t lane, std::int64_t tick) const;

   private:
    friend class LaneOrder;
    struct Stair {
      std::int64_t tick = 0;   // in [0, period of the lane)
      std::int64_t value = 0;  // known from here on
    };
    std::int64_t own_period_ = 0;
    bool waits_for_itself_ = false;
    std::vector<std::int64_t> periods_;       // of every lane
    std::vector<std::vector<Stair>> stairs_;  // both ascend; the last value is below the first plus
                                              // a period
  };
  // O(edges log edges).
  [[nodiscard]] Clocks clocks_of(std::uint32_t lane) const;

 private:
  struct Edge {
    std::int64_t from_tick = 0;
    std::uint32_t to_lane = 0;
    std::int64_t to_tick = 0;  // in [0, period)
    std::int64_t delta = 0;
  };
  std::vector<std::int64_t> periods_;
  std::vector<std::vector<Edge>> leaving_;  // by lane, latest first
};

}  // namespace berth
