#include "csrc/cli/dry_run/gpu_use.h"

#include <algorithm>
#include <map>

namespace berth::cli {

std::optional<Bytes> GpuUse::sum(std::string_view allocator, Bytes context, bool unlimited) const {
  const auto of = [&](const Needs& needs) -> std::optional<Bytes> {
    const Needs::Reserved* const one = needs.find(allocator);
    if (one != nullptr) return one->needed(unlimited);
    return allocator == "planned" ? needs.least(unlimited) : std::nullopt;
  };
  if (std::ranges::none_of(processes,
                           [&](const Needs* one) { return one->find(allocator) != nullptr; }))
    return std::nullopt;
  Bytes all = 0;
  for (const Needs* const one : processes) {
    const auto bytes = of(*one);
    if (!bytes) return std::nullopt;
    all += *bytes + context;
  }
  return all;
}

std::optional<Bytes> GpuUse::needed(std::string_view allocator, Bytes context) const {
  return sum(allocator, context, shared());
}

std::optional<Bytes> GpuUse::held(std::string_view allocator, Bytes context) const {
  return sum(allocator, context, true);
}

std::optional<Bytes> GpuUse::least_needed(Bytes context) const {
  Bytes all = 0;
  for (const Needs* const one : processes) {
    const auto bytes = one->least(shared());
    if (!bytes) return std::nullopt;
    all += *bytes + context;
  }
  return all;
}

std::vector<GpuUse> gpu_uses(const std::vector<const Needs*>& all) {
  std::map<int, GpuUse> uses;
  for (const Needs* const one : all) {
    GpuUse& use = uses[one->file.device];
    use.device = one->file.device;
    use.processes.push_back(one);
  }
  std::vector<GpuUse> list;
  for (auto& [device, use] : uses) list.push_back(std::move(use));
  return list;
}

}  // namespace berth::cli
