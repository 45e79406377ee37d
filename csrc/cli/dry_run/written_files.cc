#include "csrc/cli/dry_run/written_files.h"

#include <glob.h>

#include <string_view>
#include <utility>

namespace berth::cli {

WrittenFiles::WrittenFiles(std::string name) : name_(std::move(name)), before_(files()) {}

std::vector<WrittenFiles::File> WrittenFiles::written() const {
  std::vector<File> changed;
  for (const auto& [path, version] : files()) {
    const auto old = before_.find(path);
    if (old == before_.end() || !(old->second == version)) changed.push_back({path, version.size});
  }
  return changed;
}

std::map<std::string, WrittenFiles::Version> WrittenFiles::files() const {
  std::string pattern;
  for (std::size_t i = 0; i < name_.size(); ++i) {
    const std::size_t close = name_[i] == '{' ? name_.find('}', i) : std::string::npos;
    if (close != std::string::npos) {
      pattern += '*';
      i = close;
    } else {
      if (std::string_view("*?[\\").find(name_[i]) != std::string_view::npos) pattern += '\\';
      pattern += name_[i];
    }
  }
  std::map<std::string, Version> files;
  glob_t found{};
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (std::size_t i = 0; i < found.gl_pathc; ++i) {
      struct stat info {};
      if (::stat(found.gl_pathv[i], &info) == 0 && S_ISREG(info.st_mode))
        files[found.gl_pathv[i]] = {info.st_ino, info.st_size, info.st_mtim};
    }
  }
  ::globfree(&found);
  return files;
}

}  // namespace berth::cli
