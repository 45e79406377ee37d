#include "csrc/cli/input.h"

#include "csrc/core/check.h"
#include "csrc/core/file.h"
#include "csrc/plan/section_file.h"
#include "csrc/trace/file.h"
#include "csrc/trace/snapshot.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

namespace berth::cli {

namespace {

// Atomic replacement and recording both make a new file, so the folder must take one.
void check_folder(const std::string& path) {
  std::string probe = std::filesystem::path(path).parent_path().string();
  probe = (probe.empty() ? "." : probe) + "/.berth-XXXXXX";
  const int fd = ::mkstemp(probe.data());
  BERTH_CHECK(fd >= 0, kSystem, "cannot write '{}': {}", path, std::strerror(errno));
  ::close(fd);
  ::unlink(probe.c_str());
}

// What lies in the frame of plan files, one first section each.
std::optional<InputKind> kind_in_frame(const std::string& path) {
  const std::vector<std::byte> head = read_file_head(path, kFirstSectionBytes);
  const auto first = first_section(head);
  if (first == SectionType::kSchedule) return InputKind::kSchedule;
  if (first == SectionType::kGraph) return InputKind::kGraph;
  const auto magic = std::as_bytes(std::span(kPlanMagic));
  const bool is_plan =
      std::ranges::equal(std::span(head).first(std::min(head.size(), magic.size())), magic);
  return is_plan ? std::optional(InputKind::kPlan) : std::nullopt;
}

// A JSON object; nothing else that is read begins so.
bool begins_as_json(const std::string& path) {
  for (const std::byte byte : read_file_head(path, 64)) {
    const char letter = static_cast<char>(byte);
    if (std::string_view(" \t\r\n").find(letter) == std::string_view::npos) return letter == '{';
  }
  return false;
}

}  // namespace

InputKind identify(const std::string& path) {
  if (const auto kind = kind_in_frame(path)) return *kind;
  if (begins_as_json(path)) return InputKind::kStatistics;
  BERTH_CHECK(
      !is_pickle(path), kInput,
      "'{}' is a pickle: `berth import {} -o x.trace` makes a trace of a memory snapshot of "
      "PyTorch, `berth doctor {}` says what berth would save",
      path, path, path);
  return trace_form(path) == TraceForm::kLifetimes ? InputKind::kLifetimes : InputKind::kTrace;
}

std::string_view name_of(InputKind kind) noexcept {
  switch (kind) {
    case InputKind::kPlan:
      return "a plan";
    case InputKind::kSchedule:
      return "a schedule";
    case InputKind::kGraph:
      return "a graph";
    case InputKind::kTrace:
      return "a trace";
    case InputKind::kLifetimes:
      return "a CSV of lifetimes";
    case InputKind::kStatistics:
      break;
  }
  return "a JSON object";
}

Trace read_trace_input(const std::string& path) {
  const InputKind kind = identify(path);
  BERTH_CHECK(kind == InputKind::kTrace || kind == InputKind::kLifetimes, kInput,
              "'{}' is {}: a trace or a CSV is wanted", path, name_of(kind));
  return read_trace(path);
}

void check_output(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  BERTH_CHECK(!std::filesystem::is_directory(path, ignored), kUsage,
              "cannot write '{}': it is a folder", path);
  BERTH_CHECK(folder.empty() || std::filesystem::is_directory(folder, ignored), kUsage,
              "cannot write '{}': there is no folder '{}'", path, folder.string());
  // A pipe or a device is written to, not replaced.
  const std::filesystem::file_status there = std::filesystem::status(path, ignored);
  if (!std::filesystem::exists(there) || std::filesystem::is_regular_file(there))
    check_folder(path);
}

void check_trace_output(const std::string& path) {
  if (std::filesystem::path(path).parent_path().string().find('{') != std::string::npos) return;
  check_output(path);
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::symlink_status(path, ignored);
  BERTH_CHECK(!std::filesystem::exists(there) || std::filesystem::is_regular_file(there), kUsage,
              "cannot record to '{}': it is no regular file", path);
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
