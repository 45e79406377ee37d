#include "csrc/cuda/descriptor_server.h"

#include <driver_types.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <string>
#include <system_error>
#include <utility>

namespace berth {
namespace {

// What an asker sends: this, and the numbers.
struct DescriptorRequest {
  std::array<std::byte, 16> key{};
  std::uint64_t count = 0;
};
// What it gets for each batch, with the descriptors. It sends a byte when it is done with one, so
// that no more than a batch is under way: the system counts those, too.
struct DescriptorReply {
  std::int32_t error = 0;  // cudaError_t
  std::int32_t count = 0;
};

// More is no handle of ours: 2^24 pages of 2 MiB are 32 TiB.
constexpr std::uint64_t kMostNumbers = 1 << 24;

Status socket_failure(const char* name) noexcept { return {Status::Code::kFailed, name, errno}; }

sockaddr_un address_of(const DescriptorDoor& door, socklen_t* size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // A leading zero: a name that is no file's.
  const auto end = fmt::format_to_n(address.sun_path + 1, sizeof address.sun_path - 1,
                                    "berth-memory-{}-{:016x}", door.process, door.number)
                       .out;
  *size = static_cast<socklen_t>(end - reinterpret_cast<char*>(&address));
  return address;
}

void limit_waits(int socket) noexcept {
  constexpr timeval kPatience{10, 0};
  (void)setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  (void)setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
}

bool send_all(int socket, const void* data, std::size_t size) noexcept {
  for (const auto* next = static_cast<const char*>(data); size != 0;) {
    const ssize_t sent = send(socket, next, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    next += sent;
    size -= static_cast<std::size_t>(sent);
  }
  return true;
}

// At its end errno is 0.
bool receive_all(int socket, void* data, std::size_t size) noexcept {
  for (auto* next = static_cast<char*>(data); size != 0;) {
    errno = 0;
    const ssize_t got = recv(socket, next, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// A reply and the room for what may come with it.
struct DescriptorMessage {
  DescriptorReply reply;
  iovec part{&reply, sizeof reply};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * DescriptorServer::kBatch)] = {};
  msghdr header{};

  DescriptorMessage() {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;
};

bool send_batch(int socket, const DescriptorReply& reply, std::span<const int> descriptors) {
  DescriptorMessage message;
  message.reply = reply;
  if (descriptors.empty()) {
    message.header.msg_control = nullptr;
    message.header.msg_controllen = 0;
  } else {
    message.header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const control = CMSG_FIRSTHDR(&message.header);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(control), descriptors.data(), descriptors.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &message.header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == sizeof reply;
}

// Closes what it holds.
struct DescriptorBatch {
  std::array<int, DescriptorServer::kBatch> descriptors{};
  std::size_t count = 0;

  DescriptorBatch() = default;
  ~DescriptorBatch() {
    for (std::size_t i = 0; i < count; ++i) close(descriptors[i]);
  }
  DescriptorBatch(const DescriptorBatch&) = delete;
  DescriptorBatch& operator=(const DescriptorBatch&) = delete;
};

bool receive_batch(int socket, DescriptorReply* reply, DescriptorBatch* batch) noexcept {
  DescriptorMessage message;
  ssize_t got = 0;
  do {
    errno = 0;
    got = recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return false;
  for (cmsghdr* control = CMSG_FIRSTHDR(&message.header); control != nullptr;
       control = CMSG_NXTHDR(&message.header, control)) {
    if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t bytes = control->cmsg_len - CMSG_LEN(0);
    batch->count = std::min(bytes / sizeof(int), batch->descriptors.size());
    std::memcpy(batch->descriptors.data(), CMSG_DATA(control), batch->count * sizeof(int));
  }
  *reply = message.reply;
  // Cut where this process may have no more descriptors.
  if ((message.header.msg_flags & MSG_CTRUNC) != 0) errno = EMFILE;
  return got == sizeof *reply && (message.header.msg_flags & MSG_CTRUNC) == 0;
}

}  // namespace

// --- Who has the memory -------------------------------------------------------------------------

DescriptorServer::~DescriptorServer() {
  if (listening_ < 0) return;
  (void)shutdown(listening_, SHUT_RDWR);
  thread_.join();
  close(listening_);
}

Status DescriptorServer::start() noexcept {
  if (listening_ >= 0) return {};
  DescriptorDoor door;
  door.process = getpid();
  if (getrandom(&door.number, sizeof door.number, 0) != sizeof door.number ||
      getrandom(door.key.data(), door.key.size(), 0) != static_cast<ssize_t>(door.key.size()))
    return socket_failure("getrandom");
  const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (made < 0) return socket_failure("socket");
  Status status;
  socklen_t size = 0;
  const sockaddr_un address = address_of(door, &size);
  if (bind(made, reinterpret_cast<const sockaddr*>(&address), size) != 0)
    status = socket_failure("bind");
  else if (listen(made, SOMAXCONN) != 0)
    status = socket_failure("listen");
  if (status.ok()) {
    // Signals are the program's threads' to handle.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    listening_ = made;
    door_ = door;
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (const std::system_error& error) {
      status = {Status::Code::kFailed, "pthread_create", error.code().value()};
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  if (!status.ok()) {
    listening_ = -1;
    close(made);
  }
  return status;
}

void DescriptorServer::serve() noexcept {
  while (true) {
    const int asker = accept4(listening_, nullptr, nullptr, SOCK_CLOEXEC);
    if (asker < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) return;
      usleep(10'000);  // others close some
      continue;
    }
    limit_waits(asker);
    answer(asker);
    close(asker);
  }
}

void DescriptorServer::answer(int asker) noexcept {
  try {
    DescriptorRequest request;
    if (!receive_all(asker, &request, sizeof request) || request.key != door_.key ||
        request.count > kMostNumbers)
      return;
    std::vector<std::uint64_t> numbers(request.count);
    if (!receive_all(asker, numbers.data(), numbers.size() * sizeof(std::uint64_t))) return;
    for (std::size_t next = 0; next < numbers.size();) {
      DescriptorBatch batch;
      DescriptorReply reply;
      while (batch.count < kBatch && next + batch.count < numbers.size()) {
        int descriptor = -1;
        const Status status = make_(numbers[next + batch.count], &descriptor);
        if (!status.ok()) {
          if (batch.count != 0) break;  // there may be room again once these are closed
          reply.error = status.number() != 0 ? status.number() : cudaErrorUnknown;
          break;
        }
        batch.descriptors[batch.count++] = descriptor;
      }
      reply.count = static_cast<std::int32_t>(batch.count);
      char done = 0;
      if (!send_batch(asker, reply, {batch.descriptors.data(), batch.count}) || reply.error != 0 ||
          !receive_all(asker, &done, 1))
        return;
      next += batch.count;
    }
  } catch (const std::bad_alloc&) {  // it hears that we are gone
  }
}

// --- Who asks for it ----------------------------------------------------------------------------

Status fetch_descriptors(const DescriptorDoor& door, std::span<const std::uint64_t> numbers,
                         const std::function<Status(int descriptor)>& take) {
  struct Socket {
    int number = -1;
    ~Socket() {
      if (number >= 0) close(number);
    }
  } asking;
  asking.number = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (asking.number < 0) return socket_failure("socket");
  limit_waits(asking.number);
  socklen_t size = 0;
  const sockaddr_un address = address_of(door, &size);
  if (connect(asking.number, reinterpret_cast<const sockaddr*>(&address), size) != 0)
    return socket_failure("connect");
  const DescriptorRequest request{door.key, numbers.size()};
  if (!send_all(asking.number, &request, sizeof request) ||
      !send_all(asking.number, numbers.data(), numbers.size_bytes()))
    return socket_failure("send");
  for (std::size_t taken = 0; taken < numbers.size();) {
    DescriptorReply reply;
    DescriptorBatch batch;
    if (!receive_batch(asking.number, &reply, &batch)) {
      if (errno == 0) errno = ECONNRESET;
      return socket_failure("recvmsg");
    }
    if (static_cast<std::size_t>(reply.count) != batch.count ||
        batch.count > numbers.size() - taken || (batch.count == 0 && reply.error == 0))
      return {Status::Code::kFailed, "recvmsg", EBADMSG};
    for (std::size_t i = 0; i < batch.count; ++i)
      if (const Status status = take(batch.descriptors[i]); !status.ok()) return status;
    if (reply.error != 0)
      return {Status::Code::kFailed, "cuMemExportToShareableHandle (of the process that shares)",
              reply.error};
    taken += batch.count;
    if (!send_all(asking.number, "", 1)) return socket_failure("send");
  }
  return {};
}

}  // namespace berth
