#pragma once

#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdint>

namespace berth::torch::step {

// What autocast does to the operators that a kernel calls inside. It has done its part for the
// operator itself when the tap sees that; one that it lets pass, as linalg_pinv, keeps it for what
// it calls, a matmul. 0: nothing. Else the type for each kind of device.
using Autocast = std::uint32_t;

// Of this thread, now.
[[nodiscard]] Autocast autocast_now();

// While it stands, autocast is as it was then. It keeps no casts of weights: the program's next
// ones would find those.
class AutocastGuard {
 public:
  explicit AutocastGuard(Autocast autocast);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  const Autocast autocast_;
  Autocast before_ = 0;  // the types that were set
  const bool kept_casts_;
  const c10::impl::ForceDispatchKeyGuard keys_;
};

}  // namespace berth::torch::step
