#include "tests/pool/stitched_pool.h"

#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::kPage;
using berth::test::StitchedPool;

TEST_CASE("Free pages move to other addresses, which need no memory of their own",
          "[pool][stitching][lanes]") {
  StitchedPool f;
  const std::vector<PoolBlock*> kept = f.leave_holes(8, 2 * kPage);
  void* to = nullptr;
  REQUIRE(f.device.reserve(8 * kPage, kPage, &to).ok());
  const Bytes held = f.device.committed();
  PoolBlock* const gone = f.allocate(6 * kPage);
  f.free(gone);
  CHECK(f.pool.move_pages(to, 5, 5, 1, false) == 5);
  CHECK(f.device.committed() == held);
  CHECK(f.pool.reserved() == held - 5 * kPage);
  CHECK(f.pool.is_valid() == "");
  f.device.hand_out(1, to, 5 * kPage);
  // The stitch over them is not found again, and their old addresses are unmapped after the lane.
  (void)f.pool.process_events();
  CHECK(f.device.calls(CallKind::kDecommit) == 0);
  CHECK(f.allocate(6 * kPage) != nullptr);
  f.run(1);
  (void)f.pool.process_events();
  CHECK(f.pool.is_valid() == "");
  CHECK(f.device.calls(CallKind::kDecommit) > 0);
  CHECK(f.device.violations().empty());
  REQUIRE(f.device.release(to, 8 * kPage).ok());
}

TEST_CASE("A stitch of pages that have moved is not used again when others come to their home",
          "[pool][stitching]") {
  StitchedPool f;
  const std::vector<PoolBlock*> kept = f.leave_holes(8, 2 * kPage);
  void* to = nullptr;
  REQUIRE(f.device.reserve(8 * kPage, kPage, &to).ok());
  f.free(f.allocate(6 * kPage));
  REQUIRE(f.pool.move_pages(to, 8, 8, 1, false) == 8);
  f.device.hand_out(1, to, 8 * kPage);
  std::memset(to, 1, 8 * kPage);
  f.run(1);
  (void)f.pool.process_events();
  // New pages at the addresses that the others had.
  std::vector<PoolBlock*> again;
  for (int i = 0; i < 4; ++i) again.push_back(f.allocate(2 * kPage));
  for (PoolBlock* const block : again) f.free(block);
  PoolBlock* const block = f.allocate(6 * kPage);
  std::memset(block->pointer, 2, block->size);
  const std::vector<char> moved(8 * kPage, 1);
  CHECK(std::memcmp(to, moved.data(), moved.size()) == 0);
  CHECK(f.device.violations().empty());
  REQUIRE(f.device.release(to, 8 * kPage).ok());
}

TEST_CASE("Pages move for another lane after an event of those that had them",
          "[pool][stitching][lanes]") {
  StitchedPool f;
  f.leave_holes(8, 2 * kPage, 1);
  void* to = nullptr;
  REQUIRE(f.device.reserve(8 * kPage, kPage, &to).ok());
  CHECK(f.pool.move_pages(to, 8, 8, 2, false) == 0);
  const std::uint64_t events = f.device.calls(CallKind::kRecord);
  CHECK(f.pool.move_pages(to, 8, 8, 2, true) == 8);
  // One that lane 2 waits for, and one after which nothing uses the addresses of the four
  // stretches.
  CHECK(f.device.calls(CallKind::kRecord) == events + 2);
  f.device.hand_out(2, to, 8 * kPage);
  CHECK(f.device.violations().empty());
  REQUIRE(f.device.release(to, 8 * kPage).ok());
}

// Free pages of two lanes are two holes, however they lie.
TEST_CASE("Neighbouring pages of two lanes move as what they are", "[pool][stitching][lanes]") {
  StitchedPool f(8 * kPage);
  PoolBlock* const both = f.allocate(4 * kPage, 1);
  PoolBlock* const behind = f.allocate(4 * kPage, 1);
  f.free(both);
  // The other lane has no memory but the rest of that.
  PoolBlock* const one = f.allocate(2 * kPage, 1);
  PoolBlock* const two = f.allocate(2 * kPage, 2);
  const auto apart = static_cast<std::byte*>(one->pointer) - static_cast<std::byte*>(two->pointer);
  REQUIRE(std::abs(apart) == static_cast<std::ptrdiff_t>(2 * kPage));
  f.free(one);
  f.free(two);
  void* to = nullptr;
  REQUIRE(f.device.reserve(4 * kPage, kPage, &to).ok());
  CHECK(f.pool.move_pages(to, 4, 4, 3, true) == 4);
  CHECK(f.pool.is_valid() == "");
  CHECK(f.pool.reserved() == 4 * kPage);
  f.device.hand_out(3, to, 4 * kPage);
  for (const LaneKey lane : {1, 2, 3}) f.run(lane);
  (void)f.pool.process_events();
  CHECK(f.pool.is_valid() == "");
  CHECK(f.allocate(kPage, 2) == nullptr);  // the device has no more
  f.free(behind);
  CHECK(f.allocate(4 * kPage, 2) != nullptr);
  CHECK(f.device.violations().empty());
  REQUIRE(f.device.release(to, 4 * kPage).ok());
}

TEST_CASE("Pages move out of random pools of several lanes, and nothing else does",
          "[pool][stitching][lanes]") {
  constexpr int kRounds = 60, kCalls = 250;
  constexpr std::size_t kMostMoved = 12;  // pages at once
  int moves = 0;
  for (int round = 0; round < kRounds; ++round) {
    CAPTURE(round);
    std::mt19937 random(static_cast<unsigned>(round));
    StitchedPool f(96 * kPage);
    struct Moved {
      void* to = nullptr;
      LaneKey lane = 0;
    };
    std::vector<PoolBlock*> live;
    std::vector<Moved> moved;
    const auto end_move = [&](const Moved& one) {
      f.run(one.lane);
      REQUIRE(f.device.release(one.to, kMostMoved * kPage).ok());
    };
    for (int call = 0; call < kCalls; ++call) {
      const LaneKey lane = 1 + random() % 3;
      switch (random() % 8) {
        case 0: {
          Moved one{nullptr, lane};
          const std::size_t pages = 1 + random() % kMostMoved;
          REQUIRE(f.device.reserve(kMostMoved * kPage, kPage, &one.to).ok());
          const std::size_t came =
              f.pool.move_pages(one.to, pages, kMostMoved, lane, random() % 2 == 0);
          REQUIRE(f.pool.is_valid() == "");
          if (came != 0) f.device.hand_out(lane, one.to, came * kPage);
          moves += came != 0;
          moved.push_back(one);
          break;
        }
        case 1:
          if (moved.empty()) break;
          std::swap(moved[random() % moved.size()], moved.back());
          end_move(moved.back());
          moved.pop_back();
          break;
        case 2:
          f.run(lane);
          (void)f.pool.process_events();
          break;
        case 3:
        case 4:
        case 5:
          if (PoolBlock* const block =
                  f.allocate((1 + random() % 5) * kPage / (1 + random() % 2), lane))
            live.push_back(block);
          break;
        default:
          if (live.empty()) break;
          std::swap(live[random() % live.size()], live.back());
          f.free(live.back());
          live.pop_back();
      }
      REQUIRE(f.pool.is_valid() == "");
    }
    for (PoolBlock* const block : live) f.free(block);
    for (const Moved& one : moved) end_move(one);
    REQUIRE(f.device.violations().empty());
  }
  CHECK(moves > 500);
}
