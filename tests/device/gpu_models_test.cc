#include "csrc/device/gpu_models.h"

#include "tests/catch.h"

#include <set>

using namespace berth;
using Catch::Matchers::Contains;

TEST_CASE("A GPU is found by its name, in any case, and without its size where that is enough",
          "[device][gpus]") {
  REQUIRE(find_gpu("H100-80")->name == "NVIDIA H100 80GB HBM3");
  REQUIRE(find_gpu("h200") == find_gpu("H200-141"));
  REQUIRE(find_gpu("rtx5090")->total_memory == 33'677'180'928);
  REQUIRE(find_gpu("RTX 3060 Ti") == find_gpu("RTX3060Ti-8"));
  REQUIRE(find_gpu("rtx-3060") == find_gpu("RTX3060-12"));  // not the Ti
  REQUIRE(find_gpu("H100 PCIe") == find_gpu("H100-PCIe-80"));
  REQUIRE(find_gpu("RTX A6000") == find_gpu("A6000"));
  REQUIRE(find_gpu("NVIDIA L40S") == find_gpu("L40S-48"));
  REQUIRE(find_gpu("GeForce RTX 4090") == find_gpu("RTX4090-24"));
  REQUIRE(find_gpu("H100-81") == nullptr);
  REQUIRE(find_gpu("") == nullptr);
  REQUIRE(find_gpu("-") == nullptr);
}

TEST_CASE("A name that fits several GPUs fits none, and they are listed", "[device][gpus]") {
  const auto names = [](std::string_view name) { return gpu_names(gpus_named(name)); };
  for (const char* const name : {"A100", "H100", "V100", "RTX 4060 Ti", "GeForce RTX 3080"})
    REQUIRE(find_gpu(name) == nullptr);
  REQUIRE(names("H100") == "H100-80, H100-PCIe-80 or H100-NVL-94");
  REQUIRE(names("v100") == "V100-16 or V100-32");
  REQUIRE(names("RTX4060Ti") == "RTX4060Ti-8 or RTX4060Ti-16");
  REQUIRE(names("GeForce RTX 3080") == "RTX3080-10 or RTX3080-12");
  REQUIRE(names("H100-80") == "H100-80");
  REQUIRE(names("H101").empty());
}

TEST_CASE("The GPUs that people train on are known", "[device][gpus]") {
  for (const char* const name :
       {"RTX3060-12", "RTX3060Ti", "RTX3070", "RTX3070Ti",    "RTX3080-10", "RTX3080Ti",
        "RTX3090",    "RTX3090Ti", "RTX4060", "RTX4060Ti-16", "RTX4070",    "RTX4070Ti",
        "RTX4080",    "RTX4090",   "RTX5060", "RTX5060Ti-16", "RTX5070",    "RTX5070Ti",
        "RTX5080",    "RTX5090",   "A6000",   "A40",          "L4",         "L40S",
        "H100-PCIe",  "H100-NVL",  "GH200",   "H200",         "B200",       "B300"}) {
    INFO(name);
    REQUIRE(find_gpu(name) != nullptr);
  }
}

TEST_CASE("No two GPUs have one name, and each has room beside its context", "[device][gpus]") {
  std::set<std::string_view> names;
  for (const GpuModel& gpu : gpus()) {
    REQUIRE(names.insert(gpu.short_name).second);
    REQUIRE_THAT(gpu_names(), Contains(std::string(gpu.short_name)));
    REQUIRE(gpu.context_bytes < gpu.total_memory / 16);
  }
}

TEST_CASE("Each GPU has speeds that its memory and its tensor cores can have", "[device][gpus]") {
  for (const GpuModel& gpu : gpus()) {
    INFO(gpu.short_name);
    const double bits_a_pin = 8 * gpu.gigabytes_per_second / gpu.memory_bus_bits;
    REQUIRE(bits_a_pin > 1.5);  // HBM2
    REQUIRE(bits_a_pin < 32);   // GDDR7
    REQUIRE(gpu.half_tflops >= 1.99 * gpu.fp32_tflops);
    REQUIRE(gpu.fp32_tflops > 5);
  }
}
