#include "csrc/replay/shared_workload.h"

#include "csrc/core/check.h"
#include "csrc/replay/child_process.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace berth::replay {
namespace {

// Memory without a name that a child can inherit.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t size) : size_(size), fd_(::memfd_create("berth-replay", 0)) {
    BERTH_CHECK(fd_ >= 0, kSystem, "cannot make shared memory: {}", std::strerror(errno));
    if (::ftruncate(fd_, static_cast<off_t>(size)) == 0)
      data_ = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (data_ == MAP_FAILED) {
      const int error = errno;
      ::close(fd_);
      throw Error(ErrorKind::kSystem, fmt::format("cannot map {} of shared memory: {}",
                                                  format_bytes(size), std::strerror(error)));
    }
  }
  ~SharedMemory() {
    ::munmap(data_, size_);
    ::close(fd_);
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

 private:
  std::size_t size_;
  int fd_;
  void* data_ = MAP_FAILED;
};

// Shared, so that it does not count as a malloc's.
void* map_anonymous(std::size_t size) {
  void* data = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  BERTH_CHECK(data != MAP_FAILED, kSystem, "cannot map {}: {}", format_bytes(size),
              std::strerror(errno));
  return data;
}

}  // namespace

SharedHeader run_in_child(std::vector<std::string> command,
                          const std::vector<std::pair<std::string, std::string>>& environment,
                          const Workload& workload, SharedHeader header, const std::string& name) {
  const std::size_t operations_size = workload.operations.size() * sizeof(Operation);
  const SharedMemory memory(sizeof header + operations_size);
  header.operations = workload.operations.size();
  header.blocks = workload.block_count;
  std::memcpy(memory.data(), &header, sizeof header);
  if (operations_size > 0)
    std::memcpy(memory.data() + sizeof header, workload.operations.data(), operations_size);
  command.push_back(std::to_string(memory.fd()));
  const ChildExit ended = run_child(command, environment);
  BERTH_CHECK(ended.code == 0 && ended.signal == 0, kSystem,
              "the replay under {} failed: exit code {}, signal {}", name, ended.code,
              ended.signal);
  std::memcpy(&header, memory.data(), sizeof header);
  return header;
}

SharedWorkload::SharedWorkload(const char* memory_fd) {
  int fd = -1;
  const char* end = memory_fd + std::strlen(memory_fd);
  const auto [stop, error] = std::from_chars(memory_fd, end, fd);
  BERTH_CHECK(error == std::errc{} && stop == end, kUsage, "'{}' is no descriptor", memory_fd);
  const off_t size = ::lseek(fd, 0, SEEK_END);
  BERTH_CHECK(size >= static_cast<off_t>(sizeof(SharedHeader)), kUsage,
              "descriptor {} is no replay", fd);
  void* data =
      ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  BERTH_CHECK(data != MAP_FAILED, kSystem, "cannot map the replay: {}", std::strerror(errno));
  header_ = static_cast<SharedHeader*>(data);
  BERTH_CHECK(static_cast<std::size_t>(size) ==
                  sizeof(SharedHeader) + header_->operations * sizeof(Operation),
              kUsage, "descriptor {} is no replay", fd);
  operations_ = {reinterpret_cast<const Operation*>(static_cast<const std::byte*>(data) +
                                                    sizeof(SharedHeader)),
                 header_->operations};
  const std::size_t blocks = std::max<std::uint64_t>(header_->blocks, 1);
  pointers_ = {static_cast<void**>(map_anonymous(blocks * sizeof(void*))), blocks};
}

}  // namespace berth::replay
