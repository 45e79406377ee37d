#include "csrc/torch/step/shortfall.h"

#include <algorithm>
#include <utility>

namespace berth::torch::step {

namespace {

// So many steps are looked at: the first one by a schedule spills what was elsewhere before it.
constexpr unsigned kSteps = 4;
// Steps that spill less than this part of their budget are not worth a search.
constexpr Bytes kWorthPart = 64;
// A budget that half of is not enough for is not short of pages, but of something else.
constexpr Bytes kMostPart = 2;
constexpr unsigned kMostSearches = 3;

}  // namespace

bool Shortfall::end_step(Bytes spilled, Bytes lacking, Bytes whole) noexcept {
  if (asked_ || searches_ == kMostSearches) return false;
  ++steps_;
  // mutant: step-cut-first
  if (steps_ == 1) return false;
  spilled_ += spilled;
  // What went twice is lacking once, and what went steps ago has been replaced.
  // mutant: step-cut-lacking
  most_ = std::max(most_, std::min(spilled, lacking));
  if (steps_ < kSteps) return false;
  const Bytes all = std::exchange(spilled_, 0), most = std::exchange(most_, 0);
  steps_ = 1;
  // mutant: step-cut-worth
  if (all < (kSteps - 1) * (budget(whole) / kWorthPart)) return false;
  // mutant: step-cut-half
  if (cut_ + most > whole / kMostPart) return false;
  cut_before_ = std::exchange(cut_, cut_ + most);
  ++searches_;
  asked_ = true;
  return true;
}

void Shortfall::end_search(bool found) noexcept {
  asked_ = false;
  steps_ = 0;
  if (found) return;
  cut_ = cut_before_;
  // mutant: step-cut-failed
  searches_ = kMostSearches;
}

}  // namespace berth::torch::step
