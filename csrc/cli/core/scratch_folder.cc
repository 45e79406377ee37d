#include "csrc/cli/core/scratch_folder.h"

#include "csrc/core/check.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

namespace berth::cli {

ScratchFolder::ScratchFolder(std::string_view name) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  std::string made = (folder / fmt::format("{}-XXXXXX", name)).string();
  BERTH_CHECK(::mkdtemp(made.data()) != nullptr, kSystem, "cannot make a folder in '{}': {}",
              folder.string(), std::strerror(errno));
  path_ = made;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace berth::cli
