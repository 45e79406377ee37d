#include "csrc/replay/through_torch.h"

#include "csrc/core/check.h"
#include "csrc/facts/rounding.h"
#include "csrc/replay/shared_workload.h"
#include "csrc/replay/standin_files.h"

#include <algorithm>
#include <filesystem>
#include <optional>

namespace berth::replay {

const std::vector<std::string>& torch_allocators() {
  static const std::vector<std::string> kNames = {"caching", "expandable"};
  return kNames;
}

Result through_torch(const std::string& name, const Workload& workload, Bytes limit) {
  Result result;
  const std::filesystem::path program = find_replay_torch();
  const std::optional<StandinFiles> standin = find_standin();
  if (program.empty() || !standin) {
    result.problem =
        "not built: berth-replay-torch and the stand-in beside this program, which need a libtorch "
        "for CUDA";
    return result;
  }
  constexpr Bytes kLeast = Bytes{80} << 30;
  const Bytes total =
      limit != 0 ? limit : std::max(kLeast, 4 * workload.live_peak(facts::kCudaUnit));
  const bool expandable = name == "expandable";
  const SharedHeader answer = run_in_child(
      {standin->launcher.string(), "--memory", std::to_string(total), "--check", "off", "--",
       program.string()},
      {{"PYTORCH_ALLOC_CONF", expandable ? "expandable_segments:True" : ""}}, workload, {}, name);
  result.reserved_peak = answer.reserved_peak;
  result.driver_calls = answer.driver_calls;
  result.memory_calls = answer.memory_calls;
  result.retries = answer.retries;
  if (answer.ns_per_operation >= 0) result.ns_per_operation = answer.ns_per_operation;
  if (answer.complete == 0) {
    result.out_of_memory = true;
    result.problem = "out of memory";
  }
  return result;
}

}  // namespace berth::replay
