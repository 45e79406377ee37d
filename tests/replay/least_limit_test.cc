#include "csrc/replay/least_limit.h"

#include "csrc/replay/through_caching_model.h"
#include "csrc/replay/torch_settings.h"
#include "csrc/trace/known_ranges.h"
#include "tests/catch.h"
#include "tests/support/recording.h"

#include <random>
#include <vector>

using namespace berth;
using namespace berth::replay;
using Kind = Operation::Kind;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

Workload workload_of(std::vector<Operation> operations) {
  Workload workload;
  workload.lane_keys = {0, 1};
  for (const Operation& operation : operations)
    if (operation.kind == Kind::kAllocate)
      workload.block_count = std::max(workload.block_count, operation.block + 1);
  workload.operations = std::move(operations);
  workload.count_operations();
  return workload;
}

// Batches that grow: each has a segment of its own, which nothing else can use.
Workload growing(std::uint64_t most, Bytes unit) {
  std::vector<Operation> operations;
  for (std::uint64_t i = 0; i < most; ++i) {
    operations.push_back({Kind::kAllocate, 0, i, (i + 1) * unit});
    operations.push_back({Kind::kFree, 0, i, 0});
  }
  return workload_of(std::move(operations));
}

LeastLimit least_of(const Workload& workload, CachingModel::Options options = {}) {
  const Bytes enough = *through_caching_model(workload, options).reserved_peak;
  return least_limit({.too_little = workload.live_peak(512) - 1, .enough = enough, .precision = 0},
                     [&](Bytes limit) {
                       options.limit = options.device_bytes = limit;
                       return !through_caching_model(workload, options).out_of_memory;
                     });
}

}  // namespace

TEST_CASE("The least limit lies within a page beside one that does not do", "[replay][limit]") {
  for (const Bytes least : {101 * kMiB, 128 * kMiB, 254 * kMiB, 256 * kMiB}) {
    const LeastLimit found = least_limit({.too_little = 100 * kMiB - 1, .enough = 256 * kMiB},
                                         [&](Bytes limit) { return limit >= least; });
    REQUIRE(found.bytes >= least);
    REQUIRE(found.bytes < least + 2 * kMiB);
    REQUIRE(found.trials <= 8);
  }
  // What lives is what it takes: nothing is tried.
  REQUIRE(least_limit({.too_little = 10 * kMiB - 1, .enough = 10 * kMiB}, [](Bytes) {
            FAIL("tried");
            return true;
          }).trials == 0);
}

TEST_CASE("The least limit agrees with a run on the device that was asked about",
          "[replay][limit]") {
  // A limit that does, among those that do not.
  const Bytes odd = 151 * kMiB;
  const auto finishes = [&](Bytes limit) { return limit == odd || limit >= 200 * kMiB; };
  const LeastLimitOptions asked{
      .too_little = 100 * kMiB, .enough = 256 * kMiB, .first = odd, .precision = 0};
  REQUIRE(least_limit(asked, finishes).bytes == odd);
  LeastLimitOptions refused = asked;
  refused.first = 160 * kMiB;
  REQUIRE(least_limit(refused, finishes).bytes == 200 * kMiB);
}

TEST_CASE("Batches that grow finish on a device of the largest, after retries", "[replay][limit]") {
  const Workload workload = growing(12, 1024 * kMiB);
  CachingModel::Options options;
  REQUIRE(*through_caching_model(workload, options).reserved_peak == Bytes{78} << 30);
  REQUIRE(least_of(workload).bytes == Bytes{12} << 30);
  options.limit = Bytes{16} << 30;
  const Result result = through_caching_model(workload, options);
  REQUIRE_FALSE(result.out_of_memory);
  REQUIRE(result.retries == 6);  // the sixth batch, and those from the eighth on
  options.expandable = true;
  REQUIRE(*through_caching_model(workload, options).retries == 0);
  REQUIRE(least_of(workload, {.expandable = true}).bytes == 615 * 20 * kMiB);  // whole pages
}

TEST_CASE("With the least limit a run finishes, and with a page less it does not",
          "[replay][limit]") {
  for (const std::uint64_t seed : {1, 2, 3, 4}) {
    std::mt19937_64 random(seed);
    std::vector<Operation> operations;
    std::vector<std::uint64_t> live;
    for (std::uint64_t i = 0; i < 400; ++i) {
      operations.push_back({Kind::kAllocate, static_cast<std::uint32_t>(random() % 2), i,
                            1 + random() % (random() % 2 == 0 ? kMiB : 40 * kMiB)});
      live.push_back(i);
      while (!live.empty() && random() % 100 < (live.size() < 20 ? 45 : 60)) {
        const std::size_t at = random() % live.size();
        operations.push_back({Kind::kFree, 0, live[at], 0});
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
    const Workload workload = workload_of(std::move(operations));
    for (const bool expandable : {false, true}) {
      CachingModel::Options options;
      options.expandable = expandable;
      const Bytes enough = *through_caching_model(workload, options).reserved_peak;
      const auto finishes = [&](Bytes limit) {
        options.limit = options.device_bytes = limit;
        return !through_caching_model(workload, options).out_of_memory;
      };
      const Bytes least =
          least_limit({.too_little = workload.live_peak(512) - 1, .enough = enough, .precision = 0},
                      finishes)
              .bytes;
      INFO(seed << (expandable ? " expandable" : " caching"));
      REQUIRE(finishes(least));
      REQUIRE(least <= enough);
      REQUIRE((least < workload.live_peak(512) + 2 * kMiB || !finishes(least - 2 * kMiB)));
    }
  }
}

TEST_CASE("A cache that the program empties goes back to the device", "[replay][limit]") {
  Workload workload = growing(2, 40 * kMiB);
  REQUIRE(*through_caching_model(workload, CachingModel::Options{}).reserved_peak == 120 * kMiB);
  workload.operations.insert(workload.operations.begin() + 2, {Kind::kEmptyCache, 0, 0, 0});
  REQUIRE(*through_caching_model(workload, CachingModel::Options{}).reserved_peak == 80 * kMiB);
}

TEST_CASE("A trace says where the program emptied the cache", "[replay][workload]") {
  Trace trace;
  trace.alignment = 512;
  trace.lanes = {{0}};
  trace.strings = {"", std::string(trace::kEmptyCacheRange), "forward"};
  trace.entries = {{.tick = 0, .event = trace::Request{.id = 1, .bytes = 512}},
                   {.tick = 1, .event = trace::RangeBegin{.range = 1, .name = 2}},
                   {.tick = 2, .event = trace::RangeEnd{.range = 1}},
                   {.tick = 3, .event = trace::RangeBegin{.range = 2, .name = 1}},
                   {.tick = 4, .event = trace::RangeEnd{.range = 2}}};
  const Workload workload = make_workload(trace);
  REQUIRE(workload.operations.size() == 2);
  REQUIRE(workload.operations[1].kind == Kind::kEmptyCache);
}

TEST_CASE("A convolution does without its workspace where memory is short", "[replay][limit]") {
  Trace trace;
  trace.alignment = 512;
  trace.lanes = {{0}};
  trace.strings = {"", "aten::cudnn_convolution", "aten::mm"};
  const auto add = [&](const trace::Event& event) {
    trace.entries.push_back({.tick = trace.entries.size(), .event = event});
  };
  for (const trace::StringId name : {1, 2}) {
    const std::uint64_t op = name;
    add(trace::OperatorBegin{.op = op, .name = name});
    add(trace::Request{.id = 2 * op, .bytes = 40 * kMiB});  // the result
    add(trace::Request{.id = 2 * op + 1, .bytes = 60 * kMiB});
    add(trace::Free{.id = 2 * op + 1});
    add(trace::Operand{.op = op, .block = 2 * op, .output = true});
    add(trace::OperatorEnd{.op = op});
    add(trace::Free{.id = 2 * op});
  }
  const Workload workload = make_workload(trace);
  std::vector<bool> optional;
  for (const Operation& operation : workload.operations)
    if (operation.kind == Kind::kAllocate) optional.push_back(operation.optional);
  REQUIRE(optional == std::vector<bool>{false, true, false, false});
  CachingModel::Options options;
  REQUIRE(*through_caching_model(workload, options).reserved_peak == 100 * kMiB);
  options.limit = 80 * kMiB;
  REQUIRE(through_caching_model(workload, options).out_of_memory);  // aten::mm has to have it
  Workload first = workload;
  first.operations.resize(4);
  const Result result = through_caching_model(first, options);
  REQUIRE_FALSE(result.out_of_memory);
  REQUIRE(*result.reserved_peak == 40 * kMiB);
}

TEST_CASE("A convolution that threw has no workspaces after the mark of its step",
          "[replay][limit]") {
  test::Recording run;
  run.begin("aten::cudnn_convolution");
  run.free(run.request(512));
  run.mark();
  run.free(run.request(1024));
  const Workload workload = make_workload(run.builder.trace());
  for (const Operation& operation : workload.operations)
    if (operation.kind == Kind::kAllocate) CHECK(operation.optional == (operation.size == 512));
}

TEST_CASE("What PYTORCH_ALLOC_CONF asks for is followed, and what is not is named",
          "[replay][settings]") {
  const TorchSettings settings = read_torch_settings(
      "max_split_size_mb:128, roundup_power2_divisions:4,expandable_segments:True,backend:native,"
      "pinned_use_background_threads:True");
  REQUIRE(settings.model.max_split == 128 * kMiB);
  REQUIRE(settings.model.roundup_divisions == 4);
  REQUIRE(settings.unknown.empty());
  const TorchSettings others = read_torch_settings(
      "roundup_power2_divisions:[256:1,>:4],garbage_collection_threshold:0.8,max_split_size_mb:20");
  REQUIRE(others.unknown == std::vector<std::string>{"roundup_power2_divisions:[256:1,>:4]",
                                                     "garbage_collection_threshold:0.8",
                                                     "max_split_size_mb:20"});
  REQUIRE(others.model.max_split == CachingModel::kNoBytes);
  REQUIRE(read_torch_settings("").unknown.empty());
}
