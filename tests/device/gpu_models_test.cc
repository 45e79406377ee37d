#include "csrc/device/gpu_models.h"

#include "tests/catch.h"

#include <set>

using namespace berth;
using Catch::Matchers::Contains;

TEST_CASE("A GPU is found by its name, in any case, and without its size where that is enough",
          "[device][gpus]") {
  REQUIRE(find_gpu("H100-80")->name == "NVIDIA H100 80GB HBM3");
  REQUIRE(find_gpu("h100") == find_gpu("H100-80"));
  REQUIRE(find_gpu("rtx5090")->total_memory == 33'677'180'928);
  REQUIRE(find_gpu("A100") == nullptr);  // two of them
  REQUIRE(find_gpu("H100-81") == nullptr);
  REQUIRE(find_gpu("") == nullptr);
}

TEST_CASE("No two GPUs have one name, and each has room beside its context", "[device][gpus]") {
  std::set<std::string_view> names;
  for (const GpuModel& gpu : gpus()) {
    REQUIRE(names.insert(gpu.short_name).second);
    REQUIRE_THAT(gpu_names(), Contains(std::string(gpu.short_name)));
    REQUIRE(gpu.context_bytes < gpu.total_memory / 16);
  }
}
