#include "csrc/torch/thread_lane.h"

#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <limits>

namespace berth::torch {

namespace {

constexpr LaneKey kNone = std::numeric_limits<LaneKey>::max();

// Bit i of word w: lane 64 w + i + 1 is a living thread's. No lock, since a forked child would find
// it held by a thread that it does not have; and nothing to destroy, since threads end after main's
// statics do.
constexpr std::size_t kWords = 1024;
constinit std::array<std::atomic<std::uint64_t>, kWords> taken{};

// Beyond that many threads at a time: numbers that never come back.
constinit std::atomic<LaneKey> next_beyond{64 * kWords + 1};

LaneKey take_number() noexcept {
  for (std::size_t w = 0; w < kWords; ++w) {
    std::uint64_t word = taken[w].load(std::memory_order_relaxed);
    while (word != ~std::uint64_t{0}) {
      const int free = std::countr_one(word);
      if (taken[w].compare_exchange_weak(word, word | std::uint64_t{1} << free,
                                         std::memory_order_relaxed))
        return 64 * w + static_cast<LaneKey>(free) + 1;
    }
  }
  return next_beyond.fetch_add(1, std::memory_order_relaxed);
}

void give_back(LaneKey key) noexcept {
  const LaneKey bit = key - 1;
  if (bit < 64 * kWords)
    taken[bit / 64].fetch_and(~(std::uint64_t{1} << bit % 64), std::memory_order_relaxed);
}

// Without a destructor, so that it can be read while the thread's other objects are destroyed.
thread_local LaneKey current = kNone;

// Gives the number back at the thread's end. A request after that gets a number for good.
struct Returner {
  LaneKey key = kNone;
  ~Returner() {
    if (key == kNone) return;
    give_back(key);
    current = kNone;
  }
};
thread_local Returner returner;

}  // namespace

LaneKey thread_lane() noexcept {
  if (current == kNone) [[unlikely]] {
    current = take_number();
    returner.key = current;
  }
  return current;
}

void claim_first_lane() noexcept {
  // The number that the thread had, if any, goes back at its end as any other's.
  if (current == kNone) returner.key = kNone;
  current = 0;
}

}  // namespace berth::torch
