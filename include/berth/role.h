#pragma once

#include <cstdint>

namespace berth::trace {

// The role of a block in the program that requested it.
enum class RoleKind : std::uint8_t {
  kUnknown = 0,
  kParameter = 1,
  kGradient = 2,
  kOptimizer = 3,
  kActivation = 4,
  kWorkspace = 5,
  kInput = 6,
};

}  // namespace berth::trace
