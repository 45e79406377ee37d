#include "csrc/standin/accesses.h"

#include "tests/catch.h"

#include <array>
#include <random>
#include <utility>
#include <vector>

using namespace berth::standin;
using Kind = Accesses::Kind;

namespace {

// The same rules, byte by byte: all accesses, none forgotten.
class BruteForce {
 public:
  void add(std::uintptr_t begin, std::uintptr_t end, Accesses::Access access) {
    for (std::uintptr_t at = begin; at < end; ++at) bytes_[at].push_back(access);
  }
  void erase(std::uintptr_t begin, std::uintptr_t end) {
    for (std::uintptr_t at = begin; at < end; ++at) bytes_[at].clear();
  }
  [[nodiscard]] bool conflict(std::uintptr_t begin, std::uintptr_t end, Kind kind,
                              const VectorClock& clock) const {
    for (std::uintptr_t at = begin; at < end; ++at) {
      for (const Accesses::Access& earlier : bytes_[at]) {
        if ((kind == Kind::kWrite || earlier.kind == Kind::kWrite) && !clock.covers(earlier.epoch))
          return true;
      }
    }
    return false;
  }

 private:
  std::array<std::vector<Accesses::Access>, 64> bytes_;
};

}  // namespace

TEST_CASE("A conflict names the bytes that two accesses share", "[accesses]") {
  Accesses accesses;
  VectorClock clock;
  accesses.add(100, 200, {{0, 1}, Kind::kWrite}, clock);
  const auto conflict = accesses.find_conflict(150, 300, Kind::kRead, clock);
  REQUIRE(conflict);
  REQUIRE(conflict->begin == 150);
  REQUIRE(conflict->end == 200);
  REQUIRE_FALSE(accesses.find_conflict(200, 300, Kind::kWrite, clock));
  clock.raise({0, 1});
  REQUIRE_FALSE(accesses.find_conflict(150, 300, Kind::kWrite, clock));
}

TEST_CASE("Accesses in an order that clocks allow find the conflicts that brute force finds",
          "[accesses][property]") {
  const auto seed = GENERATE(range(0U, 40U));
  CAPTURE(seed);
  std::mt19937 random(seed);
  Accesses accesses;
  BruteForce brute;
  std::array<VectorClock, 3> clocks;
  std::array<std::uint64_t, 3> positions{};
  for (int i = 0; i < 200; ++i) {
    const std::size_t stream = random() % 3;
    std::uintptr_t begin = random() % 64, end = random() % 65;
    if (begin > end) std::swap(begin, end);
    const Kind kind = random() % 2 == 0 ? Kind::kRead : Kind::kWrite;
    switch (random() % 8) {
      case 0:  // an event from another stream
        clocks[stream].join(clocks[random() % 3]);
        break;
      case 1:
        accesses.erase(begin, end);
        brute.erase(begin, end);
        break;
      default: {
        clocks[stream].raise({stream, ++positions[stream]});
        const bool found = accesses.find_conflict(begin, end, kind, clocks[stream]).has_value();
        REQUIRE(found == brute.conflict(begin, end, kind, clocks[stream]));
        if (found) break;  // a program without races from here on
        accesses.add(begin, end, {{stream, positions[stream]}, kind}, clocks[stream]);
        brute.add(begin, end, {{stream, positions[stream]}, kind});
      }
    }
  }
}
