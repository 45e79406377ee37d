#include "csrc/cli/input.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace berth::cli {

bool is_plan_file(const std::string& path) {
  // What is no regular file is left to the readers, which say so.
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string head(kPlanMagic.size(), '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  return file.good() && head == kPlanMagic;
}

InputKind identify(const std::string& path) {
  if (is_plan_file(path)) return InputKind::kPlan;
  return trace_form(path) == TraceForm::kLifetimes ? InputKind::kLifetimes : InputKind::kTrace;
}

void check_output(const std::string& path) {
  std::error_code ignored;
  BERTH_CHECK(!std::filesystem::is_directory(path, ignored), kUsage,
              "cannot write '{}': it is a folder", path);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  BERTH_CHECK(folder.empty() || std::filesystem::is_directory(folder, ignored), kUsage,
              "cannot write '{}': there is no folder '{}'", path, folder.string());
}

void write_output(const std::string& path, std::span<const std::byte> data) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode)) {
    write_file_atomically(path, data);
    return;
  }
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  int error = fd < 0 ? errno : 0;
  while (error == 0 && !data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written >= 0) {
      data = data.subspan(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (fd >= 0 && ::close(fd) != 0 && error == 0) error = errno;
  BERTH_CHECK(error == 0, kSystem, "cannot write '{}': {}", path, std::strerror(error));
}

void write_output(const std::string& path, std::string_view text) {
  write_output(path, std::as_bytes(std::span(text)));
}

}  // namespace berth::cli
