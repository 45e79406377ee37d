#include "csrc/capi/stream_numbers.h"

#include <algorithm>
#include <array>
#include <mutex>

namespace berth {
namespace {

// How many forgotten streams a new one asks whether they are done.
constexpr std::size_t kAsked = 4;

constexpr auto kHigher = [](const auto& a, const auto& b) { return a.number > b.number; };

}  // namespace

StreamNumbers::~StreamNumbers() {
  for (const Forgotten& one : forgotten_) device_.destroy(one.done);
}

LaneKey StreamNumbers::number_of(std::uint64_t stream) {
  if (stream == 0) return 0;
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = numbers_.find(stream); known != numbers_.end()) return known->second;
  }
  const LaneKey key = key_of(stream);  // may call the driver
  const LaneKey free = take_done_number();
  const std::lock_guard lock(mutex_);
  try {
    if (keys_.size() == keys_.capacity()) {
      forgotten_.reserve(2 * keys_.size());
      keys_.reserve(2 * keys_.size());
    }
    const auto [known, added] = numbers_.try_emplace(stream, free != 0 ? free : keys_.size());
    if (added && free != 0)
      keys_[free] = key;
    else if (added)
      keys_.push_back(key);
    else if (free != 0)
      add_forgotten({free, 0});  // another thread was faster
    return known->second;
  } catch (...) {
    if (free != 0) add_forgotten({free, 0});
    throw;
  }
}

// 0 where there is none.
LaneKey StreamNumbers::take_done_number() noexcept {
  std::array<Forgotten, kAsked> busy;
  std::size_t asked = 0;
  LaneKey number = 0;
  while (number == 0 && asked < kAsked) {
    Forgotten one;
    {
      const std::lock_guard lock(mutex_);
      if (forgotten_.empty()) break;
      std::pop_heap(forgotten_.begin(), forgotten_.end(), kHigher);
      one = forgotten_.back();
      forgotten_.pop_back();
    }
    bool done = false;
    // mutant: s10-number
    if (device_.query(one.done, &done).ok() && done) {
      device_.destroy(one.done);
      number = one.number;
    } else {
      busy[asked++] = one;
    }
  }
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < asked; ++i) add_forgotten(busy[i]);
  return number;
}

// Requires the lock. There is room: no number is in it twice.
void StreamNumbers::add_forgotten(Forgotten one) noexcept {
  forgotten_.push_back(one);
  std::push_heap(forgotten_.begin(), forgotten_.end(), kHigher);
}

void StreamNumbers::forget(std::uint64_t stream) noexcept {
  LaneKey number = 0, key = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto known = numbers_.find(stream);
    if (known == numbers_.end()) return;
    number = known->second;
    key = keys_[number];
    // mutant: s10-capi
    numbers_.erase(known);
  }
  // An event of a captured stream would be the graph's.
  bool captured = false;
  DeviceEvent done = 0;
  const bool recorded =
      device_.capturing(key, &captured).ok() && !captured && device_.record(key, &done).ok();
  const std::lock_guard lock(mutex_);
  // mutant: s2-capi
  keys_[number] = key_when_gone(key);
  if (recorded) add_forgotten({number, done});
}

LaneKey StreamNumbers::below(LaneKey lane) const noexcept {
  const std::lock_guard lock(mutex_);
  return lane < keys_.size() ? keys_[lane] : 0;
}

}  // namespace berth
