#include "csrc/device/page_store.h"
#include "csrc/pool/pool.h"
#include "tests/catch.h"
#include "tests/support/lone_pool.h"
#include "tests/support/simulated_device.h"

#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::SimulatedDevice;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

struct Fixture {
  explicit Fixture(Bytes memory = 256 * kPage, Bytes limit = 0, bool handles = false)
      : device({.total_bytes = memory, .page_bytes = kPage, .handles = handles}) {
    store.set_limit(limit);
  }
  SimulatedDevice device;
  PageStore store{device};
  test::LonePool pool{store, {.growth_bytes = kPage}};

  PoolBlock* allocate(Bytes size, LaneKey lane = 1) {
    PoolBlock* const block = pool.allocate(size, lane, Mobility::kTemporary);
    if (block != nullptr) device.hand_out(lane, block->pointer, block->size);
    CHECK(pool.is_valid() == "");
    return block;
  }
  void free(PoolBlock* block) {
    device.touch(block->lane, block->pointer, block->size);
    pool.free(block);
    CHECK(pool.is_valid() == "");
  }
  // Every second one of so many blocks of a size, which stay; between them are holes.
  std::vector<PoolBlock*> leave_holes(int count, Bytes size, LaneKey lane = 1) {
    std::vector<PoolBlock*> blocks, kept;
    for (int i = 0; i < count; ++i) blocks.push_back(allocate(size, lane));
    for (int i = 0; i < count; ++i) {
      if (i % 2 == 0)
        kept.push_back(blocks[static_cast<std::size_t>(i)]);
      else
        free(blocks[static_cast<std::size_t>(i)]);
    }
    return kept;
  }
  void run(LaneKey lane) {
    DeviceEvent event = 0;
    REQUIRE(device.record(lane, &event).ok());
    REQUIRE(device.synchronize(event).ok());
    device.destroy(event);
  }
};

}  // namespace

TEST_CASE("A block that fits in no hole is made of pieces of several", "[pool][stitching]") {
  Fixture f;
  f.leave_holes(8, 2 * kPage);
  const Bytes before = f.pool.reserved();
  PoolBlock* const block = f.allocate(6 * kPage);
  REQUIRE(block != nullptr);
  CHECK(f.pool.reserved() == before);
  CHECK(f.pool.stats().stitched == 1);
  CHECK(f.pool.contains(block->pointer));
  CHECK(f.pool.find(block->pointer) == block);
  // Its addresses follow each other, and its memory is nobody else's.
  std::memset(block->pointer, 0x5A, block->size);
  PoolBlock* const other = f.allocate(2 * kPage);
  std::memset(other->pointer, 0xA5, other->size);
  CHECK(static_cast<unsigned char*>(block->pointer)[6 * kPage - 1] == 0x5A);
  CHECK(static_cast<unsigned char*>(block->pointer)[0] == 0x5A);
  f.free(block);
  CHECK(f.pool.stats().live == 10 * kPage);
  CHECK(f.device.violations().empty());
}

TEST_CASE("What repeats is found again and makes no call of the device", "[pool][stitching]") {
  Fixture f;
  f.leave_holes(8, 2 * kPage);
  for (int step = 0; step < 5; ++step) {
    CAPTURE(step);
    const std::uint64_t calls = f.device.calls(CallKind::kAlias);
    PoolBlock* const large = f.allocate(5 * kPage);
    PoolBlock* const medium = f.allocate(3 * kPage);
    if (step > 0) {
      CHECK(f.device.calls(CallKind::kAlias) == calls);
    }
    f.free(large);
    f.free(medium);
    // In between others have the holes.
    PoolBlock* const small = f.allocate(kPage);
    f.free(small);
  }
  CHECK(f.device.calls(CallKind::kRecord) == 0);
  CHECK(f.device.violations().empty());
}

TEST_CASE("A pool grows by what is missing in all its holes", "[pool][stitching]") {
  Fixture f;
  f.leave_holes(8, 2 * kPage);
  const Bytes before = f.pool.reserved();
  REQUIRE(f.allocate(9 * kPage) != nullptr);
  CHECK(f.pool.reserved() == before + kPage);
}

TEST_CASE("What is over in the last page stays with its hole", "[pool][stitching]") {
  Fixture f;
  f.leave_holes(8, 2 * kPage);
  const Bytes before = f.pool.reserved();
  REQUIRE(f.allocate(5 * kPage + kPage / 4) != nullptr);
  REQUIRE(f.allocate(2 * kPage) != nullptr);
  REQUIRE(f.allocate(kPage / 2) != nullptr);
  REQUIRE(f.allocate(kPage / 4) != nullptr);
  CHECK(f.pool.reserved() == before);
}

TEST_CASE("Pages of another lane are taken before memory is out, after its event",
          "[pool][stitching][lanes]") {
  Fixture f;
  f.leave_holes(128, 2 * kPage, 1);
  REQUIRE(f.pool.reserved() == 256 * kPage);
  PoolBlock* const block = f.allocate(100 * kPage, 2);
  REQUIRE(block != nullptr);
  CHECK(f.device.calls(CallKind::kWait) == 1);
  CHECK(f.device.violations().empty());
}

TEST_CASE("Free pages move to other addresses, which need no memory of their own",
          "[pool][stitching][lanes]") {
  Fixture f;
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
  Fixture f;
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
  Fixture f;
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
  Fixture f(8 * kPage);
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
    Fixture f(96 * kPage);
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

TEST_CASE("What a lender needs later goes only where the pool may not grow", "[pool][stitching]") {
  using Spare = PageLender::Spare;
  // Spares two pages before its step is over, four for long, six with the next requests, and eight
  // now.
  struct Lender : PageLender {
    Bytes base = 0;
    std::vector<Spare> asked;
    std::vector<Bytes> lent;
    void offer(Spare spare, std::vector<ByteRange>* free) override {
      asked.push_back(spare);
      const Bytes pages = spare == Spare::kThisStep ? 2
                          : spare == Spare::kLong   ? 4
                          : spare == Spare::kSoon   ? 6
                                                    : 8;
      free->push_back({base, base + pages * kPage});
    }
    bool lend(LaneKey, ByteRange bytes) noexcept override {
      lent.push_back(bytes.first);
      return true;
    }
    void take_back(Bytes first) noexcept override { std::erase(lent, first); }
  };
  Lender lender;
  SimulatedDevice device{{.total_bytes = 256 * kPage, .page_bytes = kPage}};
  Bytes most = 0;
  PoolOptions options{.growth_bytes = kPage};
  options.may_grow = [&](Bytes more, Bytes) { return device.committed() + more <= most; };
  test::LonePool pool{device, options};
  void* base = nullptr;
  REQUIRE(device.reserve(8 * kPage, kPage, &base).ok());
  REQUIRE(device.commit(base, 8 * kPage, Device::Residency::kOnDemand).ok());
  lender.base = reinterpret_cast<Bytes>(base);
  pool.borrow_from(&lender);
  const auto allocate = [&](Bytes pages) {
    lender.asked.clear();
    PoolBlock* const block = pool.allocate(pages * kPage, 1, Mobility::kTemporary);
    REQUIRE(block != nullptr);
    CHECK(pool.is_valid() == "");
    pool.free(block);
    return lender.asked.back();
  };
  most = 8 * kPage;
  CHECK(allocate(2) == Spare::kThisStep);
  CHECK(allocate(4) == Spare::kLong);
  CHECK(allocate(6) == Spare::kSoon);
  CHECK(allocate(8) == Spare::kNow);
  CHECK(pool.reserved() == 0);
  // What is missing in the end comes from the device all the same.
  CHECK(allocate(9) == Spare::kNow);
  CHECK(pool.reserved() == kPage);
  // Where it may grow, it does rather than take what is needed in this step.
  most = 256 * kPage;
  CHECK(allocate(12) == Spare::kThisStep);
  CHECK(lender.lent.empty());
  (void)pool.trim();
  REQUIRE(device.release(base, 8 * kPage).ok());
  CHECK(device.violations().empty());
}

namespace {

// Spares bytes of pages of its own, some with each Spare.
struct PartLender : PageLender {
  explicit PartLender(SimulatedDevice& the_device, Bytes pages) : device(the_device), size(pages) {
    void* at = nullptr;
    REQUIRE(device.reserve(size * kPage, kPage, &at).ok());
    REQUIRE(device.commit(at, size * kPage, Device::Residency::kOnDemand).ok());
    base = reinterpret_cast<Bytes>(at);
  }
  ~PartLender() override { CHECK(device.release(pointer_at(base), size * kPage).ok()); }
  void offer(Spare spare, std::vector<ByteRange>* free) override {
    if (spare < from) return;
    for (const ByteRange bytes : spared) free->push_back({base + bytes.first, base + bytes.last});
  }
  bool lend(LaneKey, ByteRange bytes) noexcept override {
    lent.push_back({bytes.first - base, bytes.last - base});
    return true;
  }
  void take_back(Bytes first) noexcept override {
    std::erase_if(lent, [&](ByteRange bytes) { return bytes.first == first - base; });
  }
  SimulatedDevice& device;
  const Bytes size;
  Bytes base = 0;
  Spare from = Spare::kThisStep;
  std::vector<ByteRange> spared, lent;
};

}  // namespace

TEST_CASE("A block begins and ends within pages of the lender", "[pool][stitching][parts]") {
  SimulatedDevice device{{.total_bytes = 256 * kPage, .page_bytes = kPage}};
  PageStore store{device};
  PartLender lender(device, 4);
  // The free end of a page, a page, and the free beginning of another: no two whole pages.
  lender.spared = {{kPage / 2, 2 * kPage + kPage / 2}};
  store.set_limit(kPage);
  test::LonePool pool{store, {.growth_bytes = kPage}};
  pool.borrow_from(&lender);
  PoolBlock* const block = pool.allocate(2 * kPage, 1, Mobility::kTemporary);
  REQUIRE(block != nullptr);
  CHECK(pool.reserved() == 0);
  CHECK(lender.lent.size() == 3);
  device.hand_out(1, block->pointer, block->size);
  std::memset(block->pointer, 0x5A, block->size);
  const auto* const home = static_cast<const unsigned char*>(pointer_at(lender.base));
  CHECK(home[kPage / 2 - 1] == 0);
  CHECK(home[kPage / 2] == 0x5A);
  CHECK(home[2 * kPage + kPage / 2 - 1] == 0x5A);
  CHECK(home[2 * kPage + kPage / 2] == 0);
  device.touch(1, block->pointer, block->size);
  pool.free(block);
  CHECK(lender.lent.empty());
  CHECK(pool.is_valid() == "");
  // It is found again.
  const std::uint64_t calls = device.calls(CallKind::kAlias);
  CHECK(pool.allocate(2 * kPage, 1, Mobility::kTemporary) != nullptr);
  CHECK(device.calls(CallKind::kAlias) == calls);
  CHECK(device.violations().empty());
}

TEST_CASE("A dense block takes parts of the lender's pages before whole ones",
          "[pool][stitching][parts]") {
  for (const bool dense : {false, true}) {
    CAPTURE(dense);
    SimulatedDevice device{{.total_bytes = 256 * kPage, .page_bytes = kPage}};
    PartLender lender(device, 8);
    lender.from = PageLender::Spare::kLong;
    lender.spared = {{kPage / 2, 2 * kPage + kPage / 2}, {4 * kPage, 6 * kPage}};
    PoolOptions options{.growth_bytes = kPage};
    options.may_grow = [](Bytes, Bytes) { return false; };
    test::LonePool pool{device, options};
    pool.borrow_from(&lender);
    PoolBlock* const block = pool.allocate(2 * kPage, 1, Mobility::kTemporary,
                                           dense ? Pool::Growth::kDense : Pool::Growth::kFree);
    REQUIRE(block != nullptr);
    CHECK(pool.reserved() == 0);
    // Else the two whole pages.
    CHECK(lender.lent.front().first == (dense ? kPage / 2 : 4 * kPage));
    pool.free(block);
    CHECK(device.violations().empty());
  }
}

TEST_CASE("A pool that should not grow takes all that lies free before it does",
          "[pool][stitching]") {
  for (const bool least : {false, true}) {
    CAPTURE(least);
    SimulatedDevice device{{.total_bytes = 256 * kPage, .page_bytes = kPage}};
    PartLender lender(device, 8);
    lender.from = PageLender::Spare::kAny;
    lender.spared = {{0, 8 * kPage}};
    PoolOptions options{.growth_bytes = kPage};
    options.may_grow = [](Bytes, Bytes) { return false; };
    test::LonePool pool{device, options};
    pool.borrow_from(&lender);
    PoolBlock* const block = pool.allocate(10 * kPage, 1, Mobility::kTemporary,
                                           least ? Pool::Growth::kLeast : Pool::Growth::kDense);
    REQUIRE(block != nullptr);
    CHECK(pool.reserved() == (least ? 2 : 10) * kPage);
    CHECK(lender.lent.size() == (least ? 1 : 0));
    pool.free(block);
    CHECK(device.violations().empty());
  }
}

// A gap that trim() left has no hole beside it: the edge's hole is of no use there.
TEST_CASE("A pool grows by no more than what is missing where it has gaps", "[pool][stitching]") {
  Fixture f;
  PoolBlock* const gap = f.allocate(8 * kPage);
  REQUIRE(f.allocate(kPage) != nullptr);
  f.free(gap);
  CHECK(f.pool.trim() == 8 * kPage);
  // The gap is filled, all but for its last page.
  PoolBlock* const hole = f.allocate(2 * kPage);
  REQUIRE(f.allocate(kPage) != nullptr);
  REQUIRE(f.allocate(4 * kPage) != nullptr);
  PoolBlock* const below = f.allocate(3 * kPage);
  REQUIRE(f.allocate(9 * kPage) != nullptr);
  PoolBlock* const edge = f.allocate(4 * kPage);
  for (PoolBlock* const block : {hole, below, edge}) f.free(block);
  const Bytes before = f.pool.reserved();
  REQUIRE(f.allocate(10 * kPage) != nullptr);
  CHECK(f.pool.reserved() == before + kPage);
}

TEST_CASE("A stitched block that another lane uses waits for it", "[pool][stitching][lanes]") {
  Fixture f;
  f.leave_holes(8, 2 * kPage);
  PoolBlock* const block = f.allocate(6 * kPage);
  f.device.touch(2, block->pointer, block->size);
  f.pool.record_use(block, 2);
  f.free(block);
  CHECK(f.pool.stats().waiting == 6 * kPage);
  const Bytes before = f.pool.reserved();
  CHECK(f.allocate(6 * kPage) != nullptr);
  CHECK(f.pool.reserved() > before);
  f.run(2);
  (void)f.pool.process_events();
  CHECK(f.pool.stats().waiting == 0);
  CHECK(f.device.violations().empty());
}

TEST_CASE("All that is free goes back to the device, stitches included",
          "[pool][stitching][trim]") {
  Fixture f;
  std::vector<PoolBlock*> kept = f.leave_holes(8, 2 * kPage);
  f.free(f.allocate(6 * kPage));
  CHECK(f.pool.trim() == 8 * kPage);
  CHECK(f.device.committed() == 8 * kPage);
  for (PoolBlock* block : kept) f.free(block);
  CHECK(f.pool.trim() == 8 * kPage);
  CHECK(f.device.committed() == 0);
  CHECK(f.device.violations().empty());
}

// Holes of three quarters of a page: every second one has the last half of one page and the first
// quarter of the next, the others begin a page.
TEST_CASE("A block begins and ends within pages where memory is out", "[pool][stitching][parts]") {
  Fixture f(12 * kPage);
  std::vector<PoolBlock*> kept = f.leave_holes(16, 3 * kPage / 4);
  REQUIRE(f.pool.reserved() == 12 * kPage);
  for (PoolBlock* const block : kept) std::memset(block->pointer, 0x11, block->size);
  std::vector<PoolBlock*> made;
  for (int i = 0; i < 4; ++i) made.push_back(f.allocate(5 * kPage / 4));
  for (PoolBlock* const block : made) {
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(block->pointer) % kPage == kPage / 2);
    std::memset(block->pointer, 0x5A, block->size);
  }
  // What is left is less than a page, and of use as well.
  for (int i = 0; i < 4; ++i) {
    PoolBlock* const rest = f.allocate(kPage / 4);
    REQUIRE(rest != nullptr);
    std::memset(rest->pointer, 0xA5, rest->size);
  }
  CHECK(f.pool.stats().live == 12 * kPage);
  for (const std::vector<PoolBlock*>& blocks : {kept, made})
    for (PoolBlock* const block : blocks) {
      const auto* const bytes = static_cast<const unsigned char*>(block->pointer);
      CHECK(bytes[0] == bytes[block->size - 1]);
      CHECK(bytes[0] == (block->size == 5 * kPage / 4 ? 0x5A : 0x11));
    }
  for (PoolBlock* const block : made) f.free(block);
  const std::uint64_t calls = f.device.calls(CallKind::kAlias);
  for (int i = 0; i < 4; ++i) CHECK(f.allocate(5 * kPage / 4) != nullptr);
  CHECK(f.device.calls(CallKind::kAlias) == calls);
  CHECK(f.device.violations().empty());
}

TEST_CASE("A block below a page is made of two parts of pages", "[pool][stitching][parts]") {
  Fixture f(3 * kPage);
  f.leave_holes(6, kPage / 2);
  PoolBlock* const block = f.allocate(3 * kPage / 4);
  CHECK(block == nullptr);  // all parts begin pages
  Fixture g(6 * kPage);
  g.leave_holes(8, 3 * kPage / 4);
  PoolBlock* const two = g.allocate(7 * kPage / 8);
  REQUIRE(two != nullptr);
  std::memset(two->pointer, 0x5A, two->size);
  CHECK(g.pool.stats().stitched == 1);
  CHECK(g.pool.reserved() == 6 * kPage);
  CHECK(g.device.violations().empty());
}

// Both of its free parts would be one when what lies between them is free.
TEST_CASE("No page is behind a block twice", "[pool][stitching][parts]") {
  Fixture f(2 * kPage);
  PoolBlock* const end = f.allocate(kPage / 4);
  PoolBlock* const middle = f.allocate(kPage / 2);
  PoolBlock* const beginning = f.allocate(kPage / 4);
  REQUIRE(f.allocate(kPage) != nullptr);
  f.free(end);
  f.free(beginning);
  CHECK(f.allocate(kPage / 2) == nullptr);
  f.free(middle);
  CHECK(f.allocate(3 * kPage / 4) != nullptr);
}

TEST_CASE("Parts of pages of another lane are taken after its event",
          "[pool][stitching][parts][lanes]") {
  Fixture f(12 * kPage);
  f.leave_holes(16, 3 * kPage / 4, 1);
  PoolBlock* const block = f.allocate(5 * kPage / 4, 2);
  REQUIRE(block != nullptr);
  CHECK(f.device.calls(CallKind::kWait) == 1);
  CHECK(f.device.violations().empty());
}

// Two free ends of half a page, and three pages: four pages in all.
TEST_CASE("Where memory is scarce parts of pages go before whole ones",
          "[pool][stitching][parts]") {
  for (const bool scarce : {false, true}) {
    CAPTURE(scarce);
    Fixture f(256 * kPage, scarce ? 5 * kPage : 0);
    PoolBlock* const first = f.allocate(kPage / 2);
    REQUIRE(f.allocate(kPage / 2) != nullptr);
    PoolBlock* const second = f.allocate(kPage / 2);
    REQUIRE(f.allocate(kPage / 2) != nullptr);
    PoolBlock* const pages = f.allocate(3 * kPage);
    for (PoolBlock* const block : {first, second, pages}) f.free(block);
    for (const Bytes size : {3 * kPage / 2, 3 * kPage / 2, kPage})
      CHECK(f.allocate(size) != nullptr);
    CHECK(f.pool.reserved() == (scarce ? 5 : 6) * kPage);
    CHECK(f.pool.stats().stitched == (scarce ? 2 : 0));
    CHECK(f.device.violations().empty());
  }
}

// --- Handles of several pages -------------------------------------------------------------------

TEST_CASE("A pool grows by one handle for each growth", "[pool][stitching][handles]") {
  Fixture f(256 * kPage, 0, true);
  PoolBlock* const large = f.allocate(10 * kPage);
  PoolBlock* const small = f.allocate(kPage / 2);
  CHECK(f.device.calls(CallKind::kCommit) == 2);
  CHECK(f.device.handle_at(large->pointer).size() == 10 * kPage);
  CHECK(f.device.handle_at(small->pointer).size() == kPage);
  CHECK(f.device.violations().empty());
}

TEST_CASE("A block takes whole handles of several holes, and the beginning of one",
          "[pool][stitching][handles]") {
  Fixture f(256 * kPage, 0, true);
  PoolBlock* const five = f.allocate(5 * kPage);
  REQUIRE(f.allocate(kPage) != nullptr);
  PoolBlock* const three = f.allocate(3 * kPage);
  REQUIRE(f.allocate(kPage) != nullptr);
  f.free(five);
  f.free(three);
  PoolBlock* const block = f.allocate(7 * kPage);
  REQUIRE(block != nullptr);
  CHECK(f.pool.stats().stitched == 1);
  CHECK(f.pool.reserved() == 10 * kPage);
  std::memset(block->pointer, 0x5A, block->size);
  // What is over of the last handle is a hole, and no page of it leaves.
  PoolBlock* const rest = f.allocate(kPage);
  REQUIRE(rest != nullptr);
  CHECK(f.pool.reserved() == 10 * kPage);
  std::memset(rest->pointer, 0x11, rest->size);
  f.free(block);
  CHECK(f.pool.trim() == 5 * kPage);  // the other holds `rest`
  CHECK(f.device.violations().empty());
}

TEST_CASE("A block begins in the free end of a handle and ends in the beginning of another",
          "[pool][stitching][parts][handles]") {
  Fixture f(14 * kPage, 0, true);
  PoolBlock* const one = f.allocate(6 * kPage);
  PoolBlock* const two = f.allocate(6 * kPage);
  REQUIRE(f.allocate(2 * kPage) != nullptr);  // the device has no more
  auto* const lower = static_cast<std::byte*>(std::min(one->pointer, two->pointer));
  f.free(one);
  f.free(two);
  // Four pages are free at each side of what lives in the middle of the two handles.
  REQUIRE(f.pool.allocate_at(lower + 4 * kPage, 4 * kPage, 1) != nullptr);
  PoolBlock* const block = f.allocate(7 * kPage);
  REQUIRE(block != nullptr);
  std::memset(block->pointer, 0x5A, block->size);
  CHECK(lower[4 * kPage - 1] == std::byte{0});
  CHECK(lower[0] == std::byte{0x5A});
  CHECK(lower[12 * kPage - 1] == std::byte{0x5A});
  CHECK(f.device.violations().empty());
}

TEST_CASE("Whole handles move, the last of them with what lies behind",
          "[pool][stitching][handles]") {
  Fixture f(256 * kPage, 0, true);
  PoolBlock* const four = f.allocate(4 * kPage);
  REQUIRE(f.allocate(kPage) != nullptr);
  PoolBlock* const three = f.allocate(3 * kPage);
  f.free(four);
  f.free(three);
  void* to = nullptr;
  REQUIRE(f.store.reserve(16 * kPage, kPage, &to).ok());
  CHECK(f.pool.move_pages(to, 2, 2, 1, false) == 0);  // none is as small
  CHECK(f.pool.move_pages(to, 2, 5, 1, false) == 3);  // the smaller one
  CHECK(f.device.handle_at(to).size() == 3 * kPage);
  CHECK(f.pool.move_pages(static_cast<std::byte*>(to) + 3 * kPage, 9, 9, 1, false) == 4);
  CHECK(f.pool.reserved() == kPage);
  CHECK(f.pool.is_valid() == "");
  f.run(1);
  f.pool.process_events();
  CHECK(f.device.committed() == 8 * kPage);
  CHECK(f.device.violations().empty());
}

TEST_CASE("A dense block takes the hole that leaves least in parts of pages",
          "[pool][stitching][parts]") {
  for (const bool dense : {false, true}) {
    CAPTURE(dense);
    Fixture f;
    PoolBlock* const whole = f.allocate(4 * kPage);
    REQUIRE(f.allocate(kPage) != nullptr);
    PoolBlock* const exact = f.allocate(kPage + kPage / 2);
    REQUIRE(f.allocate(kPage / 2) != nullptr);
    void* const there = exact->pointer;
    f.free(whole);
    f.free(exact);
    const PoolBlock* const block =
        f.pool.allocate(kPage + kPage / 2, 1, Mobility::kTemporary,
                        dense ? Pool::Growth::kDense : Pool::Growth::kFree);
    REQUIRE(block != nullptr);
    CHECK((block->pointer == there) == dense);
    CHECK(f.pool.is_valid() == "");
  }
}

TEST_CASE("A tight block takes parts of pages before a hole that it would leave in parts",
          "[pool][stitching][parts]") {
  for (const bool tight : {false, true}) {
    CAPTURE(tight);
    Fixture f;
    PoolBlock* const whole = f.allocate(3 * kPage);
    REQUIRE(f.allocate(kPage / 2) != nullptr);
    PoolBlock* const part = f.allocate(kPage / 2);
    REQUIRE(f.allocate(kPage) != nullptr);
    f.free(whole);
    f.free(part);
    const Bytes before = f.pool.parts();
    REQUIRE(before == kPage / 2);
    const auto growth = tight ? Pool::Growth::kTight : Pool::Growth::kDense;
    REQUIRE(f.pool.allocate(kPage + kPage / 2, 1, Mobility::kTemporary, growth) != nullptr);
    CHECK(f.pool.stats().stitched == (tight ? 1 : 0));
    CHECK(f.pool.parts() == (tight ? 0 : kPage));
    CHECK(f.pool.is_valid() == "");
  }
}

TEST_CASE("A tight block takes a hole that it leaves no part of before parts of pages",
          "[pool][stitching][parts]") {
  Fixture f;
  PoolBlock* const whole = f.allocate(3 * kPage);
  REQUIRE(f.allocate(kPage / 2) != nullptr);
  PoolBlock* const part = f.allocate(kPage / 2);
  REQUIRE(f.allocate(kPage) != nullptr);
  PoolBlock* const exact = f.allocate(kPage + kPage / 2);
  REQUIRE(f.allocate(kPage / 2) != nullptr);
  const void* const there = exact->pointer;
  for (PoolBlock* const block : {whole, part, exact}) f.free(block);
  const PoolBlock* const block =
      f.pool.allocate(kPage + kPage / 2, 1, Mobility::kTemporary, Pool::Growth::kTight);
  REQUIRE(block != nullptr);
  CHECK(block->pointer == there);
  CHECK(f.pool.stats().stitched == 0);
  CHECK(f.pool.is_valid() == "");
}
