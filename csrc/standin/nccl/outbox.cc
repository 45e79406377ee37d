#include "csrc/standin/nccl/outbox.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace berth::standin {
namespace {

constexpr std::size_t kOutboxPage = 4096;

}  // namespace

Outbox& Outbox::own() {
  static auto* outbox = new Outbox;
  return *outbox;
}

Outbox::Outbox() : file_(memfd_create("berth-standin-outbox", MFD_CLOEXEC)) {
  if (file_ < 0) {
    std::perror("berth stand-in: cannot make the file of what ranks send");
    std::_Exit(2);
  }
}

std::uint64_t Outbox::put(const void* bytes, std::size_t size) {
  if (pieces_++ == 0) next_ = 0;
  const std::uint64_t offset = next_;
  next_ += (size + kOutboxPage - 1) / kOutboxPage * kOutboxPage;
  for (std::size_t done = 0; done < size;) {
    const ssize_t wrote = pwrite(file_, static_cast<const char*>(bytes) + done, size - done,
                                 static_cast<off_t>(offset + done));
    if (wrote <= 0) {
      std::perror("berth stand-in: no host memory for what a rank sends");
      std::_Exit(2);
    }
    done += static_cast<std::size_t>(wrote);
  }
  return offset;
}

void Outbox::drop(std::uint64_t offset, std::size_t size) noexcept {
  --pieces_;
  [[maybe_unused]] const int status =
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                static_cast<off_t>((size + kOutboxPage - 1) / kOutboxPage * kOutboxPage));
}

int outbox_of(const ProcessId& process, int file) {
  static std::mutex mutex;
  static auto* files = new std::map<std::pair<ProcessId, int>, int>;
  const std::lock_guard lock(mutex);
  const auto found = files->find({process, file});
  if (found != files->end()) return found->second;
  const int opened = open_file_of(process, file);
  if (opened >= 0) files->emplace(std::pair{process, file}, opened);
  return opened;
}

bool read_outbox(int file, std::uint64_t offset, void* to, std::size_t size) {
  for (std::size_t done = 0; done < size;) {
    const ssize_t read =
        pread(file, static_cast<char*>(to) + done, size - done, static_cast<off_t>(offset + done));
    if (read <= 0) return false;
    done += static_cast<std::size_t>(read);
  }
  return true;
}

}  // namespace berth::standin
