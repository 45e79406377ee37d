#include "csrc/cli/dry_run/batch_search.h"

#include "tests/catch.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace {

using berth::Bytes;
using berth::cli::BatchSearch;

constexpr Bytes kMiB = Bytes{1} << 20;

struct Found {
  std::vector<std::optional<BatchSearch::Answer>> answers;
  unsigned runs = 0;

  [[nodiscard]] const BatchSearch::Answer& only() const { return answers.at(0).value(); }
};

using Need = std::function<std::optional<Bytes>(std::uint64_t batch)>;

// Searches for each need, from a batch that was run already.
Found find(BatchSearch::Options options, const std::vector<Need>& needs,
           std::uint64_t refuses_from = BatchSearch::kMostBatch + 1, std::uint64_t multiple = 1) {
  options.few_runs = std::max(options.few_runs, options.most_runs > 100 ? options.most_runs : 0);
  unsigned calls = 0;
  const auto measure = [&](std::uint64_t batch) -> std::optional<BatchSearch::Needs> {
    ++calls;
    if (batch >= refuses_from || batch % multiple != 0) return std::nullopt;
    BatchSearch::Needs all;
    for (const Need& need : needs) all.push_back(need(batch));
    return all;
  };
  options.first_needs = measure(options.first);
  calls = 0;
  BatchSearch search(options, measure);
  Found found{search.find(), search.runs()};
  REQUIRE(found.runs == calls);
  REQUIRE(found.runs <= options.most_runs);
  return found;
}

Found find(const Need& need, Bytes limit, std::uint64_t first, unsigned runs = 1000) {
  return find({.limit = limit, .most_runs = runs, .first = first}, {need});
}

// What a program needs under PyTorch's allocators, berth learning in place, and with a plan: so
// much at rest and for each sample, more of it where fragments are, in pages or segments.
std::vector<Need> program(Bytes rest, Bytes sample) {
  const auto line = [=](double more, Bytes unit) {
    return [=](std::uint64_t batch) {
      const double bytes = static_cast<double>(rest) + static_cast<double>(batch * sample) * more;
      return std::optional((static_cast<Bytes>(bytes) + unit - 1) / unit * unit);
    };
  };
  return {line(1.0, 2 * kMiB), line(1.07, 20 * kMiB), line(1.045, 2 * kMiB), line(1.01, 2 * kMiB)};
}

}  // namespace

TEST_CASE("Of a need that grows in a line the largest batch takes few runs", "[batch_search]") {
  for (const std::uint64_t first : {1, 8, 1000, 5000}) {
    const Found found = find([](std::uint64_t batch) { return 1003 + 7 * batch; }, 10'000, first);
    CAPTURE(first);
    REQUIRE(found.only().largest == 1285);
    REQUIRE(found.only().exact);
    REQUIRE(found.only().smallest_too_large == 1286);
    REQUIRE(found.runs <= 5);
  }
}

TEST_CASE("Runs for one allocator tell of the others", "[batch_search]") {
  unsigned all = 0, searches = 0;
  for (const Bytes sample : {3 * kMiB, 80 * kMiB, 300 * kMiB, 700 * kMiB})
    for (const Bytes limit : {23'000 * kMiB, 39'000 * kMiB, 80'000 * kMiB})
      for (const std::uint64_t first : {1, 4, 32}) {
        const Bytes rest = 2'100 * kMiB;
        const auto needs = program(rest, sample);
        const Found found = find({.limit = limit, .fixed = rest * 3 / 4, .first = first}, needs);
        CAPTURE(sample, limit, first, found.runs);
        for (std::size_t i = 0; i < needs.size(); ++i) {
          const BatchSearch::Answer& answer = found.answers.at(i).value();
          CAPTURE(i, answer.largest);
          REQUIRE(*needs[i](answer.largest) <= limit);
          REQUIRE(answer.smallest_too_large);
          REQUIRE(*needs[i](*answer.smallest_too_large) > limit);
          CHECK((answer.exact ||
                 *answer.smallest_too_large - answer.largest <= answer.largest / 100));
          CHECK(answer.exact == (answer.largest + 1 == *answer.smallest_too_large));
        }
        all += found.runs;
        ++searches;
      }
  CHECK(all <= 9 * searches);
}

TEST_CASE("The largest batch is found whatever the curve", "[batch_search]") {
  const auto check = [](const Need& need, std::uint64_t largest) {
    const Found found = find(need, 1'000'000, 4);
    REQUIRE(found.only().largest == largest);
    REQUIRE(found.only().exact);
    CHECK(found.runs <= 40);
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

TEST_CASE("The largest batch is found exactly, whatever pages round", "[batch_search]") {
  for (const Bytes sample : {300 * 1024, 7 * 1024, 5 * 1024 * 1024, 80 * 1024 * 1024})
    for (const Bytes limit : {800 * kMiB, 10'000 * kMiB, 80'000 * kMiB})
      for (const std::uint64_t first : {1, 8, 100'000}) {
        const Need need = program(600 * kMiB, sample)[0];
        const Found found = find(need, limit, first);
        CAPTURE(sample, limit, first, found.runs);
        REQUIRE(found.only().exact);
        if (found.only().largest > 0) CHECK(*need(found.only().largest) <= limit);
        CHECK(*need(found.only().largest + 1) > limit);
        CHECK(found.runs <= 30);
      }
}

TEST_CASE("Where no batch fits none is the answer", "[batch_search]") {
  const Found found = find([](std::uint64_t batch) { return 1000 + batch; }, 100, 64);
  REQUIRE(found.only().largest == 0);
  REQUIRE(found.only().exact);
}

TEST_CASE("A batch that the program refuses bounds the search", "[batch_search]") {
  const Found found =
      find({.limit = 1'000'000, .first = 4}, {[](std::uint64_t batch) { return batch; }}, 38);
  REQUIRE(found.only().largest == 37);
  REQUIRE(found.only().refused == 38);
  REQUIRE_FALSE(found.only().smallest_too_large.has_value());
}

TEST_CASE("Of a program that wants multiples only those are tried", "[batch_search]") {
  const auto check = [](std::uint64_t multiple, std::uint64_t first, Bytes limit,
                        std::uint64_t step) {
    const Found found =
        find({.limit = limit, .most_runs = 1000, .first = first},
             {[](std::uint64_t batch) { return 7 * batch; }}, BatchSearch::kMostBatch, multiple);
    CAPTURE(multiple, first, found.runs);
    REQUIRE(found.only().step == step);
    REQUIRE(found.only().largest == limit / 7 / step * step);
    REQUIRE(found.only().smallest_too_large == found.only().largest + step);
    REQUIRE(found.only().exact);
  };
  check(8, 24, 1000, 8);
  check(2, 2, 1000, 2);
  check(64, 64, 3000, 64);  // when multiples of 8 turned out to be too few
  check(4, 4096, 70'009 * 7, 8);
}

TEST_CASE("A program that refuses all is no answer", "[batch_search]") {
  BatchSearch search({.limit = 1000},
                     [](std::uint64_t) { return std::optional<BatchSearch::Needs>(); });
  REQUIRE(search.find().empty());
  REQUIRE_FALSE(search.ran());
  REQUIRE(search.refused() == 1);
  REQUIRE(search.runs() == 1);
}

TEST_CASE("An allocator whose need is not known has no answer", "[batch_search]") {
  const Found found = find({.limit = 1000}, {[](std::uint64_t batch) { return batch; },
                                             [](std::uint64_t) { return std::optional<Bytes>(); }});
  REQUIRE(found.answers[0].has_value());
  REQUIRE_FALSE(found.answers[1].has_value());
}

TEST_CASE("A need that does not depend on the batch ends the search", "[batch_search]") {
  const Found found = find([](std::uint64_t) { return Bytes{500}; }, 1000, 4);
  REQUIRE(found.only().flat);
  REQUIRE_FALSE(found.only().exact);
  REQUIRE(found.runs <= 4);
}

TEST_CASE("A search whose runs run out says that more may fit", "[batch_search]") {
  const Found found = find([](std::uint64_t batch) { return batch * batch; }, 1'000'000, 1, 3);
  REQUIRE(found.runs == 3);
  REQUIRE_FALSE(found.only().exact);
  REQUIRE(found.only().largest >= 1);
}

TEST_CASE("Runs that were asked for are spent until every answer is exact", "[batch_search]") {
  const auto needs = program(2'100 * kMiB, 3 * kMiB);
  const auto exact = [&](unsigned most, unsigned few) {
    const Found found =
        find({.limit = 80'000 * kMiB, .most_runs = most, .few_runs = few, .first = 4}, needs);
    return std::ranges::count_if(found.answers, [](const auto& one) { return one->exact; });
  };
  CHECK(exact(60, 60) == 4);
  CHECK(exact(60, 8) < 4);  // a hundredth was enough
}

TEST_CASE("The last runs go to the allocator of which least is known", "[batch_search]") {
  // A need that leaps, which takes many tries, and three others.
  const std::vector<Need> needs = {
      [](std::uint64_t batch) { return batch <= 7000 ? Bytes{1000} : Bytes{2'000'000}; },
      [](std::uint64_t batch) { return batch * batch; },
      [](std::uint64_t batch) { return 1000 + 7 * batch; },
      [](std::uint64_t batch) { return 900'000 + 500 * batch * batch; },
  };
  for (const unsigned runs : {8u, 10u}) {
    const Found found =
        find({.limit = 1'000'000, .most_runs = runs, .few_runs = runs, .first = 4}, needs);
    for (const auto& answer : found.answers) {
      CAPTURE(runs, answer->largest);
      CHECK(answer->largest > 0);
      CHECK(answer->smallest_too_large.has_value());
    }
  }
}
