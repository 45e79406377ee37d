#include "csrc/replay/perturbation.h"
#include "tests/catch.h"

#include <map>

using namespace berth;
using namespace berth::replay;

namespace {

Workload steps_workload() {
  Workload workload;
  workload.lane_keys = {0};
  for (int step = 0; step < 50; ++step) {
    const std::uint64_t first = workload.block_count;
    for (int i = 0; i < 10; ++i) {
      workload.operations.push_back({Operation::Kind::kAllocate, 0, workload.block_count++,
                                     static_cast<Bytes>(1000 * (i + 1))});
    }
    for (std::uint64_t block = first; block < workload.block_count; ++block)
      workload.operations.push_back({Operation::Kind::kFree, 0, block, 0});
    workload.operations.push_back({Operation::Kind::kStep, 0, 0, 0});
    ++workload.steps;
  }
  return workload;
}

// Allocated once, before its uses, and freed at most once.
bool is_legal(const Workload& workload) {
  std::map<std::uint64_t, int> state;  // 1 live, 2 freed
  for (const Operation& operation : workload.operations) {
    switch (operation.kind) {
      case Operation::Kind::kAllocate:
        if (state[operation.block]++ != 0 || operation.size == 0) return false;
        break;
      case Operation::Kind::kFree:
        if (state[operation.block]++ != 1) return false;
        break;
      case Operation::Kind::kUse:
        if (state[operation.block] != 1) return false;
        break;
      case Operation::Kind::kStep:
      case Operation::Kind::kEmptyCache:
        break;
    }
    if (operation.block >= workload.block_count && operation.kind != Operation::Kind::kStep)
      return false;
  }
  return true;
}

}  // namespace

TEST_CASE("Any perturbation leaves a legal order of requests and frees", "[replay][property]") {
  const Workload workload = steps_workload();
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Perturbation perturbation;
    perturbation.insert = static_cast<double>(seed % 5) * 0.1;
    perturbation.drop = static_cast<double>(seed % 3) * 0.2;
    perturbation.resize = static_cast<double>(seed % 7) * 0.1;
    perturbation.swap = static_cast<double>(seed % 4) * 0.3;
    INFO("seed " << seed);
    const Workload perturbed = perturb(workload, perturbation, seed);
    REQUIRE(is_legal(perturbed));
    REQUIRE(perturbed.steps == 50);
  }
}

TEST_CASE("A perturbation leaves the first three steps alone", "[replay]") {
  const Workload workload = steps_workload();
  Perturbation perturbation;
  perturbation.insert = perturbation.resize = 1;
  const Workload perturbed = perturb(workload, perturbation, 3);
  std::size_t same = 0;
  while (perturbed.operations[same].kind == workload.operations[same].kind &&
         perturbed.operations[same].size == workload.operations[same].size)
    ++same;
  REQUIRE(same == 3 * 21);
}

TEST_CASE("A perturbation of no rate changes nothing", "[replay]") {
  const Workload workload = steps_workload();
  const Workload same = perturb(workload, Perturbation{}, 7);
  REQUIRE(same.operations.size() == workload.operations.size());
  REQUIRE(same.requests == 500);
  REQUIRE(same.frees == 500);
}

TEST_CASE("A workload leaves out what no allocator could be asked for", "[replay]") {
  Trace run;
  run.lanes = {{5}};
  const std::vector<trace::Event> events = {trace::Request{1, 100, 0, 0},
                                            trace::Request{2, 0, 0, 0},
                                            trace::Free{99},
                                            trace::Free{1},
                                            trace::Free{2},
                                            trace::StepMark{}};
  for (const trace::Event& event : events)
    run.entries.push_back({static_cast<trace::Tick>(run.entries.size()), 0, 0, event});
  const Workload workload = make_workload(run);
  REQUIRE(workload.requests == 1);
  REQUIRE(workload.frees == 1);
  REQUIRE(workload.steps == 1);
  REQUIRE(workload.live_peak(512) == 512);
}
