#include "tests/pool/stitched_pool.h"

#include <cstring>
#include <vector>

using namespace berth;
using berth::test::CallKind;
using berth::test::kPage;
using berth::test::SimulatedDevice;
using berth::test::StitchedPool;

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
TEST_CASE("A block begins and ends within pages where memory is out", "[pool][stitching][parts]") {
  StitchedPool f(12 * kPage);
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
  StitchedPool f(3 * kPage);
  f.leave_holes(6, kPage / 2);
  PoolBlock* const block = f.allocate(3 * kPage / 4);
  CHECK(block == nullptr);  // all parts begin pages
  StitchedPool g(6 * kPage);
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
  StitchedPool f(2 * kPage);
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
  StitchedPool f(12 * kPage);
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
    StitchedPool f(256 * kPage, scarce ? 5 * kPage : 0);
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

TEST_CASE("A block begins in the free end of a handle and ends in the beginning of another",
          "[pool][stitching][parts][handles]") {
  StitchedPool f(14 * kPage, 0, true);
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

TEST_CASE("A dense block takes the hole that leaves least in parts of pages",
          "[pool][stitching][parts]") {
  for (const bool dense : {false, true}) {
    CAPTURE(dense);
    StitchedPool f;
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
    StitchedPool f;
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
  StitchedPool f;
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
