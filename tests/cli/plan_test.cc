#include "csrc/cli/core/lifetimes.h"
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/trace_files.h"

#include <berth/place.h>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <random>
#include <sstream>

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

std::vector<std::vector<std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(csv);
  for (std::string line; std::getline(lines, line);) {
    std::vector<std::string> fields;
    std::istringstream text(line);
    for (std::string field; std::getline(text, field, ',');) fields.push_back(field);
    rows.push_back(fields);
  }
  return rows;
}

const char* const kRows =
    "id,lower,upper,size\n"
    "a,0,10,300\n"
    "b,0,4,100\n"
    "c,4,8,100\n"
    "d,2,6,50\n";

// Of 6 bytes at most are alive at a time, yet 7 are needed.
const char* const kAboveMaxLoad =
    "id,lower,upper,size\n"
    "a,0,1,4\nb,0,4,1\nc,2,3,2\nd,2,7,3\ne,3,10,1\nf,4,5,2\ng,7,8,4\n";

}  // namespace

TEST_CASE("Planning lifetimes writes the same rows with a legal offset", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  const nlohmann::json json =
      run_berth_json({"plan", folder / "rows.csv", "-o", folder / "placed.csv"});
  const auto before = rows_of(kRows);
  const auto after = rows_of(read_text(folder / "placed.csv"));
  REQUIRE(after.size() == before.size());
  REQUIRE(after[0] == std::vector<std::string>{"id", "lower", "upper", "size", "offset"});
  std::vector<berth::Bytes> offsets;
  std::uint64_t mark = 0;
  for (std::size_t i = 1; i < before.size(); ++i) {
    REQUIRE(std::equal(before[i].begin(), before[i].end(), after[i].begin()));
    offsets.push_back(std::stoull(after[i].at(4)));
    mark = std::max<std::uint64_t>(mark, offsets.back() + std::stoull(after[i][3]));
  }
  const auto rows = berth::read_lifetimes(folder / "rows.csv");
  REQUIRE(berth::cli::find_overlap(rows, offsets) == std::nullopt);
  REQUIRE(json["arena_bytes"] == mark);
  REQUIRE(json["lower_bound_bytes"] == 450);
  REQUIRE(json["buffers"] == 4);
}

TEST_CASE("The JSON of a plan has the names that the design promises", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  write_text(folder / "run.csv", events_csv(4));
  for (const char* name : {"rows.csv", "run.csv"}) {
    const nlohmann::json json = run_berth_json({"plan", folder / name, "--seed", "3"});
    REQUIRE(json["buffers"].is_number_unsigned());
    REQUIRE(json["arena_bytes"].is_number_unsigned());
    REQUIRE(json["lower_bound_bytes"].is_number_unsigned());
    REQUIRE(json["proven_optimal"].is_boolean());
    REQUIRE(json["engine"].is_string());
    REQUIRE(json["seconds"].is_number());
    REQUIRE(json["seed"] == 3);
    REQUIRE_FALSE(json.contains("fits"));
  }
}

TEST_CASE("Planning a run writes a plan of its step that verifies", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  const Ran ran = run_berth({"plan", folder / "run.csv", "-o", folder / "run.plan"});
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(ran.out, Contains("proven optimal"));
  REQUIRE_THAT(ran.out, Contains("wrote "));
  REQUIRE(run_berth({"verify", folder / "run.plan", folder / "run.csv"}).code == 0);
  const nlohmann::json json = run_berth_json({"show", folder / "run.plan"});
  REQUIRE(json["slots"] == 16);
  REQUIRE(json["arena_bytes"] == json["lower_bound_bytes"]);
}

TEST_CASE("The lane of the step and its share of the run are named", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  const Ran ran = run_berth({"plan", folder / "run.csv"});
  REQUIRE_THAT(ran.out, Contains("lane 0 (thread 0, 6 marks), seen 5 times in a row"));
  REQUIRE_THAT(ran.out, Contains(" of 99 requests, "));
  REQUIRE_THAT(ran.err, !Contains("warning"));
  const nlohmann::json json = run_berth_json({"plan", folder / "run.csv"});
  REQUIRE(json["lane"] == 0);
  REQUIRE(json["thread"] == 0);
  REQUIRE(json["covered_requests"] == Approx(96.0 / 99));
  REQUIRE(json["covered_bytes"].is_number());
  REQUIRE(json["warning"].is_null());
}

TEST_CASE("A step that covers little of its run is planned with a warning that says why",
          "[cli][plan]") {
  const TemporaryFolder folder;
  std::string csv = events_csv(6);
  // Another stream asks for more, each time for something else.
  for (int i = 0; i < 200; ++i) {
    csv += fmt::format("alloc,{},{},7\n", 10000 + i, 5000000 + 4096 * i * i);
    csv += fmt::format("free,{},,\n", 10000 + i);
  }
  write_text(folder / "run.csv", csv);
  for (const char* command : {"plan", "show"}) {
    const Ran ran = run_berth({command, folder / "run.csv"});
    CAPTURE(ran.err);
    REQUIRE(ran.code == 0);
    REQUIRE_THAT(ran.err, Contains("warning: the step of lane 0 (thread 0, 6 marks)"));
    REQUIRE_THAT(ran.err, Contains("covers only 32.11 % of 299 requests"));
    REQUIRE_THAT(ran.err, Contains("lane 7 (thread 0, 0 marks) makes 200 requests of"));
  }
  REQUIRE(run_berth_json({"plan", folder / "run.csv"})["warning"].is_string());
  REQUIRE(run_berth_json({"show", folder / "run.csv"})["steps"]["warning"].is_string());
}

TEST_CASE("A plan is the same from CSV and from gzip and from format 1", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  const berth::Trace trace = berth::read_trace(folder / "run.csv");
  berth::write_trace(folder / "run.trace", trace);
  write_events_csv(folder / "run.csv.gz", trace);
  const auto arena = run_berth_json({"plan", folder / "run.csv"})["arena_bytes"];
  REQUIRE(run_berth_json({"plan", folder / "run.trace"})["arena_bytes"] == arena);
  REQUIRE(run_berth_json({"plan", folder / "run.csv.gz"})["arena_bytes"] == arena);
}

TEST_CASE("Nothing is written where no output is named", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  RunOptions options;
  options.folder = folder.path();
  REQUIRE(run_berth({"plan", "run.csv"}, options).code == 0);
  REQUIRE(std::distance(std::filesystem::directory_iterator(folder.path()),
                        std::filesystem::directory_iterator()) == 1);
}

TEST_CASE("A capacity that suffices is a yes", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  const nlohmann::json json = run_berth_json({"plan", folder / "rows.csv", "--capacity", "1KiB"});
  REQUIRE(json["fits"] == true);
  REQUIRE(json["proven_infeasible"] == false);
  REQUIRE(json["capacity_bytes"] == 1024);
}

TEST_CASE("A capacity below the bound is a proven no and nothing is written", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  write_text(folder / "run.csv", events_csv(4));
  for (const char* name : {"rows.csv", "run.csv"}) {
    const nlohmann::json json =
        run_berth_json({"plan", folder / name, "--capacity", "449", "-o", folder / "none"}, 1);
    REQUIRE(json["fits"] == false);
    REQUIRE(json["proven_infeasible"] == true);
    REQUIRE_FALSE(exists(folder / "none"));
  }
  const Ran ran = run_berth({"plan", folder / "rows.csv", "--capacity", "449"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.out, Contains("it does not fit, proven"));
}

TEST_CASE("A capacity that one moment exceeds is refused with the line that does", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  const std::string reason = "line 5 ('d', 50 bytes) brings what is alive at time 2 to 450 bytes";
  const nlohmann::json json = run_berth_json({"plan", folder / "rows.csv", "--capacity", "449"}, 1);
  REQUIRE(json["reason"] == reason);
  REQUIRE_THAT(run_berth({"plan", folder / "rows.csv", "--capacity", "449"}).out, Contains(reason));
}

TEST_CASE("What was not found in time is told from what is proven not to be", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kAboveMaxLoad);
  const nlohmann::json json =
      run_berth_json({"plan", folder / "rows.csv", "--capacity", "6", "--engine", "first_fit"}, 1);
  REQUIRE(json["fits"] == false);
  REQUIRE(json["proven_infeasible"] == false);
  REQUIRE_FALSE(json.contains("reason"));
  REQUIRE(json["arena_bytes"] == 7);
  REQUIRE_THAT(
      run_berth({"plan", folder / "rows.csv", "--capacity", "6", "--engine", "first_fit"}).out,
      Contains("nothing that fits was found"));
}

TEST_CASE("Every engine plans and an unknown one is answered with their names", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kAboveMaxLoad);
  const Ran unknown = run_berth({"plan", folder / "rows.csv", "--engine", "magic"});
  REQUIRE(unknown.code == 2);
  for (const std::string& engine : berth::place_engines()) {
    REQUIRE_THAT(unknown.err, Contains(engine));
    const Ran ran = run_berth({"plan", folder / "rows.csv", "--engine", engine, "--json",
                               "--iterations", "100", "--threads", "2"});
    INFO(engine << ": " << ran.err);
    // The integer program needs a library that may be missing.
    if (ran.code == 2) REQUIRE_THAT(ran.err, Contains("HiGHS"));
    if (ran.code != 2) REQUIRE(nlohmann::json::parse(ran.out)["arena_bytes"] == 7);
  }
}

TEST_CASE("A wrong capacity or alignment is wrong usage", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  for (const auto& [option, value] :
       std::vector<std::pair<std::string, std::string>>{{"--capacity", "much"},
                                                        {"--capacity", "0"},
                                                        {"--alignment", "48"},
                                                        {"--alignment", "x"}}) {
    const Ran ran = run_berth({"plan", folder / "rows.csv", option, value});
    INFO(ran.err);
    REQUIRE(ran.code == 2);
    REQUIRE_THAT(ran.err, Contains(option));
  }
}

TEST_CASE("An alignment rounds offsets and sizes", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  const nlohmann::json json = run_berth_json(
      {"plan", folder / "rows.csv", "--alignment", "256", "-o", folder / "placed.csv"});
  REQUIRE(json["lower_bound_bytes"] == 1024);
  for (const auto& row : rows_of(read_text(folder / "placed.csv"))) {
    if (row[0] != "id") REQUIRE(std::stoull(row.at(4)) % 256 == 0);
  }
}

TEST_CASE("A run whose steps do not repeat has no plan", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "one.csv", events_csv(1));
  const Ran ran = run_berth({"plan", folder / "one.csv", "-o", folder / "one.plan"});
  REQUIRE(ran.code == 1);
  REQUIRE_THAT(ran.err, Contains("has no step to plan"));
  REQUIRE_FALSE(exists(folder / "one.plan"));
  const nlohmann::json json = run_berth_json({"plan", folder / "one.csv"}, 1);
  REQUIRE(json["repeats"] == false);
}

TEST_CASE("A run of four lengths in random turns is planned as four kinds of steps",
          "[cli][plan][kinds]") {
  const TemporaryFolder folder;
  std::mt19937 random(3);
  std::string rows = "action,id,bytes,stream\n";
  std::size_t id = 0;
  for (int step = 0; step < 40; ++step) {
    const std::size_t length = 1 + random() % 4;
    for (std::size_t k = 1; k <= 10; ++k) {
      const std::size_t bytes = 4096 * length * k;
      rows += fmt::format("alloc,{0},{1},0\nfree,{0},{1},0\n", ++id, bytes);
    }
    rows += "step,0,0,0\n";
  }
  write_text(folder / "run.csv", rows);
  const nlohmann::json json = run_berth_json({"plan", folder / "run.csv", "-o", folder / "p.plan"});
  REQUIRE(json["kinds"] == 4);
  REQUIRE(json["arena_bytes"] == 4096 * 4 * 10);
  REQUIRE(run_berth({"verify", folder / "p.plan", folder / "run.csv"}).code == 0);
  const nlohmann::json shown = run_berth_json({"show", folder / "p.plan"});
  REQUIRE(shown["sequences"].size() == 4);
}

TEST_CASE("A budget of tries and a seed decide the placement", "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", kRows);
  for (const char* output : {"first.csv", "second.csv"}) {
    REQUIRE(run_berth({"plan", folder / "rows.csv", "--iterations", "50", "--seed", "9", "-o",
                       folder / output})
                .code == 0);
  }
  REQUIRE(read_text(folder / "first.csv") == read_text(folder / "second.csv"));
}

TEST_CASE("An interrupt ends the search and keeps the best placement so far", "[cli][plan]") {
  const TemporaryFolder folder;
  // Sizes over four decades, of which no planner proves an optimum soon.
  std::mt19937_64 random(1);
  std::string csv = "id,lower,upper,size\n";
  for (int i = 0; i < 2000; ++i) {
    const auto lower = random() % 10'000, length = 1 + random() % 2'000;
    csv += fmt::format(
        "{},{},{},{}\n", i, lower, lower + length,
        static_cast<std::uint64_t>(std::exp(static_cast<double>(random() % 1000) / 100)));
  }
  write_text(folder / "hard.csv", csv);
  RunOptions options;
  options.signal = SIGINT;
  options.error = Stream::kTerminal;
  options.when_said = "planning: best";
  const Ran ran = run_berth(
      {"plan", folder / "hard.csv", "--time-limit", "600", "--json", "-o", folder / "placed.csv"},
      options);
  INFO(ran.err);
  REQUIRE(ran.code == 0);
  const auto json = nlohmann::json::parse(ran.out);
  REQUIRE(json["cancelled"] == true);
  REQUIRE(json["seconds"].get<double>() < 300);
  REQUIRE(rows_of(read_text(folder / "placed.csv")).size() == 2001);

  // Of a capacity that nothing fits yet there is no best so far.
  const auto bound = json["lower_bound_bytes"].get<std::uint64_t>();
  const Ran open = run_berth({"plan", folder / "hard.csv", "--time-limit", "600", "--capacity",
                              std::to_string(bound), "-o", folder / "none.csv"},
                             options);
  INFO(open.out << open.err);
  REQUIRE(open.code == 130);
  REQUIRE_THAT(open.err, Contains("interrupted before a placement was found that fits"));
  REQUIRE_FALSE(exists(folder / "none.csv"));
}

TEST_CASE("The time limit is that of the whole command", "[cli][plan]") {
  const TemporaryFolder folder;
  std::mt19937_64 random(2);
  std::string csv = "id,lower,upper,size\n";
  for (int i = 0; i < 20'000; ++i) {
    const auto lower = random() % 10'000;
    csv += fmt::format("{},{},{},{}\n", i, lower, lower + 1 + random() % 2'000,
                       1 + random() % 100'000);
  }
  write_text(folder / "hard.csv", csv);
  const auto start = std::chrono::steady_clock::now();
  REQUIRE(
      run_berth({"plan", folder / "hard.csv", "--time-limit", "2", "-o", folder / "x.csv"}).code ==
      0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  REQUIRE(took.count() < 3);
}

TEST_CASE("A plan goes into a folder under a name of its own and none where one is as good",
          "[cli][plan]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  const std::string plans = folder.path() + GENERATE("/plans/", "/new/plans/");
  for (int again = 0; again < 2; ++again)
    REQUIRE(run_berth({"plan", folder / "run.csv", "-o", plans}).code == 0);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(plans))
    names.push_back(entry.path().filename().string());
  REQUIRE(names.size() == 1);
  REQUIRE(names[0].starts_with("berth-"));
  REQUIRE(run_berth({"verify", plans + names[0], folder / "run.csv"}).code == 0);
}
