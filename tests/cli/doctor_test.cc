#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <random>

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

bool has_finding(const nlohmann::json& json, const std::string& name) {
  return std::any_of(json["findings"].begin(), json["findings"].end(),
                     [&](const auto& finding) { return finding["name"] == name; });
}

// Weights of `weights` MiB, then steps of blocks that `size` gives in MiB, two alive at a time.
template <class Size>
std::string steps_of(int weights, int steps, Size&& size) {
  std::string csv = "action,id,bytes,stream\nalloc,0," +
                    std::to_string(std::uint64_t{1048576} * static_cast<std::uint64_t>(weights)) +
                    ",0\n";
  int id = 0;
  for (int step = 0; step < steps; ++step) {
    for (int i = 0; i < 12; ++i) {
      csv += "alloc," + std::to_string(++id) + "," +
             std::to_string(std::uint64_t{1048576} * static_cast<std::uint64_t>(size(step, i))) +
             ",0\n";
      if (i > 0) csv += "free," + std::to_string(id - 1) + ",,\n";
    }
    csv += "free," + std::to_string(id) + ",,\nstep,,,0\n";
  }
  return csv;
}

}  // namespace

#ifdef BERTH_TEST_ZLIB

TEST_CASE("The doctor says of a snapshot what is held, what lives and what berth would hold",
          "[cli][doctor]") {
  const TemporaryFolder folder;
  const auto json = run_berth_json({"doctor", BERTH_SNAPSHOTS "/cpp.pickle.gz"});
  REQUIRE(json["source"] == "snapshot");
  REQUIRE(json["live_peak_bytes"] == 32785408);
  REQUIRE(json["native_reserved_bytes"] == 56623104);
  REQUIRE(json["native_measured"] == true);
  REQUIRE(json["caching_model_bytes"] == 56623104);  // the model alone comes to the same
  const auto planned = json["planned_reserved_bytes"].get<std::uint64_t>();
  REQUIRE(planned >= 32785408);
  REQUIRE(planned < 56623104);
  REQUIRE(json["saving_bytes"] == 56623104 - planned);
  REQUIRE(json["batch_factor"].get<double>() > 1);
  REQUIRE(json["arena_bytes"] == json["arena_bound_bytes"]);
  REQUIRE(run_berth_json(
              {"doctor", BERTH_SNAPSHOTS "/expandable.pickle.gz"})["native_expandable"] == true);

  // A trace of it says the same.
  REQUIRE(run_berth({"import", BERTH_SNAPSHOTS "/cpp.pickle.gz", "-o", folder / "x.trace"}).code ==
          0);
  const auto again = run_berth_json({"doctor", folder / "x.trace"});
  for (const char* name : {"live_peak_bytes", "native_reserved_bytes", "native_measured",
                           "planned_reserved_bytes", "saving_bytes", "repeating_requests_share"})
    REQUIRE(again[name] == json[name]);

  const Ran ran = run_berth({"doctor", BERTH_SNAPSHOTS "/python.pickle.gz"});
  REQUIRE_THAT(ran.out, Contains("PyTorch's allocator       56.0 MiB") && Contains("measured"));
  REQUIRE_THAT(ran.out, Contains("by module") && Contains("main make.py:"));
  REQUIRE_THAT(ran.out, Contains("ran out of memory, the largest of 32.0 TiB"));
}

TEST_CASE("The doctor says where a history is cut, and of its trace too", "[cli][doctor]") {
  const TemporaryFolder folder;
  REQUIRE(has_finding(run_berth_json({"doctor", BERTH_SNAPSHOTS "/cut.pickle.gz"}), "history"));
  REQUIRE(run_berth({"import", BERTH_SNAPSHOTS "/cut.pickle.gz", "-o", folder / "x.trace"}).code ==
          0);
  const auto json = run_berth_json({"doctor", folder / "x.trace"});
  REQUIRE(has_finding(json, "history"));
  REQUIRE(has_finding(json, "short_run"));
}

#endif

TEST_CASE("The doctor says why a plan would not help", "[cli][doctor]") {
  const TemporaryFolder folder;
  const auto visit = [&](const std::string& csv) {
    write_text(folder / "run.csv", csv);
    return run_berth_json({"doctor", folder / "run.csv"});
  };
  const auto equal = [](int, int i) { return 21 + 7 * (i % 3); };
  const auto helps = visit(steps_of(40, 12, equal));
  REQUIRE(helps["saving_bytes"].get<std::uint64_t>() > 0);
  REQUIRE_FALSE(has_finding(helps, "does_not_repeat"));
  REQUIRE_FALSE(has_finding(helps, "residents_dominate"));
  REQUIRE(has_finding(visit(steps_of(4000, 12, equal)), "residents_dominate"));
  REQUIRE(has_finding(visit(steps_of(40000, 12, equal)), "native_is_good"));
  std::mt19937_64 random(1);
  REQUIRE(has_finding(visit(steps_of(40, 30, [&](int, int) { return 1 + random() % 40; })),
                      "shapes_vary"));
  // Two kinds of steps in random turns.
  std::vector<int> kinds;
  for (int i = 0; i < 60; ++i) kinds.push_back(static_cast<int>(random() % 2));
  const auto two = visit(steps_of(
      40, 60, [&](int step, int i) { return kinds[static_cast<std::size_t>(step)] * 9 + 12 + i; }));
  REQUIRE(has_finding(two, "kinds"));
  REQUIRE(two["repeating_requests_share"].get<double>() > 0.9);
  // Nothing comes twice, and nothing is marked.
  std::string once = "action,id,bytes,stream\n";
  for (int id = 0; id < 300; ++id) {
    once +=
        "alloc," + std::to_string(id) + "," + std::to_string(1 + random() % (30 << 20)) + ",0\n";
    if (id >= 5) once += "free," + std::to_string(id - 5) + ",,\n";
  }
  REQUIRE(has_finding(visit(once), "does_not_repeat"));
  const auto cpu = visit("id,lower,upper,size\na,0,4,100000\nb,2,6,50000\n");
  REQUIRE(has_finding(cpu, "cpu"));
  REQUIRE(cpu["native_reserved_bytes"].is_null());
  REQUIRE(has_finding(visit("action,id,bytes,stream\n"), "no_requests"));
}

TEST_CASE("The doctor says whether a run fits a GPU", "[cli][doctor]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", steps_of(40, 12, [](int, int i) { return 21 + 7 * (i % 3); }));
  const auto fits = run_berth_json({"doctor", folder / "run.csv", "--gpu-total", "1GiB"});
  REQUIRE(fits["planned_fits"] == true);
  REQUIRE(fits["planned_batch_factor"].get<double>() >= fits["native_batch_factor"].get<double>());
  const auto tight = run_berth_json({"doctor", folder / "run.csv", "--gpu-total", "64MiB"}, 1);
  REQUIRE(tight["planned_fits"] == false);
  REQUIRE_THAT(run_berth({"doctor", folder / "run.csv", "--gpu-total", "64MiB"}).out,
               Contains("does not fit"));
}

TEST_CASE("The doctor refuses what is neither trace nor snapshot", "[cli][doctor]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  write_text(folder / "code.pickle",
             "\x80\x02"
             "cos\nsystem\n(S'touch ran'\ntR.");
  write_text(folder / "text", "nothing");
  const Ran code = run_berth({"doctor", folder / "code.pickle"});
  REQUIRE(code.code == 3);
  REQUIRE_THAT(code.err, Contains("would call 'os.system'"));
  REQUIRE(run_berth({"doctor", folder / "text"}).code == 3);
  REQUIRE(run_berth({"doctor", folder / "nowhere"}).code == 3);
  REQUIRE(run_berth({"doctor"}).code == 2);
  REQUIRE(run_berth({"doctor", folder / "run.csv", "--device", "0"}).code == 2);
  REQUIRE(run_berth({"doctor", folder / "run.csv", "--gpu-total", "much"}).code == 2);
}
