#include "csrc/core/file.h"

#include "csrc/core/check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

namespace berth {
namespace {

// Closes a descriptor at the end of its scope.
class Descriptor {
 public:
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }
  // Closes now and says whether the system accepted all that was written.
  [[nodiscard]] bool close() noexcept {
    const int result = ::close(fd_);
    fd_ = -1;
    return result == 0 || errno == EINTR;
  }

 private:
  int fd_;
};

[[noreturn]] void fail(const char* what, const std::string& path) {
  const int error = errno;
  throw Error(ErrorKind::kSystem,
              fmt::format("cannot {} '{}': {}", what, path, std::strerror(error)));
}

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

void write_all(int fd, std::span<const std::byte> data, const std::string& path) {
  while (!data.empty()) {
    const ssize_t written = ::write(fd, data.data(), data.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", path);
    }
    data = data.subspan(static_cast<std::size_t>(written));
  }
}

constexpr std::string_view kStandardInput = "-";

// What was read of pipes, each in a file in memory that has no name.
class Pipes {
 public:
  void allow(Bytes limit) noexcept { limit_.store(limit); }

  // The path of what was kept of a pipe, read now where this is its first use; nothing for a file.
  [[nodiscard]] std::optional<std::string> find(const std::string& path) {
    const Bytes limit = limit_.load();
    if (limit == 0) return std::nullopt;
    const std::lock_guard lock(mutex_);
    auto kept = kept_.find(path);
    if (kept == kept_.end()) {
      if (!is_pipe(path)) return std::nullopt;
      kept = kept_.emplace(path, read(path, limit)).first;
    }
    return fmt::format("/proc/self/fd/{}", kept->second);
  }

 private:
  static bool is_pipe(const std::string& path) {
    struct stat info {};
    if (path == kStandardInput) return true;
    if (::stat(path.c_str(), &info) != 0) return false;
    if (S_ISCHR(info.st_mode)) {  // a terminal ends; /dev/zero does not
      const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
      return ::isatty(file.get()) == 1;
    }
    return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode);
  }

  // Sockets cannot be opened by a name: standard input is the descriptor that is there.
  static int open_pipe(const std::string& path) {
    for (const std::string_view name :
         {kStandardInput, std::string_view("/dev/stdin"), std::string_view("/dev/fd/0"),
          std::string_view("/proc/self/fd/0")})
      if (path == name) return ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY);
  }

  static int read(const std::string& path, Bytes limit) {
    const Descriptor pipe(open_pipe(path));
    BERTH_CHECK(pipe.get() >= 0, kInput, "cannot open '{}': {}", path, std::strerror(errno));
    const int kept = ::memfd_create("berth-input", MFD_CLOEXEC);
    if (kept < 0) fail("keep what comes from", path);
    try {
      std::vector<std::byte> piece(std::size_t{1} << 16);
      Bytes size = 0;
      for (;;) {
        const ssize_t got = ::read(pipe.get(), piece.data(), piece.size());
        if (got < 0) {
          if (errno == EINTR) continue;
          fail("read", path);
        }
        if (got == 0) return kept;
        size += static_cast<Bytes>(got);
        BERTH_CHECK(size <= limit, kInput, "'{}' has more than {}, the limit", path,
                    format_bytes(limit));
        write_all(kept, std::span(piece).first(static_cast<std::size_t>(got)), path);
      }
    } catch (...) {
      ::close(kept);
      throw;
    }
  }

  std::atomic<Bytes> limit_{0};  // 0: pipes are refused
  std::mutex mutex_;
  std::map<std::string, int> kept_;  // descriptors; open until the process ends
};

Pipes& pipes() {
  static Pipes& pipes = *new Pipes;  // never destroyed: other threads may still read
  return pipes;
}

// A regular file, open for reading.
class InputFile {
 public:
  // O_NONBLOCK: opening a fifo must not wait for a writer; it is refused below.
  explicit InputFile(const std::string& path)
      : path_(path), file_(::open(readable_path(path).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    BERTH_CHECK(file_.get() >= 0, kInput, "cannot open '{}': {}", path, std::strerror(errno));
    struct stat info {};
    if (::fstat(file_.get(), &info) != 0) fail("stat", path);
    BERTH_CHECK(S_ISREG(info.st_mode), kInput, "'{}' is not a regular file", path);
    size_ = static_cast<Bytes>(info.st_size);
  }
  [[nodiscard]] Bytes size() const noexcept { return size_; }
  // Its first `count` bytes.
  [[nodiscard]] std::vector<std::byte> read(std::size_t count) const;

 private:
  const std::string& path_;
  Descriptor file_;
  Bytes size_ = 0;
};

std::vector<std::byte> InputFile::read(std::size_t count) const {
  std::vector<std::byte> data(count);
  std::size_t done = 0;
  while (done < data.size()) {
    const ssize_t got = ::read(file_.get(), data.data() + done, data.size() - done);
    if (got < 0) {
      if (errno == EINTR) continue;
      fail("read", path_);
    }
    if (got == 0) break;  // it shrank while we read: what came is what there is
    done += static_cast<std::size_t>(got);
  }
  data.resize(done);
  return data;
}

}  // namespace

void read_pipes_too(Bytes limit) { pipes().allow(limit); }

std::string readable_path(const std::string& path) { return pipes().find(path).value_or(path); }

std::vector<std::byte> read_file(const std::string& path, Bytes limit) {
  const InputFile file(path);
  BERTH_CHECK(file.size() <= limit, kInput, "'{}' has {}, the limit is {}", path,
              format_bytes(file.size()), format_bytes(limit));
  return file.read(file.size());
}

std::vector<std::byte> read_file_head(const std::string& path, std::size_t count) {
  return InputFile(path).read(count);
}

std::string end_of_links(std::string path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  for (int links = 0; links <= kMostLinks; ++links) {
    std::string target(PATH_MAX, '\0');
    const ssize_t length = ::readlink(path.c_str(), target.data(), target.size());
    if (length < 0) return path;  // no link; what else may be wrong, its writer finds
    target.resize(static_cast<std::size_t>(length));
    path = target.starts_with('/') ? target : folder_of(path) + "/" + target;
  }
  errno = ELOOP;
  fail("follow", path);
}

bool is_there(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return true;
  if (errno != ENOENT && errno != ENOTDIR) fail("look for", path);
  return false;
}

bool is_special(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

void write_file_atomically(const std::string& path, std::span<const std::byte> data) {
  write_file_atomically_with(path, [&](int fd) { write_all(fd, data, path); });
}

void write_file_atomically_with(const std::string& name, const std::function<void(int)>& write) {
  const std::string path = end_of_links(name);
  if (is_special(path)) {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail("open", path);
    write(file.get());
    if (!file.close()) fail("close", path);
    return;
  }
  static std::atomic<unsigned> counter{0};
  std::string temporary;
  int fd = -1;
  for (int attempt = 0; attempt < 100 && fd < 0; ++attempt) {
    temporary = fmt::format("{}.{}.{}.tmp", path, ::getpid(), counter.fetch_add(1));
    fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) fail("create", temporary);
  }
  if (fd < 0) fail("create", temporary);
  try {
    Descriptor file(fd);
    write(file.get());
    if (::fsync(file.get()) != 0) fail("fsync", temporary);
    if (!file.close()) fail("close", temporary);
    if (::rename(temporary.c_str(), path.c_str()) != 0) fail("rename to", path);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  const std::string folder = folder_of(path);
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems refuse fsync of a folder; the rename itself already happened.
  if (directory.get() >= 0 && ::fsync(directory.get()) != 0 && errno != EINVAL && errno != EROFS) {
    fail("fsync", folder);
  }
}

}  // namespace berth
