// Where allocators put the blocks of a run.

#include "csrc/place/plan_trace.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/torch_layout.h"
#include "csrc/trace/file.h"
#include "tests/catch.h"

#include <algorithm>

using namespace berth;
using namespace berth::replay;

namespace {

// Six equal steps: a weight, and four activations that die in reverse.
Trace run_of_steps() {
  Trace trace;
  trace.alignment = 512;
  trace.lanes = {{0}};
  trace::Tick tick = 0;
  const auto add = [&](const trace::Event& event) {
    trace.entries.push_back({tick++, 0, 0, event});
  };
  trace::BlockId block = 1;
  add(trace::Request{block, 1 << 20, 0, 0});
  for (int step = 0; step < 6; ++step) {
    const trace::BlockId first = block + 1;
    for (Bytes k = 1; k <= 4; ++k) add(trace::Request{++block, k << 20, 0, 0});
    for (trace::BlockId id = block; id >= first; --id) add(trace::Free{id});
    add(trace::StepMark{});
  }
  return trace;
}

// The first block that shares a byte with another that lives at the same time, or block_count.
std::uint64_t first_overlap(const Workload& workload, const Layout& layout) {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;  // address, end
  std::vector<Bytes> sizes(workload.block_count);
  for (const Operation& operation : workload.operations) {
    const std::uint64_t address = layout.addresses[operation.block];
    if (operation.kind == Operation::Kind::kAllocate) {
      const std::uint64_t end = address + operation.size;
      for (const auto& [other, other_end] : live)
        if (address < other_end && other < end) return operation.block;
      live.emplace_back(address, end);
      sizes[operation.block] = operation.size;
    } else if (operation.kind == Operation::Kind::kFree) {
      std::erase(live, std::pair(address, address + sizes[operation.block]));
    }
  }
  return workload.block_count;
}

}  // namespace

TEST_CASE("Blocks that are alive together share no byte in either layout", "[replay][layout]") {
  const Workload workload = make_workload(run_of_steps());
  Layout berth;
  const Result result = through_berth(workload, {.layout = &berth});
  for (const Layout& layout : {berth, torch_layout(workload)}) {
    REQUIRE(layout.addresses.size() == workload.block_count);
    REQUIRE(layout.reserved.size() == workload.block_count);
    REQUIRE(first_overlap(workload, layout) == workload.block_count);
    REQUIRE(*std::max_element(layout.reserved.begin(), layout.reserved.end()) <=
            layout.reserved_peak);
  }
  REQUIRE(berth.reserved_peak == result.reserved_peak);
}

TEST_CASE("The outcome of each request adds up to the counters", "[replay][layout]") {
  const Trace trace = run_of_steps();
  const Workload workload = make_workload(trace);
  PlaceOptions place;
  place.iteration_budget = 1;
  Layout layout;
  const Result result =
      through_berth(workload, {.planned = false,
                               .plan = plan_repeats(find_repeats(trace), trace, 512, place),
                               .layout = &layout});
  const auto count = [&](Outcome outcome) {
    return static_cast<std::uint64_t>(
        std::count(layout.outcomes.begin(), layout.outcomes.end(), outcome));
  };
  REQUIRE(result.hits > 0);
  REQUIRE(count(Outcome::kHit) == result.hits);
  REQUIRE(count(Outcome::kUnplanned) == result.unplanned);
  REQUIRE(count(Outcome::kMissSize) + count(Outcome::kMissBusy) + count(Outcome::kMissLane) ==
          result.misses);
  REQUIRE(count(Outcome::kUnknown) == 0);
}

TEST_CASE("PyTorch's layout puts blocks of equal steps at equal addresses", "[replay][layout]") {
  const Workload workload = make_workload(run_of_steps());
  const Layout layout = torch_layout(workload);
  for (std::uint64_t block = 9; block < workload.block_count; ++block)
    REQUIRE(layout.addresses[block] == layout.addresses[block - 4]);
}
