#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

using namespace berth::test;
using Catch::Matchers::Contains;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

}  // namespace

TEST_CASE("Replaying says what each allocator held under the promised names", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(10));
  const nlohmann::json json =
      run_berth_json({"replay", folder / "run.csv", "--allocator", "planned,pool,glibc"});
  // Weights of 3 MiB, 36 blocks of 64 KiB, one of 4 KiB.
  const std::uint64_t live = 3 * 1048576 + 36 * 65536 + 4096;
  REQUIRE(json["live_peak_bytes"] == live);
  REQUIRE(json["lower_bound_bytes"] == live);
  REQUIRE(json["steps"] == 10);
  REQUIRE(json["allocators"].size() == 3);
  for (const auto& [name, result] : json["allocators"].items()) {
    INFO(name << result.dump());
    for (const char* field : {"reserved_peak_bytes", "driver_calls", "driver_ms",
                              "ns_per_operation", "hits", "lent", "misses"})
      REQUIRE(result.contains(field));
    if (name == "glibc" && kSanitized) continue;
    REQUIRE(result["reserved_peak_bytes"].get<std::uint64_t>() >= live);
    REQUIRE(result["ns_per_operation"].get<double>() > 0);
  }
  const auto& planned = json["allocators"]["planned"];
  REQUIRE(planned["misses"] == 0);
  REQUIRE(planned["hits"].get<std::uint64_t>() >= 6 * 16);
  REQUIRE(planned["hits"].get<std::uint64_t>() + planned["unplanned"].get<std::uint64_t>() ==
          json["requests"].get<std::uint64_t>());
  REQUIRE(json["allocators"]["pool"]["hits"] == 0);
  REQUIRE(json["allocators"]["glibc"]["driver_calls"].is_null());
}

TEST_CASE("Replaying says how the steps of each kind were served", "[cli][replay]") {
  const TemporaryFolder folder;
  // Training, and every fifth step an evaluation, in events.
  std::string csv = "action,id,bytes,stream\n";
  int id = 0;
  for (int step = 0; step < 40; ++step) {
    const bool evaluates = step % 5 == 4;
    const int first = id + 1;
    for (int i = 0; i < (evaluates ? 6 : 12); ++i)
      csv += "alloc," + std::to_string(++id) + "," + std::to_string(65536 * (1 + i)) + ",0\n";
    for (int block = id; block >= first; --block)
      csv += "free," + std::to_string(block) + "," + std::to_string(65536 * (1 + block - first)) +
             ",0\n";
    csv += "step,,,0\n";
  }
  write_text(folder / "run.csv", csv);
  const nlohmann::json json =
      run_berth_json({"replay", folder / "run.csv", "--allocator", "planned"});
  const auto& kinds = json["allocators"]["planned"]["kinds"];
  REQUIRE(kinds.size() == 2);
  REQUIRE(kinds[0]["steps"] == 32);
  REQUIRE(kinds[0]["step_requests"] == 12);
  REQUIRE(kinds[1]["steps"] == 8);
  REQUIRE(kinds[1]["step_requests"] == 6);
  for (const auto& kind : kinds)
    REQUIRE(kind["hits_from_fourth_step"] == kind["requests_from_fourth_step"]);
  REQUIRE_THAT(run_berth({"replay", folder / "run.csv", "--allocator", "planned"}).out,
               Contains("planned, by kind of step"));
}

TEST_CASE("On plain memory the pool holds segments of PyTorch's sizes", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(10));
  const nlohmann::json json = run_berth_json({"replay", folder / "run.csv", "--memory", "plain",
                                              "--allocator", "planned,pool,caching-model"});
  const auto& all = json["allocators"];
  REQUIRE(all["pool"]["reserved_peak_bytes"] == all["caching-model"]["reserved_peak_bytes"]);
  REQUIRE(all["pool"]["memory_calls"]["cudaMalloc"].get<int>() > 0);
  REQUIRE(all["pool"]["memory_calls"]["cuMemCreate"] == 0);
  // An arena beside one segment would cost memory: no plan serves.
  REQUIRE(all["planned"]["reserved_peak_bytes"] == all["pool"]["reserved_peak_bytes"]);
}

TEST_CASE("Another allocator is measured or said not to be there", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(10));
  const nlohmann::json json = run_berth_json({"replay", folder / "run.csv", "--allocator",
                                              "jemalloc,tcmalloc,mimalloc,caching,expandable"});
  REQUIRE(json["allocators"].size() == 5);
  for (const auto& [name, result] : json["allocators"].items()) {
    INFO(name << result.dump());
    if (result.contains("problem")) {
      REQUIRE(result["reserved_peak_bytes"].is_null());
    } else {
      REQUIRE(result["reserved_peak_bytes"].get<std::uint64_t>() >=
              json["live_peak_bytes"].get<std::uint64_t>());
    }
  }
}

TEST_CASE("A table tells the same to people", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  const Ran ran =
      run_berth({"replay", folder / "run.csv", "--allocator", "planned,pool", "--steps"});
  REQUIRE(ran.code == 0);
  REQUIRE_THAT(one_line(ran.out), Contains("reserved over driver driver ns allocator peak"));
  REQUIRE_THAT(ran.out, Contains("planned, step by step"));
  REQUIRE_THAT(ran.out, Contains("pool, step by step"));
}

TEST_CASE("An unknown allocator names the nearest one", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  const Ran ran = run_berth({"replay", folder / "run.csv", "--allocator", "pool,jmalloc"});
  REQUIRE(ran.code == 2);
  REQUIRE_THAT(ran.err, Contains("did you mean 'jemalloc'?"));
}

TEST_CASE("Perturbed requests are the same for a seed and others for another", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(20));
  const auto perturbed = [&](const char* seed) {
    return run_berth_json({"replay", folder / "run.csv", "--allocator", "planned", "--perturb",
                           "insert:0.05,drop:0.02,resize:0.05,swap:0.02", "--seed", seed});
  };
  const nlohmann::json one = perturbed("1"), again = perturbed("1"), other = perturbed("2");
  for (const char* field : {"requests", "live_peak_bytes"}) REQUIRE(one[field] == again[field]);
  for (const char* field : {"hits", "misses", "reserved_peak_bytes"})
    REQUIRE(one["allocators"]["planned"][field] == again["allocators"]["planned"][field]);
  REQUIRE(one["requests"] != 20 * 16 + 3);
  REQUIRE(one != other);
}

TEST_CASE("Changed requests cost a handful of misses and not the plan", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(40, 100));
  for (const char* change : {"insert:0.002", "drop:0.002", "resize:0.002", "swap:0.002"}) {
    const auto json = run_berth_json(
        {"replay", folder / "run.csv", "--allocator", "planned", "--perturb", change});
    const auto& planned = json["allocators"]["planned"];
    INFO(change << planned.dump());
    // About 15 changes in 37 steps of 200 requests.
    REQUIRE(planned["hits"].get<int>() > 36 * 200 * 9 / 10);
    REQUIRE(planned["misses"].get<int>() + planned["realigned"].get<int>() > 0);
    REQUIRE(planned["misses"].get<int>() < 300);
    const auto counted = [&](const char* name) { return planned[name].get<std::uint64_t>(); };
    REQUIRE(counted("hits") + counted("lent") + counted("misses") + counted("unplanned") ==
            json["requests"].get<std::uint64_t>());
  }
}

TEST_CASE("Rates are shares or per cent and the seed may stand beside them", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(20));
  const auto replayed = [&](std::vector<std::string> how) {
    how.insert(how.begin(), {"replay", folder / "run.csv", "--allocator", "planned"});
    nlohmann::json json = run_berth_json(how);
    json["allocators"]["planned"].erase("ns_per_operation");
    return json;
  };
  const auto old = replayed({"--perturb", "insert:0.05,swap:0.02", "--seed", "7"});
  REQUIRE(replayed({"--perturb", "insert=5%,swap=2%,seed=7"}) == old);
  REQUIRE(replayed({"--perturb", "seed=7", "--perturb", "swap=0.02,insert:5%"}) == old);
  REQUIRE(replayed({"--perturb", "insert=5%,swap=2%,seed=8"}) != old);
}

TEST_CASE("A replay says how requests were served, which missed and why", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(40, 100));
  const std::vector<std::string> replay = {"replay",  folder / "run.csv", "--allocator",
                                           "planned", "--perturb",        "resize=1%,seed=3"};
  const Ran ran = run_berth(replay);
  REQUIRE_THAT(ran.out, Contains("as planned") && Contains("unlike the plan"));
  REQUIRE_THAT(ran.out, Contains("of the step: ") && Contains(" came, the plan expects "));
  REQUIRE_THAT(ran.out, Contains("What to do"));
  const auto planned = run_berth_json(replay)["allocators"]["planned"];
  const auto& all = planned["statistics"];
  for (const char* name : {"hits", "lent", "unplanned", "realigned"})
    REQUIRE(all[name] == planned[name]);
  REQUIRE(all["misses_size"].get<int>() + all["misses_busy"].get<int>() +
              all["misses_lane"].get<int>() ==
          planned["misses"].get<int>());
  REQUIRE_FALSE(all["sentences"].empty());
}

TEST_CASE("A perturbation without a kind or rate is wrong usage", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(4));
  for (const char* text :
       {"insert", "insert:2", "insert:-1", "insert:x", "shuffle:0.1", "insert:nan", "insert=101%",
        "insert=%", "insert=1%%", "seed", "seed=x", "seed=-1", "seed=1%", "=1%"}) {
    const Ran ran = run_berth({"replay", folder / "run.csv", "--perturb", text});
    INFO(text << ": " << ran.err);
    REQUIRE(ran.code == 2);
  }
}

TEST_CASE("A run that exceeds the memory limit is a no", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "run.csv", events_csv(6));
  const nlohmann::json json = run_berth_json(
      {"replay", folder / "run.csv", "--allocator", "pool", "--memory-limit", "2MiB"}, 1);
  REQUIRE(json["allocators"]["pool"]["out_of_memory"] == true);
  REQUIRE(json["allocators"]["pool"]["problem"].get<std::string>().find("out of memory") !=
          std::string::npos);
}

TEST_CASE("Lifetimes and an empty run replay too", "[cli][replay]") {
  const TemporaryFolder folder;
  write_text(folder / "rows.csv", "id,lower,upper,size\na,0,4,100000\nb,2,6,50000\n");
  write_text(folder / "none.csv", "action,id,bytes,stream\n");
  REQUIRE(run_berth_json({"replay", folder / "rows.csv"})["live_peak_bytes"] == 100352 + 50176);
  REQUIRE(run_berth_json({"replay", folder / "none.csv"})["live_peak_bytes"] == 0);
}
