#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"
#include "csrc/device/stretch.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace berth {

// Why a request is refused, for who has to act on it: what holds the memory, what lies free and
// cannot be used, and what the plan still needs.
//
// Filled by who refuses; a walk over all blocks, which only that pays. Sizes are bytes.
class Exhaustion {
 public:
  Bytes asked = 0;
  LaneKey lane = 0;
  std::string device;
  std::string failure;  // of the device, where it is that and no lack of memory
  Bytes limit = 0;      // 0: all that the device has, `total`
  Bytes total = 0, reserved = 0;
  Bytes left = 0;                    // free on the device, as far as the limit allows it
  Bytes live = 0, planned_live = 0;  // in arena and pool together, and in the arena
  Bytes plan_arena = 0;              // of the plan that is served, 0: none
  Bytes arena_held = 0;

  // `page_bytes`: what the device gives and takes at a time.
  explicit Exhaustion(Bytes page_bytes) : page_bytes_(page_bytes) {}

  // A block of the pool.
  void add_block(Bytes size, Bytes requested, std::uint32_t tag);
  // A stretch of memory that is held.
  void add(const Stretch& stretch, bool arena);

  // Several lines: the first says what was asked for, had and allowed.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] Bytes largest_hole() const noexcept { return largest_hole_; }
  // Free bytes, and those of them on pages that hold blocks as well, which nothing can move.
  [[nodiscard]] Bytes holes() const noexcept { return holes_; }
  [[nodiscard]] Bytes stuck() const noexcept { return stuck_; }
  // Freed bytes that work of other streams, or a captured graph, may still use.
  [[nodiscard]] Bytes waiting() const noexcept { return waiting_; }

 private:
  struct Group {
    std::uint64_t count = 0;
    Bytes bytes = 0;
  };
  struct Range {
    const void* base = nullptr;
    Bytes size = 0, live = 0;
    bool arena = false;
  };
  [[nodiscard]] std::string holders() const;
  [[nodiscard]] std::string ranges() const;

  Bytes page_bytes_;
  Bytes largest_hole_ = 0, holes_ = 0, stuck_ = 0, waiting_ = 0;
  std::map<std::pair<std::uint32_t, Bytes>, Group> groups_;  // of the pool, by tag and size
  std::vector<Range> ranges_;
};

}  // namespace berth
