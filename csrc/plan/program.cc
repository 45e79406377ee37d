#include "csrc/plan/program.h"

#include "csrc/core/bytes.h"

#include <fmt/format.h>

#include <vector>

namespace berth {

std::optional<std::string> program_difference(const trace::Program& plan,
                                              const trace::Program& here) {
  std::vector<std::string> differences;
  const auto add = [&](const char* what, const std::string& theirs, const std::string& ours) {
    if (theirs != ours) differences.push_back(fmt::format("{} {} (here {})", what, theirs, ours));
  };
  if (!plan.torch_version.empty() && !here.torch_version.empty()) {
    add("made with torch", plan.torch_version, here.torch_version);
  }
  if (!plan.device_name.empty() && !here.device_name.empty()) {
    add("on device", fmt::format("'{}'", plan.device_name), fmt::format("'{}'", here.device_name));
  }
  if (plan.device_bytes != 0 && here.device_bytes != 0 && plan.device_bytes != here.device_bytes) {
    // Exact where people's units would print the same twice.
    const std::string theirs = format_bytes(plan.device_bytes);
    const std::string ours = format_bytes(here.device_bytes);
    if (theirs != ours) {
      add("with memory of", theirs, ours);
    } else {
      add("with memory of", fmt::format("{} B", plan.device_bytes),
          fmt::format("{} B", here.device_bytes));
    }
  }
  add("for rank", fmt::format("{} of {}", plan.rank, plan.world_size),
      fmt::format("{} of {}", here.rank, here.world_size));
  add("with tag", fmt::format("'{}'", plan.tag), fmt::format("'{}'", here.tag));
  if (differences.empty()) return std::nullopt;
  return fmt::format("{}", fmt::join(differences, ", "));
}

}  // namespace berth
