#pragma once

#include "csrc/core/bytes.h"

namespace berth::torch::step {

// By how much a program's budget is more than its device has room for. A schedule within a budget
// counts bytes; the device has pages, other tensors and blocks that are in the way, too. Then
// requests spill, in each step, what no schedule chose. Not thread-safe.
class Shortfall {
 public:
  // A step by the schedule has ended, in which requests sent `spilled` bytes to the host, of which
  // `lacking` were there at a time. Returns whether the program is to be planned within
  // budget(`whole`), which is less than it was, since the last steps spilled more than a part of it
  // that is worth a search. O(1).
  bool end_step(Bytes spilled, Bytes lacking, Bytes whole) noexcept;
  // What is left of the whole budget.
  [[nodiscard]] Bytes budget(Bytes whole) const noexcept { return whole - cut_; }
  // Whether a search for the smaller budget has been asked for whose end has not come.
  [[nodiscard]] bool asked() const noexcept { return asked_; }
  // The search has ended. Where it found nothing, the budget is what it was, for good.
  void end_search(bool found) noexcept;

 private:
  Bytes cut_ = 0, cut_before_ = 0;
  Bytes spilled_ = 0;  // in the steps that are looked at
  Bytes most_ = 0;     // that one of them lacked
  unsigned steps_ = 0, searches_ = 0;
  bool asked_ = false;
};

}  // namespace berth::torch::step
