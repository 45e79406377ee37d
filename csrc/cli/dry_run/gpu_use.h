#pragma once

#include "csrc/cli/dry_run/dry_run_needs.h"

#include <optional>
#include <string_view>
#include <vector>

namespace berth::cli {

// One GPU and the processes that use it: one as a rule, several where ranks share it, or where one
// has put something on another's.
struct GpuUse {
  int device = 0;
  std::vector<const Needs*> processes = {};  // at least one; not owned

  [[nodiscard]] bool shared() const noexcept { return processes.size() > 1; }

  // The memory that the GPU must have for them under one allocator, with a context of each: bytes.
  // Of one process that is the least with which it finishes; of several the sum of what each
  // reserves without a limit. Whoever has no plan runs without it beside those that do. Nothing
  // where one is not known.
  [[nodiscard]] std::optional<Bytes> needed(std::string_view allocator, Bytes context) const;
  // Each under the best for it.
  [[nodiscard]] std::optional<Bytes> least_needed(Bytes context) const;
  // What they hold where nothing limits them, each at its own peak.
  [[nodiscard]] std::optional<Bytes> held(std::string_view allocator, Bytes context) const;

 private:
  [[nodiscard]] std::optional<Bytes> sum(std::string_view allocator, Bytes context,
                                         bool unlimited) const;
};

// By device. The needs must outlive it.
[[nodiscard]] std::vector<GpuUse> gpu_uses(const std::vector<const Needs*>& all);

}  // namespace berth::cli
