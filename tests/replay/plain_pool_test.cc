// The pool on plain memory beside the model of PyTorch's caching allocator.

#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "tests/catch.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::replay;

namespace {

// Requests of 512 B to 60 MiB on three streams. Sizes are all different: the model does not know
// the addresses that decide between equal holes.
Workload random_workload(std::uint64_t seed) {
  using Kind = Operation::Kind;
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  Workload workload;
  workload.alignment = 512;
  workload.lane_keys = {0, 1, 2};
  std::vector<Operation> live;
  for (int i = 0; i < 4000; ++i) {
    if (!live.empty() && below(100) < (i / 500 % 2 == 0 ? 40 : 60)) {
      const std::size_t at = below(live.size());
      const Operation freed = live[at];
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      workload.operations.push_back({Kind::kFree, freed.lane, freed.block, 0});
      continue;
    }
    const double power = 9 + 16.8 * static_cast<double>(random() >> 11) * 0x1p-53;
    const Operation request{Kind::kAllocate, static_cast<std::uint32_t>(below(3)),
                            workload.block_count++, static_cast<Bytes>(std::exp2(power))};
    workload.operations.push_back(request);
    live.push_back(request);
  }
  workload.count_operations();
  return workload;
}

}  // namespace

TEST_CASE("On plain memory the pool holds what PyTorch's caching allocator holds",
          "[replay][plain]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const Workload workload = random_workload(seed);
    const Result pool = through_berth(workload, {.planned = false, .memory = PaperMemory::kPlain});
    const Result model = through_caching_model(workload, false);
    INFO("seed " << seed);
    CHECK(*pool.reserved_peak == *model.reserved_peak);
    CHECK(pool.memory_calls->of(MemoryCall::kMalloc) ==
          model.memory_calls->of(MemoryCall::kMalloc));
  }
}
