// PyTorch's allocator on paper, by the rules of the original. tests/cli/caching_model_test.cc puts
// it beside the real one.

#include "csrc/replay/caching_model.h"

#include "csrc/replay/through_caching_model.h"
#include "tests/catch.h"

using berth::Bytes;
using namespace berth::replay;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr std::uint32_t kStream = 0, kOther = 1;

CachingModel::Options expandable() {
  CachingModel::Options options;
  options.expandable = true;
  return options;
}

CachingModel::Options limited(Bytes limit, bool expandable) {
  CachingModel::Options options;
  options.expandable = expandable;
  options.limit = options.device_bytes = limit;
  return options;
}

}  // namespace

TEST_CASE("PyTorch's allocator takes segments of 2 MiB, of 20 MiB and of the request's own size",
          "[replay][model]") {
  CachingModel model({});
  (void)model.allocate(1, kStream);
  REQUIRE(model.reserved() == 2 * kMiB);
  REQUIRE(model.allocated() == 512);
  (void)model.allocate(kMiB + 1, kStream);
  REQUIRE(model.reserved() == 22 * kMiB);
  (void)model.allocate(25 * kMiB + 1, kStream);
  REQUIRE(model.reserved() == 48 * kMiB);
  REQUIRE(model.driver_calls() == 3);
}

TEST_CASE("PyTorch's allocator splits a large block only where more than 1 MiB stays",
          "[replay][model]") {
  CachingModel model({});
  CachingModel::Block* whole = model.allocate(20 * kMiB, kStream);
  model.free(whole);
  whole = model.allocate(19 * kMiB, kStream);
  REQUIRE(model.allocated() == 20 * kMiB);
  model.free(whole);
  (void)model.allocate(19 * kMiB - 512, kStream);
  REQUIRE(model.allocated() == 19 * kMiB - 512);
  (void)model.allocate(kMiB + 512, kStream);  // the rest of exactly this size serves
  REQUIRE(model.reserved() == 20 * kMiB);
}

TEST_CASE("PyTorch's allocator takes the smallest free block and joins freed neighbours",
          "[replay][model]") {
  CachingModel model({});
  CachingModel::Block* large = model.allocate(40 * kMiB, kStream);
  CachingModel::Block* small = model.allocate(12 * kMiB, kStream);
  const std::uint64_t address = CachingModel::address(small);
  model.free(large);
  model.free(small);
  CachingModel::Block* first = model.allocate(11 * kMiB, kStream);
  REQUIRE(CachingModel::address(first) == address);
  CachingModel::Block* half = model.allocate(20 * kMiB, kStream);
  CachingModel::Block* rest = model.allocate(20 * kMiB, kStream);
  REQUIRE(model.reserved() == 52 * kMiB);
  model.free(half);
  model.free(rest);
  (void)model.allocate(40 * kMiB, kStream);
  REQUIRE(model.reserved() == 52 * kMiB);
}

TEST_CASE("A free block of PyTorch's allocator serves its own stream only", "[replay][model]") {
  for (const bool with_expandable : {false, true}) {
    CachingModel model(with_expandable ? expandable() : CachingModel::Options{});
    model.free(model.allocate(20 * kMiB, kStream));
    (void)model.allocate(20 * kMiB, kOther);
    REQUIRE(model.reserved() == 40 * kMiB);
  }
}

TEST_CASE("A block that another stream used is free again at the next request", "[replay][model]") {
  CachingModel model({});
  CachingModel::Block* block = model.allocate(20 * kMiB, kStream);
  model.use(block, kOther);
  model.free(block);
  REQUIRE(model.allocated() == 0);
  (void)model.allocate(20 * kMiB, kStream);
  REQUIRE(model.reserved() == 20 * kMiB);
}

TEST_CASE("An expandable segment grows by pages where the caching form takes a segment more",
          "[replay][model]") {
  CachingModel caching({}), growing(expandable());
  for (CachingModel* model : {&caching, &growing}) {
    CachingModel::Block* first = model->allocate(30 * kMiB, kStream);
    model->free(first);
    (void)model->allocate(50 * kMiB, kStream);
  }
  REQUIRE(caching.reserved() == 80 * kMiB);
  REQUIRE(growing.reserved() == 60 * kMiB);
}

TEST_CASE("At its limit PyTorch's allocator gives back what is cached and tries once more",
          "[replay][model]") {
  CachingModel caching(limited(60 * kMiB, false));
  caching.free(caching.allocate(40 * kMiB, kStream));
  REQUIRE(caching.allocate(50 * kMiB, kStream) != nullptr);
  REQUIRE(caching.reserved() == 50 * kMiB);
  REQUIRE(caching.allocate(12 * kMiB, kStream) == nullptr);
  REQUIRE(caching.reserved() == 50 * kMiB);

  // Pages of another stream's segment go, those under a live block stay.
  CachingModel growing(limited(60 * kMiB, true));
  CachingModel::Block* kept = growing.allocate(10 * kMiB, kStream);
  CachingModel::Block* freed = growing.allocate(30 * kMiB, kStream);
  growing.free(freed);
  REQUIRE(growing.allocate(40 * kMiB, kOther) != nullptr);
  REQUIRE(growing.reserved() == 60 * kMiB);
  growing.free(kept);
  growing.empty_cache();
  REQUIRE(growing.reserved() == 40 * kMiB);
}

TEST_CASE("With max_split_size a large block is never split, and serves its own size only",
          "[replay][model]") {
  CachingModel::Options options = limited(200 * kMiB, false);
  options.max_split = 64 * kMiB;
  CachingModel model(options);
  model.free(model.allocate(100 * kMiB, kStream));
  CachingModel::Block* const small = model.allocate(30 * kMiB, kStream);
  REQUIRE(model.reserved() == 130 * kMiB);  // not out of the 100 MiB
  CachingModel::Block* const near = model.allocate(90 * kMiB, kStream);
  REQUIRE(model.reserved() == 130 * kMiB);  // whole, though 10 MiB stay unused
  REQUIRE(model.allocated() == 130 * kMiB);
  model.free(near);
  // 75 MiB want a segment of their own. At the limit the large block goes, and the cache stays.
  model.free(small);
  REQUIRE(model.allocate(76 * kMiB, kStream) != nullptr);
  REQUIRE(model.reserved() == 106 * kMiB);
  REQUIRE(model.retries() == 0);
}

TEST_CASE("With roundup_power2_divisions sizes are rounded up between powers of two",
          "[replay][model]") {
  CachingModel::Options options;
  options.roundup_divisions = 4;
  CachingModel model(options);
  (void)model.allocate(1200, kStream);
  REQUIRE(model.allocated() == 1536);  // up to 4 units of 512 as ever
  (void)model.allocate(1200 * 1024, kStream);
  REQUIRE(model.allocated() == 1536 + 1280 * 1024);
  (void)model.allocate(4 * kMiB, kStream);
  REQUIRE(model.allocated() == 1536 + 1280 * 1024 + 4 * kMiB);
}

TEST_CASE("A replay under the model says what was reserved at the end of each step",
          "[replay][model]") {
  Workload workload;
  workload.lane_keys = {0};
  workload.block_count = 3;
  using Kind = Operation::Kind;
  workload.operations = {
      {Kind::kAllocate, 0, 0, kMiB}, {Kind::kStep, 0, 0, 0}, {Kind::kAllocate, 0, 1, 30 * kMiB},
      {Kind::kFree, 0, 1, 0},        {Kind::kStep, 0, 0, 0}, {Kind::kAllocate, 0, 2, 64 * kMiB}};
  workload.count_operations();
  const Result result = through_caching_model(workload, false);
  REQUIRE(result.steps.size() == 2);
  REQUIRE(result.steps[0].reserved == 2 * kMiB);
  REQUIRE(result.steps[1].reserved == 32 * kMiB);
  REQUIRE(result.steps[1].live == kMiB);
  REQUIRE(*result.reserved_peak == 96 * kMiB);
  REQUIRE(result.memory_calls->of(berth::MemoryCall::kMalloc) == 3);
  REQUIRE(result.memory_calls->all() == 3);
  REQUIRE(result.steps[1].memory_calls.all() == 1);
  // Handles of 20 MiB for large blocks, of 2 MiB for others.
  const Result expandable = through_caching_model(workload, true);
  REQUIRE(expandable.memory_calls->of(berth::MemoryCall::kCreate) == 1 + 4);
  REQUIRE(expandable.memory_calls->of(berth::MemoryCall::kMap) == 1 + 4);
  REQUIRE(expandable.memory_calls->of(berth::MemoryCall::kSetAccess) == 3);
  REQUIRE(expandable.memory_calls->of(berth::MemoryCall::kReserve) == 2);
  const Result refused = through_caching_model(workload, false, 48 * kMiB);
  REQUIRE(refused.out_of_memory);
  REQUIRE(refused.problem == "out of memory: 64.0 MiB asked, 2.0 MiB reserved of at most 48.0 MiB");
}
