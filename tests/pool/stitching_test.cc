#include "tests/pool/stitched_pool.h"

#include <cstring>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::kPage;
using berth::test::SimulatedDevice;
using berth::test::StitchedPool;

TEST_CASE("A block that fits in no hole is made of pieces of several", "[pool][stitching]") {
  StitchedPool f;
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
  StitchedPool f;
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
  StitchedPool f;
  f.leave_holes(8, 2 * kPage);
  const Bytes before = f.pool.reserved();
  REQUIRE(f.allocate(9 * kPage) != nullptr);
  CHECK(f.pool.reserved() == before + kPage);
}

TEST_CASE("What is over in the last page stays with its hole", "[pool][stitching]") {
  StitchedPool f;
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
  StitchedPool f;
  f.leave_holes(128, 2 * kPage, 1);
  REQUIRE(f.pool.reserved() == 256 * kPage);
  PoolBlock* const block = f.allocate(100 * kPage, 2);
  REQUIRE(block != nullptr);
  CHECK(f.device.calls(CallKind::kWait) == 1);
  CHECK(f.device.violations().empty());
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

TEST_CASE("A pool grows by no more than what is missing where it has gaps", "[pool][stitching]") {
  StitchedPool f;
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
  StitchedPool f;
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
  StitchedPool f;
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
// --- Handles of several pages -------------------------------------------------------------------

TEST_CASE("A pool grows by one handle for each growth", "[pool][stitching][handles]") {
  StitchedPool f(256 * kPage, 0, true);
  PoolBlock* const large = f.allocate(10 * kPage);
  PoolBlock* const small = f.allocate(kPage / 2);
  CHECK(f.device.calls(CallKind::kCommit) == 2);
  CHECK(f.device.handle_at(large->pointer).size() == 10 * kPage);
  CHECK(f.device.handle_at(small->pointer).size() == kPage);
  CHECK(f.device.violations().empty());
}

TEST_CASE("A block takes whole handles of several holes, and the beginning of one",
          "[pool][stitching][handles]") {
  StitchedPool f(256 * kPage, 0, true);
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

TEST_CASE("Whole handles move, the last of them with what lies behind",
          "[pool][stitching][handles]") {
  StitchedPool f(256 * kPage, 0, true);
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
