#pragma once

#include "csrc/core/bytes.h"
#include "csrc/core/interval_map.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace berth {

// A stream of a device: the handle, or on the host a thread's number. Equal to trace::Lane::key of
// its recorded lane.
using LaneKey = std::uint64_t;

// What a device call answered. Cheap to copy, never allocates: errors are met while freeing, too.
class [[nodiscard]] Status {
 public:
  enum class Code : std::uint8_t {
    kOk,
    kOutOfMemory,  // the device has not got that much
    kFailed,       // this call failed, the device is well
    kSticky,       // earlier device work failed: every further call will say so
    kGone,         // the driver is unloaded, or this is a forked child
    kUnsupported,
  };

  constexpr Status() = default;
  // `call` is a string literal: the system's or driver's function.
  constexpr Status(Code code, const char* call, int number = 0) noexcept
      : code_(code), number_(number), call_(call) {}

  [[nodiscard]] constexpr bool ok() const noexcept { return code_ == Code::kOk; }
  [[nodiscard]] constexpr Code code() const noexcept { return code_; }
  [[nodiscard]] constexpr const char* call() const noexcept { return call_; }
  [[nodiscard]] constexpr int number() const noexcept { return number_; }

 private:
  Code code_ = Code::kOk;
  int number_ = 0;  // errno or the driver's error
  const char* call_ = "";
};

// A point in the work of a lane. 0 is no event: complete.
using DeviceEvent = std::uint64_t;

struct DeviceProperties {
  std::string name;         // "cpu"
  std::string memory;       // how it is had, where there are several ways
  Bytes total_bytes = 0;    // on the host the smaller of physical memory and the cgroup's limit
  Bytes page_bytes = 4096;  // granularity of commit and decommit
  bool maps_pages =
      true;  // ranges may be larger than memory, pages committed and given back one by one
  bool asynchronous = false;  // lanes run behind the host
  bool aliases = false;       // the memory of a page may be behind several addresses
  Bytes move_bytes = 0;       // the most that move() takes at one time; 0: pages stay
};

// The only door to the memory of one device. Thread-safe. Every call says how it went; none throws.
class Device {
 public:
  virtual ~Device() = default;

  [[nodiscard]] virtual const DeviceProperties& properties() const noexcept = 0;
  // Bytes that could still be committed now (the driver's word; on the host of the cgroup or the
  // system).
  virtual Status free_bytes(Bytes* free) noexcept = 0;
  // The most of its memory that may be held, however much there is; 0: no limit.
  [[nodiscard]] virtual Bytes limit() const noexcept { return 0; }
  // Bytes that may still be committed as far as is known without a call, else kMaxBytes: a hint.
  [[nodiscard]] virtual Bytes room() const noexcept { return kMaxBytes; }
  // A message for people about a status of this device.
  [[nodiscard]] virtual std::string describe(const Status& status) const = 0;

  // Address ranges. reserve() takes addresses only where the device maps pages; commit() backs them
  // with memory. commit of committed pages and decommit of decommitted ones are no error. Sizes are
  // multiples of page_bytes. release() takes whole reservations. Pages are given back (decommit,
  // release) only once the device's work on them is done. Where the device maps no pages, reserve()
  // brings the memory, commit() does nothing and decommit() is kUnsupported.
  virtual Status reserve(Bytes size, Bytes alignment, void** base) noexcept = 0;
  enum class Residency : std::uint8_t {
    kOnDemand,
    kResident
  };  // kResident: no page fault at first use
  // No handle (see below) is larger than `most`, at least a page; unless it is said, than a page:
  // then each comes and goes by itself.
  virtual Status commit(void* base, Bytes size, Residency residency, Bytes most) noexcept = 0;
  Status commit(void* base, Bytes size, Residency residency) noexcept {
    return commit(base, size, residency, properties().page_bytes);
  }
  virtual Status decommit(void* base, Bytes size) noexcept = 0;
  virtual Status release(void* base, Bytes size) noexcept = 0;

  // Memory that came together may have to go together: the addresses of the *handle* that
  // `address`, which has memory, is of. A commit() brings one handle for each stretch that has no
  // memory, or several, and decommit() and alias() take whole ones only; where the device gives
  // back single pages a handle is a page.
  [[nodiscard]] virtual ByteRange handle_at(const void* address) const noexcept {
    const Bytes page = properties().page_bytes;
    const Bytes first = align_down(reinterpret_cast<Bytes>(address), page);
    return {first, first + page};
  }
  // The most that a handle should have whose memory may be wanted in pieces: what it costs in calls
  // against what is held for want of a piece.
  [[nodiscard]] virtual Bytes handle_bytes() const noexcept { return kMaxBytes; }
  // Of bytes that all have memory those of whole handles; empty where they end before they begin.
  [[nodiscard]] ByteRange whole_handles(ByteRange bytes) const noexcept {
    if (const ByteRange handle = handle_at(pointer_at(bytes.first)); handle.first != bytes.first)
      bytes.first = handle.last;
    if (bytes.first >= bytes.last) return {bytes.first, bytes.first};
    if (const ByteRange handle = handle_at(pointer_at(bytes.last - 1)); handle.last != bytes.last)
      bytes.last = handle.first;
    return bytes;
  }

  // The memory behind the page at from[i] is behind the page at `to` + i * page_bytes as well, for
  // `pages` pages: a call of the driver for each handle to map it, one to give access. Each from[i]
  // is committed and aligned to pages, and they are whole handles, each in the order of its
  // addresses; at `to` are addresses of a reservation of this device, without
  // memory. The memory goes back to the device when the last address that has it is decommitted or
  // released. After a failure nothing is mapped at `to`. What work writes through one address other
  // work sees through another once it is ordered behind it (by its lane or an event). kUnsupported
  // where !aliases.
  virtual Status alias(void* to, const void* const* from, std::size_t pages) noexcept = 0;

  // The memory at [from, from + size) is behind `to` from now on, as it is, and `from` has none:
  // one call, and nobody uses it meanwhile. All of it is committed and lies in one stretch of
  // move_bytes that is aligned to them; at `to` are addresses of a reservation of this device,
  // without memory. Pages that were not resident are not. After a failure nothing has moved.
  // kUnsupported where move_bytes is 0.
  virtual Status move([[maybe_unused]] void* to, [[maybe_unused]] void* from,
                      [[maybe_unused]] Bytes size) noexcept {
    return {Status::Code::kUnsupported, "move"};
  }

  // Host memory that the device copies from and to.
  virtual Status reserve_pinned(Bytes size, void** base) noexcept = 0;
  virtual Status release_pinned(void* base, Bytes size) noexcept = 0;
  // In the order of the lane; `done` may be null.
  virtual Status copy(void* to, const void* from, Bytes size, LaneKey lane,
                      DeviceEvent* done) noexcept = 0;

  // Events. wait(): later work of the lane runs after the event; the host does not block. An event
  // is destroyed once, by its owner, complete or not.
  virtual Status record(LaneKey lane, DeviceEvent* event) noexcept = 0;
  virtual Status query(DeviceEvent event, bool* complete) noexcept = 0;
  virtual Status wait(LaneKey lane, DeviceEvent event) noexcept = 0;
  virtual Status synchronize(DeviceEvent event) noexcept = 0;
  virtual Status synchronize_all() noexcept = 0;
  virtual void destroy(DeviceEvent event) noexcept = 0;
  // Whether the lane's work is being captured into a graph.
  virtual Status capturing(LaneKey lane, bool* capturing) noexcept = 0;
  // Whether the lane is a stream of somebody else's, which may be gone when others want an event.
  [[nodiscard]] virtual bool may_go([[maybe_unused]] LaneKey lane) const noexcept { return false; }

  // Calls that reached the system or driver so far.
  [[nodiscard]] virtual std::uint64_t driver_calls() const noexcept = 0;
};

}  // namespace berth
