// Public instances, recorded runs, and families that are hard for some planner.

#include "tests/place/instances.h"

#include "csrc/place/plan_step.h"
#include "csrc/plan/build.h"
#include "csrc/trace/step.h"
#include "tests/catch.h"
#include "tests/support/placement_check.h"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using berth::test::check_placement;
using berth::test::fold;
using berth::test::instance;
using berth::test::sweep_placement;

namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

Placement place_and_check(const Problem& problem, const PlaceOptions& options) {
  const Placement placement = place_buffers(problem, options);
  REQUIRE(sweep_placement(problem, placement).value_or("") == "");
  if (problem.buffers.size() <= 2000)
    REQUIRE(check_placement(problem, placement).value_or("") == "");
  return placement;
}

PlaceOptions budget(std::uint64_t iterations) {
  return {.time_limit_seconds = kForever, .iteration_budget = iterations};
}

}  // namespace

TEST_CASE("Real instances are solved to optimality", "[place][instances]") {
  for (const char* name :
       {"iopddl_G_1", "iopddl_S_1", "iree_mobilenet", "minimalloc_example_input.12",
        "somas_bert_base", "somas_pangu_13B", "somas_resnet50", "somas_tiny_bert",
        "torch_medium_128_training", "torch_medium_256_inference", "torch_medium_512_training"}) {
    CAPTURE(name);
    const Placement placement = place_and_check(instance(name), budget(60));
    REQUIRE(placement.high_water_mark == placement.lower_bound);
    REQUIRE(placement.proven_optimal);
  }
}

TEST_CASE("Hard instances are placed legally and better than by first fit", "[place][instances]") {
  const std::vector<std::pair<const char*, Bytes>> best_greedy = {
      {"minimalloc_A.1048576", 1352704}, {"minimalloc_C.1048576", 1311744},
      {"minimalloc_E.1048576", 1435648}, {"minimalloc_G.1048576", 1226752},
      {"minimalloc_I.1048576", 1413120}, {"minimalloc_K.1048576", 1339392}};
  for (const auto& [name, greedy] : best_greedy) {
    CAPTURE(name);
    REQUIRE(place_and_check(instance(name), budget(60)).high_water_mark < greedy);
  }
}

TEST_CASE("Folded instances reach the bound on a circle", "[place][instances][arc]") {
  for (const std::uint64_t k : {2u, 4u, 16u}) {
    CAPTURE(k);
    for (const char* name : {"torch_medium_128_training", "torch_medium_512_training"}) {
      CAPTURE(name);
      REQUIRE(place_and_check(fold(instance(name), k), budget(20)).proven_optimal);
    }
  }
  REQUIRE(place_and_check(fold(instance("somas_pangu_13B"), 2), budget(20)).proven_optimal);
  REQUIRE(place_and_check(fold(instance("iopddl_S_1"), 4), budget(20)).proven_optimal);
}

TEST_CASE("The steady step of every recorded run is planned at its bound", "[place][runs]") {
  for (const char* name : {"bert", "gpt2-bf16", "gpt2", "gpt2medium-ckpt", "llama", "mobilenet_v2",
                           "resnet50", "vgg16"}) {
    CAPTURE(name);
    const Trace trace = read_trace(std::string(BERTH_PLACE_DATA "/runs/") + name + ".csv.gz");
    const auto step = extract_step(trace);
    REQUIRE(step);
    // The first plan already: no time to improve it.
    const Plan plan = plan_step(*step, trace, trace.alignment, {.time_limit_seconds = 0});
    REQUIRE(plan.arena_bytes == plan.lower_bound);
    const Placement placement =
        place_and_check(make_problem(skeleton(*step, trace, trace.alignment)), {});
    REQUIRE(placement.high_water_mark == plan.arena_bytes);
  }
}

TEST_CASE("The result depends on the seed and not on the number of threads", "[place][threads]") {
  // Dives alone, and with exact search at some capacities beside them.
  const std::vector<std::pair<const char*, std::uint64_t>> runs = {{"minimalloc_A.1048576", 70},
                                                                   {"minimalloc_E.1048576", 4000},
                                                                   {"minimalloc_I.1048576", 30000},
                                                                   {"somas_bert_base", 70}};
  int different = 0;
  for (const auto& [name, iterations] : runs) {
    CAPTURE(name);
    const Problem problem = instance(name);
    PlaceOptions options = budget(iterations);
    const Placement one = place_buffers(problem, options);
    for (const unsigned threads : {2u, 8u}) {
      options.threads = threads;
      const Placement more = place_buffers(problem, options);
      REQUIRE(more.offsets == one.offsets);
      REQUIRE(more.iterations == one.iterations);
      REQUIRE(more.lower_bound == one.lower_bound);
      REQUIRE(more.engine == one.engine);
    }
    options.threads = 1;
    options.seed = 7;
    different += place_buffers(problem, options).offsets != one.offsets ? 1 : 0;
  }
  REQUIRE(different >= 2);
}

TEST_CASE("Instances that are hard for dives are solved by exact search", "[place][instances]") {
  for (const char* name :
       {"minimalloc_A.1048576", "minimalloc_C.1048576", "minimalloc_E.1048576",
        "minimalloc_G.1048576", "minimalloc_I.1048576", "minimalloc_K.1048576"}) {
    CAPTURE(name);
    const Placement placement = place_and_check(instance(name), budget(40000));
    REQUIRE(placement.proven_optimal);
    REQUIRE(placement.high_water_mark == lower_bound(instance(name)));
  }
}

TEST_CASE("A run that may take longer only gets better", "[place]") {
  for (const char* name : {"minimalloc_E.1048576", "minimalloc_I.1048576"}) {
    const Problem problem = instance(name);
    Bytes last = std::numeric_limits<Bytes>::max();
    for (const std::uint64_t iterations : {1u, 5u, 10u, 30u, 60u, 100u}) {
      const Placement placement = place_buffers(problem, budget(iterations));
      REQUIRE(placement.iterations <= iterations);
      REQUIRE(placement.high_water_mark <= last);
      last = placement.high_water_mark;
    }
  }
}

TEST_CASE("Search stops at the capacity that was asked for", "[place][capacity]") {
  const Problem problem = instance("minimalloc_A.1048576");
  PlaceOptions options = budget(100);
  options.capacity = 1352704;
  const Placement placement = place_buffers(problem, options);
  REQUIRE(placement.high_water_mark <= 1352704);
  REQUIRE(placement.iterations < 100);
  REQUIRE_FALSE(placement.proven_infeasible);
}

TEST_CASE("Reversed time and shuffled rows and scaled units keep the bound", "[place][property]") {
  for (const char* name : {"minimalloc_E.1048576", "somas_resnet50", "iree_mobilenet"}) {
    const Problem problem = instance(name);
    const Bytes bound = lower_bound(problem);
    Problem reversed = problem, shuffled = problem, slow = problem, large = problem;
    std::uint64_t end = 0;
    for (const Buffer& b : problem.buffers) end = std::max(end, b.birth + b.length);
    for (Buffer& b : reversed.buffers) b.birth = end - b.birth - b.length;
    for (Buffer& b : slow.buffers) {
      b.birth *= 3;
      b.length *= 3;
    }
    for (Buffer& b : large.buffers) b.size *= Bytes{1} << 20;
    std::shuffle(shuffled.buffers.begin(), shuffled.buffers.end(), std::mt19937(1));
    REQUIRE(lower_bound(reversed) == bound);
    REQUIRE(lower_bound(shuffled) == bound);
    REQUIRE(lower_bound(slow) == bound);
    REQUIRE(lower_bound(large) == bound << 20);
    for (const Problem& other : {reversed, shuffled, slow, large})
      (void)place_and_check(other, budget(12));
    Problem fewer = problem;
    fewer.buffers.resize(fewer.buffers.size() / 2);
    REQUIRE(lower_bound(fewer) <= bound);
  }
}

TEST_CASE("Slots become buffers and sequences become branches", "[place][plan]") {
  Plan plan;
  plan.alignment = 64;
  plan.lane_keys = {0, 7};
  plan.sequences.resize(3);
  plan.sequences[0] = {
      .lane = 0,
      .period = 2,
      .marks = {},
      .slots = {{.requested = 1, .size = 64, .birth = 0, .length = 1},
                {.offset = Slot::kUnplanned, .requested = 9, .size = 64, .birth = 1}}};
  plan.sequences[1] = {.lane = 1,
                       .period = 1,
                       .marks = {},
                       .slots = {{.requested = 65, .size = 128, .birth = 0, .length = 1}}};
  plan.sequences[2] = {.lane = 0,
                       .parent = 0,
                       .fork = 1,
                       .period = 2,
                       .marks = {},
                       .slots = {{.requested = 3, .size = 64, .birth = 1, .length = 1}}};
  plan.edges = {{.from_lane = 0, .from_tick = 1, .to_lane = 1, .to_tick = 0}};
  const Problem problem = make_problem(plan);
  REQUIRE(problem.buffers.size() == 3);
  REQUIRE(problem.buffers[1].lane == 1);
  REQUIRE(problem.buffers[1].size == 128);
  REQUIRE(problem.buffers[2].branch == 2);
  REQUIRE(problem.branches[2].fork == 1);
  REQUIRE(problem.branches[1].parent == 1);
  REQUIRE(problem.lanes[0].period == 2);
  REQUIRE(problem.edges.size() == 1);
  REQUIRE(place_buffers(problem).high_water_mark == 192);
}
