#include "csrc/place/bounds/pin_load.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace berth::place {
namespace {

constexpr Bytes kMaxUnits = Bytes{1} << 20;

bool covers(const auto& span, std::uint32_t x, std::uint32_t sections) {
  return (span.first <= x && x < span.last) ||
         (span.first <= x + sections && x + sections < span.last);
}

// The largest sum of some of the sizes that is at most `room`.
Bytes largest_sum(const std::vector<Bytes>& sizes, Bytes room, std::uint64_t& work) {
  Bytes unit = 0, all = 0;
  for (const Bytes size : sizes) {
    if (size > room) continue;
    unit = std::gcd(unit, size);
    all += size;
  }
  if (all <= room) return all;
  const Bytes units = room / unit;
  if (units > kMaxUnits) return room;
  std::vector<std::uint64_t> reached(units / 64 + 1, 0);
  reached[0] = 1;
  for (const Bytes size : sizes) {
    if (size > room) continue;
    const std::size_t words = size / unit / 64;
    const unsigned bits = size / unit % 64;
    for (std::size_t w = reached.size(); w-- > words;) {
      std::uint64_t shifted = reached[w - words] << bits;
      if (bits > 0 && w > words) shifted |= reached[w - words - 1] >> (64 - bits);
      reached[w] |= shifted;
    }
    work -= std::min<std::uint64_t>(work, reached.size());
    if (work == 0) return room;
  }
  for (Bytes sum = units;; --sum) {
    if ((reached[sum / 64] >> (sum % 64) & 1) != 0) return sum * unit;
  }
}

}  // namespace

Bytes load_around_obstacles(const Strip& strip, Bytes known, std::uint64_t work) {
  if (strip.obstacles.empty()) return known;
  std::vector<std::pair<Bytes, Bytes>> taken;
  std::vector<Bytes> sizes;
  for (std::uint32_t x = 0; x < strip.sections; ++x) {
    const std::size_t looks = strip.items.size() + strip.obstacles.size();
    if (work <= looks) break;
    work -= looks;
    taken.clear();
    for (const Strip::Obstacle& obstacle : strip.obstacles) {
      if (covers(obstacle, x, strip.sections)) taken.emplace_back(obstacle.begin, obstacle.end);
    }
    if (taken.empty()) continue;
    std::sort(taken.begin(), taken.end());
    sizes.clear();
    for (const Strip::Item& item : strip.items) {
      if (covers(item, x, strip.sections)) sizes.push_back(item.size);
    }
    const Bytes all = std::accumulate(sizes.begin(), sizes.end(), Bytes{0});
    if (taken.back().second + all <= known) continue;
    Bytes filled = 0, end = 0;
    for (const auto& [begin, obstacle_end] : taken) {
      if (begin > end) filled += largest_sum(sizes, begin - end, work);
      end = obstacle_end;
    }
    known = std::max(known, end + all - std::min(all, filled));
  }
  return known;
}

}  // namespace berth::place
