#include "csrc/runtime/trial.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace berth {
namespace {

constexpr std::size_t kCalm = Trial::kCounted - 2;
// The first steps make what lives on.
constexpr std::uint64_t kFirstSteps = 2;
// An arena is emptied and filled again.
constexpr std::uint64_t kChangesOfHandle = 2;
// Trials cost at most this part of the changes that are made anyway.
constexpr std::uint64_t kTrialPart = 4;
constexpr std::uint64_t kLongestAway = 256;
constexpr unsigned kMostDoublings = 10;

}  // namespace

void Trial::Window::add(std::uint64_t changes, bool hit) noexcept {
  steps_[count_++ % kCounted] = {changes, hit};
}

bool Trial::Window::hit() const noexcept {
  const auto hits =
      std::count_if(steps_.begin(), steps_.end(), [](const Counted& one) { return one.hit; });
  return static_cast<std::size_t>(hits) > kCounted / 2;
}

std::uint64_t Trial::Window::changes() const noexcept {
  std::array<std::uint64_t, kCounted> sorted{};
  std::transform(steps_.begin(), steps_.end(), sorted.begin(),
                 [](const Counted& one) { return one.changes; });
  std::sort(sorted.begin(), sorted.end());
  // mutant: trial-calm
  return std::accumulate(sorted.begin(), sorted.begin() + kCalm, std::uint64_t{0});
}

bool Trial::pool_is_better(const Window& pool, const Window& plan) noexcept {
  const std::uint64_t least = pool.changes();
  // mutant: trial-worth
  return plan.changes() > least + std::max(least / 3, kWorth * kCalm);
}

Trial::Turn Trial::step_ended(const Step& step) noexcept {
  const std::uint64_t made = step.changes - std::exchange(changes_, step.changes);
  if (!away_ && step.plan == nullptr) {
    // A plan that comes later is another one.
    if (had_plan_) *this = Trial(step.changes);
    if (++steps_ > kFirstSteps) pool_.add(made, false);
    return Turn::kGoOn;
  }
  if (!std::exchange(had_plan_, true)) steps_ = 0;
  // Plans that come one after the other do not put off the count for ever.
  // mutant: trial-renewed
  if (std::exchange(served_, step.plan) != step.plan && settling_ == 0) settling_ = kSettling + 1;
  if (settling_ > 0) --settling_;
  if (++steps_ <= kSettling || settling_ > 0) return Turn::kGoOn;
  Window& own = away_ ? pool_ : plan_;
  own.add(made, step.hit);
  if (!own.full()) return Turn::kGoOn;
  if (!trying_) {
    trying_ = (away_ || step.may_turn) && wants_trial(step);
    return trying_ ? turn(step.changes) : Turn::kGoOn;
  }
  trying_ = false;
  cost_ = 2 * (step.changes - turned_at_);  // there and back
  // mutant: trial-lost
  if (pool_is_better(pool_, plan_) == away_) {
    returns_ = 0;
    return Turn::kGoOn;
  }
  returns_ += away_ ? 0 : 1;
  return turn(step.changes);
}

void Trial::trimmed() noexcept {
  steps_ = 0;
  // mutant: trial-trimmed
  (away_ ? pool_ : plan_) = {};
}

bool Trial::wants_trial(const Step& step) const noexcept {
  // mutant: trial-return
  if (away_ && steps_ >= kLongestAway << std::min(returns_, kMostDoublings)) return true;
  const Window& own = away_ ? pool_ : plan_;
  if (own.changes() <= kWorth * kCalm) return false;
  // Whose steps are others now is learned again.
  // mutant: trial-other-steps
  if (!away_ && !plan_.hit()) return false;
  if (!away_ && cost_ == 0 && pool_.full()) return pool_is_better(pool_, plan_);
  // mutant: trial-price
  const std::uint64_t price = kTrialPart * (cost_ == 0 ? kChangesOfHandle * step.handles : cost_);
  return own.changes() / kCalm * (steps_ - kSettling) >= price;
}

Trial::Turn Trial::turn(std::uint64_t changes) noexcept {
  steps_ = 0;
  turned_at_ = changes;
  away_ = !away_;
  (away_ ? pool_ : plan_) = {};
  return away_ ? Turn::kToPool : Turn::kToPlan;
}

}  // namespace berth
