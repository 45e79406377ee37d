// Blocks of the pool that were freed while other lanes may still use them.

#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"

#include <algorithm>
#include <atomic>
#include <vector>

using namespace berth;
using berth::test::CallKind;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr LaneKey kForeign = 9;

struct Waiting {
  Waiting() { device.set_foreign(kForeign); }
  ~Waiting() { CHECK(device.violations().empty()); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  [[nodiscard]] Allocator::Options options() const {
    Allocator::Options options;
    options.start_threads = false;
    options.captures = &captures;
    options.config.mode = Mode::kOff;
    return options;
  }
  // A block of lane 0 that `user` uses too.
  void* use(Bytes size, LaneKey user) {
    void* const block = allocator.allocate(size, 0);
    CHECK(device.hand_out(0, block, size));
    allocator.record_use(block, user);
    device.touch(user, block, size);
    return block;
  }
  void free(void* block) { REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone); }
  // Calls that ask about lanes.
  [[nodiscard]] std::uint64_t asked() const {
    return device.calls(CallKind::kCapturing) + device.calls(CallKind::kRecord) +
           device.calls(CallKind::kQuery);
  }
  [[nodiscard]] Bytes idle() const {
    const Stats stats = allocator.stats();
    return stats.reserved - stats.live;
  }

  std::atomic<int> captures{0};
  test::SimulatedDevice device;
  test::CheckedAllocator allocator{device, options()};
};

}  // namespace

TEST_CASE("What blocks that no event can cover cost a miss does not grow with their number",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  std::vector<void*> blocks;
  for (int i = 0; i < 1000; ++i) blocks.push_back(waiting.use(4096, kForeign));
  for (void* const block : blocks) waiting.free(block);
  const std::uint64_t before = waiting.asked();
  for (int i = 0; i < 100; ++i) waiting.free(waiting.allocator.allocate(8192, 0));
  CHECK(waiting.asked() - before <= 100);
  CHECK(waiting.allocator.stats().device_errors == 0);
}

TEST_CASE("Blocks that no event can cover come free before memory runs out",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  const bool marks = GENERATE(true, false);
  CAPTURE(marks);
  Bytes most = 0;
  for (int i = 0; i < 400; ++i) {
    waiting.free(waiting.use(kMiB, kForeign));
    if (marks && i % 10 == 0) waiting.allocator.mark_step(0);
    most = std::max(most, waiting.idle());
  }
  CHECK(most <= 80 * kMiB);
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) <= 10);
}

TEST_CASE("Blocks that no event can cover come free where the pool need not grow",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  std::vector<void*> blocks;
  for (int i = 0; i < 80; ++i) blocks.push_back(waiting.use(kMiB, kForeign));
  void* const hole = waiting.allocator.allocate(kMiB, 0);
  for (void* const block : blocks) waiting.free(block);
  waiting.free(hole);
  const Bytes reserved = waiting.allocator.stats().reserved;
  for (int i = 0; i < 81; ++i) (void)waiting.allocator.allocate(kMiB, 0);
  CHECK(waiting.allocator.stats().reserved == reserved);
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) == 1);
}

TEST_CASE("Planned bytes that no event can cover are served again after a while",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  const bool marks = GENERATE(true, false);
  CAPTURE(marks);
  waiting.allocator.load_plan(
      test::plan_of({test::sequence_of({{0, 80 * kMiB, 1}, {80 * kMiB, 64, 1}})}));
  waiting.allocator.mark_step(0);
  for (int step = 0; step < 20; ++step) {
    waiting.free(waiting.use(80 * kMiB, kForeign));
    waiting.free(waiting.allocator.allocate(64, 0));
    if (marks) waiting.allocator.mark_step(0);
  }
  CHECK(waiting.allocator.stats().hits >= (marks ? 40 : 28));
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) <= 20);
  CHECK(waiting.allocator.stats().reserved <= 320 * kMiB);
}

TEST_CASE("While a graph is captured nothing waits for the device to have blocks back",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  waiting.captures = 1;
  for (int i = 0; i < 100; ++i) waiting.free(waiting.use(kMiB, kForeign));
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) == 0);
  waiting.captures = 0;
  (void)waiting.use(kMiB, kForeign);
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) == 1);
  CHECK(waiting.idle() <= 99 * kMiB);
}

TEST_CASE("A device that refuses to synchronise is not asked at each request",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  waiting.device.fail_call(1, {Status::Code::kFailed, "test"}, CallKind::kSynchronizeAll, true);
  for (int i = 0; i < 200; ++i) waiting.free(waiting.use(kMiB, kForeign));
  CHECK(waiting.device.calls(CallKind::kSynchronizeAll) == 2);
  waiting.device.fail_none();
}

TEST_CASE("A synchronisation for another reason frees what no event can cover",
          "[runtime][streams][foreign]") {
  Waiting waiting;
  waiting.free(waiting.use(kMiB, kForeign));
  (void)waiting.allocator.trim();
  CHECK(waiting.idle() == 0);
}

TEST_CASE("No event of a lane is asked while that lane is captured",
          "[runtime][streams][capture]") {
  Waiting waiting;
  void* const block = waiting.use(kMiB, 5);
  waiting.free(block);
  waiting.device.set_capturing(5, true);
  (void)waiting.allocator.allocate(8 * kMiB, 0);  // the pool grows, and looks what is over before
  waiting.allocator.mark_step(0);
  waiting.allocator.process_events();
  CHECK(waiting.device.violations().empty());
  waiting.device.set_capturing(5, false);
  (void)waiting.device.synchronize_all();
  waiting.allocator.process_events();
  CHECK(waiting.idle() == 0);  // lane 0 waits for lane 5, and has its pages
}

TEST_CASE("A block that is freed while its user is captured waits until the capture is over",
          "[runtime][streams][capture]") {
  Waiting waiting;
  std::vector<void*> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(waiting.use(4096, 5));
  waiting.device.set_capturing(5, true);
  for (void* const block : blocks) waiting.free(block);
  const std::uint64_t before = waiting.asked();
  for (int i = 0; i < 100; ++i) waiting.free(waiting.allocator.allocate(kMiB + 4096 * Bytes(i), 0));
  CHECK(waiting.asked() - before <= 300);
  CHECK(waiting.device.calls(CallKind::kRecord) == 0);
  waiting.device.set_capturing(5, false);
  waiting.allocator.process_events();
  CHECK(waiting.device.calls(CallKind::kRecord) > 0);
  (void)waiting.device.synchronize_all();
  waiting.allocator.process_events();
  CHECK(waiting.device.live_events() == 0);
}

TEST_CASE("Memory that other lanes still use is handed out in their order, and no host waits",
          "[runtime][streams]") {
  constexpr Bytes kLimit = 64 * kMiB;
  const int users = GENERATE(1, 2, 3);
  const LaneKey asking = GENERATE(LaneKey{0}, LaneKey{7});
  CAPTURE(users, asking);
  test::SimulatedDevice device;
  Allocator::Options options;
  options.start_threads = false;
  options.config.memory_limit = kLimit;
  test::CheckedAllocator allocator(device, options);
  std::vector<void*> blocks;
  for (int i = 0; i < 16; ++i) {
    void* const block = allocator.allocate(4 * kMiB, 0);
    CHECK(device.hand_out(0, block, 4 * kMiB));
    blocks.push_back(block);
    for (int user = 0; user < users; ++user) {
      const LaneKey lane = 5 + LaneKey((i + user) % 3);
      allocator.record_use(block, lane);
      device.touch(lane, block, 4 * kMiB);
    }
  }
  for (void* const block : blocks) REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  // All but the last need what the lane of another block holds up.
  for (const Bytes size : {12 * kMiB, 20 * kMiB, 28 * kMiB, 4 * kMiB}) {
    void* const block = allocator.allocate(size, asking);
    CHECK(device.hand_out(asking, block, size));
  }
  CHECK(allocator.stats().reserved <= kLimit);
  CHECK(device.calls(CallKind::kSynchronizeAll) == 0);
  CHECK(device.violations().empty());
}

TEST_CASE("Where no lane can be waited for the device is", "[runtime][streams]") {
  test::SimulatedDevice device;
  Allocator::Options options;
  options.start_threads = false;
  options.config.memory_limit = 8 * kMiB;
  test::CheckedAllocator allocator(device, options);
  void* const block = allocator.allocate(8 * kMiB, 0);
  CHECK(device.hand_out(0, block, 8 * kMiB));
  allocator.record_use(block, 5);
  device.touch(5, block, 8 * kMiB);
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  device.fail_call(1, {Status::Code::kFailed, "test"}, CallKind::kWait, true);
  CHECK(device.hand_out(0, allocator.allocate(8 * kMiB, 0), 8 * kMiB));
  CHECK(device.calls(CallKind::kSynchronizeAll) == 1);
  CHECK(device.violations().empty());
  device.fail_none();
}
