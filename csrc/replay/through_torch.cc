#include "csrc/replay/through_torch.h"

#include "csrc/core/check.h"
#include "csrc/replay/shared_workload.h"

#include <algorithm>
#include <filesystem>

namespace berth::replay {

const std::vector<std::string>& torch_allocators() {
  static const std::vector<std::string> kNames = {"caching", "expandable"};
  return kNames;
}

Result through_torch(const std::string& name, const Workload& workload, Bytes limit) {
  Result result;
  std::error_code ignored;
  std::filesystem::path folder =
      std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (folder.filename() == "bench") folder = folder.parent_path();
  const std::filesystem::path program = folder / "berth-replay-torch";
  const std::filesystem::path launcher = folder / "standin" / "berth-standin";
  if (!std::filesystem::exists(program, ignored) || !std::filesystem::exists(launcher, ignored)) {
    result.problem =
        "not built: berth-replay-torch and the stand-in beside this program, which need a libtorch "
        "for CUDA";
    return result;
  }
  constexpr Bytes kLeast = Bytes{80} << 30;
  const Bytes total = limit != 0 ? limit : std::max(kLeast, 4 * workload.live_peak(512));
  const bool expandable = name == "expandable";
  const SharedHeader answer = run_in_child(
      {launcher.string(), "--memory", std::to_string(total), "--check", "off", "--",
       program.string()},
      {{"PYTORCH_ALLOC_CONF", expandable ? "expandable_segments:True" : ""}}, workload, {}, name);
  result.reserved_peak = answer.reserved_peak;
  result.driver_calls = answer.driver_calls;
  if (answer.ns_per_operation >= 0) result.ns_per_operation = answer.ns_per_operation;
  if (answer.complete == 0) {
    result.out_of_memory = true;
    result.problem = "out of memory";
  }
  return result;
}

}  // namespace berth::replay
