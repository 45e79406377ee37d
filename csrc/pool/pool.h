#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace berth {

// How long a block stays, as far as can be told when it is asked for.
enum class Mobility : std::uint8_t {
  kMovable,    // freed within the next request or two: lowest fit from the low end
  kTemporary,  // outlives its neighbours: highest fit from the high end
  kResident,   // outlives steps: an area of its own
};

// A block that the pool handed out. The pool owns it; it is valid until its free. `id`, `requested`
// and `tag` are the caller's.
struct PoolBlock {
  void* pointer = nullptr;
  Bytes size = 0;  // rounded up to the pool's alignment
  Bytes requested = 0;
  LaneKey lane = 0;
  Mobility mobility = Mobility::kTemporary;
  std::uint64_t id = 0;
  std::uint32_t tag = 0;
};

struct PoolOptions {
  Bytes alignment = 64;
  // Address range of the pool where the device maps pages. 0: twice the device's memory.
  Bytes range_bytes = 0;
  // The range is committed in multiples of this, from both ends inwards.
  Bytes growth_bytes = Bytes{2} << 20;
  // Residents' area grows in multiples of this.
  Bytes resident_growth_bytes = Bytes{32} << 20;
  // Free pages are given back by trim() only.
};

struct PoolStats {
  Bytes live = 0;  // handed out, rounded
  Bytes live_peak = 0;
  Bytes reserved = 0;  // committed
  Bytes reserved_peak = 0;
  Bytes waiting = 0;                        // freed, waiting for events
  Bytes largest_low = 0, largest_high = 0;  // largest hole at each end
  std::uint64_t blocks = 0;
  std::uint64_t allocations[3] = {0, 0, 0};  // by Mobility
};

// The fallback behind the plan: one address range with a low and a high end, and an area for
// residents.
//
// Movable blocks take the lowest hole that fits from the low end, temporary ones the highest from
// the high end; one end never splits the other's holes; the gap between closes last. Holes belong
// to the lane that freed them; a hole of another lane is taken after that lane's event. Committed
// pages stay committed until trim(), so that the steady state takes no page faults. O(log n) a
// call.
//
// Not thread-safe: the runtime's lock covers it.
class Pool {
 public:
  // Throws Error(kSystem) where no range can be reserved.
  Pool(Device& device, const PoolOptions& options);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Hands out a block, or null where the device refuses more memory (nothing changed then).
  // Requires size > 0.
  [[nodiscard]] PoolBlock* allocate(Bytes size, LaneKey lane, Mobility mobility) noexcept;

  // The live block that starts at `pointer`, or null. O(1).
  [[nodiscard]] PoolBlock* find(const void* pointer) noexcept;

  // Whether the address lies in the pool's ranges, live or not.
  [[nodiscard]] bool contains(const void* pointer) const noexcept;

  // Takes a block back: at once, or, with events of other lanes, once they are complete. Owns the
  // events from then on.
  void free(PoolBlock* block) noexcept;
  void free_after(PoolBlock* block, std::vector<DeviceEvent> events) noexcept;

  // Moves blocks whose events are complete to the holes. Returns how many bytes came free.
  Bytes process_events() noexcept;

  // Gives whole free pages back to the device. Returns bytes given back.
  Bytes trim() noexcept;

  [[nodiscard]] PoolStats stats() const noexcept;
  // Calls `visit(block)` for each live block, in address order.
  void for_each_block(const std::function<void(const PoolBlock&)>& visit) const;

  // Walks everything; the first broken invariant in one line, empty where all is well. For tests.
  [[nodiscard]] std::string is_valid() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace berth
