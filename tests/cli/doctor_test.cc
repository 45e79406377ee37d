#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/pickled.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <cstdio>
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

TEST_CASE("The doctor counts a larger evaluation behind equal steps", "[cli][doctor]") {
  const TemporaryFolder folder;
  std::string csv = "action,id,bytes,stream\nalloc,1,52428800,0\n";
  int id = 1;
  const auto part = [&](int blocks, int bytes, int more) {
    for (int i = 0; i < blocks; ++i)
      csv += "alloc," + std::to_string(++id) + "," + std::to_string(bytes + i * more) + ",0\n";
    for (int i = 0; i < blocks; ++i) csv += "free," + std::to_string(id - i) + ",,\n";
  };
  for (int step = 0; step < 3; ++step) {
    part(20, 5242880, 4096);
    csv += "step,,,0\n";
  }
  part(16, 67108864, 65536);
  write_text(folder / "evalafter.csv", csv);
  const auto json =
      run_berth_json({"doctor", folder / "evalafter.csv", "--gpu-total", "400MiB"}, 1);
  const auto live = json["live_peak_bytes"].get<std::uint64_t>();
  REQUIRE(live == 52428800 + 16 * 67108864 + 120 * 65536);
  for (const char* name : {"planned_reserved_bytes", "planned_run_reserved_bytes",
                           "pool_reserved_bytes", "caching_model_bytes", "expandable_model_bytes"})
    REQUIRE(json[name].get<std::uint64_t>() >= live);
  REQUIRE(json["planned_reserved_bytes"].get<double>() < 1.02 * static_cast<double>(live));
  REQUIRE(json["planned_fits"] == false);
  REQUIRE_THAT(run_berth({"doctor", folder / "evalafter.csv", "--gpu-total", "400MiB"}).out,
               Contains("under berth it does not fit"));
}

TEST_CASE("The doctor takes a history of one step for a step that repeats, and says so",
          "[cli][doctor]") {
  const TemporaryFolder folder;
  for (const int steps : {1, 2}) {
    std::string csv = steps_of(40, steps, [](int, int i) { return 21 + 7 * (i % 3) + i; });
    if (steps == 2) csv.resize(csv.find("step") + 9);  // one, and its mark
    write_text(folder / "run.csv", csv);
    const auto json = run_berth_json({"doctor", folder / "run.csv"});
    REQUIRE(has_finding(json, "one_step"));
    REQUIRE_FALSE(has_finding(json, "does_not_repeat"));
    REQUIRE(json["assumes_one_step_repeats"] == true);
    REQUIRE(json["arena_bytes"].get<std::uint64_t>() > 0);
    const Ran ran = run_berth({"doctor", folder / "run.csv"});
    REQUIRE_THAT(ran.out, Contains("assumes that the program repeats") &&
                              Contains("its step is taken to repeat") && !Contains("of no use"));
  }
}

TEST_CASE("The doctor says of frees alone that nothing can be made of them", "[cli][doctor]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", "action,id,bytes,stream\nfree_old,1,5000,\nfree_old,2,7000,\n");
  const auto json = run_berth_json({"doctor", folder / "run.csv"});
  REQUIRE(has_finding(json, "frees_only"));
  REQUIRE_FALSE(has_finding(json, "no_requests"));
}

namespace {

// A snapshot of 300 MiB that live, of which a segment has so much, and a small block in it.
std::string snapshot_of(std::int64_t segment_mebibytes, bool expandable, bool small) {
  using namespace pickled;
  constexpr std::int64_t kMiB = 1 << 20, kBase = std::int64_t{1} << 40;
  std::vector<std::string> history, blocks;
  const auto add = [&](const char* action, std::int64_t address, std::int64_t size) {
    history.push_back(dict({{"action", text(action)},
                            {"addr", number(address)},
                            {"size", number(size)},
                            {"stream", number(0)},
                            {"time_us", number(static_cast<std::int64_t>(history.size()) + 1)}}));
  };
  const std::int64_t first = small ? 4096 : 4 * kMiB;
  add(expandable ? "segment_map" : "segment_alloc", kBase, segment_mebibytes * kMiB);
  add("alloc", kBase, first);
  add("alloc", kBase + first, 300 * kMiB);
  for (const std::int64_t size : {first, 300 * kMiB})
    blocks.push_back(dict({{"size", number(size)},
                           {"requested_size", number(size)},
                           {"state", text("active_allocated")}}));
  return file(dict({{"segments", list({dict({{"device", number(0)},
                                             {"address", number(kBase)},
                                             {"total_size", number(segment_mebibytes * kMiB)},
                                             {"stream", number(0)},
                                             {"segment_type", text("large")},
                                             {"is_expandable", boolean(expandable)},
                                             {"blocks", list(blocks)}})})},
                    {"device_traces", list({list(history)})}}));
}

}  // namespace

TEST_CASE("The doctor says where segments and requests of a history contradict each other",
          "[cli][doctor]") {
  const TemporaryFolder folder;
  write_text(folder / "x.pickle", snapshot_of(40, false, false));
  const auto json = run_berth_json({"doctor", folder / "x.pickle"});
  REQUIRE(has_finding(json, "segments_contradict"));
  REQUIRE(json["native_measured"] == false);
  REQUIRE(json["native_reserved_bytes"] == json["caching_model_bytes"]);
  write_text(folder / "x.pickle", snapshot_of(320, false, false));
  const auto right = run_berth_json({"doctor", folder / "x.pickle"});
  REQUIRE_FALSE(has_finding(right, "segments_contradict"));
  REQUIRE(right["native_reserved_bytes"] == 320 << 20);
}

TEST_CASE("The doctor knows a snapshot that was written under berth", "[cli][doctor]") {
  const TemporaryFolder folder;
  // Pages at several addresses: 500 MiB of segments where 300 live.
  write_text(folder / "x.pickle", snapshot_of(500, true, true));
  const auto json = run_berth_json({"doctor", folder / "x.pickle"});
  REQUIRE(has_finding(json, "berth_snapshot"));
  REQUIRE(json["native_measured"] == false);
  REQUIRE(json["native_expandable"] == false);
  REQUIRE_FALSE(has_finding(json, "expandable_on"));
  REQUIRE(json["native_reserved_bytes"] == json["caching_model_bytes"]);
  const auto imported = run_berth_json({"import", folder / "x.pickle", "-o", folder / "x.trace"});
  REQUIRE(imported["of_berth"] == true);
  REQUIRE(imported["expandable_segments"] == false);
  REQUIRE(run_berth_json({"doctor", folder / "x.trace"})["native_measured"] == false);
  // PyTorch's own expandable segments keep small blocks apart.
  write_text(folder / "x.pickle", snapshot_of(500, true, false));
  const auto native = run_berth_json({"doctor", folder / "x.pickle"});
  REQUIRE_FALSE(has_finding(native, "berth_snapshot"));
  REQUIRE(native["native_expandable"] == true);
}

TEST_CASE("The doctor and the picture of a run name one figure for berth", "[cli][doctor]") {
  const TemporaryFolder folder;
  for (const int steps : {3, 5, 12}) {
    write_text(folder / "run.csv",
               steps_of(40, steps, [](int, int i) { return 21 + 7 * (i % 5); }));
    const auto json = run_berth_json({"doctor", folder / "run.csv"});
    const auto held = json["planned_run_reserved_bytes"].get<std::uint64_t>();
    REQUIRE(run_berth({"show", folder / "run.csv", "--svg", folder / "run.svg"}).code == 0);
    char text[32];
    (void)std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(held) / 1048576);
    std::string picture = read_text(folder / "run.svg");
    std::replace(picture.begin(), picture.end(), '\n', ' ');
    CAPTURE(steps, text);
    // The panel that draws it; where no plan serves, the line above.
    REQUIRE((picture.find("berth, learning in place: " + std::string(text)) != std::string::npos ||
             picture.find("berth reserves " + std::string(text)) != std::string::npos));
  }
}

TEST_CASE("The doctor gives no advice without a figure that says something", "[cli][doctor]") {
  const TemporaryFolder folder;
  std::mt19937_64 random(7);
  for (const int steps : {2, 3, 4, 9, 30}) {
    for (const bool vary : {true, false}) {
      write_text(folder / "run.csv", steps_of(40, steps, [&](int step, int i) {
                   return vary ? static_cast<int>(1 + random() % 40) : 12 + i + 5 * (step / 3);
                 }));
      const Ran ran = run_berth({"doctor", folder / "run.csv"});
      const auto at = ran.out.find("To know");
      CAPTURE(steps, vary, ran.out);
      if (at != std::string::npos)
        REQUIRE_THAT(ran.out.substr(at, ran.out.find("Who holds") - at), !Contains(" 0.00 %"));
    }
  }
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
