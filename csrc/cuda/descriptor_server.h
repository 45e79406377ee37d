#pragma once

#include "csrc/device/device.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

namespace berth {

// Where another process asks for file descriptors of this one's memory, and the proof that it may.
struct DescriptorDoor {
  std::int32_t process = 0;
  std::int32_t padding = 0;
  std::uint64_t number = 0;         // of the socket, an abstract one
  std::array<std::byte, 16> key{};  // of who was given a handle; the socket's name is public
};
static_assert(sizeof(DescriptorDoor) == 32);

// Passes file descriptors to other processes by a socket (SCM_RIGHTS). A descriptor is made when it
// is asked for and closed once it is sent, at most kBatch at a time, so that however much is shared
// none stays open. The other process needs no rights over this one, as pidfd_getfd() wants them; it
// must see the same abstract sockets (the network namespace).
//
// A thread of its own answers, one asker after the other; whoever is silent for 10 seconds is left.
// start() and the destructor are called by one thread at a time.
class DescriptorServer {
 public:
  static constexpr std::size_t kBatch = 16;

  // Makes a descriptor of the memory with this number, which is closed after it was sent. Called by
  // the thread.
  using Export = std::function<Status(std::uint64_t number, int* descriptor)>;

  explicit DescriptorServer(Export make) : make_(std::move(make)) {}
  ~DescriptorServer();
  DescriptorServer(const DescriptorServer&) = delete;
  DescriptorServer& operator=(const DescriptorServer&) = delete;

  // Begins to answer, if it did not yet. After a failure nothing is open.
  Status start() noexcept;
  // Once it was started.
  [[nodiscard]] const DescriptorDoor& door() const noexcept { return door_; }

 private:
  void serve() noexcept;
  void answer(int asker) noexcept;

  const Export make_;
  DescriptorDoor door_;
  int listening_ = -1;
  std::thread thread_;
};

// Gets the descriptors of these numbers, in order: calls take(descriptor) for each and closes it.
// Ends with the first failure, of the other process or of take(). Throws std::bad_alloc.
Status fetch_descriptors(const DescriptorDoor& door, std::span<const std::uint64_t> numbers,
                         const std::function<Status(int descriptor)>& take);

}  // namespace berth
