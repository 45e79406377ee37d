#include "csrc/torch/thread_lane.h"

#include "tests/catch.h"

#include <thread>

using berth::LaneKey;
using berth::torch::claim_first_lane;
using berth::torch::thread_lane;

TEST_CASE("The thread that installs is lane 0 and others count up", "[lanes]") {
  LaneKey installer = 99, first = 99, second = 99;
  std::thread([&] {
    claim_first_lane();
    installer = thread_lane();
    std::thread([&] {
      first = thread_lane();
      std::thread([&] { second = thread_lane(); }).join();
    }).join();
  }).join();
  REQUIRE(installer == 0);
  REQUIRE(first > 0);
  REQUIRE(second == first + 1);
}

TEST_CASE("A thread's number is given to the next thread once it ended", "[lanes]") {
  LaneKey first = 99;
  std::thread([&] { first = thread_lane(); }).join();
  for (int i = 0; i < 100; ++i) {
    LaneKey next = 99;
    std::thread([&] { next = thread_lane(); }).join();
    REQUIRE(next == first);
  }
}

TEST_CASE("A thread keeps its number", "[lanes]") {
  const LaneKey mine = thread_lane();
  REQUIRE(thread_lane() == mine);
}
