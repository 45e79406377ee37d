#include "csrc/torch/thread_lane.h"

#include "tests/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

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

TEST_CASE("A child forked while other threads come and go takes numbers and gives them back",
          "[lanes][fork]") {
  std::atomic<bool> over{false};
  std::vector<std::thread> others;
  for (int i = 0; i < 3; ++i) {
    others.emplace_back([&] {
      while (!over) std::thread([] { (void)thread_lane(); }).join();
    });
  }
  int ended_well = 0;
  constexpr int kForks = 300;
  for (int i = 0; i < kForks && ended_well == i; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(20);  // a lock that a thread of the parent holds is held for ever
      std::thread([] { (void)thread_lane(); }).join();
      ::_exit(0);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    ended_well += status == 0;
  }
  over = true;
  for (std::thread& other : others) other.join();
  REQUIRE(ended_well == kForks);
}

TEST_CASE("As many threads as live at once have numbers of their own", "[lanes]") {
  constexpr std::size_t kThreads = 200;
  std::vector<std::thread> threads;
  std::vector<LaneKey> lanes(kThreads);
  std::atomic<std::size_t> came{0};
  for (std::size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      lanes[i] = thread_lane();
      ++came;
      while (came < kThreads) std::this_thread::yield();
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::sort(lanes.begin(), lanes.end());
  REQUIRE(std::adjacent_find(lanes.begin(), lanes.end()) == lanes.end());
  REQUIRE(lanes.back() <= kThreads + 1);
}
