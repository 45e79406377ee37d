#include "csrc/runtime/allocator.h"
#include "csrc/trace/file.h"
#include "tests/catch.h"
#include "tests/support/checked_allocator.h"
#include "tests/support/simulated_device.h"
#include "tests/support/small_plan.h"
#include "tests/support/temporary_folder.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <random>
#include <variant>

using namespace berth;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

// What a listener has heard of: live blocks, and those that wait.
struct Ledger final : BlockListener {
  void served(const Block& block) noexcept override {
    CHECK(live.emplace(block.pointer, block).second);
  }
  void freed(const Block& block, bool waits) noexcept override {
    const auto it = live.find(block.pointer);
    REQUIRE(it != live.end());
    CHECK(it->second.requested == block.requested);
    CHECK(it->second.size == block.size);
    CHECK(it->second.lane == block.lane);
    live.erase(it);
    if (waits) waiting.emplace(block.pointer, block);
  }
  void completed(const Block& block) noexcept override { CHECK(waiting.erase(block.pointer) == 1); }
  [[nodiscard]] Bytes live_bytes() const {
    Bytes sum = 0;
    for (const auto& [pointer, block] : live) sum += block.size;
    return sum;
  }

  std::map<void*, Block> live, waiting;
};

Allocator::Options options(Ledger& ledger, SpinMutex* lock = nullptr) {
  Allocator::Options options;
  options.start_threads = false;
  options.alignment = 64;
  options.listener = &ledger;
  options.lock = lock;
  return options;
}

}  // namespace

TEST_CASE("A listener hears of every block in plan and pool and on every lane",
          "[runtime][listener]") {
  const unsigned seed = Catch::rngSeed() + 7;
  CAPTURE(seed);
  std::mt19937 random(seed);
  test::SimulatedDevice device;
  Ledger ledger;
  test::CheckedAllocator allocator(device, options(ledger));
  allocator.load_plan(
      test::plan_of({test::sequence_of({{0, 128, 2}, {128, 64, 1}, {192, 256, 2}})}));
  std::vector<std::pair<void*, LaneKey>> blocks;
  const Bytes sizes[] = {128, 64, 256, 1000, 70};
  for (int round = 0; round < 3000; ++round) {
    if (random() % 16 == 0) allocator.mark_step(0);
    if (random() % 8 == 0) device.complete_some(random);
    const LaneKey lane = random() % 4 == 0 ? 1 : 0;
    if (blocks.size() < 6 && random() % 2 == 0) {
      blocks.emplace_back(allocator.allocate(sizes[random() % 5], lane), lane);
    } else if (!blocks.empty()) {
      const std::size_t i = random() % blocks.size();
      if (random() % 3 == 0) allocator.record_use(blocks[i].first, 2);
      const auto outcome =
          random() % 5 == 0 ? allocator.free(blocks[i].first, 1) : allocator.free(blocks[i].first);
      REQUIRE(outcome == Allocator::FreeOutcome::kDone);
      blocks[i] = blocks.back();
      blocks.pop_back();
    }
    REQUIRE(ledger.live.size() == blocks.size());
    REQUIRE(ledger.live_bytes() == allocator.stats().live);
  }
  for (const auto& [pointer, lane] : blocks) (void)allocator.free(pointer);
  (void)allocator.trim();
  CHECK(ledger.live.empty());
  CHECK(ledger.waiting.empty());
  CHECK(allocator.is_valid() == "");
  CHECK(device.violations().empty());
}

TEST_CASE("A block used by a captured lane is nobody's before the capture is over",
          "[runtime][capture]") {
  test::SimulatedDevice device;
  Ledger ledger;
  test::CheckedAllocator allocator(device, options(ledger));
  void* const block = allocator.allocate(kMiB, 0);
  allocator.record_use(block, 1);
  device.set_capturing(1, true);
  REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  CHECK(device.calls(test::CallKind::kRecord) == 0);  // it would be the graph's
  CHECK(ledger.waiting.size() == 1);
  allocator.process_events();
  CHECK(ledger.waiting.size() == 1);
  CHECK(allocator.free(block) == Allocator::FreeOutcome::kUnknown);

  device.set_capturing(1, false);
  device.touch(1, block, kMiB);  // what the other lane still does with it
  allocator.process_events();
  CHECK(device.calls(test::CallKind::kRecord) == 1);
  CHECK(ledger.waiting.size() == 1);  // the lane is not there yet
  REQUIRE(device.synchronize_all().ok());
  allocator.process_events();
  CHECK(ledger.waiting.empty());
  CHECK(allocator.is_valid() == "");
}

TEST_CASE("Allocators that share a lock and a device keep apart", "[runtime]") {
  test::SimulatedDevice device;
  Ledger ledger;
  SpinMutex lock;
  auto first = std::make_unique<test::CheckedAllocator>(device, options(ledger, &lock));
  Allocator second(device, options(ledger, &lock));
  void* const a = first->allocate(kMiB, 0);
  void* const b = second.allocate(kMiB, 0);
  CHECK(first->free(b) == Allocator::FreeOutcome::kForeign);
  CHECK(second.free(b) == Allocator::FreeOutcome::kDone);
  CHECK(first->free(a) == Allocator::FreeOutcome::kDone);
  first.reset();
  CHECK(lock.try_lock());
  lock.unlock();
  CHECK(ledger.live.empty());
}

TEST_CASE("Blocks can be made again where they were", "[runtime]") {
  test::SimulatedDevice device;
  Ledger ledger;
  test::CheckedAllocator allocator(device, options(ledger));
  void* const a = allocator.allocate(kMiB, 0);
  void* const b = allocator.allocate(2 * kMiB, 1);
  CHECK_FALSE(allocator.allocate_at(a, kMiB, 0));
  (void)allocator.free(a);
  (void)allocator.free(b);
  REQUIRE(allocator.allocate_at(b, 2 * kMiB, 1));
  REQUIRE(allocator.allocate_at(a, kMiB, 0));
  CHECK(ledger.live.size() == 2);
  CHECK(allocator.find(a)->requested == kMiB);
  (void)allocator.free(a);
  (void)allocator.free(b);
  CHECK(allocator.is_valid() == "");
}

TEST_CASE("The stretches show all that is live in pool and arena", "[runtime]") {
  test::SimulatedDevice device;
  Ledger ledger;
  test::CheckedAllocator allocator(device, options(ledger));
  allocator.load_plan(
      test::plan_of({test::sequence_of({{0, 128, 2}, {128, 64, 1}, {192, 256, 1}})}));
  allocator.mark_step(0);
  std::vector<void*> blocks;
  for (const Bytes size : {Bytes{128}, Bytes{60}, Bytes{256}, 3 * kMiB})
    blocks.push_back(allocator.allocate(size, 0));
  (void)allocator.free(blocks[2]);
  std::map<const void*, Stretch::Piece> seen;
  Bytes committed = 0;
  allocator.for_each_stretch([&](const Stretch& stretch, bool) {
    committed += stretch.size;
    const auto* at = static_cast<const std::byte*>(stretch.base);
    for (const Stretch::Piece& piece : stretch.pieces) {
      CHECK(piece.pointer == at);
      at += piece.size;
      if (piece.kind == Stretch::Piece::Kind::kLive) seen[piece.pointer] = piece;
    }
    CHECK(at == static_cast<const std::byte*>(stretch.base) + stretch.size);
  });
  CHECK(committed >= 3 * kMiB + 448);
  REQUIRE(seen.size() == ledger.live.size());
  for (const auto& [pointer, block] : ledger.live)
    CHECK(seen.at(pointer).requested == block.requested);
  for (void* block : {blocks[0], blocks[1], blocks[3]}) (void)allocator.free(block);
}

TEST_CASE("While a graph is captured nothing is given back and no step ends",
          "[runtime][capture]") {
  test::SimulatedDevice device;
  Ledger ledger;
  std::atomic<int> captures{0};
  Allocator::Options with = options(ledger);
  with.captures = &captures;
  with.free_pages = Allocator::FreePages::kGoWhenExhausted;
  with.config.mode = Mode::kLearn;
  test::CheckedAllocator allocator(device, with);
  void* const block = allocator.allocate(kMiB, 0);
  (void)allocator.free(block);
  captures = 1;
  const auto waits = device.calls(test::CallKind::kSynchronizeAll);
  CHECK(allocator.trim() == 0);
  CHECK(allocator.trim() == 0);
  allocator.mark_step(0);
  allocator.process_events();
  (void)allocator.free(allocator.allocate(3 * kMiB, 0));  // fits no hole
  CHECK(device.calls(test::CallKind::kSynchronizeAll) == waits);
  CHECK(device.calls(test::CallKind::kQuery) == 0);
  captures = 0;
  CHECK(allocator.trim() > 0);
}

TEST_CASE("A step that ends while a graph is captured is in the trace", "[runtime][capture]") {
  const test::TemporaryFolder folder;
  test::SimulatedDevice device;
  Ledger ledger;
  const std::atomic<int> captures{1};
  Allocator::Options with = options(ledger);
  with.captures = &captures;
  with.config.mode = Mode::kRecord;
  with.config.trace = folder / "run.trace";
  {
    test::CheckedAllocator allocator(device, with);
    (void)allocator.free(allocator.allocate(kMiB, 0));
    allocator.mark_step(0);
  }
  const Trace trace = read_trace(with.config.trace);
  CHECK(std::any_of(trace.entries.begin(), trace.entries.end(), [](const trace::Entry& entry) {
    return std::holds_alternative<trace::StepMark>(entry.event);
  }));
}
