#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace berth::standin {

// Which bytes of device memory hold what somebody wrote: copies from the host and of such bytes,
// and memsets, since they were handed out. All others are what a kernel would have computed, and
// nobody knows them.
//
// Ranges of addresses, half-open and apart from each other. O(log ranges) a call, and as many more
// as it swallows. Not thread-safe: under the machine's lock.
class KnownBytes {
 public:
  void add(std::uintptr_t begin, std::size_t size);
  void remove(std::uintptr_t begin, std::size_t size);
  // Whether all of them are.
  [[nodiscard]] bool holds(std::uintptr_t begin, std::size_t size) const;

 private:
  std::map<std::uintptr_t, std::uintptr_t> ends_;  // by begin
};

// What the host read of a device, for what cannot be known without a GPU.
struct HostReads {
  std::uint64_t copies = 0;   // from a device to the host
  std::uint64_t unknown = 0;  // of those, of bytes that a kernel would have computed
  std::uint64_t bytes = 0;    // of the unknown
  std::uint64_t skipped = 0;  // larger than the limit of copies: nothing was moved
};

// An element that reads of unknown bytes are filled with; of no size where the reader did not say
// what its elements are.
struct FedElement {
  static constexpr std::size_t kMost = 16;
  unsigned char bytes[kMost] = {};
  std::size_t size = 0;
};

// The calling thread's next reads (berth_standin_feed).
FedElement& fed_element();

// Fills `size` bytes of the host with what is fed: the thread's element, else whole numbers of 4 or
// 8 bytes, which is what libraries read for themselves.
void feed(void* to, std::size_t size, const FedElement& element, double value);

}  // namespace berth::standin
