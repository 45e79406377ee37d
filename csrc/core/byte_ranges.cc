#include "csrc/core/byte_ranges.h"

#include <algorithm>

namespace berth {

std::vector<ByteRange> united(std::vector<ByteRange> ranges) {
  const auto before = [](ByteRange a, ByteRange b) { return a.first < b.first; };
  if (!std::is_sorted(ranges.begin(), ranges.end(), before))
    std::sort(ranges.begin(), ranges.end(), before);
  std::size_t last = 0;
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].first <= ranges[last].last)
      ranges[last].last = std::max(ranges[last].last, ranges[i].last);
    else
      ranges[++last] = ranges[i];
  }
  if (!ranges.empty()) ranges.resize(last + 1);
  return ranges;
}

std::vector<ByteRange> without(const std::vector<ByteRange>& ranges,
                               const std::vector<ByteRange>& gone) {
  std::vector<ByteRange> left;
  auto next = gone.begin();
  for (const ByteRange range : ranges) {
    Bytes at = range.first;
    while (next != gone.end() && next->last <= at) ++next;
    for (; next != gone.end() && next->first < range.last; ++next) {
      if (at < next->first) left.push_back({at, next->first});
      at = next->last;
      if (at >= range.last) break;
    }
    if (at < range.last) left.push_back({at, range.last});
  }
  return left;
}

std::vector<ByteRange> common(const std::vector<ByteRange>& a, const std::vector<ByteRange>& b) {
  std::vector<ByteRange> both;
  for (auto one = a.begin(), other = b.begin(); one != a.end() && other != b.end();) {
    const ByteRange range{std::max(one->first, other->first), std::min(one->last, other->last)};
    if (range.first < range.last) both.push_back(range);
    one->last < other->last ? ++one : ++other;
  }
  return both;
}

}  // namespace berth
