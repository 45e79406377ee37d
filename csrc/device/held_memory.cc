#include "csrc/device/held_memory.h"

#include <iterator>
#include <new>

namespace berth {
namespace {

ByteRange range_of(const void* base, Bytes size) noexcept {
  const Bytes first = reinterpret_cast<Bytes>(base);
  return {first, first + size};
}

}  // namespace

std::vector<ByteRange> HeldMemory::stretches() const {
  std::vector<ByteRange> result;
  result.reserve(stretches_.size());
  for (const auto& [first, last] : stretches_) result.push_back({first, last});
  return result;
}

void HeldMemory::reserved(void* base, Bytes size, Holding holding) noexcept {
  if (holding == Holding::kReservation) addresses_reserved(base, size);
  bytes_ += size;
  const int stretches = add(range_of(base, size));
  if (listener_ != nullptr) listener_->reserved(base, size, holding, stretches);
}

void HeldMemory::releasing(void* base, Bytes size, Holding holding) noexcept {
  bytes_ -= size;
  const int stretches = take_off(range_of(base, size));
  if (holding == Holding::kReservation) addresses_released(base, size);
  if (listener_ != nullptr) listener_->releasing(base, size, holding, stretches);
}

void HeldMemory::moved(void* to, void* from, Bytes size) noexcept {
  int stretches = take_off(range_of(from, size));
  stretches += add(range_of(to, size));
  if (listener_ != nullptr) listener_->moved(to, from, size, stretches);
}

void HeldMemory::addresses_reserved(void* base, Bytes size) noexcept {
  add_edge(range_of(base, size).first);
  add_edge(range_of(base, size).last);
}

void HeldMemory::addresses_released(void* base, Bytes size) noexcept {
  take_off_edge(range_of(base, size).first);
  take_off_edge(range_of(base, size).last);
}

void HeldMemory::add_edge(Bytes at) noexcept {
  try {
    ++edges_[at];
  } catch (const std::bad_alloc&) {
    complete_ = false;
  }
}

void HeldMemory::take_off_edge(Bytes at) noexcept {
  const auto edge = edges_.find(at);
  if (edge != edges_.end() && --edge->second == 0) edges_.erase(edge);
}

int HeldMemory::add(ByteRange bytes) noexcept {
  const auto [first, last] = bytes;
  const auto after = stretches_.lower_bound(first);
  const auto before = after == stretches_.begin() ? stretches_.end() : std::prev(after);
  const bool joins_before =
      before != stretches_.end() && before->second == first && !edges_.contains(first);
  const bool joins_after =
      after != stretches_.end() && after->first == last && !edges_.contains(last);
  if (joins_before) {
    before->second = joins_after ? after->second : last;
    if (!joins_after) return 0;
    stretches_.erase(after);
    return -1;
  }
  if (joins_after) {
    auto node = stretches_.extract(after);
    node.key() = first;
    stretches_.insert(std::move(node));
    return 0;
  }
  try {
    stretches_.emplace(first, last);
    return 1;
  } catch (const std::bad_alloc&) {
    complete_ = false;
    return 0;
  }
}

int HeldMemory::take_off(ByteRange bytes) noexcept {
  const auto [first, last] = bytes;
  int more = 0;
  auto at = stretches_.upper_bound(first);
  if (at != stretches_.begin() && std::prev(at)->second > first) --at;
  while (at != stretches_.end() && at->first < last) {
    const Bytes begin = at->first, end = at->second;
    if (begin < first) {
      at->second = first;
      if (end > last) {
        try {
          stretches_.emplace(last, end);
          ++more;
        } catch (const std::bad_alloc&) {
          complete_ = false;
        }
        break;
      }
      ++at;
    } else if (end > last) {
      auto node = stretches_.extract(at);
      node.key() = last;
      stretches_.insert(std::move(node));
      break;
    } else {
      at = stretches_.erase(at);
      --more;
    }
  }
  return more;
}

}  // namespace berth
