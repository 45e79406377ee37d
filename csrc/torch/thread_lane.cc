#include "csrc/torch/thread_lane.h"

#include <limits>
#include <mutex>
#include <queue>
#include <vector>

namespace berth::torch {

namespace {

constexpr LaneKey kNone = std::numeric_limits<LaneKey>::max();

struct Numbers {
  std::mutex mutex;
  std::priority_queue<LaneKey, std::vector<LaneKey>, std::greater<>> free;
  LaneKey next = 1;
};

// Never destroyed: threads end after main's statics do.
Numbers& numbers() {
  static Numbers* const all = new Numbers;
  return *all;
}

// Without a destructor, so that it can be read while the thread's other objects are destroyed.
thread_local LaneKey current = kNone;

// Gives the number back at the thread's end. A request after that gets a number for good.
struct Returner {
  LaneKey key = kNone;
  ~Returner() {
    if (key == kNone) return;
    try {
      const std::lock_guard lock(numbers().mutex);
      numbers().free.push(key);
    } catch (...) {  // no memory to remember it: the number is never used again
    }
    current = kNone;
  }
};
thread_local Returner returner;

LaneKey take_number() noexcept {
  const std::lock_guard lock(numbers().mutex);
  if (numbers().free.empty()) return numbers().next++;
  const LaneKey key = numbers().free.top();
  numbers().free.pop();
  return key;
}

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
