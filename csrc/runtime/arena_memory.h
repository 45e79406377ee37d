#pragma once

#include "csrc/core/interval_map.h"
#include "csrc/device/device.h"
#include "csrc/device/page_bitmap.h"
#include "csrc/device/page_sharing.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace berth {

// The addresses of an arena and the pages that it has there.
//
// A plan needs the pages under its slots, no others: a hole of the plan has none. They come with
// the first blocks on them: from whoever has free ones, else from the device. They go one by one
// where nobody uses them, and come back the same way. Where the device maps no pages, all memory
// comes with the addresses.
//
// Offsets and sizes are bytes. Not thread-safe. Owns its addresses and pages; the device and the
// source outlive it. Only what returns a vector asks for host memory.
class ArenaMemory {
 public:
  ArenaMemory(Device& device, PageSource* source, Bytes alignment) noexcept;
  ~ArenaMemory();
  ArenaMemory(const ArenaMemory&) = delete;
  ArenaMemory& operator=(const ArenaMemory&) = delete;

  [[nodiscard]] std::byte* base() const noexcept { return base_; }
  [[nodiscard]] Bytes range_bytes() const noexcept { return range_bytes_; }
  // Whether all that the plan needs is there: no look at the pages under a block.
  [[nodiscard]] bool ready() const noexcept { return missing_ == 0; }
  [[nodiscard]] Bytes missing() const noexcept { return missing_; }
  [[nodiscard]] Bytes committed() const noexcept { return committed_; }
  // The stretches of addresses that have pages, ascending.
  [[nodiscard]] std::vector<ByteRange> stretches() const;
  // Of these those that the plan does not need.
  [[nodiscard]] std::vector<ByteRange> unneeded() const;
  // Whether all these bytes have pages.
  [[nodiscard]] bool has(ByteRange bytes) const noexcept;
  [[nodiscard]] std::uint64_t device_errors() const noexcept { return device_errors_; }
  // Pages that came from the source.
  [[nodiscard]] std::uint64_t pages_moved() const noexcept { return pages_moved_; }

  // Makes the range at least this large. Nothing may live in it: a larger range is another one, and
  // what was committed is gone.
  Status reserve(Bytes bytes) noexcept;
  // What reserve() would reserve for a plan of so many bytes, where it does not take room for later
  // ones.
  [[nodiscard]] Bytes range_of(Bytes bytes) const noexcept;

  // The numbers of the pages under `used`, which is ascending and disjoint.
  [[nodiscard]] std::vector<ByteRange> pages_under(const std::vector<ByteRange>& used) const;
  // From here on these pages are what is needed. Requires that the range is large enough.
  void plan(std::vector<ByteRange> pages) noexcept;
  // Until the next plan the device's pages come in handles of up to so many bytes where the store's
  // are smaller.
  void set_least_handle(Bytes bytes) noexcept { least_handle_ = bytes; }
  // No plan any more: what is there stays.
  void forget_plan() noexcept { plan({}); }

  struct Brought {
    bool all = true;       // false: the device or the limit refuses
    ByteRange moved = {};  // pages that came from the source lie in these bytes
  };
  // The pages under these bytes, for work on `lane`; the device's only where the source may grow,
  // or the bytes are `planned`, which come in each step. Those around them come along where they
  // lie free, or the source may grow.
  [[nodiscard]] Brought ensure(ByteRange bytes, ByteRange around, LaneKey lane,
                               bool planned) noexcept;
  // All that the plan needs. Where `may_grow` is false only what the source has.
  [[nodiscard]] Brought fill(LaneKey lane, bool may_grow) noexcept;
  // Gives back the range, in which nothing may live. Returns bytes of memory. The device must be
  // done with them.
  Bytes release() noexcept;
  // Gives back the whole handles in these bytes, which the device must be done with. Returns bytes.
  Bytes give_back(ByteRange bytes) noexcept;

 private:
  Status let_go() noexcept;
  void give_back_pages(ByteRange pages) noexcept;
  // Of pages that are there, by their numbers, those of whole handles; empty where they end before
  // they begin.
  [[nodiscard]] ByteRange whole_handles(ByteRange pages) const noexcept;
  [[nodiscard]] bool source_lets_go(ByteRange pages) noexcept;
  [[nodiscard]] Bytes page() const noexcept { return device_.properties().page_bytes; }
  [[nodiscard]] ByteRange page_numbers(ByteRange bytes) const noexcept {
    return {bytes.first / page(), (bytes.last + page() - 1) / page()};
  }
  [[nodiscard]] ByteRange whole_units(ByteRange pages) const noexcept;
  // `may_grow(pages)`: whether the device may be asked for so many.
  template <class MayGrow>
  void bring(ByteRange pages, LaneKey lane, bool others, MayGrow&& may_grow,
             Brought* brought) noexcept;
  // Where the stretch of needed pages ends that these are of.
  [[nodiscard]] Bytes end_of_needed(ByteRange pages) const noexcept;
  // Of `pages`, and where handles are larger of `room` pages from their first on.
  void move_pages(ByteRange* pages, Bytes room, LaneKey lane, bool others,
                  Brought* brought) noexcept;
  [[nodiscard]] bool commit(ByteRange pages) noexcept;
  void note_committed(ByteRange pages) noexcept;
  void count_missing() noexcept;

  Device& device_;
  PageSource* const source_;
  const Bytes alignment_;
  const Bytes unit_;  // pages that come at one time
  std::byte* base_ = nullptr;
  Bytes range_bytes_ = 0;
  Bytes least_handle_ = 0;
  PageBitmap pages_;  // that are committed
  Bytes committed_ = 0;
  Bytes pages_end_ = 0;            // behind the last page that ever was
  Bytes missing_ = 0;              // of what is needed
  std::vector<ByteRange> needed_;  // page numbers, ascending, disjoint
  std::uint64_t device_errors_ = 0, pages_moved_ = 0;
};

}  // namespace berth
