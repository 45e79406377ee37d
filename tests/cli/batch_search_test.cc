#include "csrc/cli/batch_search.h"

#include "tests/catch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace {

using berth::Bytes;
using berth::cli::BatchSearch;

constexpr Bytes kMiB = Bytes{1} << 20;

// So much at rest and for each sample, in whole pages.
struct Program {
  Bytes rest = 600 * kMiB, sample = 300 * 1024, page = 2 * kMiB;
  std::uint64_t refuses_from = BatchSearch::kMostBatch + 1;
  unsigned runs = 0;

  std::optional<Bytes> operator()(std::uint64_t batch) {
    ++runs;
    if (batch >= refuses_from) return std::nullopt;
    return (rest + batch * sample + page - 1) / page * page;
  }
};

struct Found {
  BatchSearch::Answer answer;
  unsigned runs = 0;
};

Found find(Program program, Bytes limit, std::uint64_t first = 8,
           BatchSearch::Until until = BatchSearch::Until::kExact, unsigned tries = 100) {
  BatchSearch::Known known;
  known[first] = program(first);
  program.runs = 0;
  const auto answer = BatchSearch::find(first, limit, until, known, tries,
                                        [&](std::uint64_t batch) { return program(batch); });
  return {answer, program.runs};
}

// Searches with `need`, and says how many measures that took.
std::pair<BatchSearch::Answer, unsigned> find_batch(std::uint64_t first, Bytes limit,
                                                    const BatchSearch::Measure& need,
                                                    unsigned tries = 1000) {
  BatchSearch::Known known;
  const unsigned before = tries;
  const BatchSearch::Answer answer =
      BatchSearch::find(first, limit, BatchSearch::Until::kExact, known, tries, need);
  return {answer, before - tries};
}

}  // namespace

TEST_CASE("Of a need that grows in a line the largest batch takes few measures", "[batch_search]") {
  for (const std::uint64_t first : {1, 8, 1000, 5000}) {
    const auto [answer, measures] =
        find_batch(first, 10'000, [](std::uint64_t batch) { return 1003 + 7 * batch; });
    REQUIRE(answer.largest == 1285);
    REQUIRE(answer.exact);
    REQUIRE(answer.smallest_too_large == 1286);
    REQUIRE(measures <= 8);
  }
}

TEST_CASE("The largest batch is found whatever the curve", "[batch_search]") {
  const auto check = [](const BatchSearch::Measure& need, std::uint64_t largest) {
    const auto [answer, measures] = find_batch(4, 1'000'000, need);
    REQUIRE(answer.largest == largest);
    REQUIRE(answer.exact);
    REQUIRE(measures <= 40);
  };
  check([](std::uint64_t batch) { return batch * batch; }, 1000);
  check(
      [](std::uint64_t batch) {
        return static_cast<Bytes>(std::exp2(std::min<std::uint64_t>(batch, 60)));
      },
      19);
  check([](std::uint64_t batch) { return 900'000 + 10'000 * (batch / 64); }, 703);  // in stairs
  check([](std::uint64_t batch) { return batch < 700 ? Bytes{1000} : Bytes{2'000'000}; }, 699);
}

TEST_CASE("Where no batch fits none is the answer", "[batch_search]") {
  const auto [answer, measures] =
      find_batch(64, 100, [](std::uint64_t batch) { return 1000 + batch; });
  REQUIRE(answer.largest == 0);
  REQUIRE(answer.exact);
}

TEST_CASE("A batch that the program refuses bounds the search", "[batch_search]") {
  const auto [answer, measures] = find_batch(4, 1'000'000, [](std::uint64_t batch) {
    return batch > 37 ? std::nullopt : std::optional<Bytes>(batch);
  });
  REQUIRE(answer.largest == 37);
  REQUIRE(answer.refused == 38);
  REQUIRE_FALSE(answer.smallest_too_large.has_value());
}

TEST_CASE("A search whose tries run out says that more may fit", "[batch_search]") {
  const auto [answer, measures] = find_batch(
      1, 1'000'000, [](std::uint64_t batch) { return batch; }, 3);
  REQUIRE(measures == 3);
  REQUIRE_FALSE(answer.exact);
  REQUIRE(answer.largest >= 1);
}

TEST_CASE("The largest batch is found exactly, whatever pages round", "[batch_search]") {
  for (const Bytes sample : {300 * 1024, 7 * 1024, 5 * 1024 * 1024, 80 * 1024 * 1024})
    for (const Bytes limit : {800 * kMiB, 10'000 * kMiB, 80'000 * kMiB})
      for (const std::uint64_t first :
           {std::uint64_t{1}, std::uint64_t{8}, std::uint64_t{100'000}}) {
        Program program{.sample = sample};
        const Found found = find(program, limit, first);
        CAPTURE(sample, limit, first, found.runs);
        REQUIRE(found.answer.exact);
        if (found.answer.largest > 0) CHECK(*program(found.answer.largest) <= limit);
        CHECK(*program(found.answer.largest + 1) > limit);
        CHECK(found.runs <= 30);
      }
}

TEST_CASE("A need that grows as a straight line takes few runs", "[batch_search]") {
  for (const Bytes sample : {300 * 1024, 5 * 1024 * 1024, 80 * 1024 * 1024}) {
    const Found exact = find({.sample = sample}, 80'000 * kMiB);
    const Found close = find({.sample = sample}, 80'000 * kMiB, 8, BatchSearch::Until::kHundredth);
    CAPTURE(sample, exact.runs, close.runs);
    CHECK(exact.runs <= 12);
    CHECK(close.runs <= 8);
    REQUIRE(close.answer.smallest_too_large);
    CHECK(close.answer.largest <= exact.answer.largest);
    CHECK(*close.answer.smallest_too_large > exact.answer.largest);
    CHECK(*close.answer.smallest_too_large - close.answer.largest <=
          std::max<std::uint64_t>(1, close.answer.largest / 100));
  }
}

TEST_CASE("What is known exactly is not measured again", "[batch_search]") {
  Program program;
  BatchSearch::Known known;
  unsigned tries = 100;
  const auto measure = [&](std::uint64_t batch) { return program(batch); };
  const auto search = [&](std::uint64_t first) {
    return BatchSearch::find(first, 80'000 * kMiB, BatchSearch::Until::kExact, known, tries,
                             measure);
  };
  const auto found = search(8);
  REQUIRE(found.exact);
  const unsigned runs = program.runs;
  for (const std::uint64_t first : {std::uint64_t{8}, found.largest, found.largest + 1}) {
    const auto again = search(first);
    CHECK(again.largest == found.largest);
    CHECK(again.exact);
  }
  CHECK(program.runs == runs);
}
