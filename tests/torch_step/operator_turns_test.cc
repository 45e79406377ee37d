#include "csrc/torch/step/operator_turns.h"

#include "tests/catch.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using berth::torch::step::OperatorTurns;
using Answer = OperatorTurns::Answer;
using Turn = OperatorTurns::Turn;

constexpr OperatorTurns::Patience kLong = 20s;

// Runs on a thread of its own.
template <typename Run>
auto beside(const Run& run) {
  return std::async(std::launch::async, run);
}

template <typename Result>
bool is_over(const std::future<Result>& one) {
  return one.wait_for(50ms) == std::future_status::ready;
}

// Asks as an operator does that finds no room.
Answer ask(OperatorTurns& turns, Turn& turn) { return turns.wait(turn, turns.ended()); }

}  // namespace

TEST_CASE("An operator that finds no room waits for one of another thread", "[turns]") {
  OperatorTurns turns(kLong);
  Turn first, second;
  turns.begin(first, false);
  turns.begin(second, false);
  auto answer = beside([&] { return ask(turns, second); });
  CHECK_FALSE(is_over(answer));
  first.end();
  CHECK(answer.get() == Answer::kAskAgain);
  SECTION("alone it does not wait") { CHECK(ask(turns, second) == Answer::kFail); }
  SECTION("an end between its look for room and its question counts") {
    second.calm();
    const std::uint64_t before = turns.ended();
    Turn third;
    turns.begin(third, false);
    third.end();
    CHECK(turns.wait(second, before) == Answer::kAskAgain);
  }
}

TEST_CASE("No operator begins while one of another thread is needy", "[turns]") {
  OperatorTurns turns(kLong);
  Turn first, needy, third;
  turns.begin(first, false);
  turns.begin(needy, false);
  auto answer = beside([&] { return ask(turns, needy); });
  CHECK_FALSE(is_over(answer));
  auto begun = beside([&] { turns.begin(third, false); });
  CHECK_FALSE(is_over(begun));
  first.end();
  CHECK(answer.get() == Answer::kAskAgain);
  CHECK_FALSE(is_over(begun));
  SECTION("until it ends") { needy.end(); }
  SECTION("until its request is served, if it goes on") { needy.calm(); }
  begun.get();
}

TEST_CASE("Of operators that all wait one that may begin again gives way", "[turns]") {
  OperatorTurns turns(kLong);
  Turn first, second;
  turns.begin(first, false);
  turns.begin(second, false);
  SECTION("the one that asks, before another") {
    turns.set_begins_again(first, true);
    turns.set_begins_again(second, true);
    auto waits = beside([&] { return ask(turns, first); });
    CHECK_FALSE(is_over(waits));
    CHECK(ask(turns, second) == Answer::kGiveWay);
    second.end();
    CHECK(waits.get() == Answer::kAskAgain);
  }
  SECTION("another, if the one that asks may not") {
    turns.set_begins_again(first, true);
    auto gives_way = beside([&] {
      const Answer answer = ask(turns, first);
      first.end();
      return answer;
    });
    CHECK_FALSE(is_over(gives_way));
    CHECK(ask(turns, second) == Answer::kAskAgain);
    CHECK(gives_way.get() == Answer::kGiveWay);
  }
  SECTION("and if none may, the one that asks fails") {
    auto waits = beside([&] { return ask(turns, first); });
    CHECK_FALSE(is_over(waits));
    CHECK(ask(turns, second) == Answer::kFail);
    second.end();
    CHECK(waits.get() == Answer::kAskAgain);
  }
}

TEST_CASE("An operator that has nothing yet waits like others, and may be waited for", "[turns]") {
  OperatorTurns turns(kLong);
  Turn first, none, third;
  turns.begin(first, false);
  auto answer = beside([&] { return ask(turns, none); });
  CHECK_FALSE(is_over(answer));
  auto begun = beside([&] { turns.begin(third, false); });
  CHECK_FALSE(is_over(begun));
  first.end();
  CHECK(answer.get() == Answer::kAskAgain);
  none.end();
  begun.get();
}

TEST_CASE("Where nothing ends, no wait is for ever", "[turns]") {
  OperatorTurns turns(20ms);
  Turn first, second, third;
  turns.begin(first, false);
  turns.begin(second, false);
  CHECK(ask(turns, second) == Answer::kFail);
  turns.begin(third, false);  // though the second is needy
  CHECK(ask(turns, third) == Answer::kFail);
}

TEST_CASE("Operators that each need all of the memory all run", "[turns][threads]") {
  OperatorTurns turns(kLong);
  constexpr int kAll = 4;
  std::atomic<int> free{kAll};
  std::atomic<int> failed{0}, done{0};
  const auto take_one = [&] {
    for (int now = free.load(); now > 0;)
      if (free.compare_exchange_weak(now, now - 1)) return true;
    return false;
  };
  // Takes its memory a piece at a time, as a kernel does that makes several tensors.
  const auto run = [&](bool begins_again) {
    for (;;) {
      Turn turn;
      turns.begin(turn, begins_again);
      int has = 0;
      Answer answer = Answer::kAskAgain;
      while (has < kAll && answer == Answer::kAskAgain) {
        const std::uint64_t ended = turns.ended();
        if (take_one())
          ++has;
        else
          answer = turns.wait(turn, ended);
      }
      free += has;
      if (answer == Answer::kGiveWay) continue;
      ++(answer == Answer::kFail ? failed : done);
      return;
    }
  };
  constexpr int kRuns = 200;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int n = 0; n < kRuns; ++n) run(thread != 0);  // one of them may not begin again
    });
  for (std::thread& one : threads) one.join();
  CHECK(failed == 0);
  CHECK(done == 4 * kRuns);
}
