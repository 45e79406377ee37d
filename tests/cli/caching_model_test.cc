// The models of PyTorch's CUDA allocator beside the real one on the stand-in.

#include "tests/catch.h"
#include "tests/cli/program.h"
#include "tests/support/temporary_folder.h"

#include <random>

using namespace berth::test;

namespace {

// Requests of all pools and sizes on three streams, frees at random.
std::string random_events(std::uint64_t seed, int requests) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t limit) { return random() % limit; };
  std::string csv = "action,id,bytes,stream\n";
  std::vector<int> live;
  for (int id = 0; id < requests; ++id) {
    static constexpr std::uint64_t kFrom[] = {1, 4096, 1 << 20, 10 << 20, 2 << 20};
    static constexpr std::uint64_t kSpread[] = {4096, 1 << 20, 9 << 20, 50 << 20, 1};
    static constexpr int kStreams[] = {0, 0, 0, 7, 9};
    const std::uint64_t kind = below(5);
    csv += "alloc," + std::to_string(id) + "," +
           std::to_string(kFrom[kind] + below(kSpread[kind])) + "," +
           std::to_string(kStreams[below(5)]) + "\n";
    live.push_back(id);
    while (!live.empty() && below(100) < (live.size() < 100 ? 47 : 60)) {
      const std::size_t at = below(live.size());
      csv += "free," + std::to_string(live[at]) + ",,\n";
      live[at] = live.back();
      live.pop_back();
    }
  }
  return csv;
}

void require_equal(const std::string& path, const std::vector<std::string>& more = {}) {
  std::vector<std::string> arguments = {
      "replay", path, "--allocator", "caching,caching-model,expandable,expandable-model", "--json"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ran ran = run_berth(arguments);
  REQUIRE((ran.code == 0 || ran.code == 1));
  const nlohmann::json json = nlohmann::json::parse(ran.out)["allocators"];
  INFO(path << json.dump());
  for (const char* name : {"caching", "expandable"}) {
    const auto& real = json[name];
    const auto& model = json[std::string(name) + "-model"];
    if (real["reserved_peak_bytes"].is_null()) {
      WARN("no libtorch for CUDA: the model is beside nothing");
      continue;
    }
    REQUIRE(model["reserved_peak_bytes"] == real["reserved_peak_bytes"]);
    REQUIRE(model["out_of_memory"] == real["out_of_memory"]);
    if (!more.empty()) continue;
    REQUIRE(model["driver_calls"] == real["driver_calls"]);
    for (const char* call : {"cudaMalloc", "cudaFree", "cuMemAddressReserve", "cuMemMap",
                             "cuMemSetAccess", "cuMemUnmap", "cuMemRelease"})
      REQUIRE(model["memory_calls"][call] == real["memory_calls"][call]);
  }
}

}  // namespace

TEST_CASE("The model reserves what PyTorch's allocator does on recorded runs, to the byte",
          "[cli][replay][model]") {
  for (const char* name : {"resnet50", "vgg16", "gpt2medium-ckpt"})
    require_equal(std::string(BERTH_RUNS "/") + name + ".csv.gz");
}

TEST_CASE("The model reserves what PyTorch's allocator does on random requests, to the byte",
          "[cli][replay][model]") {
  const TemporaryFolder folder;
  for (const std::uint64_t seed : {1, 2}) {
    write_text(folder / "run.csv", random_events(seed, 3000));
    require_equal(folder / "run.csv");
    require_equal(folder / "run.csv", {"--memory-limit", "900MiB"});
  }
}
