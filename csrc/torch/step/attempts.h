#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

namespace berth::torch::step {

// Which steps are tried: recorded, or run by a schedule until they turn out to be other ones. A try
// that leads to nothing costs as much as the step once or twice more. Tries have a credit, of which
// such a one takes 1. A step that runs by a schedule gives 4 back, so a program with one in five
// tries each step. Without credit, tries that lead to nothing are 1, 2, 4, .. 16 steps apart. So
// steps that never repeat pay little, and steps that repeat later are found after 32 of them.
//
// berth cannot schedule some steps at all. Tries of these are up to 1,024 steps apart, credit or
// not. O(1) a step.
class Attempts {
 public:
  // Whether the step that begins is one to try.
  [[nodiscard]] bool due() noexcept {
    if (left_ == 0) return true;
    --left_;
    return false;
  }
  // A step has run by a schedule, or a new program has one.
  void succeeded() noexcept {
    credit_ = std::min(credit_ + kWorth, kCredit);
    refused_in_turn_ = 0;
    // mutant: attempts-distance
    distance_ = 1;
  }
  // The step was like none that is known.
  void failed() noexcept {
    // A step of another kind than those that were refused.
    if (std::exchange(refused_in_turn_, 0) > kRefusedInTurn) distance_ = 1;
    // mutant: attempts-credit
    if (credit_ > 0)
      --credit_;
    else
      pause(kMostOfUnlike);
  }
  // It cannot be scheduled. After so many in turn its like are tried more seldom. A step of another
  // kind between them is then known after two of its own.
  void refused() noexcept {
    // mutant: step-refused-in-turn
    if (++refused_in_turn_ > kRefusedInTurn) pause(kMostOfRefused);
  }
  // It was recorded twice, and has no plan. Its like will have none.
  void unplanned() noexcept { pause(kMostOfRefused); }

 private:
  static constexpr std::uint32_t kCredit = 64, kWorth = 4, kRefusedInTurn = 16;
  static constexpr std::uint32_t kMostOfUnlike = 16, kMostOfRefused = 1024;

  void pause(std::uint32_t most) noexcept {
    left_ = std::min(distance_, most);
    distance_ = std::min(2 * distance_, most);
  }

  std::uint32_t credit_ = kCredit, refused_in_turn_ = 0;
  std::uint32_t left_ = 0, distance_ = 1;
};

}  // namespace berth::torch::step
