#include "csrc/core/follower.h"

#include "tests/catch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

namespace {

using berth::Follower;

// Numbers that the leader writes and the follower adds up: plain memory on both sides.
struct Sum {
  std::vector<std::uint64_t> numbers;
  std::uint64_t sum = 0;
  std::size_t next = 0;
  void add_up_to(std::size_t end) {
    for (; next < end; ++next) sum += numbers[next];
  }
  void follow(const Follower::Turn& turn) {
    while (!turn.over()) {
      const std::uint32_t seen = turn.progress();
      {
        const Follower::Piece piece;
        add_up_to(std::min<std::size_t>(seen, next + 3));
      }
      if (next == seen) turn.wait_beyond(seen);
    }
  }
};

#if defined(__SANITIZE_THREAD__)
constexpr bool kNoThreadsInChildren = true;  // the sanitizer ends a child that begins one
#else
constexpr bool kNoThreadsInChildren = false;
#endif

constexpr std::uint32_t kNumbers = 50'000;

}  // namespace

TEST_CASE("A follower sees what its leader did, and the leader what it did", "[follower]") {
  Follower follower;
  Sum sum;
  sum.numbers.resize(kNumbers);
  for (std::uint32_t n = 0; n < kNumbers; ++n) {
    if (!follower.following())
      follower.begin(n, [&](const Follower::Turn& turn) { sum.follow(turn); });
    sum.numbers[n] = n;
    follower.advance(n + 1);
    if (n % 997 != 0) continue;
    REQUIRE(follower.end() == nullptr);  // and the leader goes on itself
    REQUIRE(sum.next <= n + 1);
    sum.add_up_to(n + 1);
  }
  REQUIRE(follower.end() == nullptr);
  sum.add_up_to(kNumbers);
  REQUIRE(sum.sum == std::uint64_t{kNumbers} * (kNumbers - 1) / 2);
}

TEST_CASE("A follower waits where it has caught up, and ends when it is told", "[follower]") {
  Follower follower;
  for (int n = 0; n < 1000; ++n) {
    std::uint32_t seen = 0;
    follower.begin(0, [&](const Follower::Turn& turn) {
      turn.wait_beyond(0);
      seen = turn.progress();
    });
    if (n % 2 == 0) follower.advance(7);
    REQUIRE(follower.end() == nullptr);
    REQUIRE((seen == 7 || seen == 0));
  }
  REQUIRE_FALSE(follower.following());
  REQUIRE(follower.end() == nullptr);
}

TEST_CASE("What a follower throws its leader gets at the end", "[follower]") {
  Follower follower;
  std::atomic<bool> threw{false};
  follower.begin(0, [&](const Follower::Turn&) {
    const Follower::Piece piece;
    threw = true;
    threw.notify_all();
    throw std::runtime_error("the follower's own");
  });
  threw.wait(false);
  const std::exception_ptr error = follower.end();
  REQUIRE(error != nullptr);
  REQUIRE_THROWS_WITH(std::rethrow_exception(error), "the follower's own");
  std::atomic<bool> ran{false};
  follower.begin(0, [&](const Follower::Turn&) {
    ran = true;
    ran.notify_all();
  });
  ran.wait(false);
  REQUIRE(follower.end() == nullptr);
}

TEST_CASE("A process is forked between two pieces, and its child has followers of its own",
          "[follower][fork]") {
  Follower follower;
  // Two numbers that differ within a piece only.
  std::uint64_t first = 0, second = 0;
  for (int n = 0; n < 20; ++n) {
    // A thread that begins holds locks of the address sanitizer, which its forks do not give back.
    std::atomic<bool> begun{false};
    follower.begin(0, [&](const Follower::Turn& turn) {
      while (!turn.over()) {
        const Follower::Piece piece;
        ++first;
        ++second;
        begun = true;
        begun.notify_all();
      }
    });
    begun.wait(false);
    const pid_t child = ::fork();
    if (child == 0) {
      const bool whole = first == second && follower.end() == nullptr;
      std::atomic<bool> ran{kNoThreadsInChildren};
      if (!ran)
        follower.begin(0, [&](const Follower::Turn&) {
          ran = true;
          ran.notify_all();
        });
      ran.wait(false);
      const bool ended = follower.end() == nullptr;
      ::_exit(whole && ended ? 0 : 1);
    }
    int status = 1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    REQUIRE(follower.end() == nullptr);
  }
}
