#include "csrc/core/byte_ranges.h"

#include "tests/catch.h"

#include <bitset>
#include <random>
#include <vector>

using namespace berth;

namespace {

using Set = std::bitset<64>;

Set set_of(const std::vector<ByteRange>& ranges) {
  Set set;
  for (const ByteRange range : ranges)
    for (Bytes at = range.first; at < range.last; ++at) set.set(at);
  return set;
}

// In order, none empty, and none that begins before the one before it ends.
bool is_in_order(const std::vector<ByteRange>& ranges) {
  Bytes last = 0;
  for (const ByteRange range : ranges) {
    if (range.first >= range.last || range.first < last) return false;
    last = range.last;
  }
  return true;
}

}  // namespace

TEST_CASE("Ranges of bytes are united, taken away and intersected as sets are", "[byte_ranges]") {
  std::mt19937 random(1);
  const auto some = [&] {
    std::vector<ByteRange> ranges;
    for (std::size_t n = random() % 8; n > 0; --n) {
      const Bytes first = random() % 60;
      ranges.push_back({first, first + 1 + random() % (64 - first)});
      if (random() % 2 == 0) ranges.back().last = first + 1;
    }
    return ranges;
  };
  for (int round = 0; round < 2000; ++round) {
    const std::vector<ByteRange> left = some(), right = some();
    const std::vector<ByteRange> a = united(left), b = united(right);
    REQUIRE(is_in_order(a));
    REQUIRE(set_of(a) == set_of(left));
    const std::vector<ByteRange> difference = without(a, b), both = common(a, b);
    REQUIRE(is_in_order(difference));
    REQUIRE(is_in_order(both));
    REQUIRE(set_of(difference) == (set_of(a) & ~set_of(b)));
    REQUIRE(set_of(both) == (set_of(a) & set_of(b)));
  }
}
