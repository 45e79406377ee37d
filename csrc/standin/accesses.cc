#include "csrc/standin/accesses.h"

#include <algorithm>
#include <iterator>

namespace berth::standin {

Accesses::Ranges::const_iterator Accesses::first_touching(std::uintptr_t address) const {
  auto next = ranges_.upper_bound(address);
  if (next != ranges_.begin() && std::prev(next)->second.end > address) return std::prev(next);
  return next;
}

std::optional<Accesses::Conflict> Accesses::find_conflict(std::uintptr_t begin, std::uintptr_t end,
                                                          Kind kind,
                                                          const VectorClock& clock) const {
  if (begin >= end) return std::nullopt;
  for (auto it = first_touching(begin); it != ranges_.end() && it->first < end; ++it) {
    for (const Access& earlier : it->second.accesses) {
      if (kind == Kind::kRead && earlier.kind == Kind::kRead) continue;
      if (!clock.covers(earlier.epoch)) {
        return Conflict{earlier, std::max(begin, it->first), std::min(end, it->second.end)};
      }
    }
  }
  return std::nullopt;
}

// Cuts the range that holds `address` there; the first range at or after it.
Accesses::Ranges::iterator Accesses::split(std::uintptr_t address) {
  auto next = ranges_.lower_bound(address);
  if (next == ranges_.begin()) return next;
  auto before = std::prev(next);
  if (before->second.end <= address) return next;
  AccessedRange tail = before->second;
  before->second.end = address;
  return ranges_.emplace_hint(next, address, std::move(tail));
}

void Accesses::add(std::uintptr_t begin, std::uintptr_t end, Access access,
                   const VectorClock& clock) {
  if (begin >= end) return;
  if (access.kind == Kind::kWrite) {
    // Whoever is ordered after this write is ordered after all that it covers.
    erase(begin, end);
    ranges_.emplace(begin, AccessedRange{end, {access}});
    return;
  }
  auto it = split(begin);
  split(end);
  std::uintptr_t reached = begin;
  const auto note = [&](AccessedRange& range) {
    std::erase_if(range.accesses, [&](const Access& earlier) {
      return earlier.kind == Kind::kRead && clock.covers(earlier.epoch);
    });
    range.accesses.push_back(access);
  };
  while (reached < end) {
    if (it == ranges_.end() || it->first > reached) {
      const std::uintptr_t gap_end = it == ranges_.end() ? end : std::min(end, it->first);
      it = ranges_.emplace_hint(it, reached, AccessedRange{gap_end, {}});
    }
    note(it->second);
    reached = it->second.end;
    ++it;
  }
}

void Accesses::erase(std::uintptr_t begin, std::uintptr_t end) {
  if (begin >= end) return;
  const auto first = split(begin);  // stays valid: a cut leaves the front part in place
  ranges_.erase(first, split(end));
}

}  // namespace berth::standin
