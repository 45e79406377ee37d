// The data structures of the dive, each against plain loops.

#include "csrc/place/dives/bit_set.h"
#include "csrc/place/dives/need_tree.h"
#include "csrc/place/dives/skyline.h"
#include "csrc/place/dives/span_set.h"
#include "csrc/place/stages/wave.h"
#include "tests/catch.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <new>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

using namespace berth::place;

namespace {

// A thread of which only so many can be started.
struct FewThreads {
  static inline int left = 0;
  static inline bool no_memory = false;
  template <class... Arguments>
  explicit FewThreads(Arguments&&... arguments) {
    if (left-- <= 0) {
      if (no_memory) throw std::bad_alloc();
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
    }
    thread = std::thread(std::forward<Arguments>(arguments)...);
  }
  void join() { thread.join(); }
  std::thread thread;
};

}  // namespace

TEST_CASE("Work goes on with the threads that can be started", "[place][threads]") {
  const int available = GENERATE(0, 1, 2, 7);
  FewThreads::no_memory = GENERATE(false, true);
  FewThreads::left = available;
  std::atomic<int> next{0}, done{0};
  std::atomic<unsigned> threads{0};
  run_side_by_side<FewThreads>(4, [&](unsigned) {
    ++threads;
    while (next++ < 1000) ++done;
  });
  REQUIRE(done == 1000);
  REQUIRE(threads == static_cast<unsigned>(std::min(available, 3)) + 1);
}

TEST_CASE("A wave does each task once and hands on the first exception", "[place][threads]") {
  for (const unsigned threads : {1u, 3u, 9u}) {
    std::vector<std::atomic<int>> times(5);
    run_wave(threads, times.size(), [&](unsigned thread, std::size_t task) {
      REQUIRE(thread < threads);
      ++times[task];
    });
    for (const auto& one : times) REQUIRE(one == 1);
    REQUIRE_THROWS_AS(run_wave(threads, 5,
                               [](unsigned, std::size_t task) {
                                 if (task == 3) throw std::runtime_error("no");
                               }),
                      std::runtime_error);
  }
}

TEST_CASE("A bit set finds neighbours as an ordered set does", "[place][structures]") {
  for (const std::uint32_t size : {1u, 63u, 64u, 65u, 5000u, 300000u}) {
    CAPTURE(size);
    std::mt19937 random(size);
    BitSet bits;
    bits.reset(size);
    std::set<std::uint32_t> expected;
    for (int i = 0; i < 3000; ++i) {
      const std::uint32_t x = random() % size;
      if (random() % 2 == 0) {
        bits.insert(x);
        expected.insert(x);
      } else {
        bits.erase(x);
        expected.erase(x);
      }
      const std::uint32_t q = random() % size;
      const auto next = expected.lower_bound(q);
      const auto behind = expected.upper_bound(q);
      REQUIRE(bits.contains(q) == expected.contains(q));
      REQUIRE(bits.empty() == expected.empty());
      REQUIRE(bits.next(q) == (next == expected.end() ? BitSet::kNone : *next));
      REQUIRE(bits.previous(q) ==
              (behind == expected.begin() ? BitSet::kNone : *std::prev(behind)));
    }
  }
}

TEST_CASE("A need tree adds and searches as a plain array does", "[place][structures]") {
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::uint32_t n = 1 + random() % 40;
    std::vector<NeedTree::Value> values(n);
    for (auto& value : values) value = random() % 50;
    NeedTree tree;
    tree.reset(values);
    for (int i = 0; i < 200; ++i) {
      const std::uint32_t a = random() % n, b = a + 1 + random() % (n - a);
      const NeedTree::Value by = static_cast<NeedTree::Value>(random() % 21) - 10;
      tree.add(a, b, by);
      for (std::uint32_t x = a; x < b; ++x) values[x] += by;
      const std::uint32_t q = random() % n, r = q + 1 + random() % (n - q);
      REQUIRE(tree.at(q) == values[q]);
      REQUIRE(tree.max(q, r) == *std::max_element(values.begin() + q, values.begin() + r));
      const NeedTree::Value limit = random() % 60;
      std::uint32_t next = q;
      while (next < n && values[next] <= limit) ++next;
      REQUIRE(tree.next_above(q, limit) == (next == n ? NeedTree::kNone : next));
      std::uint32_t previous = q;
      while (previous != NeedTree::kNone && values[previous] <= limit) --previous;
      REQUIRE(tree.previous_above(q, limit) == previous);
    }
  }
}

TEST_CASE("A skyline keeps the floors of all sections on lines and rings", "[place][structures]") {
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::uint32_t m = 1 + random() % 9;
    const bool ring = random() % 2 == 0;
    Skyline skyline;
    skyline.reset(m, ring);
    std::vector<Skyline::Floor> floors(m, 0);
    for (int step = 0; step < 40; ++step) {
      const Skyline::Plateau plateau = skyline.lowest();
      const auto lowest = *std::min_element(floors.begin(), floors.end());
      const bool flat = lowest == *std::max_element(floors.begin(), floors.end());
      REQUIRE(plateau.floor == lowest);
      REQUIRE(skyline.flat() == flat);
      for (std::uint32_t x = plateau.first; x < plateau.last; ++x) REQUIRE(floors[x % m] == lowest);
      if (!flat) {
        Skyline::Floor neighbour = INT64_MAX;
        if (ring || plateau.first > 0)
          neighbour = std::min(neighbour, floors[(plateau.first + m - 1) % m]);
        if (ring || plateau.last < m) neighbour = std::min(neighbour, floors[plateau.last % m]);
        REQUIRE(neighbour > lowest);
        REQUIRE(skyline.lower_neighbour(plateau) == neighbour);
      }
      for (int query = 0; query < 5; ++query) {
        const std::uint32_t a = random() % m;
        const std::uint32_t b = a + 1 + random() % (ring ? m : m - a);
        Skyline::Floor highest = 0;
        for (std::uint32_t x = a; x < b; ++x) highest = std::max(highest, floors[x % m]);
        REQUIRE(skyline.highest(a, b) == highest);
        const std::uint32_t x = a + random() % (b - a);
        const Skyline::Floor limit = floors[x % m] + random() % 3;
        const Skyline::Stretch range = skyline.low_around(x, a, b, limit);
        std::uint32_t first = x, last = x + 1;
        while (first > a && floors[(first - 1) % m] <= limit) --first;
        while (last < b && floors[last % m] <= limit) ++last;
        REQUIRE(range.first == first);
        REQUIRE(range.last == last);
      }
      std::uint32_t a = plateau.first + random() % (plateau.last - plateau.first);
      std::uint32_t b = a + 1 + random() % (plateau.last - a);
      Skyline::Floor floor = lowest + 1 + random() % 2;
      if (!flat && random() % 3 == 0) {
        a = plateau.first;
        b = plateau.last;
        floor = skyline.lower_neighbour(plateau);
      } else if (flat && ring) {
        a = random() % m;
        b = a + 1 + random() % m;
      }
      skyline.raise(plateau, a, b, floor);
      for (std::uint32_t x = a; x < b; ++x) floors[x % m] = floor;
    }
  }
}

TEST_CASE("A span set finds the best span in a window as a scan does", "[place][structures]") {
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::uint32_t m = 2 + random() % 30;
    const std::uint32_t ring = random() % 2 == 0 ? m : 0;
    const std::uint32_t count = random() % 80;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> spans;
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::uint32_t first = random() % m;
      spans.emplace_back(first, first + 1 + random() % (ring != 0 ? m - 1 : m - first));
    }
    std::vector<std::uint32_t> ranks(count);
    std::iota(ranks.begin(), ranks.end(), 0);
    std::shuffle(ranks.begin(), ranks.end(), random);
    SpanSet set;
    set.build(spans, ring);
    set.open_all(ranks);
    enum { kOpen, kDeferred, kGone };
    std::vector<int> states(count, kOpen);
    const auto inside = [&](std::uint32_t i, std::uint32_t begin, std::uint32_t end,
                            std::uint32_t x) {
      for (std::uint32_t shift = 0; shift <= ring; shift += std::max(ring, 1u)) {
        const std::uint32_t first = spans[i].first + shift, last = spans[i].second + shift;
        if (first >= begin && last <= end && (x == SpanSet::kNone || (first <= x && x < last)))
          return true;
        if (ring == 0) break;
      }
      return false;
    };
    for (int step = 0; step < 200 && count > 0; ++step) {
      const std::uint32_t i = random() % count;
      if (states[i] != kGone) {
        states[i] = random() % 8 == 0 ? int{kGone} : static_cast<int>(random() % 2);
        if (states[i] == kOpen) set.reopen(i);
        if (states[i] == kDeferred) set.defer(i);
        if (states[i] == kGone) set.remove(i);
      }
      REQUIRE(set.is_alive(i) == (states[i] != kGone));
      const std::uint32_t begin = random() % m;
      const std::uint32_t end = begin + 1 + random() % (ring != 0 ? m : m - begin);
      const std::uint32_t x = begin + random() % (end - begin);
      std::uint32_t best = SpanSet::kNone;
      bool over = false, deferred = false;
      for (std::uint32_t j = 0; j < count; ++j) {
        if (states[j] == kOpen && inside(j, begin, end, SpanSet::kNone) &&
            (best == SpanSet::kNone || ranks[j] < ranks[best]))
          best = j;
        over |= states[j] != kGone && inside(j, begin, end, x);
        deferred |= states[j] == kDeferred && inside(j, begin, end, SpanSet::kNone);
      }
      REQUIRE(set.best(begin, end) == best);
      const std::uint32_t found = set.any_over(x, begin, end);
      REQUIRE((found != SpanSet::kNone) == over);
      if (over) REQUIRE(inside(found, begin, end, x));
      const std::uint32_t waiting = set.any_deferred(begin, end);
      REQUIRE((waiting != SpanSet::kNone) == deferred);
      if (deferred) REQUIRE(states[waiting] == kDeferred);
    }
  }
}
