#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace berth::replay {

// Where the stand-in runtime lies for this program: beside it in a build, in ../lib/berth of an
// installation, in the package of Python. Nothing where this berth was built without one.
struct StandinFiles {
  std::filesystem::path folder;    // lib/ with the libraries, and the launcher
  std::filesystem::path launcher;  // berth-standin

  // The libraries in the order to preload them, libcudart first: the others are linked to it.
  [[nodiscard]] std::vector<std::string> libraries() const;
};
[[nodiscard]] std::optional<StandinFiles> find_standin();

// The program berth-replay-torch; empty where it was not built.
[[nodiscard]] std::filesystem::path find_replay_torch();
// The same of berth-device-report, which asks the driver of CUDA about GPUs.
[[nodiscard]] std::filesystem::path find_device_report();

}  // namespace berth::replay
