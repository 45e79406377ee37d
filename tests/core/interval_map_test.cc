#include "csrc/core/interval_map.h"

#include "tests/catch.h"

#include <array>
#include <cstddef>
#include <memory>
#include <random>
#include <vector>

using namespace berth;

TEST_CASE("Ranges that touch at an end share no byte", "[interval]") {
  IntervalMap<int> map;
  REQUIRE(map.insert({64, 128}, 1));
  REQUIRE(map.insert({128, 192}, 2));
  REQUIRE(map.insert({0, 64}, 0));
  REQUIRE(map.find_touching({63, 64}) == ByteRange{0, 64});
  REQUIRE(map.find_touching({64, 65}) == ByteRange{64, 128});
  REQUIRE_FALSE(map.find_touching({192, 300}).has_value());
}

TEST_CASE("A range that overlaps another is refused and changes nothing", "[interval]") {
  IntervalMap<int> map;
  REQUIRE(map.insert({100, 200}, 1));
  for (const ByteRange range : {ByteRange{50, 101}, ByteRange{199, 300}, ByteRange{120, 130},
                                ByteRange{0, 1000}, ByteRange{100, 200}, ByteRange{150, 150}}) {
    REQUIRE_FALSE(map.insert(range, 2));
  }
  REQUIRE(map.size() == 1);
  REQUIRE(map.erase(100) == 1);
  REQUIRE_FALSE(map.erase(100).has_value());
}

TEST_CASE("Look-ups agree with a plain list under random operations", "[interval]") {
  const unsigned seed = 20261121;
  CAPTURE(seed);
  std::mt19937 random(seed);
  IntervalMap<unsigned> map;
  map.reserve(8);
  std::vector<std::pair<ByteRange, unsigned>> list;
  for (unsigned i = 0; i < 20000; ++i) {
    const Bytes first = random() % 500;
    const ByteRange range{first, first + 1 + random() % 20};
    bool touches = false;
    for (const auto& [other, value] : list) touches |= other.touches(range);
    REQUIRE(map.find_touching(range).has_value() == touches);
    if (random() % 2 == 0) {
      REQUIRE(map.insert(range, i) == !touches);
      if (!touches) list.emplace_back(range, i);
    } else if (!list.empty()) {
      const std::size_t victim = random() % list.size();
      REQUIRE(map.erase(list[victim].first.first) == list[victim].second);
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
}

TEST_CASE("A reserved map takes and keeps its own nodes", "[interval]") {
  IntervalMap<int> map;
  map.reserve(1);
  REQUIRE(map.empty());
  REQUIRE(map.insert({0, 64}, 1));
  const int* const node = map.find(0);
  REQUIRE(map.erase(0) == 1);
  const auto elsewhere =
      std::make_unique<std::array<std::byte, 64>>();  // would take a freed node's place
  REQUIRE(map.insert({64, 128}, 2));
  REQUIRE(map.find(64) == node);
  REQUIRE(map.insert({128, 192}, 3));  // beyond what was reserved
  REQUIRE(map.size() == 2);
  map.reserve(10);
  map.clear();
  REQUIRE(map.insert({0, 64}, 4));
}
