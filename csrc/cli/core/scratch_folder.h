#pragma once

#include <filesystem>
#include <string_view>

namespace berth::cli {

// A folder of our own among the system's temporary files, gone with all that is in it at the end.
class ScratchFolder {
 public:
  // `name` says whose it is ("berth-dry-run"). Throws Error(kSystem) where it cannot be made.
  explicit ScratchFolder(std::string_view name);
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace berth::cli
