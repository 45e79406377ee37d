#include "csrc/device/held_memory.h"

#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <random>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

// What is told of it: as many stretches and bytes as there are.
struct Told final : HeldMemory::Listener {
  void reserved(void*, Bytes size, HeldMemory::Holding, int more) noexcept override {
    bytes += size;
    stretches += more;
  }
  void releasing(void*, Bytes size, HeldMemory::Holding, int more) noexcept override {
    bytes -= size;
    stretches += more;
  }
  void moved(void*, void*, Bytes, int more) noexcept override { stretches += more; }
  Bytes bytes = 0;
  int stretches = 0;
};

struct Fixture {
  explicit Fixture(bool maps = true)
      : device({.total_bytes = 64 << 20, .page_bytes = kPage, .maps_pages = maps}) {}

  std::byte* reserve(Bytes pages) {
    void* base = nullptr;
    REQUIRE(store.reserve(pages * kPage, kPage, &base).ok());
    return static_cast<std::byte*>(base);
  }
  void commit(std::byte* at, Bytes pages) {
    REQUIRE(store.commit(at, pages * kPage, Device::Residency::kOnDemand).ok());
    check();
  }
  void decommit(std::byte* at, Bytes pages) {
    REQUIRE(store.decommit(at, pages * kPage).ok());
    check();
  }
  void alias(std::byte* to, std::byte* from, Bytes pages) {
    std::vector<const void*> sources;
    for (Bytes page = 0; page < pages; ++page) sources.push_back(from + page * kPage);
    REQUIRE(store.alias(to, sources.data(), pages).ok());
    check();
  }
  void check() {
    CHECK(held.bytes() == store.held());
    CHECK(held.bytes() == device.committed());
    CHECK(told.bytes == held.bytes());
    CHECK(told.stretches == static_cast<int>(held.count()));
    Bytes sum = 0;
    for (const ByteRange stretch : held.stretches()) sum += stretch.size();
    CHECK(sum == held.bytes());
  }

  test::SimulatedDevice device;
  Told told;
  HeldMemory held{&told};
  PageStore store{device, &held};
};

ByteRange pages(const std::byte* base, Bytes first, Bytes last) {
  const Bytes at = reinterpret_cast<Bytes>(base);
  return {at + first * kPage, at + last * kPage};
}

}  // namespace

TEST_CASE("A stretch that comes at once and goes in pieces counts until its last piece",
          "[device][held]") {
  Fixture f;
  std::byte* const base = f.reserve(16);
  f.commit(base, 8);
  CHECK(f.held.count() == 1);
  f.decommit(base + 2 * kPage, 2);
  CHECK(f.held.count() == 2);
  f.commit(base + 8 * kPage, 2);
  CHECK(f.held.stretches() == std::vector{pages(base, 0, 2), pages(base, 4, 10)});
  f.decommit(base, 3);
  CHECK(f.held.count() == 1);
  f.decommit(base, 16);
  CHECK(f.held.count() == 0);
  f.commit(base, 2);
  REQUIRE(f.store.release(base, 16 * kPage).ok());
  f.check();
  CHECK(f.held.count() == 0);
}

TEST_CASE("Stretches of two reservations stay two where they touch", "[device][held]") {
  HeldMemory held;
  const auto at = [](Bytes address) { return reinterpret_cast<void*>(address); };
  held.addresses_reserved(at(1000), 1000);
  held.addresses_reserved(at(2000), 1000);
  held.reserved(at(1000), 1000, HeldMemory::Holding::kPages);
  held.reserved(at(2000), 1000, HeldMemory::Holding::kPages);
  CHECK(held.count() == 2);
  held.reserved(at(3000), 500, HeldMemory::Holding::kReservation);
  CHECK(held.count() == 3);
  held.releasing(at(2000), 1000, HeldMemory::Holding::kPages);
  held.addresses_released(at(2000), 1000);
  held.releasing(at(3000), 500, HeldMemory::Holding::kReservation);
  CHECK(held.stretches() == std::vector<ByteRange>{{1000, 2000}});
}

TEST_CASE("Memory that comes with its addresses is a stretch a reservation", "[device][held]") {
  Fixture f(false);
  std::vector<std::byte*> bases;
  for (int i = 0; i < 4; ++i) {
    bases.push_back(f.reserve(2));
    CHECK(f.held.count() == bases.size());
  }
  f.device.fail_call(1, {Status::Code::kFailed, "injected"}, test::CallKind::kRelease);
  CHECK_FALSE(f.store.release(bases[0], 2 * kPage).ok());
  CHECK(f.held.count() == 4);
  for (std::byte* const base : bases) REQUIRE(f.store.release(base, 2 * kPage).ok());
  CHECK(f.held.count() == 0);
  CHECK(f.told.stretches == 0);
}

TEST_CASE("Another address of a page is told only when it is in use there", "[device][held]") {
  Fixture f;
  std::byte* const home = f.reserve(8);
  std::byte* const away = f.reserve(8);
  f.commit(home, 4);
  f.alias(away, home, 2);
  CHECK(f.held.stretches() == std::vector{pages(home, 0, 4)});
  SECTION("as while a stitched block lives there") {
    f.held.moved(away, home, 2 * kPage - 512);
    f.check();
    CHECK(f.held.count() == 2);
    f.held.moved(home, away, 2 * kPage - 512);
    f.decommit(away, 2);
    CHECK(f.held.stretches() == std::vector{pages(home, 0, 4)});
    f.decommit(home, 4);
  }
  SECTION("as where pages move for good") {
    f.store.use_at(away, home, 2 * kPage);
    f.check();
    CHECK(f.held.count() == 2);
    f.decommit(home, 2);
    CHECK(f.held.bytes() == 4 * kPage);
    f.decommit(away, 2);
    f.decommit(home, 4);
  }
  SECTION("or when it is the last one") {
    f.decommit(home, 4);
    CHECK(f.held.stretches() == std::vector{pages(away, 0, 2)});
    f.decommit(away, 8);
  }
  SECTION("and not where both go at once") {
    f.alias(away + 4 * kPage, home, 1);
    f.decommit(home, 4);
    f.decommit(away, 8);
  }
  CHECK(f.held.count() == 0);
  CHECK(f.held.bytes() == 0);
}

TEST_CASE(
    "Whatever pages do, and whatever fails, each that is held is in use at one of its addresses",
    "[device][held][property]") {
  const unsigned seed = Catch::rngSeed() + 1;
  CAPTURE(seed);
  std::mt19937 random(seed);
  Fixture f;
  constexpr unsigned kPages = 24;
  std::byte* const base = f.reserve(kPages);
  std::vector<int> memory(kPages);  // behind each address, 0: none
  std::map<int, unsigned> used_at;
  int last = 0;
  for (int round = 0; round < 4000; ++round) {
    CAPTURE(round);
    const unsigned first = random() % kPages, count = 1 + random() % (kPages - first);
    std::byte* const at = base + first * kPage;
    const bool fails = random() % 5 == 0;
    if (fails) f.device.fail_call(1, {Status::Code::kFailed, "injected"});
    switch (random() % 4) {
      case 0:
        if (f.store.commit(at, count * kPage, Device::Residency::kOnDemand).ok())
          for (unsigned page = first; page < first + count; ++page) {
            if (memory[page] != 0) continue;
            memory[page] = ++last;
            used_at[last] = page;
          }
        break;
      case 1:
        if (f.store.decommit(at, count * kPage).ok())
          for (unsigned page = first; page < first + count; ++page) memory[page] = 0;
        break;
      case 2: {
        const unsigned from = random() % kPages;
        const void* const source = base + from * kPage;
        if (memory[from] == 0 || memory[first] != 0) break;
        if (f.store.alias(at, &source, 1).ok()) memory[first] = memory[from];
        break;
      }
      case 3: {
        if (memory[first] == 0) break;
        const unsigned now = used_at[memory[first]];
        if (now == first) break;
        f.store.use_at(at, base + now * kPage, kPage);
        used_at[memory[first]] = first;
        break;
      }
    }
    f.device.fail_none();
    // One of its addresses, the same as before where that was not to go.
    std::map<int, std::vector<unsigned>> users;
    for (unsigned page = 0; page < kPages; ++page)
      if (memory[page] != 0) users[memory[page]].push_back(page);
    REQUIRE(f.held.bytes() == users.size() * kPage);
    REQUIRE(f.store.held() == f.held.bytes());
    REQUIRE(f.told.bytes == f.held.bytes());
    REQUIRE(f.told.stretches == static_cast<int>(f.held.count()));
    std::vector<bool> in_use(kPages);
    for (const ByteRange stretch : f.held.stretches())
      for (unsigned page = 0; page < kPages; ++page)
        if (const ByteRange one = pages(base, page, page + 1); stretch.touches(one))
          in_use[page] = true;
    for (const auto& [one, addresses] : users) {
      std::vector<unsigned> used;
      std::copy_if(addresses.begin(), addresses.end(), std::back_inserter(used),
                   [&](unsigned page) { return in_use[page]; });
      REQUIRE(used.size() == 1);
      if (!fails && std::find(addresses.begin(), addresses.end(), used_at[one]) != addresses.end())
        REQUIRE(used[0] == used_at[one]);
      used_at[one] = used[0];
    }
  }
  REQUIRE(f.store.release(base, kPages * kPage).ok());
  CHECK(f.held.bytes() == 0);
  CHECK(f.held.count() == 0);
  CHECK(f.told.stretches == 0);
}
