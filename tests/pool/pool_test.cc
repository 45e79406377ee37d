#include "csrc/pool/pool.h"

#include "csrc/device/host_device.h"
#include "tests/catch.h"
#include "tests/support/lone_pool.h"

#include <berth/error.h>

#include <cstring>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

Bytes address(const PoolBlock* block) { return reinterpret_cast<Bytes>(block->pointer); }

// A host device with a stand-in total, and a pool on it.
struct Fixture {
  explicit Fixture(const PoolOptions& options = {}, Bytes total = 256 * kMiB)
      : device(make_host_device(total)), pool(*device, options) {}
  ~Fixture() { CHECK(pool.is_valid() == ""); }

  PoolBlock* allocate(Bytes size, Mobility mobility = Mobility::kMovable) {
    PoolBlock* const block = pool.allocate(size, 0, mobility);
    REQUIRE(block != nullptr);
    REQUIRE(pool.is_valid() == "");
    return block;
  }

  std::unique_ptr<Device> device;
  test::LonePool pool;
};

}  // namespace

TEST_CASE("A block is as large as asked and aligned and knows its request", "[pool]") {
  Fixture fixture({.alignment = 512});
  PoolBlock* const block = fixture.pool.allocate(513, 7, Mobility::kTemporary);
  REQUIRE(block != nullptr);
  REQUIRE(block->size == 1024);
  REQUIRE(block->requested == 513);
  REQUIRE(block->lane == 7);
  REQUIRE(block->mobility == Mobility::kTemporary);
  REQUIRE(address(block) % 512 == 0);
  std::memset(block->pointer, 1, block->size);
  REQUIRE(fixture.pool.find(block->pointer) == block);
  REQUIRE(fixture.pool.contains(block->pointer));
  REQUIRE(fixture.pool.find(static_cast<char*>(block->pointer) + 64) == nullptr);
  REQUIRE(fixture.pool.find(nullptr) == nullptr);
  void* const pointer = block->pointer;
  fixture.pool.free(block);
  REQUIRE(fixture.pool.find(pointer) == nullptr);
  REQUIRE(fixture.pool.contains(pointer));
  REQUIRE_FALSE(fixture.pool.contains(&fixture));
}

TEST_CASE("Movable blocks take the lowest hole that fits and temporary ones the highest",
          "[pool][mobility]") {
  for (const Mobility mobility : {Mobility::kMovable, Mobility::kTemporary}) {
    Fixture fixture;
    PoolBlock* const first = fixture.allocate(256, mobility);
    PoolBlock* const wall = fixture.allocate(64, mobility);
    PoolBlock* const second = fixture.allocate(128, mobility);
    PoolBlock* const end = fixture.allocate(64, mobility);
    const bool low = mobility == Mobility::kMovable;
    REQUIRE((address(wall) > address(first)) == low);
    REQUIRE((address(end) > address(second)) == low);
    const Bytes hole = low ? address(first) : address(first) + 128;
    fixture.pool.free(first);
    fixture.pool.free(second);
    // The nearest hole to the end, though the other one fits to the byte.
    PoolBlock* const again = fixture.allocate(128, mobility);
    REQUIRE(address(again) == hole);
  }
}

TEST_CASE("Large blocks of whole pages begin with one and what is over serves small ones",
          "[pool]") {
  constexpr Bytes kPage = 4096;
  Fixture fixture;
  const auto large = [&](Bytes size) { return fixture.allocate(size, Mobility::kTemporary); };
  PoolBlock* const top = large(kPage / 2);
  PoolBlock* const whole = large(16 * kMiB);
  REQUIRE(address(whole) % kPage == 0);
  REQUIRE(address(whole) + whole->size == address(top) - kPage / 2);
  REQUIRE(address(large(kPage / 2)) == address(top) - kPage / 2);
  // Again without another page; not smaller ones, since transients fit each other better.
  const Bytes reserved = fixture.pool.stats().reserved;
  fixture.pool.free(whole);
  REQUIRE(address(large(16 * kMiB)) % kPage == 0);
  REQUIRE(fixture.pool.stats().reserved == reserved);
  (void)large(kPage / 2);
  REQUIRE(address(large(8 * kMiB)) % kPage == kPage / 2);
}

TEST_CASE("The two ends lie at the two ends of the range and residents apart", "[pool][mobility]") {
  Fixture fixture({.range_bytes = 64 * kMiB, .resident_growth_bytes = 8 * kMiB});
  PoolBlock* const low = fixture.allocate(2 * kMiB, Mobility::kMovable);
  PoolBlock* const high = fixture.allocate(2 * kMiB, Mobility::kTemporary);
  PoolBlock* const resident = fixture.allocate(2 * kMiB, Mobility::kResident);
  REQUIRE(address(high) + 2 * kMiB - address(low) == 64 * kMiB);
  const bool apart =
      address(resident) < address(low) || address(resident) >= address(low) + 64 * kMiB;
  REQUIRE(apart);
  REQUIRE(fixture.pool.stats().reserved == (2 + 2 + 8) * kMiB);
  REQUIRE(fixture.pool.stats().allocations[0] == 1);
  REQUIRE(fixture.pool.stats().allocations[1] == 1);
  REQUIRE(fixture.pool.stats().allocations[2] == 1);
}

TEST_CASE("Residents take the lowest hole that fits", "[pool][mobility]") {
  Fixture fixture;
  std::vector<PoolBlock*> blocks;
  for (const Bytes size : {128, 64, 256, 64, 512, 64})
    blocks.push_back(fixture.allocate(size, Mobility::kResident));
  const Bytes hole = address(blocks[2]);
  for (const int i : {0, 2, 4}) fixture.pool.free(blocks[static_cast<std::size_t>(i)]);
  REQUIRE(address(fixture.allocate(200, Mobility::kResident)) == hole);
}

TEST_CASE("One end takes the other's holes only where the pool would grow otherwise",
          "[pool][mobility]") {
  Fixture fixture;
  PoolBlock* const high = fixture.allocate(8 * kMiB, Mobility::kTemporary);
  const Bytes first = address(high);
  fixture.pool.free(high);
  PoolBlock* const grown = fixture.allocate(64, Mobility::kMovable);
  REQUIRE(address(grown) >= first);  // there is no low end yet and the hole is there
  REQUIRE(fixture.pool.stats().reserved == 8 * kMiB);
  PoolBlock* const large = fixture.allocate(8 * kMiB, Mobility::kMovable);
  REQUIRE(address(large) < first);
  fixture.pool.free(large);
  // Now the low end has holes of its own.
  REQUIRE(address(fixture.allocate(64, Mobility::kMovable)) < first);
}

TEST_CASE("Freed neighbours become one hole", "[pool]") {
  for (const Mobility mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kResident}) {
    Fixture fixture({.resident_growth_bytes = 2 * kMiB});
    std::vector<PoolBlock*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(fixture.allocate(kMiB / 2, mobility));
    REQUIRE(fixture.pool.stats().reserved == 2 * kMiB);
    for (const std::size_t i : {1u, 3u, 2u, 0u}) {
      fixture.pool.free(blocks[i]);
      REQUIRE(fixture.pool.is_valid() == "");
    }
    (void)fixture.allocate(2 * kMiB, mobility);
    REQUIRE(fixture.pool.stats().reserved == 2 * kMiB);
  }
}

TEST_CASE("The steady state calls neither the device nor touches the peak", "[pool]") {
  Fixture fixture;
  const auto step = [&] {
    std::vector<PoolBlock*> blocks;
    for (Bytes i = 1; i <= 50; ++i)
      blocks.push_back(
          fixture.allocate(i * 10000, i % 3 == 0 ? Mobility::kTemporary : Mobility::kMovable));
    for (PoolBlock* const block : blocks) fixture.pool.free(block);
  };
  step();
  const std::uint64_t calls = fixture.device->driver_calls();
  const Bytes reserved = fixture.pool.stats().reserved_peak;
  for (int i = 0; i < 3; ++i) step();
  REQUIRE(fixture.device->driver_calls() == calls);
  REQUIRE(fixture.pool.stats().reserved_peak == reserved);
  REQUIRE(fixture.pool.stats().live == 0);
}

TEST_CASE("Trimming gives every whole free page back and what is left is used again",
          "[pool][trim]") {
  for (const Mobility mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kResident}) {
    Fixture fixture({.resident_growth_bytes = 2 * kMiB});
    Pool& pool = fixture.pool;
    std::vector<PoolBlock*> blocks;
    for (int i = 0; i < 6; ++i) blocks.push_back(fixture.allocate(3 * kMiB, mobility));
    REQUIRE(pool.stats().reserved == 18 * kMiB);
    REQUIRE(pool.trim() == 0);
    for (const std::size_t i : {1u, 2u, 4u, 5u}) pool.free(blocks[i]);
    // 3..9 and 12..18 MiB are free: 4..8 and 12..18 are whole pages of 2 MiB.
    REQUIRE(pool.trim() == 10 * kMiB);
    REQUIRE(pool.is_valid() == "");
    REQUIRE(pool.stats().reserved == 8 * kMiB);
    REQUIRE(pool.trim() == 0);
    // The gap inside is filled before the area grows at its edge, and only as far as needed.
    PoolBlock* const part = fixture.allocate(2 * kMiB, mobility);
    REQUIRE(pool.stats().reserved == 10 * kMiB);
    PoolBlock* const rest = fixture.allocate(4 * kMiB, mobility);
    REQUIRE(pool.stats().reserved == 12 * kMiB);
    const Bytes low = std::min(address(blocks[0]), address(blocks[3]));
    REQUIRE((address(part) > low && address(part) < low + 9 * kMiB));
    REQUIRE((address(rest) > low && address(rest) < low + 9 * kMiB));
    for (PoolBlock* const block : {part, rest, blocks[0], blocks[3]}) pool.free(block);
    REQUIRE(pool.trim() == 12 * kMiB);
    REQUIRE(pool.stats().reserved == 0);
    REQUIRE(pool.is_valid() == "");
    (void)fixture.allocate(2 * kMiB, mobility);
  }
}

TEST_CASE("Exhaustion returns nothing and changes nothing and ends with a free", "[pool][limit]") {
  for (const Mobility mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kResident}) {
    Fixture fixture({}, 16 * kMiB);
    Pool& pool = fixture.pool;
    PoolBlock* const large = fixture.allocate(12 * kMiB, mobility);
    REQUIRE(pool.allocate(6 * kMiB, 0, mobility) == nullptr);
    REQUIRE(pool.is_valid() == "");
    REQUIRE(pool.stats().reserved <= 16 * kMiB);
    REQUIRE(pool.stats().live == 12 * kMiB);
    (void)fixture.allocate(2 * kMiB, mobility);
    pool.free(large);
    (void)fixture.allocate(8 * kMiB, mobility);
  }
}

TEST_CASE("Before it fails a request takes any end's holes", "[pool][limit]") {
  Fixture fixture({}, 16 * kMiB);
  fixture.pool.free(fixture.allocate(16 * kMiB, Mobility::kTemporary));
  PoolBlock* const resident = fixture.allocate(4 * kMiB, Mobility::kResident);
  REQUIRE(fixture.pool.stats().reserved == 16 * kMiB);
  fixture.pool.free(resident);
  REQUIRE(fixture.pool.trim() == 16 * kMiB);
  fixture.pool.free(fixture.allocate(16 * kMiB, Mobility::kResident));
  (void)fixture.allocate(16 * kMiB, Mobility::kMovable);
  REQUIRE(fixture.pool.allocate(64, 0, Mobility::kResident) == nullptr);
}

TEST_CASE("Sizes that no range holds are refused and never wrap", "[pool]") {
  Fixture fixture({.range_bytes = 64 * kMiB});
  for (const Mobility mobility : {Mobility::kMovable, Mobility::kTemporary, Mobility::kResident})
    for (const Bytes size :
         {Bytes{0}, 65 * kMiB, kMaxBytes - 64, kMaxBytes - 1, kMaxBytes, kMaxBytes + 1, ~Bytes{0}})
      REQUIRE(fixture.pool.allocate(size, 0, mobility) == nullptr);
  REQUIRE(fixture.pool.stats().reserved == 0);
}

TEST_CASE("The two ends never meet", "[pool]") {
  Fixture fixture({.range_bytes = 8 * kMiB});
  for (int i = 0; i < 4; ++i)
    (void)fixture.allocate(2 * kMiB, i % 2 == 0 ? Mobility::kMovable : Mobility::kTemporary);
  REQUIRE(fixture.pool.allocate(64, 0, Mobility::kMovable) == nullptr);
  REQUIRE(fixture.pool.allocate(64, 0, Mobility::kTemporary) == nullptr);
}

TEST_CASE("Every block is visited once", "[pool]") {
  Fixture fixture;
  for (const Mobility mobility : {Mobility::kResident, Mobility::kTemporary, Mobility::kMovable})
    for (int i = 0; i < 3; ++i) (void)fixture.allocate(1000, mobility);
  std::vector<Bytes> seen;
  fixture.pool.for_each_block([&](const PoolBlock& block) { seen.push_back(address(&block)); });
  REQUIRE(seen.size() == 9);
  std::sort(seen.begin(), seen.end());
  REQUIRE(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

TEST_CASE("The largest hole of each end is reported", "[pool]") {
  Fixture fixture;
  (void)fixture.allocate(kMiB, Mobility::kMovable);
  (void)fixture.allocate(3 * kMiB / 2, Mobility::kTemporary);
  REQUIRE(fixture.pool.stats().largest_low == kMiB);
  REQUIRE(fixture.pool.stats().largest_high == kMiB / 2);
}

TEST_CASE("Options that cannot be are refused by name", "[pool]") {
  const auto device = make_host_device(kMiB);
  REQUIRE_THROWS_WITH(test::LonePool(*device, {.alignment = 48}),
                      "the pool's alignment 48 is no power of two up to the device's page of 4096");
  REQUIRE_THROWS_AS(test::LonePool(*device, {.alignment = 0}), Error);
  REQUIRE_THROWS_AS(test::LonePool(*device, {.alignment = 8192}), Error);
  REQUIRE_THROWS_AS(test::LonePool(*device, {.growth_bytes = kMaxBytes}), Error);
  REQUIRE_THROWS_WITH(test::LonePool(*device, {.range_bytes = Bytes{1} << 59}),
                      Catch::Contains("cannot reserve") && Catch::Contains("512.0 PiB"));
}

TEST_CASE("Exactly the bytes that are asked for are handed out where they are free", "[pool]") {
  Fixture fixture({.alignment = 512});
  std::vector<PoolBlock*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(fixture.allocate(1024));
  auto* const base = static_cast<std::byte*>(blocks[0]->pointer);
  const Bytes live = fixture.pool.stats().live;
  CHECK(fixture.pool.allocate_at(base, 1024, 0) == nullptr);  // in use
  for (PoolBlock* block : {blocks[0], blocks[1], blocks[2]}) fixture.pool.free(block);
  PoolBlock* const middle = fixture.pool.allocate_at(base + 512, 1536, 0);
  REQUIRE(middle != nullptr);
  CHECK(middle->pointer == base + 512);
  CHECK(middle->size == 1536);
  CHECK(fixture.pool.is_valid() == "");
  CHECK(fixture.pool.find(base + 512) == middle);
  // What is left at its sides is free, and no more.
  CHECK(fixture.allocate(512)->pointer == base);
  CHECK(fixture.pool.allocate_at(base + 2048, 1536, 0) == nullptr);
  CHECK(fixture.allocate(1024)->pointer == base + 2048);
  CHECK(fixture.pool.stats().live == live);
}

TEST_CASE("Memory outside of what the pool has is never handed out by address", "[pool]") {
  Fixture fixture({.alignment = 512});
  PoolBlock* const block = fixture.allocate(1024);
  auto* const base = static_cast<std::byte*>(block->pointer);
  CHECK(fixture.pool.allocate_at(base + Bytes{128} * kMiB, 512, 0) == nullptr);  // no pages there
  int outside = 0;
  CHECK(fixture.pool.allocate_at(&outside, 512, 0) == nullptr);
  CHECK(fixture.pool.allocate_at(base + 1024, 0, 0) == nullptr);
}

TEST_CASE("A pinned block that is freed is nobody's until it is unpinned as often", "[pool]") {
  Fixture fixture;
  PoolBlock* const block = fixture.allocate(1024);
  void* const pointer = block->pointer;
  fixture.pool.pin(block);
  fixture.pool.pin(block);
  CHECK(fixture.pool.waits(block));
  fixture.pool.free(block);
  CHECK(fixture.pool.find(pointer) == nullptr);
  CHECK(fixture.pool.stats().live == 0);
  CHECK(fixture.pool.stats().waiting == 1024);
  CHECK(fixture.allocate(1024)->pointer != pointer);
  CHECK(fixture.pool.unpin(pointer));
  CHECK(fixture.pool.stats().waiting == 1024);
  CHECK(fixture.pool.unpin(pointer));
  CHECK_FALSE(fixture.pool.unpin(pointer));
  CHECK(fixture.pool.stats().waiting == 0);
  CHECK(fixture.pool.is_valid() == "");
  CHECK(fixture.allocate(1024)->pointer == pointer);
}

TEST_CASE("The stretches tile all memory that the pool has", "[pool]") {
  Fixture fixture({.alignment = 512});
  PoolBlock* const low = fixture.allocate(1000);
  fixture.allocate(5 * kMiB, Mobility::kTemporary);
  fixture.allocate(512, Mobility::kResident);
  PoolBlock* const pinned = fixture.allocate(2048);
  fixture.pool.free(low);
  fixture.pool.pin(pinned);
  fixture.pool.free(pinned);
  Bytes total = 0, live = 0, waiting = 0, requested = 0;
  fixture.pool.for_each_stretch([&](const Stretch& stretch) {
    const auto* at = static_cast<const std::byte*>(stretch.base);
    for (const Stretch::Piece& piece : stretch.pieces) {
      CHECK(piece.pointer == at);
      at += piece.size;
      using Kind = Stretch::Piece::Kind;
      if (piece.kind == Kind::kLive) live += piece.size, requested += piece.requested;
      if (piece.kind == Kind::kWaiting) waiting += piece.size;
    }
    CHECK(at == static_cast<const std::byte*>(stretch.base) + stretch.size);
    total += stretch.size;
  });
  CHECK(total == fixture.pool.stats().reserved);
  CHECK(live == 5 * kMiB + 512);
  CHECK(requested == live);
  CHECK(waiting == 2048);
}
