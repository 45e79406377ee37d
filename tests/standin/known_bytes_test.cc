#include "csrc/standin/known_bytes.h"

#include "csrc/standin/memory.h"
#include "tests/catch.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

using namespace berth::standin;

TEST_CASE("Bytes are known where they were written and not forgotten since", "[standin][values]") {
  KnownBytes known;
  known.add(100, 50);
  known.add(150, 50);
  REQUIRE(known.holds(100, 100));
  REQUIRE_FALSE(known.holds(99, 2));
  known.remove(120, 10);
  REQUIRE(known.holds(100, 20));
  REQUIRE_FALSE(known.holds(119, 2));
  REQUIRE(known.holds(130, 70));
  REQUIRE(known.holds(120, 0));
}

TEST_CASE("Known bytes are those of a table of bytes", "[standin][values]") {
  std::mt19937 random(7);
  KnownBytes known;
  std::vector<char> table(200, 0);
  for (int i = 0; i < 5000; ++i) {
    const std::size_t begin = random() % 180, size = random() % 20;
    const auto first = table.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto last = first + static_cast<std::ptrdiff_t>(size);
    switch (random() % 3) {
      case 0:
        known.add(begin, size);
        std::fill(first, last, 1);
        break;
      case 1:
        known.remove(begin, size);
        std::fill(first, last, 0);
        break;
      default:
        REQUIRE(known.holds(begin, size) == (std::count(first, last, 0) == 0));
    }
  }
}

TEST_CASE("What is fed is the element told, else whole numbers", "[standin][values]") {
  FedElement element;
  const float half = 0.5F;
  std::memcpy(element.bytes, &half, sizeof half);
  element.size = sizeof half;
  float floats[3] = {};
  feed(floats, sizeof floats, element, 9);
  REQUIRE(floats[2] == 0.5F);
  std::int64_t wide[2] = {};
  feed(wide, sizeof wide, {}, 3.7);
  REQUIRE(wide[1] == 3);
  std::int32_t narrow = 0;
  feed(&narrow, sizeof narrow, {}, 3.7);
  REQUIRE(narrow == 3);
}

TEST_CASE("Memory that overcommits says its total and refuses nothing", "[standin][memory]") {
  DeviceMemory memory(1 << 20, true);
  REQUIRE(memory.allocate(1 << 24).has_value());
  REQUIRE(memory.total() == 1 << 20);
  REQUIRE(memory.free() == 0);
  REQUIRE(memory.peak() == 1 << 24);
  DeviceMemory strict(1 << 20);
  REQUIRE_FALSE(strict.allocate(1 << 24).has_value());
}
