// When the record of a run is worth searching for a step, and when it is not.

#include "csrc/runtime/learner.h"

#include "csrc/trace/step.h"
#include "tests/catch.h"
#include "tests/support/fed_learner.h"

using namespace berth;
using test::FedLearner;

TEST_CASE("Steps that never repeat are never searched at their marks", "[learn]") {
  FedLearner run;
  for (std::size_t i = 0; i < 200; ++i) REQUIRE_FALSE(run.step(test::training_step(5 + i)));
}

TEST_CASE("A step that repeats is searched at its second mark", "[learn]") {
  FedLearner run;
  REQUIRE_FALSE(run.step(test::training_step(20)));
  const auto from = run.step(test::training_step(20));
  REQUIRE(from == std::uint64_t{0});
  REQUIRE(extract_step(run.excerpt(*from).trace({}, 64)));
}

TEST_CASE("Only the steps that repeat are searched, and as many before them", "[learn]") {
  FedLearner run;
  for (std::size_t i = 0; i < 100; ++i) REQUIRE_FALSE(run.step(test::training_step(5 + i)));
  REQUIRE_FALSE(run.step(test::training_step(200)));
  const auto from = run.step(test::training_step(200));
  REQUIRE(from);
  const Trace trace = run.excerpt(*from).trace({}, 64);
  std::size_t marks = 0;
  for (const trace::Entry& entry : trace.entries)
    marks += std::holds_alternative<trace::StepMark>(entry.event);
  REQUIRE(marks == 4);
  REQUIRE(extract_step(trace));
}

TEST_CASE("Steps that alternate repeat with their pattern", "[learn]") {
  const auto pattern = GENERATE(std::size_t{2}, std::size_t{5}, std::size_t{16});
  FedLearner run;
  for (std::size_t i = 0; i + 1 < 2 * pattern; ++i)
    REQUIRE_FALSE(run.step(test::training_step(5 + i % pattern)));
  const auto from = run.step(test::training_step(5 + pattern - 1));
  REQUIRE(from);
  const auto step = extract_step(run.excerpt(*from).trace({}, 64));
  REQUIRE(step);
  REQUIRE(step->marks_per_period == pattern);
}

TEST_CASE("Marks of several lanes do not hide each other's steps", "[learn]") {
  FedLearner run;
  bool found = false;
  for (int i = 0; i < 6; ++i) {
    found |= run.step(test::training_step(7), 1).has_value();
    found |= run.step(test::training_step(20 + static_cast<std::size_t>(i)), 2).has_value();
  }
  REQUIRE(found);
}

TEST_CASE("Searches at marks that are in vain come at growing distances", "[learn]") {
  FedLearner run;
  unsigned searches = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!run.step(test::training_step(5))) continue;
    ++searches;
    run.learner.searching(Learner::Search::kAtMarks);
    run.learner.in_vain();
  }
  REQUIRE(searches == 10);
  REQUIRE_FALSE(run.learner.marks_may_help());
}

TEST_CASE("A run without marks and without a period is searched a few times and then left alone",
          "[learn]") {
  FedLearner run;
  REQUIRE(run.search_in_vain(10'000'000) == Learner::kMostSearches);
  REQUIRE_FALSE(run.learner.records());
  REQUIRE(run.learner.record().chunk_count() == 0);
  for (std::uint64_t i = 0; i < 1'000'000; ++i) run.request(1 + hash_combine(9, i) % 100000);
  REQUIRE_FALSE(run.learner.records());
}

TEST_CASE("A record that was searched in its whole length in vain is not searched again",
          "[learn]") {
  FedLearner run;
  for (std::uint64_t i = 0; i < RunRecord::kMostEntries; ++i) run.request(1 + i);
  run.learner.searching(Learner::Search::kByPeriod);
  REQUIRE(run.learner.records());
  run.learner.in_vain();
  REQUIRE_FALSE(run.learner.records());
}

TEST_CASE("A step of which the record holds two is searched, and a longer one is told", "[learn]") {
  // A request, its free, and the mark.
  constexpr std::uint64_t kMost = (Learner::kLongestStep - 1) / 2;
  FedLearner run;
  const auto step = [&](std::uint64_t requests) {
    for (std::uint64_t i = 0; i < requests; ++i) run.request(64 * (1 + i % 50));
    return run.step({}).has_value();
  };
  SECTION("the longest") {
    REQUIRE_FALSE(step(kMost));
    REQUIRE(step(kMost));
    REQUIRE(run.learner.too_long() == 0);
  }
  SECTION("a longer one") {
    const std::uint64_t requests = kMost + 8192;
    for (int i = 0; i < 3; ++i) REQUIRE_FALSE(step(requests));
    REQUIRE(run.learner.too_long() == 0);  // kinds of steps in it were not looked for long
    for (int i = 0; i < 2; ++i) REQUIRE_FALSE(step(requests));
    REQUIRE(run.learner.too_long() == requests);
    REQUIRE_FALSE(run.learner.records());
    REQUIRE(run.learner.record().chunk_count() == 0);
  }
  SECTION("a longer one now and then") {
    for (std::uint64_t round = 0; round < 4; ++round) {
      for (int i = 0; i < 3; ++i) REQUIRE_FALSE(step(kMost + 8192));
      REQUIRE_FALSE(step(1000 + round));
    }
    REQUIRE(run.learner.too_long() == 0);
    REQUIRE(run.learner.records());
  }
  SECTION("a longer one, and then shorter ones") {
    for (int i = 0; i < 5; ++i) REQUIRE_FALSE(step(kMost + 8192));
    bool found = false;
    for (int i = 0; i < 6; ++i) found |= step(1000);
    REQUIRE(found);
  }
}

TEST_CASE("A cycle that is too long, of steps that are not, is no step that is too long",
          "[learn]") {
  // Each seventh step is long. The others are a kind that is found before.
  FedLearner run;
  std::size_t searches = 0;
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 7; ++i) {
      const std::uint64_t requests = i == 6 ? Learner::kLongestStep / 4 : 30'000;
      for (std::uint64_t k = 0; k < requests; ++k) run.request(64 * (1 + k % 50));
      if (!run.step({})) continue;
      ++searches;
      run.learner.searching(run.last_search);
      const KnownKind kind{0, 1, 1};
      run.learner.plan_taken({&kind, 1}, false);
    }
  }
  REQUIRE(searches > 0);
  REQUIRE(run.learner.too_long() == 0);
}

TEST_CASE("A run that was left alone is listened to again when something changes", "[learn]") {
  FedLearner run;
  run.search_in_vain(10'000'000);
  for (std::uint64_t i = 0; i < 50'000; ++i) run.request(1 + hash_combine(9, i) % 100000);
  REQUIRE_FALSE(run.learner.records());
  SECTION("sizes that return") {
    for (int i = 0; i < 20'000; ++i) run.request(static_cast<Bytes>(64 * (1 + i % 100)));
    REQUIRE(run.learner.records());
  }
  SECTION("the first mark") {
    (void)run.learner.mark(0);
    REQUIRE(run.learner.records());
  }
}

TEST_CASE("A run whose marks did not help is listened to again when its steps repeat", "[learn]") {
  FedLearner run;
  for (std::size_t i = 0; i < 50; ++i) run.step(test::training_step(5 + i));
  REQUIRE_FALSE(run.learner.marks_may_help());
  run.search_in_vain(10'000'000);
  REQUIRE_FALSE(run.learner.records());
  for (std::size_t i = 0; i < 50; ++i) REQUIRE_FALSE(run.step(test::training_step(5 + i)));
  REQUIRE_FALSE(run.learner.records());
  bool found = false;
  for (int i = 0; i < 4; ++i) found |= run.step(test::training_step(30)).has_value();
  REQUIRE(found);
}

TEST_CASE("Steps that are known are no change", "[learn]") {
  FedLearner run;
  run.step(test::training_step(20));
  run.step(test::training_step(20));
  run.learner.watch();
  for (int i = 0; i < 100; ++i) REQUIRE_FALSE(run.step(test::training_step(20)));
  REQUIRE_FALSE(run.learner.records());
  for (int i = 0; i < 2; ++i) run.step(test::training_step(30));
  REQUIRE(run.learner.records());
}

TEST_CASE("An entry that finds no room makes the record start again", "[learn]") {
  FedLearner run;
  run.step(test::training_step(20));
  const std::uint64_t last = run.learner.record().end();
  for (std::size_t i = 0; i < 3 * RunRecord::kChunkEntries; ++i)
    run.learner.request(++run.last, 64, 0, 0);  // nobody brings a chunk
  REQUIRE(run.learner.record().begin() >= last);
  run.feed();
  REQUIRE_FALSE(run.step(test::training_step(20)));  // of which nobody knows the beginning
  REQUIRE_FALSE(run.step(test::training_step(20)));
  REQUIRE(run.step(test::training_step(20)));
}

TEST_CASE("Lanes that come and go take no more than their room", "[learn]") {
  FedLearner run;
  for (LaneKey lane = 0; lane < 1000; ++lane) run.request(64, lane);
  REQUIRE(run.learner.records());
  REQUIRE(run.excerpt(0).lanes.size() <= Learner::kMostLanes);
  REQUIRE_FALSE(run.step(test::training_step(20), 7));
  REQUIRE(run.step(test::training_step(20), 7));
}

TEST_CASE("After many searches for kinds of steps the next ones wait for more and more marks",
          "[learn][kinds]") {
  // One request each, and no two alike: all of one bucket, which the plans that come never have.
  FedLearner run;
  std::size_t searches = 0;
  for (Bytes bytes = 64; bytes < 64 * 3000; bytes += 64) {
    if (!run.step({{bytes, 0}, {0, 0}})) continue;
    REQUIRE(run.last_search == Learner::Search::kKinds);
    ++searches;
    run.learner.searching(Learner::Search::kKinds);
    const KnownKind kind{0, kind_hash(0, bytes), 1};
    run.learner.plan_taken({&kind, 1}, false);
  }
  CHECK(searches > StepKinds::kMostKinds);
  CHECK(searches < StepKinds::kMostKinds + 16);
}
