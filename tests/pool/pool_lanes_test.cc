#include "csrc/pool/pool.h"
#include "tests/catch.h"
#include "tests/support/lone_pool.h"
#include "tests/support/simulated_device.h"
#include "tests/support/thoroughness.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::SimulatedDevice;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
const Status kFailure(Status::Code::kFailed, "test", 5);
const Status kExhausted(Status::Code::kOutOfMemory, "test", 12);

PoolBlock* hand_out(SimulatedDevice& device, Pool& pool, Bytes size, LaneKey lane,
                    Mobility mobility = Mobility::kMovable) {
  PoolBlock* const block = pool.allocate(size, lane, mobility);
  if (block != nullptr) device.hand_out(lane, block->pointer, block->size);
  CHECK(pool.is_valid() == "");
  return block;
}

// All that is queued on the lane runs.
void complete(SimulatedDevice& device, LaneKey lane) {
  DeviceEvent event = 0;
  REQUIRE(device.record(lane, &event).ok());
  REQUIRE(device.synchronize(event).ok());
  device.destroy(event);
}

}  // namespace

TEST_CASE("A lane leaves the holes of another alone while there is memory", "[pool][lanes]") {
  SimulatedDevice device;
  {
    test::LonePool pool(device, {});
    PoolBlock* const first = hand_out(device, pool, 2 * kMiB, 1);
    void* const pointer = first->pointer;
    pool.free(first);
    REQUIRE(hand_out(device, pool, 2 * kMiB, 2)->pointer != pointer);
    REQUIRE(hand_out(device, pool, 2 * kMiB, 1)->pointer == pointer);
    REQUIRE(device.calls(CallKind::kWait) == 0);
  }
  REQUIRE(device.violations().empty());
}

TEST_CASE("What a lane has freed is everybody's when its work is over", "[pool][lanes]") {
  SimulatedDevice device;
  {
    test::LonePool pool(device, {});
    PoolBlock* const first = hand_out(device, pool, 8 * kMiB, 1);
    void* const pointer = first->pointer;
    device.touch(1, pointer, first->size);
    pool.free(first);
    PoolBlock* const other = hand_out(device, pool, kMiB, 2);
    REQUIRE(other->pointer != pointer);
    // A mark ends an epoch of the lane's frees, and the next finds that the lane is past it.
    (void)pool.process_events();
    REQUIRE(hand_out(device, pool, 8 * kMiB, 2)->pointer != pointer);
    complete(device, 1);
    (void)pool.process_events();
    const Bytes before = pool.reserved();
    PoolBlock* const again = hand_out(device, pool, 8 * kMiB, 2);
    REQUIRE(again->pointer == pointer);
    REQUIRE(pool.reserved() == before);
    REQUIRE(device.calls(CallKind::kWait) == 0);
  }
  REQUIRE(device.violations().empty());
  REQUIRE(device.live_events() == 0);
}

TEST_CASE("Who would grow asks whether the work of others is over", "[pool][lanes]") {
  SimulatedDevice device;
  {
    test::LonePool pool(device, {});
    PoolBlock* const first = hand_out(device, pool, 8 * kMiB, 1);
    void* const pointer = first->pointer;
    device.touch(1, pointer, first->size);
    pool.free(first);
    REQUIRE(hand_out(device, pool, 8 * kMiB, 2)->pointer != pointer);
    complete(device, 1);
    REQUIRE(hand_out(device, pool, 8 * kMiB, 2)->pointer == pointer);
    REQUIRE(pool.reserved() == 16 * kMiB);
    REQUIRE(device.calls(CallKind::kWait) == 0);
  }
  REQUIRE(device.violations().empty());
}

TEST_CASE("What a lane frees after the end of an epoch is its own", "[pool][lanes]") {
  SimulatedDevice device;
  {
    test::LonePool pool(device, {});
    PoolBlock* const first = hand_out(device, pool, 8 * kMiB, 1);
    PoolBlock* const between = hand_out(device, pool, kMiB, 1);
    PoolBlock* const second = hand_out(device, pool, 8 * kMiB, 1);
    PoolBlock* const other = hand_out(device, pool, kMiB, 2);
    const void* const before = first->pointer;
    const void* const after = second->pointer;
    device.touch(1, before, first->size);
    pool.free(first);
    (void)pool.process_events();
    DeviceEvent past = 0;
    REQUIRE(device.record(1, &past).ok());
    device.touch(1, after, second->size);
    pool.free(second);
    REQUIRE(device.synchronize(past).ok());
    device.destroy(past);
    (void)pool.process_events();
    REQUIRE(hand_out(device, pool, 8 * kMiB, 2)->pointer == before);
    REQUIRE(hand_out(device, pool, 8 * kMiB, 2)->pointer != after);
    pool.free(between);
    pool.free(other);
  }
  REQUIRE(device.violations().empty());
}

TEST_CASE("Before it fails a lane takes the hole of another after its event", "[pool][lanes]") {
  SimulatedDevice device({.total_bytes = 4 * kMiB});
  {
    test::LonePool pool(device, {});
    PoolBlock* const first = hand_out(device, pool, 4 * kMiB, 1);
    device.touch(1, first->pointer, first->size);
    pool.free(first);
    PoolBlock* const second = hand_out(device, pool, 3 * kMiB, 2);
    REQUIRE(second != nullptr);
    REQUIRE(device.calls(CallKind::kWait) == 1);
    // The rest is still the first lane's.
    REQUIRE(hand_out(device, pool, kMiB, 1) != nullptr);
    REQUIRE(device.calls(CallKind::kWait) == 1);
    REQUIRE(hand_out(device, pool, 64, 3) == nullptr);
  }
  REQUIRE(device.violations().empty());
  REQUIRE(device.live_events() == 0);
}

TEST_CASE("A lane that is captured neither waits for another nor is waited for",
          "[pool][lanes][capture]") {
  SimulatedDevice device({.total_bytes = 4 * kMiB});
  test::LonePool pool(device, {});
  PoolBlock* const block = hand_out(device, pool, 4 * kMiB, 1);
  pool.free(block);
  for (const LaneKey captured : {LaneKey{1}, LaneKey{2}}) {
    device.set_capturing(captured, true);
    REQUIRE(hand_out(device, pool, kMiB, 2) == nullptr);
    REQUIRE(device.calls(test::CallKind::kRecord) == 0);
    device.set_capturing(captured, false);
  }
  REQUIRE(hand_out(device, pool, kMiB, 2) != nullptr);
}

TEST_CASE("A block with events becomes a hole when the last is complete", "[pool][lanes]") {
  SimulatedDevice device({.total_bytes = 4 * kMiB});
  {
    test::LonePool pool(device, {});
    PoolBlock* const block = hand_out(device, pool, 4 * kMiB, 1);
    for (const LaneKey lane : {LaneKey{2}, LaneKey{3}}) {
      device.touch(lane, block->pointer, 8);
      pool.record_use(block, lane);
    }
    void* const pointer = block->pointer;
    pool.free(block);
    REQUIRE(pool.is_valid() == "");
    REQUIRE(pool.find(pointer) == nullptr);
    REQUIRE(pool.stats().waiting == 4 * kMiB);
    REQUIRE(pool.stats().live == 0);
    REQUIRE(hand_out(device, pool, 64, 1) == nullptr);
    complete(device, 2);
    REQUIRE(pool.process_events() == 0);
    complete(device, 3);
    // Events are polled before the pool grows.
    REQUIRE(hand_out(device, pool, 64, 1) != nullptr);
    REQUIRE(pool.stats().waiting == 0);
  }
  REQUIRE(device.violations().empty());
  REQUIRE(device.live_events() == 0);
}

TEST_CASE("A lane that is captured grows the pool without asking for events",
          "[pool][lanes][capture]") {
  SimulatedDevice device({.total_bytes = 4 * kMiB});
  test::LonePool pool(device, {});
  PoolBlock* const block = hand_out(device, pool, 4 * kMiB, 1);
  pool.record_use(block, 2);
  pool.free(block);
  complete(device, 2);
  device.set_capturing(1, true);
  REQUIRE(hand_out(device, pool, kMiB, 1) == nullptr);
  REQUIRE(device.calls(CallKind::kQuery) == 0);
  device.set_capturing(1, false);
  REQUIRE(hand_out(device, pool, kMiB, 1) != nullptr);
}

TEST_CASE("An event that cannot be asked leaves its block waiting", "[pool][lanes]") {
  SimulatedDevice device;
  test::LonePool pool(device, {});
  PoolBlock* const block = hand_out(device, pool, kMiB, 1);
  pool.record_use(block, 2);
  pool.free(block);
  complete(device, 2);
  device.fail_call(1, kFailure, CallKind::kQuery);
  REQUIRE(pool.process_events() == 0);
  REQUIRE(pool.stats().waiting == kMiB);
  REQUIRE(pool.process_events() == kMiB);
}

TEST_CASE("A pool that goes destroys the events that blocks wait for", "[pool][lanes]") {
  SimulatedDevice device;
  {
    test::LonePool pool(device, {});
    PoolBlock* const block = hand_out(device, pool, kMiB, 1);
    device.touch(2, block->pointer, block->size);
    pool.record_use(block, 2);
    pool.free(block);
  }
  REQUIRE(device.live_events() == 0);
  REQUIRE(device.live_ranges() == 0);
  REQUIRE(device.violations().empty());
}

TEST_CASE("Trimming waits for the device and then every lane may take every hole",
          "[pool][lanes][trim]") {
  SimulatedDevice device({.total_bytes = 8 * kMiB, .aliases = false});
  {
    test::LonePool pool(device);
    std::vector<PoolBlock*> blocks;
    for (LaneKey lane = 1; lane <= 4; ++lane) {
      blocks.push_back(hand_out(device, pool, 2 * kMiB, lane));
      device.touch(lane, blocks.back()->pointer, 2 * kMiB);
    }
    for (PoolBlock* const block : blocks) pool.free(block);
    REQUIRE(hand_out(device, pool, 8 * kMiB, 5) == nullptr);
    device.fail_call(1, kFailure, CallKind::kSynchronizeAll);
    REQUIRE(pool.trim() == 0);
    REQUIRE(pool.trim() == 8 * kMiB);
    REQUIRE(hand_out(device, pool, 8 * kMiB, 5) != nullptr);
  }
  REQUIRE(device.violations().empty());
}

TEST_CASE("Pages whose return fails stay committed", "[pool][trim]") {
  SimulatedDevice device;
  test::LonePool pool(device, {});
  pool.free(hand_out(device, pool, 2 * kMiB, 1));
  device.fail_call(1, kFailure, CallKind::kDecommit);
  REQUIRE(pool.trim() == 0);
  REQUIRE(pool.is_valid() == "");
  REQUIRE(pool.stats().reserved == 2 * kMiB);
  REQUIRE(device.committed() == 2 * kMiB);
  REQUIRE(pool.trim() == 2 * kMiB);
  REQUIRE(device.committed() == 0);
}

TEST_CASE("In segments a block takes the smallest hole, and small ones none of large ones",
          "[pool][segments]") {
  SimulatedDevice device({.total_bytes = 256 * kMiB, .maps_pages = false});
  test::LonePool pool(device, {.segment_bytes = 20 * kMiB});
  // Blocks of 1 to 10 MiB share a segment, larger ones have their own.
  PoolBlock* const shared = pool.allocate(3 * kMiB, 1, Mobility::kTemporary);
  PoolBlock* const same = pool.allocate(9 * kMiB, 1, Mobility::kTemporary);
  CHECK(pool.reserved() == 20 * kMiB);
  PoolBlock* const large = pool.allocate(30 * kMiB, 1, Mobility::kTemporary);
  PoolBlock* const larger = pool.allocate(40 * kMiB, 1, Mobility::kTemporary);
  CHECK(pool.reserved() == 90 * kMiB);
  void* const where = large->pointer;
  pool.free(larger);
  pool.free(large);
  // A small one gets a segment of its own, so that both holes stay whole.
  PoolBlock* const small = pool.allocate(kMiB / 2, 1, Mobility::kMovable);
  CHECK(pool.reserved() == 92 * kMiB);
  PoolBlock* const fits = pool.allocate(29 * kMiB, 1, Mobility::kTemporary);
  REQUIRE(fits != nullptr);
  const auto* const at = static_cast<std::byte*>(fits->pointer);
  CHECK((at >= where && at < static_cast<std::byte*>(where) + 30 * kMiB));
  CHECK(pool.reserved() == 92 * kMiB);
  CHECK(pool.is_valid().empty());
  for (PoolBlock* const block : {shared, same, small, fits}) pool.free(block);
  CHECK(pool.trim() == 92 * kMiB);
  CHECK(pool.reserved() == 0);
}

TEST_CASE("In segments blocks of up to 1 MiB share, and those that stay fill holes of others",
          "[pool][segments]") {
  SimulatedDevice device({.total_bytes = 256 * kMiB, .maps_pages = false});
  test::LonePool pool(device, {.segment_bytes = 20 * kMiB});
  PoolBlock* const one = pool.allocate(kMiB, 1, Mobility::kTemporary);
  PoolBlock* const other = pool.allocate(kMiB / 2, 1, Mobility::kMovable);
  CHECK(pool.reserved() == 2 * kMiB);
  PoolBlock* const large = pool.allocate(9 * kMiB, 1, Mobility::kTemporary);
  PoolBlock* const stays = pool.allocate(9 * kMiB, 1, Mobility::kResident);
  CHECK(pool.reserved() == 22 * kMiB);
  for (PoolBlock* const block : {one, other, large, stays}) pool.free(block);
  CHECK(pool.trim() == 22 * kMiB);
}

TEST_CASE("In segments a large block takes a rest of up to 1 MiB", "[pool][segments]") {
  SimulatedDevice device({.total_bytes = 256 * kMiB, .maps_pages = false});
  test::LonePool pool(device, {.segment_bytes = 20 * kMiB});
  PoolBlock* const whole = pool.allocate(19 * kMiB + kMiB, 1, Mobility::kTemporary);
  pool.free(whole);
  PoolBlock* const rest = pool.allocate(19 * kMiB, 1, Mobility::kTemporary);
  CHECK(rest->size == 20 * kMiB);
  pool.free(rest);
  PoolBlock* const split = pool.allocate(19 * kMiB - 512, 1, Mobility::kTemporary);
  CHECK(split->size == 19 * kMiB - 512);
  CHECK(pool.reserved() == 20 * kMiB);
  pool.free(split);
}

TEST_CASE("Segments that blocks share are larger once the pool holds much", "[pool][segments]") {
  SimulatedDevice device({.total_bytes = Bytes{1} << 30, .maps_pages = false});
  test::LonePool pool(device, {.segment_bytes = 20 * kMiB, .large_segment_bytes = 64 * kMiB});
  std::vector<PoolBlock*> blocks{pool.allocate(4 * kMiB, 1, Mobility::kTemporary)};
  CHECK(pool.reserved() == 20 * kMiB);
  blocks.push_back(pool.allocate(108 * kMiB, 1, Mobility::kTemporary));
  CHECK(pool.reserved() == 128 * kMiB);
  // Neither fits the first segment.
  blocks.push_back(pool.allocate(17 * kMiB, 1, Mobility::kTemporary));
  blocks.push_back(pool.allocate(30 * kMiB, 1, Mobility::kTemporary));
  CHECK(pool.reserved() == 192 * kMiB);
  for (PoolBlock* const block : blocks) pool.free(block);
}

TEST_CASE("In segments a hole stays its lane's, and so does the rest of a new segment",
          "[pool][segments]") {
  SimulatedDevice device({.total_bytes = 256 * kMiB, .maps_pages = false});
  test::LonePool pool(device, {.segment_bytes = 20 * kMiB});
  PoolBlock* const one = pool.allocate(3 * kMiB, 1, Mobility::kTemporary);
  PoolBlock* const other = pool.allocate(3 * kMiB, 2, Mobility::kTemporary);
  CHECK(pool.reserved() == 40 * kMiB);
  pool.free(one);
  // Lane 1 is idle for good: what it left is anybody's where pages are mapped.
  for (int i = 0; i < 3; ++i) {
    complete(device, 1);
    (void)pool.process_events();
  }
  PoolBlock* const more = pool.allocate(18 * kMiB, 2, Mobility::kTemporary);
  CHECK(pool.reserved() == 58 * kMiB);
  for (PoolBlock* const block : {other, more}) pool.free(block);
}

TEST_CASE("A device that maps no pages is asked for segments and gets whole ones back",
          "[pool][segments]") {
  SimulatedDevice device({.total_bytes = 64 * kMiB, .maps_pages = false});
  {
    test::LonePool pool(device, {.alignment = 512, .growth_bytes = 4 * kMiB});
    PoolBlock* const small = hand_out(device, pool, 1000, 1);
    PoolBlock* const large = hand_out(device, pool, 10 * kMiB, 1);
    // What stays has no segments of its own.
    PoolBlock* const resident = hand_out(device, pool, 1000, 1, Mobility::kResident);
    REQUIRE(device.live_ranges() == 2);
    REQUIRE(pool.stats().reserved == (4 + 12) * kMiB);
    REQUIRE(device.committed() == pool.stats().reserved);
    REQUIRE(pool.contains(large->pointer));
    REQUIRE_FALSE(pool.contains(&pool));
    // 49 MiB are no longer there.
    REQUIRE(hand_out(device, pool, 49 * kMiB, 1) == nullptr);
    void* const pointer = large->pointer;
    pool.free(large);
    REQUIRE(pool.trim() == 12 * kMiB);
    REQUIRE_FALSE(pool.contains(pointer));
    pool.free(small);
    pool.free(resident);
    REQUIRE(pool.trim() == 4 * kMiB);
    REQUIRE(pool.is_valid() == "");
    REQUIRE(device.live_ranges() == 0);
    REQUIRE(hand_out(device, pool, 1000, 1) != nullptr);
  }
  REQUIRE(device.live_ranges() == 0);
  REQUIRE(device.violations().empty());
}

TEST_CASE("Streams that come and go leave no memory behind that the next could use",
          "[pool][lanes]") {
  const bool maps = GENERATE(true, false);
  SimulatedDevice device({.total_bytes = Bytes{4} << 30, .maps_pages = maps});
  {
    test::LonePool pool(device, {});
    for (LaneKey stream = 1000; stream < 1500; ++stream) {
      device.set_may_go(stream);
      PoolBlock* const block = hand_out(device, pool, 2 * kMiB, stream);
      device.touch(stream, block->pointer, block->size);
      pool.free(block);
      device.set_foreign(stream);                                         // it has gone
      REQUIRE(pool.stats().reserved <= Pool::kMostUnproven + 64 * kMiB);  // and two segments
    }
    REQUIRE(pool.lanes() <= 100);
    REQUIRE(device.calls(CallKind::kSynchronizeAll) < 30);
  }
  REQUIRE(device.violations().empty());
}

TEST_CASE("While a graph is captured nobody waits for streams that may be gone", "[pool][lanes]") {
  SimulatedDevice device({.total_bytes = Bytes{4} << 30});
  std::atomic<int> captures{0};
  LaneEvents events(device, &captures);
  Pool pool(device, events, {});
  const auto come_and_go = [&](LaneKey stream) {
    device.set_may_go(stream);
    PoolBlock* const block = hand_out(device, pool, 2 * kMiB, stream);
    device.touch(stream, block->pointer, block->size);
    pool.free(block);
    device.set_foreign(stream);
  };
  for (LaneKey stream = 1000; stream < 1032; ++stream) come_and_go(stream);
  captures = 1;
  for (LaneKey stream = 2000; stream < 2020; ++stream) come_and_go(stream);
  REQUIRE(device.calls(CallKind::kSynchronizeAll) == 0);
  captures = 0;
  come_and_go(3000);
  REQUIRE(device.calls(CallKind::kSynchronizeAll) == 1);
  REQUIRE(device.violations().empty());
}

namespace {

// Random requests on several lanes beside a list that checks the pool: blocks are aligned and share
// no byte, counters agree, holes are handed over in order.
class Reference {
 public:
  Reference(SimulatedDevice& device, Pool& pool, const PoolOptions& options, unsigned seed)
      : device_(device), pool_(pool), options_(options), random_(seed) {
    device_.set_foreign(kForeign);
  }

  void step() {
    switch (random_() % 16) {
      case 0:
        pool_.process_events();
        break;
      case 1:
        if (random_() % 8 == 0) pool_.trim();
        break;
      case 2:
      case 3:
        device_.complete_some(random_);
        break;
      default:
        if (live_.empty() || random_() % 100 < (phase_ ? 60u : 40u)) {
          allocate();
        } else {
          free();
        }
        if (random_() % 64 == 0) phase_ = !phase_;
    }
    check();
  }
  void free_all() {
    while (!live_.empty()) free();
    check();
  }

 private:
  void allocate() {
    const LaneKey lane = random_() % 4;
    const auto mobility = static_cast<Mobility>(random_() % 3);
    const Bytes size = 1 + random_() % (random_() % 4 == 0 ? 3 * kMiB : 20000);
    PoolBlock* const block = pool_.allocate(size, lane, mobility);
    if (block == nullptr) return;
    const Bytes first = reinterpret_cast<Bytes>(block->pointer);
    REQUIRE(block->size >= align_up(size, options_.alignment));
    REQUIRE(block->requested == size);
    REQUIRE(first % options_.alignment == 0);
    REQUIRE(pool_.find(block->pointer) == block);
    const auto after = live_.lower_bound(first);
    REQUIRE((after == live_.end() || first + block->size <= after->first));
    if (after != live_.begin())
      REQUIRE(std::prev(after)->first + std::prev(after)->second->size <= first);
    device_.hand_out(lane, block->pointer, block->size);
    REQUIRE(device_.violations() == std::vector<std::string>{});
    live_.emplace(first, block);
    bytes_ += align_up(size, options_.alignment);
    for_each_mark(*block, [](std::uint64_t* mark) { *mark = reinterpret_cast<Bytes>(mark); });
  }
  // Words of a block, so many that one lies in each page: no other block has their memory.
  template <class Visit>
  static void for_each_mark(const PoolBlock& block, Visit&& visit) {
    for (Bytes at = 0; at + sizeof(std::uint64_t) <= block.size; at += 2048)
      visit(reinterpret_cast<std::uint64_t*>(static_cast<std::byte*>(block.pointer) + at));
  }
  void free() {
    auto it = live_.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(random_() % live_.size()));
    PoolBlock* const block = it->second;
    live_.erase(it);
    bytes_ -= align_up(block->requested, options_.alignment);
    for_each_mark(
        *block, [](const std::uint64_t* mark) { REQUIRE(*mark == reinterpret_cast<Bytes>(mark)); });
    device_.touch(block->lane, block->pointer, block->size);
    while (random_() % 3 == 0) {
      const LaneKey lane = random_() % 8 == 0 ? kForeign : random_() % 4;
      device_.touch(lane, block->pointer, 1);
      pool_.record_use(block, lane);
    }
    if (random_() % 8 == 0) {
      const LaneKey lane = random_() % 4;
      device_.touch(lane, block->pointer, 1);
      pool_.free(block, lane);
    } else {
      pool_.free(block);
    }
  }
  void check() {
    REQUIRE(pool_.is_valid() == "");
    const PoolStats stats = pool_.stats();
    REQUIRE(stats.live == bytes_);
    REQUIRE(stats.blocks == live_.size());
    REQUIRE(stats.live + stats.waiting <= stats.reserved);
    REQUIRE(stats.reserved == device_.committed());
    if (random_() % 32 != 0) return;
    std::vector<const PoolBlock*> visited;
    pool_.for_each_block([&](const PoolBlock& block) { visited.push_back(&block); });
    REQUIRE(visited.size() == live_.size());
    std::sort(visited.begin(), visited.end(),
              [](const PoolBlock* a, const PoolBlock* b) { return a->pointer < b->pointer; });
    std::size_t i = 0;
    for (const auto& [first, block] : live_) REQUIRE(visited[i++] == block);
  }

  static constexpr LaneKey kForeign = 9;

  SimulatedDevice& device_;
  Pool& pool_;
  PoolOptions options_;
  std::mt19937 random_;
  std::map<Bytes, PoolBlock*> live_;
  Bytes bytes_ = 0;
  bool phase_ = true;
};

}  // namespace

TEST_CASE("Random requests on several lanes agree with a plain list", "[pool][property]") {
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 9u, 10u, 11u, 13u}) {
    CAPTURE(seed);
    const bool maps = seed % 4 != 0;
    SimulatedDevice device({.total_bytes = (seed % 2 == 0 ? 24 : 200) * kMiB,
                            .maps_pages = maps,
                            .aliases = seed > 4,
                            .handles = seed % 3 == 0 || seed > 7});
    {
      const PoolOptions options = {.alignment = seed % 3 == 0 ? Bytes{512} : Bytes{64},
                                   .range_bytes = 64 * kMiB,
                                   .growth_bytes = seed % 5 == 0 ? 3 * kMiB : kMiB,
                                   .resident_growth_bytes = 4 * kMiB};
      test::LonePool pool(device, options);
      Reference reference(device, pool, options, seed);
      for (int i = 0; i < 3000; ++i) reference.step();
      reference.free_all();
      pool.trim();
      REQUIRE(pool.stats().reserved == 0);
      REQUIRE(pool.stats().waiting == 0);
      REQUIRE(pool.is_valid() == "");
    }
    REQUIRE(device.violations() == std::vector<std::string>{});
    REQUIRE(device.live_events() == 0);
    REQUIRE(device.live_ranges() == 0);
  }
}

TEST_CASE("Whichever device call fails the pool stays whole and leaks nothing",
          "[pool][fault_loop]") {
  for (const auto& [maps, handles] : {std::pair{true, false}, {true, true}, {false, false}}) {
    for (const bool all_later : {false, true}) {
      bool met = true;
      for (std::uint64_t n = 1; met; n += test::stride(n)) {
        CAPTURE(maps, handles, all_later, n);
        SimulatedDevice device({.total_bytes = 12 * kMiB, .maps_pages = maps, .handles = handles});
        device.fail_call(n, n % 2 == 0 ? kFailure : kExhausted);
        {
          const PoolOptions options = {
              .range_bytes = 64 * kMiB, .growth_bytes = kMiB, .resident_growth_bytes = 2 * kMiB};
          std::unique_ptr<test::LonePool> pool;
          while (pool == nullptr) {
            try {
              pool = std::make_unique<test::LonePool>(device, options);
            } catch (const Error& error) {
              REQUIRE(error.kind() == ErrorKind::kSystem);
            }
          }
          Reference reference(device, *pool, options, 7);
          met = false;
          for (int i = 0; i < 150; ++i) {
            reference.step();
            if (met || !device.fault_met()) continue;
            met = true;
            // Once one call has failed no more memory is to be had, either.
            if (all_later)
              device.fail_call(1, kExhausted, maps ? CallKind::kCommit : CallKind::kReserve, true);
          }
          device.fail_none();
          reference.free_all();
          pool->trim();
          REQUIRE(pool->stats().reserved == 0);
          // A fresh workload passes.
          REQUIRE(hand_out(device, *pool, 8 * kMiB, 1, Mobility::kTemporary) != nullptr);
        }
        REQUIRE(device.violations() == std::vector<std::string>{});
        REQUIRE(device.live_events() == 0);
        REQUIRE(device.live_ranges() == 0);
      }
    }
  }
}
