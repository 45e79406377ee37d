#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/page_bitmap.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace berth {

// The addresses of an arena and the pages that it has there.
//
// A plan needs the pages under its slots, no others: a hole of the plan has none. They come at one
// time, or, where the device maps pages and cannot fault them in itself, with the first blocks on
// them (kFilling), so that another may give up its pages meanwhile.
//
// Offsets and sizes are bytes. Not thread-safe. Owns its addresses and pages; the device outlives
// it. Only what returns a vector asks for host memory.
class ArenaMemory {
 public:
  enum class State : std::uint8_t {
    kAsleep,   // the plan's pages come when a step starts: nothing may be handed out
    kDue,      // a step starts: commit() is to be called
    kFilling,  // pages come with the first blocks on them
    kThere,    // all that the plan needs
  };

  ArenaMemory(Device& device, Bytes alignment) noexcept : device_(device), alignment_(alignment) {}
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] Bytes range_bytes() const noexcept { return range_bytes_; }
  [[nodiscard]] State state() const noexcept { return state_; }
  // Whether blocks may be handed out without a look at the pages under them.
  [[nodiscard]] bool ready() const noexcept { return state_ == State::kThere; }
  [[nodiscard]] bool asleep() const noexcept {
    return state_ == State::kAsleep || state_ == State::kDue;
  }
  // Bytes that it has, and, with those that are still to come while it fills.
  [[nodiscard]] Bytes committed() const noexcept { return committed_; }
  [[nodiscard]] Bytes pledged() const noexcept { return committed_ + to_come_; }
  // The stretches of addresses that have pages, ascending.
  [[nodiscard]] std::vector<ByteRange> stretches() const;
  [[nodiscard]] std::uint64_t device_errors() const noexcept { return device_errors_; }

  // Makes the range at least this large. Nothing may live in it: a larger range is another one, and
  // what was committed is gone.
  Status reserve(Bytes bytes) noexcept;

  // The numbers of the pages under `used`, which is ascending and disjoint.
  [[nodiscard]] std::vector<ByteRange> pages_under(const std::vector<ByteRange>& used) const;
  // From here on these pages are what is needed; they come when a step starts. Requires that the
  // range is large enough.
  void plan(std::vector<ByteRange> pages) noexcept;
  // No plan any more: what is there stays.
  void forget_plan() noexcept;

  void step_starts() noexcept {
    if (state_ == State::kAsleep) state_ = State::kDue;
  }
  // Whether what `commit` gives back is in use; see there.
  using InUse = std::function<bool(ByteRange)>;
  // Gives the plan its pages: now, or, on demand, as they are used. Pages that the plan does not
  // need go back unless they are `in_use`. False, and nothing more committed than before, where the
  // device refuses.
  [[nodiscard]] bool commit(Device::Residency residency, const InUse& in_use) noexcept;
  // The pages under these bytes. False where the device or the limit refuses.
  [[nodiscard]] bool ensure(ByteRange bytes) noexcept;
  // Makes all that the plan needs resident: no page fault, and no call of the device, from here on.
  // Where the device or the limit refuses, things stay as they are.
  void make_resident() noexcept;
  // Gives everything back, which the device must be done with; a plan waits for a step to start
  // again. Returns bytes given back.
  Bytes retire() noexcept;

  // No more than so much is committed by ensure() and make_resident().
  void set_limit(Bytes limit) noexcept { limit_ = limit; }

 private:
  [[nodiscard]] Bytes page() const noexcept { return device_.properties().page_bytes; }
  [[nodiscard]] ByteRange page_numbers(ByteRange bytes) const noexcept {
    return {bytes.first / page(), (bytes.last + page() - 1) / page()};
  }
  [[nodiscard]] Bytes missing() const noexcept;
  Status commit_pages(ByteRange pages, Device::Residency residency) noexcept;
  Status decommit_pages(ByteRange pages) noexcept;
  void note_committed(ByteRange pages) noexcept;
  bool commit_needed(Device::Residency residency) noexcept;
  void give_back_unneeded(const InUse& in_use) noexcept;

  Device& device_;
  const Bytes alignment_;
  std::byte* base_ = nullptr;
  Bytes range_bytes_ = 0;
  PageBitmap pages_;  // that are committed
  Bytes committed_ = 0;
  Bytes pages_end_ = 0;            // behind the last page that ever was
  Bytes to_come_ = 0;              // while it fills
  std::vector<ByteRange> needed_;  // page numbers, ascending, disjoint
  State state_ = State::kThere;
  Bytes limit_ = ~Bytes{0};
  std::uint64_t device_errors_ = 0;
};

}  // namespace berth
