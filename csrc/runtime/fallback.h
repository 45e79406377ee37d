#pragma once

#include "csrc/device/lane_events.h"
#include "csrc/pool/mobility.h"
#include "csrc/pool/pool.h"
#include "csrc/runtime/accounts.h"
#include "csrc/runtime/allocator.h"
#include "csrc/runtime/arena.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>

namespace berth {

// Where a request goes that the arena does not serve: to the pool, at the end that its mobility
// picks, and before it is refused to all that may still have memory: blocks whose lanes are done,
// what comes free when the device is done with everything, and pages that can be had only by giving
// others back. While a graph is captured only the pool is asked.
//
// All that it is made of outlives it. Not thread-safe. O(log holes) while the pool has memory.
class Fallback {
 public:
  Fallback(const Allocator::Options& options, PageStore& store, LaneEvents& events, Arena& arena,
           Pool& pool, Accounts& counters)
      : options_(options),
        store_(store),
        events_(events),
        arena_(arena),
        pool_(pool),
        counters_(counters),
        mobility_(options.has_steps) {}

  // Bytes for the request: a block of the pool, or of the arena. Throws OutOfMemory.
  [[nodiscard]] void* allocate(Bytes size, LaneKey lane, trace::Tag tag, std::uint64_t id);
  // One at these bytes; null where they are not free.
  [[nodiscard]] PoolBlock* allocate_at(void* pointer, Bytes size, LaneKey lane,
                                       std::uint64_t id) noexcept;
  // Takes a block back, and says so to the listener.
  void free(PoolBlock* block, std::optional<LaneKey> freeing) noexcept;

  // Whether what lies free in parts of pages is to be used before whole ones (kDense), and before
  // holes (kTight).
  void set_growth(Pool::Growth growth) noexcept { growth_ = growth; }

  void mark_step() noexcept { mobility_.mark_step(); }

 private:
  using Spare = PageLender::Spare;
  // Bytes of the arena, of those that it can spare; before the pool is asked, and any time.
  void* borrow_first(Bytes size, LaneKey lane, std::uint64_t id) noexcept;
  void* borrow(std::initializer_list<Spare> spares, Bytes size, LaneKey lane, std::uint64_t id,
               Bytes most_left) noexcept;
  PoolBlock* search_idle(Bytes size, LaneKey lane, Mobility mobility, std::uint64_t id) noexcept;
  PoolBlock* search_ordered(Bytes size, LaneKey lane, Mobility mobility) noexcept;
  PoolBlock* search_everywhere(Bytes size, LaneKey lane, Mobility mobility) noexcept;
  // `failure`: what the device answered; empty where it has not got that much.
  [[nodiscard]] std::string exhaustion(Bytes size, LaneKey lane, std::string failure);
  void hand_out(PoolBlock* block, Bytes size, trace::Tag tag, std::uint64_t id) noexcept;

  const Allocator::Options& options_;
  PageStore& store_;
  LaneEvents& events_;
  Arena& arena_;
  Pool& pool_;
  Accounts& counters_;
  MobilityClassifier mobility_;
  // Of search_idle(): the first request that may come to it, how often one did, under which plan.
  std::uint64_t idle_from_ = 0;
  unsigned idle_searches_ = 0;
  const PlanLookup* idle_plan_ = nullptr;
  Pool::Growth growth_ = Pool::Growth::kFree;
};

}  // namespace berth
