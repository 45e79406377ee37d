#include "csrc/standin/known_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace berth::standin {

void KnownBytes::add(std::uintptr_t begin, std::size_t size) {
  if (size == 0) return;
  std::uintptr_t end = begin + size;
  auto next = ends_.upper_bound(begin);
  if (next != ends_.begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
  }
  while (next != ends_.end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ends_.erase(next);
  }
  ends_.emplace_hint(next, begin, end);
}

void KnownBytes::remove(std::uintptr_t begin, std::size_t size) {
  if (size == 0) return;
  const std::uintptr_t end = begin + size;
  auto next = ends_.lower_bound(begin);
  if (next != ends_.begin()) {
    const auto before = std::prev(next);
    if (before->second > begin) {
      if (before->second > end) ends_.emplace(end, before->second);
      before->second = begin;
    }
  }
  while (next != ends_.end() && next->first < end) {
    if (next->second > end) ends_.emplace(end, next->second);
    next = ends_.erase(next);
  }
}

bool KnownBytes::holds(std::uintptr_t begin, std::size_t size) const {
  const auto next = ends_.upper_bound(begin);
  return size == 0 || (next != ends_.begin() && std::prev(next)->second >= begin + size);
}

FedElement& fed_element() {
  thread_local FedElement element;
  return element;
}

void feed(void* to, std::size_t size, const FedElement& element, double value) {
  FedElement fed = element;
  if (fed.size == 0) {
    const auto whole = static_cast<std::int64_t>(std::clamp(value, -1e9, 1e9));
    const auto narrow = static_cast<std::int32_t>(whole);
    fed.size = size % sizeof whole == 0 ? sizeof whole : sizeof narrow;
    if (fed.size == sizeof whole)
      std::memcpy(fed.bytes, &whole, sizeof whole);
    else
      std::memcpy(fed.bytes, &narrow, sizeof narrow);
  }
  auto* const bytes = static_cast<unsigned char*>(to);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = fed.bytes[i % fed.size];
}

}  // namespace berth::standin
