// What one changed request costs in recorded runs of real models.

#include "csrc/replay/through_berth.h"
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/one_change.h"

#include <string>

using namespace berth;
using namespace berth::replay;

TEST_CASE("One changed request of a real step costs five misses on average and twenty at worst",
          "[replay][divergence]") {
  for (const char* name : {"gpt2", "bert"}) {
    const Workload workload =
        make_workload(read_trace(std::string(BERTH_RUNS "/") + name + ".csv.gz"));
    const std::vector<std::size_t> places = test::places_to_change(workload);
    // Runs of equal requests with unlike lifetimes are where a change does harm: the forward pass.
    const std::size_t stride = places.size() / 24;
    for (const test::Change& change : test::kChanges) {
      std::uint64_t total = 0, worst = 0, changes = 0;
      for (std::size_t k = 6; k < places.size(); k += stride) {
        Workload changed = workload;
        if (!change.apply(changed, places[k])) continue;
        const Result result = through_berth(changed, BerthOptions{.planned = true});
        REQUIRE_FALSE(result.out_of_memory);
        REQUIRE(result.hits > workload.requests / 5);
        total += *result.misses;
        worst = std::max(worst, *result.misses);
        ++changes;
      }
      CAPTURE(name, change.name, changes, total, worst);
      REQUIRE(changes > 20);
      CHECK(total <= 5 * changes);
      CHECK(worst <= 20);
    }
  }
}
