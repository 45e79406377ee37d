// Programs and devices that make planning hard: all is served, and what it costs is bounded.

#include "csrc/device/host_device.h"
#include "csrc/plan/file.h"
#include "csrc/runtime/allocator.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/small_program.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/warnings.h"

#include <berth/error.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

using namespace berth;
using test::CallKind;

namespace {

constexpr std::uint32_t kMillion = 1000000;

// --- A driver that refuses ----------------------------------------------------------------------

constexpr Bytes kPage = Bytes{64} << 10;

// A program between whose arena and pool pages move: steps of the plan, steps that the plan does
// not know, and large blocks on another lane, with little memory. Every block keeps its contents.
class MovingPages {
 public:
  explicit MovingPages(test::SimulatedDevice& device, Bytes handle) : device_(device) {
    std::vector<test::SlotSpec> slots;
    for (std::uint32_t i = 0; i < kSlots; ++i)
      slots.push_back({2 * kPage * i, size(i), kSlots - i});
    write_plan(folder_ / "step.plan", test::plan_of({test::sequence_of(slots)}));
    Allocator::Options options;
    options.start_threads = false;
    options.config.mode = Mode::kServe;
    options.config.plan = folder_ / "step.plan";
    options.config.memory_limit = 24 * kPage;
    options.config.handle = handle;
    options.pool.growth_bytes = kPage;
    options.pool.resident_growth_bytes = kPage;
    while (allocator_ == nullptr) {
      try {
        allocator_ = std::make_unique<test::CheckedAllocator>(device, options);
      } catch (const Error&) {  // the call that failed was needed for that
      }
    }
  }
  ~MovingPages() { free_all(); }
  MovingPages(const MovingPages&) = delete;
  MovingPages& operator=(const MovingPages&) = delete;

  void run() {
    for (int round = 0; round < 3; ++round) {
      planned_step();
      ask(14 * kPage, kOther);
      planned_step();
      for (const Bytes pages : {5, 3, 7}) ask(pages * kPage, 0);
      free_all();
      allocator_->mark_step(0);
      if (round == 1) (void)allocator_->trim();
    }
  }
  void planned_step() {
    for (std::uint32_t i = 0; i < kSlots; ++i) ask(size(i), 0);
    free_all();
    allocator_->mark_step(0);
  }
  Allocator& allocator() { return *allocator_; }

 private:
  static constexpr LaneKey kOther = 5;
  static constexpr std::uint32_t kSlots = 8;
  static Bytes size(std::uint32_t slot) { return 2 * kPage - 64 * slot; }

  struct Block {
    std::byte* pointer = nullptr;
    Bytes size = 0;
    std::uint64_t contents = 0;
    LaneKey lane = 0;
  };

  void ask(Bytes size, LaneKey lane) {
    Block block{.size = size, .contents = ++contents_, .lane = lane};
    try {
      block.pointer = static_cast<std::byte*>(allocator_->allocate(size, lane));
    } catch (const Error&) {
      return;
    }
    (void)device_.hand_out(lane, block.pointer, size);
    for (Bytes at = 0; at < size; at += kPage / 2)
      std::memcpy(block.pointer + at, &block.contents, sizeof block.contents);
    blocks_.push_back(block);
  }
  void free_all() {
    for (const Block& block : std::exchange(blocks_, {})) {
      for (Bytes at = 0; at < block.size; at += kPage / 2)
        REQUIRE(std::memcmp(block.pointer + at, &block.contents, sizeof block.contents) == 0);
      device_.touch(block.lane, block.pointer, block.size);
      REQUIRE(allocator_->free(block.pointer) == Allocator::FreeOutcome::kDone);
    }
  }

  test::SimulatedDevice& device_;
  test::TemporaryFolder folder_;
  std::unique_ptr<test::CheckedAllocator> allocator_;
  std::vector<Block> blocks_;
  std::uint64_t contents_ = 0;
};

test::SimulatedDevice small_device(bool handles) {
  return test::SimulatedDevice(
      {.total_bytes = 64 * kPage, .page_bytes = kPage, .handles = handles});
}

}  // namespace

TEST_CASE("Whichever call of the device fails while pages move no block loses its bytes",
          "[runtime][pages][fault_loop]") {
  std::array<std::uint64_t, test::kCallKinds> failures{};
  for (std::size_t kind = 0; kind < test::kCallKinds; ++kind) {
    for (const bool all_later : {false, true}) {
      bool met = true;
      for (std::uint64_t n = 1; met; ++n) {
        const bool handles = (n / 2) % 2 != 0;  // for both of the statuses
        CAPTURE(kind, n, all_later, handles);
        test::SimulatedDevice device = small_device(handles);
        const test::Warnings warnings;  // that the plan does not fit is one
        device.fail_call(n,
                         {n % 2 == 0 ? Status::Code::kFailed : Status::Code::kOutOfMemory, "test"},
                         static_cast<CallKind>(kind), all_later);
        // Nothing can be had of a device that refuses the first reservation for ever.
        if (all_later && static_cast<CallKind>(kind) == CallKind::kReserve) break;
        {
          MovingPages program(device, handles ? 5 * kPage : 0);
          program.run();
          met = device.fault_met();
          failures[kind] += met;
          device.fail_none();
          // Nothing is broken for good.
          REQUIRE(device.synchronize_all().ok());
          (void)program.allocator().trim();
          for (int i = 0; i < 2; ++i) program.planned_step();
          const Stats before = program.allocator().stats();
          program.planned_step();
          const Stats after = program.allocator().stats();
          REQUIRE(after.hits == before.hits + 8);
          REQUIRE(after.driver_calls == before.driver_calls);
          REQUIRE(program.allocator().is_valid() == "");
          (void)program.allocator().trim();
          REQUIRE(device.committed() == 0);
        }
        REQUIRE(device.violations() == std::vector<std::string>{});
        REQUIRE(device.live_events() == 0);
        REQUIRE(device.live_ranges() == 0);
      }
    }
  }
  for (const CallKind kind : {CallKind::kCommit, CallKind::kDecommit, CallKind::kAlias,
                              CallKind::kRecord, CallKind::kWait, CallKind::kSynchronizeAll})
    CHECK(failures[static_cast<std::size_t>(kind)] > 5);
}

TEST_CASE("A step of a million requests is served, and searched for a few times only",
          "[learn][hostile]") {
  const auto device = make_host_device(Bytes{1} << 34);
  Allocator::Options options;
  options.start_threads = false;
  options.config.plan_time_limit_seconds = 0.2;
  test::CheckedAllocator allocator(*device, options);
  std::vector<void*> blocks(64);
  for (int step = 0; step < 2; ++step) {
    std::mt19937 random(1);  // a step as the one before, and no period in it
    for (std::uint32_t i = 0; i < kMillion; ++i) {
      void*& place = blocks[i % blocks.size()];
      if (place != nullptr) (void)allocator.free(place);
      place = allocator.allocate(64 * (1 + random() % 61), 0);
    }
    allocator.mark_step(0);
  }
  for (void* const block : blocks) (void)allocator.free(block);
  const Stats stats = allocator.stats();
  // Its requests and frees do not fit the record, which has its limit.
  CHECK(stats.plan_searches <= 24);
  CHECK(stats.unplanned == 2 * std::uint64_t{kMillion});
  CHECK(stats.reserved_peak <= 2 * stats.live_peak + (Bytes{64} << 10));
  CHECK(stats.driver_calls <= 64);
}

TEST_CASE("A plan of a million slots is served without a call of the device",
          "[runtime][hostile]") {
  const auto device = make_host_device(Bytes{1} << 34);
  Allocator::Options options;
  options.start_threads = false;
  options.config.mode = Mode::kOff;
  test::CheckedAllocator allocator(*device, options);
  constexpr std::uint32_t kLive = 50;  // divides a million
  std::vector<test::SlotSpec> slots(kMillion);
  for (std::uint32_t i = 0; i < kMillion; ++i) slots[i] = {64 * (i % 64), 64 - i % 61 % 8, kLive};
  allocator.load_plan(test::plan_of({test::sequence_of(slots)}));
  std::vector<void*> blocks(kLive);
  const auto step = [&] {
    allocator.mark_step(0);
    for (std::uint32_t i = 0; i < kMillion; ++i) {
      void*& place = blocks[i % kLive];
      if (place != nullptr) (void)allocator.free(place);
      place = allocator.allocate(slots[i].size, 0);
    }
  };
  step();
  const std::uint64_t calls = device->driver_calls();
  step();
  step();
  CHECK(device->driver_calls() == calls);
  CHECK(allocator.stats().hits == 3 * std::uint64_t{kMillion});
  for (void* const block : blocks) (void)allocator.free(block);
}

TEST_CASE("Two threads that share a lane and take turns at will are served", "[learn][hostile]") {
  const auto device = make_host_device(Bytes{1} << 34);
  Allocator::Options options;
  options.start_threads = false;
  options.config.plan_time_limit_seconds = 0.2;
  options.config.check = CheckLevel::kFull;
  test::CheckedAllocator allocator(*device, options);
  std::mt19937 random(7);
  // Each thread's own part of a step is the same in every step.
  const test::Program::Step parts[] = {
      test::Program::training({.layers = 15, .batch = 32}),
      test::Program::training({.layers = 10, .batch = 48, .network = 1})};
  test::Program programs[2];
  Stats before;
  for (int step = 0; step < 400; ++step) {
    std::size_t at[2] = {0, 0};
    while (at[0] < parts[0].size() || at[1] < parts[1].size()) {
      std::size_t thread = random() % 2;
      if (at[thread] == parts[thread].size()) thread = 1 - thread;
      programs[thread].run({parts[thread][at[thread]++]}, allocator);
    }
    allocator.mark_step(0);
    if (step == 49) before = allocator.stats();
  }
  const Stats after = allocator.stats();
  // No step is like another, and a bucket for all would take many times what one of them does.
  CHECK(after.reserved_peak <= after.live_peak + after.live_peak / 4);
  CHECK(after.plan_searches <= 24);
  CHECK(after.driver_calls == before.driver_calls);
  CHECK(after.misuses == 0);
}
