#include "csrc/cli/core/output_file.h"

#include "csrc/cli/core/output.h"
#include "csrc/core/check.h"
#include "csrc/core/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <vector>

namespace berth::cli {
namespace {

constexpr std::string_view kStandardStream = "-";

// Atomic replacement and recording both make a new file, so the folder must take one.
void check_folder(const std::string& path) {
  std::string probe = std::filesystem::path(end_of_links(path)).parent_path().string();
  probe = (probe.empty() ? "." : probe) + "/.berth-XXXXXX";
  const int fd = ::mkstemp(probe.data());
  BERTH_CHECK(fd >= 0, kSystem, "cannot write '{}': {}", path, std::strerror(errno));
  ::close(fd);
  ::unlink(probe.c_str());
}

bool is_null(const struct stat& info) {
  struct stat null {};
  return ::stat("/dev/null", &null) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == null.st_rdev;
}

// What makes a file the same under all its names.
struct Identity {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;      // in the folder that is meant, where no file is there yet
  bool regular = false;  // a file that is there, whose bytes can be lost
  friend bool operator==(const Identity& a, const Identity& b) {
    return a.device == b.device && a.inode == b.inode && a.name == b.name;
  }
};

// Nothing of /dev/null, and of what is in no folder. `stream` is what `-` means.
std::optional<Identity> identity_of(const std::string& path, int stream) {
  struct stat info {};
  const bool there =
      path == kStandardStream ? ::fstat(stream, &info) == 0 : ::stat(path.c_str(), &info) == 0;
  if (there) {
    if (is_null(info)) return std::nullopt;
    return Identity{info.st_dev, info.st_ino, "", S_ISREG(info.st_mode)};
  }
  if (path == kStandardStream) return std::nullopt;
  const std::filesystem::path end = end_of_links(path);
  const std::string folder = end.has_parent_path() ? end.parent_path().string() : ".";
  if (::stat(folder.c_str(), &info) != 0) return std::nullopt;
  return Identity{info.st_dev, info.st_ino, end.filename().string(), false};
}

void write_all(int fd, std::span<const std::byte> data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0 && errno == EINTR) continue;
    BERTH_CHECK(written >= 0, kSystem, "cannot write '{}': {}", path, std::strerror(errno));
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

}  // namespace

void check_distinct(std::span<const std::string> inputs,
                    std::initializer_list<OutputFile> outputs) {
  struct Known {
    std::string_view option;
    Identity identity;
  };
  std::vector<Known> known;
  for (const OutputFile& output : outputs) {
    if (output.path.empty()) continue;
    const auto identity = identity_of(output.path, STDOUT_FILENO);
    if (!identity) continue;
    for (const std::string& input : inputs) {
      if (input.empty()) continue;
      const auto read = identity_of(input, STDIN_FILENO);
      BERTH_CHECK(!read || !read->regular || *read != *identity, kUsage,
                  "{} '{}' would be written over '{}', which this command reads: name another file",
                  output.option, output.path, input);
    }
    for (const Known& other : known)
      BERTH_CHECK(other.identity != *identity, kUsage,
                  "{} and {} '{}' are one file, and two would be written: name another one",
                  other.option, output.option, output.path);
    known.push_back({output.option, *identity});
  }
}

void check_files(std::span<const std::string> inputs, std::initializer_list<OutputFile> outputs,
                 bool json) {
  check_distinct(inputs, outputs);
  for (const OutputFile& output : outputs) {
    if (output.path.empty()) continue;
    check_output(output.path);
    if (!is_standard_output(output.path)) continue;
    BERTH_CHECK(!json, kUsage,
                "{} '{}' and --json would both be written to standard output: name a file for one "
                "of them",
                output.option, output.path);
    print_to_standard_error();
  }
}

void check_output(const std::string& path) {
  if (is_standard_output(path)) return;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;
  BERTH_CHECK(!std::filesystem::is_directory(path, ignored), kUsage,
              "cannot write '{}': it is a folder", path);
  BERTH_CHECK(folder.empty() || std::filesystem::is_directory(folder, ignored), kUsage,
              "cannot write '{}': there is no folder '{}'", path, folder.string());
  if (!is_stream(path)) check_folder(path);
}

void check_trace_output(const std::string& path) {
  if (std::filesystem::path(path).parent_path().string().find('{') != std::string::npos) return;
  check_output(path);
  std::error_code ignored;
  const std::filesystem::file_status there = std::filesystem::symlink_status(path, ignored);
  BERTH_CHECK(!std::filesystem::exists(there) || std::filesystem::is_regular_file(there), kUsage,
              "cannot record to '{}': it is no regular file", path);
}

bool is_standard_output(const std::string& path) {
  const auto identity = identity_of(path, STDOUT_FILENO);
  return path == kStandardStream ||
         (identity && identity == identity_of(std::string(kStandardStream), STDOUT_FILENO));
}

bool is_stream(const std::string& path) { return is_standard_output(path) || is_special(path); }

void write_output(const std::string& path, std::span<const std::byte> data) {
  if (is_standard_output(path)) return write_all(STDOUT_FILENO, data, path);
  write_file_atomically(path, data);
}

void write_output(const std::string& path, std::string_view text) {
  write_output(path, std::as_bytes(std::span(text)));
}

}  // namespace berth::cli
