#pragma once

#include "csrc/plan/lookup.h"
#include "csrc/runtime/allocator.h"

#include <memory>

namespace berth::test {

// Has an allocator serve a plan that nobody verified, to show what stops it then.
struct UnverifiedPlan {
  static void serve(Allocator& allocator, const Plan& plan) {
    allocator.serve(std::make_shared<const PlanLookup>(plan));
  }
};

}  // namespace berth::test
