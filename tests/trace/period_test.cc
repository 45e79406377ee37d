#include "csrc/trace/period.h"

#include "tests/catch.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

using namespace berth;
using trace::find_period;
using trace::LiveLoad;
using trace::PeriodicRun;

namespace {

// A load that comes and goes within each period, and grows by `growth` a period.
std::vector<LiveLoad> loads(std::size_t count, std::size_t period, Bytes growth = 0) {
  std::vector<LiveLoad> live(count + 1);
  for (std::size_t i = 0; i <= count; ++i) {
    const std::size_t phase = i % period;
    live[i] = {1000 * std::min(phase, period - phase) + growth * (i / period),
               std::min(phase, period - phase)};
  }
  return live;
}

std::vector<Bytes> repeat(const std::vector<Bytes>& unit, std::size_t times) {
  std::vector<Bytes> sizes;
  for (std::size_t i = 0; i < times; ++i) sizes.insert(sizes.end(), unit.begin(), unit.end());
  return sizes;
}

// Whether some run of a smaller period covers nearly as much: by definition, not by hashes.
std::uint32_t smallest_whole_period(const std::vector<Bytes>& sizes) {
  for (std::uint32_t p = 1; 2 * p <= sizes.size(); ++p) {
    bool all = true;
    for (std::size_t i = p; all && i < sizes.size(); ++i) all = sizes[i] == sizes[i - p];
    if (all) return p;
  }
  return 0;
}

}  // namespace

TEST_CASE("The period of an exact repetition is its smallest", "[trace][period][property]") {
  const std::uint64_t seed = GENERATE(range(1, 300));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<Bytes> unit(1 + random() % 40);
  for (Bytes& size : unit) size = 1 + random() % (1 + seed % 4);  // few sizes: many inner repeats
  const std::vector<Bytes> sizes = repeat(unit, 3 + random() % 5);
  const std::uint32_t expected = smallest_whole_period(sizes);
  REQUIRE(expected != 0);
  const auto run = find_period(sizes, loads(sizes.size(), expected), 2);
  REQUIRE(run);
  REQUIRE(run->period == expected);
  REQUIRE(run->first == 0);
  REQUIRE(run->last == sizes.size());
}

TEST_CASE("A periodic run is found between an irregular beginning and end",
          "[trace][period][property]") {
  const std::uint64_t seed = GENERATE(range(1, 100));
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  std::vector<Bytes> unit(20 + random() % 100);
  for (Bytes& size : unit) size = 1 + random() % 50;
  const std::size_t times = 3 + random() % 4;
  std::vector<Bytes> sizes;
  const std::size_t before = random() % unit.size(), after = random() % unit.size();
  for (std::size_t i = 0; i < before; ++i) sizes.push_back(1000 + random() % 1000);
  const auto middle = repeat(unit, times);
  sizes.insert(sizes.end(), middle.begin(), middle.end());
  for (std::size_t i = 0; i < after; ++i) sizes.push_back(1000 + random() % 1000);
  const auto run = find_period(sizes, loads(sizes.size(), unit.size()), 2);
  REQUIRE(run);
  REQUIRE(run->period == unit.size());
  REQUIRE(run->first == before);
  REQUIRE(run->last == before + middle.size());
}

TEST_CASE("A sequence without repetition has no period", "[trace][period]") {
  std::mt19937_64 random(3);
  std::vector<Bytes> sizes(500);
  for (Bytes& size : sizes) size = random();
  REQUIRE_FALSE(find_period(sizes, loads(sizes.size(), 50), 2));
  REQUIRE_FALSE(find_period({}, std::vector<LiveLoad>(1), 2));
  REQUIRE_FALSE(find_period(std::vector<Bytes>{1}, std::vector<LiveLoad>(2), 2));
}

TEST_CASE("Equal layers that pile up are no step", "[trace][period]") {
  // Ten requests a layer; a third of what a layer takes stays.
  std::vector<Bytes> unit = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto sizes = repeat(unit, 12);
  REQUIRE(find_period(sizes, loads(sizes.size(), 10), 2));
  REQUIRE_FALSE(find_period(sizes, loads(sizes.size(), 10, 1700), 2));
}

TEST_CASE("A step that leaks a little is still a step", "[trace][period]") {
  std::vector<Bytes> unit = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const auto sizes = repeat(unit, 12);
  REQUIRE(find_period(sizes, loads(sizes.size(), 10, 8), 2)->period == 10);
}

TEST_CASE("An inner loop is not taken for the step around it", "[trace][period]") {
  // A hundred equal parameter updates inside a step of 160 requests.
  std::vector<Bytes> unit;
  for (Bytes i = 0; i < 60; ++i) unit.push_back(500 + i);
  for (int i = 0; i < 50; ++i) unit.insert(unit.end(), {7, 9});
  const auto sizes = repeat(unit, 4);
  REQUIRE(find_period(sizes, loads(sizes.size(), 160), 2)->period == 160);
}

TEST_CASE("As many repeats as asked for are needed", "[trace][period]") {
  std::vector<Bytes> unit;
  for (Bytes i = 0; i < 30; ++i) unit.push_back(500 + i);
  const auto sizes = repeat(unit, 3);
  REQUIRE(find_period(sizes, loads(sizes.size(), 30), 3));
  REQUIRE_FALSE(find_period(sizes, loads(sizes.size(), 30), 4));
}

TEST_CASE("A search that is cancelled finds no period", "[trace][period]") {
  std::vector<Bytes> unit;
  for (Bytes i = 0; i < 30; ++i) unit.push_back(500 + i);
  const auto sizes = repeat(unit, 4);
  std::atomic<bool> cancel{false};
  REQUIRE(find_period(sizes, loads(sizes.size(), 30), 2, &cancel));
  cancel = true;
  REQUIRE_FALSE(find_period(sizes, loads(sizes.size(), 30), 2, &cancel));
}
