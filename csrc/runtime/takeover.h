#pragma once

#include "csrc/device/device.h"
#include "csrc/plan/lookup.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/arena.h"

#include <atomic>
#include <cstdint>

namespace berth {

// How arena and pool share the memory that they may hold, and how an arena takes its own over.
//
// Memory is not held twice: where pages come one by one the arena's come as its first step needs
// them, while what the step before left in the pool (gradients) is freed in that step and its pages
// go back at once. At the end of that step, the arena settles: all that is left is made resident,
// and nothing is given back for it any more. The step ends at a mark; where marks came and stay
// away, after as many requests as a step has.
//
// Requests are named by their number. Not thread-safe. Gives nothing back while a graph is
// captured.
class Takeover {
 public:
  // `memory_limit`: of arena and pool together, 0: what the device has. `captures`: see
  // Allocator::Options.
  Takeover(Device& device, Arena& arena, Pool& pool, Bytes memory_limit,
           const std::atomic<int>* captures) noexcept;

  // Bytes of the pages under the slots of a plan.
  [[nodiscard]] Bytes needed(const PlanLookup& plan) const noexcept;
  // Whether the limit that the user set leaves room for so much beside the pool.
  [[nodiscard]] bool allows(Bytes needed) const noexcept;

  // Whether so much may be had now, with what the pool and the arena have to give.
  [[nodiscard]] bool has_room(Bytes needed) const noexcept;

  // A step starts, and the arena's plan takes its memory. False where the device refuses.
  [[nodiscard]] bool begin(std::uint64_t request) noexcept;
  // A mark; a request that the fast path did not serve; a block of the pool that was freed.
  void step_ended(std::uint64_t request) noexcept;
  void request_came(std::uint64_t request) noexcept;
  void pool_freed(Bytes size, std::uint64_t request) noexcept;
  // No call of the device from here on.
  void stop() noexcept { settle_at_ = 0; }

  // Says to arena and pool how much each may hold now. While the arena fills, the pages that are
  // still to come are its own.
  void share() noexcept;
  // For a pool that is out of memory otherwise: those pages, too. False where there are none.
  [[nodiscard]] bool share_what_is_to_come() noexcept;

 private:
  [[nodiscard]] bool captured() const noexcept {
    return captures_ != nullptr && captures_->load(std::memory_order_relaxed) != 0;
  }
  void settle(std::uint64_t request) noexcept;

  Device& device_;
  Arena& arena_;
  Pool& pool_;
  const Bytes memory_limit_;
  const Bytes limit_;  // of both together
  const std::atomic<int>* const captures_;
  std::uint64_t settle_at_ = 0;  // the request at which the arena is to settle; 0: it has
  std::uint64_t again_ = 0;  // requests until it is tried again where it could not; 0: it was not
  bool marked_ = false;      // marks come
  Bytes freed_ = 0;          // by the pool since it last gave pages back
};

}  // namespace berth
