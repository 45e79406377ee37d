#include "csrc/replay/standin_files.h"

#include <algorithm>
#include <array>
#include <system_error>

namespace berth::replay {
namespace {

namespace fs = std::filesystem;

// The first place that has `name`, relative to the folders that may hold it.
fs::path find(const fs::path& name) {
  std::error_code ignored;
  const fs::path here = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // Of a build and its benchmarks (and of Python's package), of an installation.
  const std::array<fs::path, 4> folders = {here, here / "..", here / "../lib/berth",
                                           here / BERTH_LIBDIR / "berth"};
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / name, ignored)) return fs::canonical(folder / name, ignored);
  }
  return {};
}

}  // namespace

std::vector<std::string> StandinFiles::libraries() const {
  std::vector<std::string> files;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder / "lib", ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("lib") && name.find(".so.") != std::string::npos)
      files.push_back(entry.path().string());
  }
  const auto is_runtime = [](const std::string& file) {
    return file.find("/libcudart.so.") != std::string::npos;
  };
  std::sort(files.begin(), files.end());
  std::stable_partition(files.begin(), files.end(), is_runtime);
  return files;
}

std::optional<StandinFiles> find_standin() {
  const fs::path launcher = find("standin/berth-standin");
  if (launcher.empty()) return std::nullopt;
  StandinFiles files{launcher.parent_path(), launcher};
  if (files.libraries().empty()) return std::nullopt;  // a build without that target
  return files;
}

fs::path find_replay_torch() { return find("berth-replay-torch"); }

fs::path find_device_report() { return find("berth-device-report"); }

}  // namespace berth::replay
