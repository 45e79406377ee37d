#include "csrc/runtime/miss_table.h"

#include "csrc/core/checksum.h"

#include <algorithm>
#include <tuple>

namespace berth {
namespace {

auto key(const Miss& miss) noexcept {
  return std::tie(miss.reason, miss.lane, miss.kind, miss.position, miss.expected, miss.came,
                  miss.tag);
}

std::uint64_t hash(const Miss& miss) noexcept {
  std::uint64_t hash = hash_combine(static_cast<std::uint64_t>(miss.reason), miss.lane);
  hash = hash_combine(hash, (std::uint64_t{miss.kind} << 32) | miss.position);
  hash = hash_combine(hash, miss.expected);
  hash = hash_combine(hash, miss.came);
  return hash_combine(hash, miss.tag);
}

}  // namespace

void MissTable::add(const Miss& miss, const void* plan) noexcept {
  if (plan != plan_) places_.fill({});
  plan_ = plan;
  Place& place = places_[hash(miss) % places_.size()];
  if (place.votes == 0) {
    place.miss = miss;
    place.miss.count = 0;
  } else if (key(place.miss) != key(miss)) {
    --place.votes;
    return;
  }
  ++place.votes;
  ++place.miss.count;
}

std::vector<Miss> MissTable::most() const {
  std::vector<Miss> misses;
  for (const Place& place : places_)
    if (place.miss.count != 0) misses.push_back(place.miss);
  std::sort(misses.begin(), misses.end(), [](const Miss& a, const Miss& b) {
    return a.count != b.count ? a.count > b.count : key(a) < key(b);
  });
  misses.resize(std::min(misses.size(), kMost));
  return misses;
}

}  // namespace berth
