#pragma once

#include "csrc/cli/dry_run_needs.h"

#include <optional>
#include <string_view>
#include <vector>

namespace berth::cli {

// One GPU and the processes that use it: one as a rule, several where ranks share it, or where one
// has put something on another's.
struct GpuUse {
  int device = 0;
  std::vector<const Needs*> processes;  // at least one; not owned

  // What they hold under one allocator, each at its own peak, and a context of each: bytes. Whoever
  // has no plan runs without it beside those that do. Nothing where one is not known.
  [[nodiscard]] std::optional<Bytes> held(std::string_view allocator, Bytes context) const;
  // Each under the best for it.
  [[nodiscard]] std::optional<Bytes> least_held(Bytes context) const;
};

// By device. The needs must outlive it.
[[nodiscard]] std::vector<GpuUse> gpu_uses(const std::vector<const Needs*>& all);

}  // namespace berth::cli
