#include "csrc/device/parked_pages.h"

#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <cstring>
#include <map>
#include <vector>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

struct Fixture {
  Fixture() {
    REQUIRE(store.reserve(32 * kPage, kPage, reinterpret_cast<void**>(&base)).ok());
    commit(0, 3);
    commit(5, 2);
    commit(9, 1);
    // Pages 5, 1 and 6 are behind 20, 21 and 22 as well, page 1 behind 30 besides.
    alias(20, {5, 1, 6});
    alias(30, {1});
    for (const auto& [page, value] : expected) std::memset(at(page), value, kPage);
  }
  std::byte* at(Bytes page) const { return base + page * kPage; }
  void commit(Bytes first, Bytes pages) {
    REQUIRE(store.commit(at(first), pages * kPage, Device::Residency::kResident).ok());
  }
  void alias(Bytes to, const std::vector<Bytes>& pages) {
    std::vector<const void*> from;
    for (const Bytes page : pages) from.push_back(at(page));
    REQUIRE(store.alias(at(to), from.data(), from.size()).ok());
  }
  void check_contents() const {
    for (const auto& [page, value] : expected) {
      CAPTURE(page);
      REQUIRE(at(page)[0] == std::byte{static_cast<unsigned char>(value)});
      REQUIRE(std::memcmp(at(page), at(page) + 1, kPage - 1) == 0);
    }
    for (const auto& [one, other] : std::map<Bytes, Bytes>{{5, 20}, {1, 21}, {6, 22}, {1, 30}}) {
      std::byte& byte = at(one)[kPage / 2];
      const std::byte before = byte;
      byte = std::byte{99};
      REQUIRE(at(other)[kPage / 2] == std::byte{99});
      byte = before;
    }
  }

  test::SimulatedDevice device{{.total_bytes = 64 << 20, .page_bytes = kPage}};
  PageStore store{device};
  ParkedPages parked{store};
  std::byte* base = nullptr;
  // Of each page of its own what it holds.
  const std::map<Bytes, int> expected = {{0, 10}, {1, 11}, {2, 12}, {5, 15}, {6, 16}, {9, 19}};
};

}  // namespace

TEST_CASE("A handle behind several addresses comes back as one", "[device][parked]") {
  test::SimulatedDevice device{{.total_bytes = 64 << 20, .page_bytes = kPage, .handles = true}};
  PageStore store{device};
  store.set_handle(kPage);
  ParkedPages parked{store};
  std::byte* base = nullptr;
  REQUIRE(store.reserve(32 * kPage, kPage, reinterpret_cast<void**>(&base)).ok());
  REQUIRE(store.commit(base, 8 * kPage, Device::Residency::kResident, 8 * kPage).ok());
  std::vector<const void*> from;
  for (Bytes page = 0; page < 8; ++page) from.push_back(base + page * kPage);
  REQUIRE(store.alias(base + 16 * kPage, from.data(), from.size()).ok());
  REQUIRE(parked.park().ok());
  REQUIRE(parked.unpark().ok());
  CHECK(store.handle_at(base).size() == 8 * kPage);
  CHECK(store.handle_at(base + 16 * kPage).size() == 8 * kPage);
  REQUIRE(store.release(base, 32 * kPage).ok());
}

TEST_CASE("Pages come back to their addresses with what they held", "[device][parked]") {
  Fixture fixture;
  const Bytes held = fixture.store.held();
  REQUIRE(held == 6 * kPage);
  for (int round = 0; round < 3; ++round) {
    REQUIRE(fixture.parked.park().ok());
    CHECK(fixture.parked.parked());
    CHECK(fixture.parked.bytes() == held);
    CHECK(fixture.store.held() == 0);
    REQUIRE(fixture.parked.unpark().ok());
    CHECK_FALSE(fixture.parked.parked());
    CHECK(fixture.store.held() == held);
    fixture.check_contents();
  }
  REQUIRE(fixture.parked.unpark().ok());  // nothing to do
}

TEST_CASE("What the device still does to the pages is done before they go", "[device][parked]") {
  Fixture fixture;
  const std::vector<std::byte> later(kPage, std::byte{77});
  REQUIRE(fixture.device.copy(fixture.at(2), later.data(), kPage, 3, nullptr).ok());
  REQUIRE(fixture.parked.park().ok());
  REQUIRE(fixture.parked.unpark().ok());
  CHECK(std::memcmp(fixture.at(2), later.data(), kPage) == 0);
}

TEST_CASE("Pages of reservations that touch are not one piece", "[device][parked]") {
  test::SimulatedDevice device{{.total_bytes = 64 << 20, .page_bytes = kPage}};
  PageStore store(device);
  ParkedPages parked(store);
  // The host gives out addresses downwards, so some pair of many touches.
  std::vector<std::byte*> bases(8);
  for (std::byte*& base : bases) {
    REQUIRE(store.reserve(4 * kPage, kPage, reinterpret_cast<void**>(&base)).ok());
    REQUIRE(store.commit(base, 4 * kPage, Device::Residency::kResident).ok());
    std::memset(base, 5, 4 * kPage);
  }
  CHECK(store.pieces().size() == bases.size());
  REQUIRE(parked.park().ok());
  REQUIRE(parked.unpark().ok());
  for (const std::byte* const base : bases) CHECK(std::memcmp(base, base + 1, 4 * kPage - 1) == 0);
  REQUIRE(store.release(bases[0], 4 * kPage).ok());
  CHECK(store.pieces().size() == bases.size() - 1);
}

TEST_CASE("A store without pages is parked, too", "[device][parked]") {
  test::SimulatedDevice device{{.page_bytes = kPage}};
  PageStore store(device);
  ParkedPages parked(store);
  REQUIRE(parked.park().ok());
  CHECK(parked.parked());
  REQUIRE(parked.unpark().ok());
  CHECK_FALSE(parked.parked());
}

TEST_CASE("Whatever call fails, what the pages held is not lost", "[device][parked]") {
  const Status failure{GENERATE(Status::Code::kFailed, Status::Code::kOutOfMemory), "test"};
  const bool all_later = GENERATE(false, true);
  for (std::uint64_t n = 1;; ++n) {
    CAPTURE(n, all_later);
    Fixture fixture;
    fixture.device.fail_call(n, failure, {}, all_later);
    Status status = fixture.parked.park();
    if (status.ok()) status = fixture.parked.unpark();
    const bool met = fixture.device.fault_met();
    if (!status.ok()) CHECK(met);  // pinned memory that cannot be given back is no failure
    fixture.device.fail_none();
    REQUIRE(fixture.parked.unpark().ok());
    CHECK(fixture.store.held() == 6 * kPage);
    fixture.check_contents();
    REQUIRE(fixture.parked.park().ok());
    REQUIRE(fixture.parked.unpark().ok());
    fixture.check_contents();
    if (!met) break;
  }
}

TEST_CASE("Pages that cannot all be given back are all there again", "[device][parked]") {
  const Status failure{GENERATE(Status::Code::kFailed, Status::Code::kOutOfMemory), "test"};
  std::uint64_t failed = 0;
  for (std::uint64_t n = 1;; ++n) {
    CAPTURE(n);
    Fixture fixture;
    const std::size_t ranges = fixture.device.live_ranges();
    fixture.device.fail_call(n, failure, test::CallKind::kDecommit);
    if (fixture.parked.park().ok()) break;
    ++failed;
    CHECK_FALSE(fixture.parked.parked());
    CHECK(fixture.store.held() == 6 * kPage);
    CHECK(fixture.device.live_ranges() == ranges);  // nothing is pinned any more
    fixture.check_contents();
  }
  CHECK(failed == 10);  // six pieces, four other addresses
}

TEST_CASE("Pages that cannot all come back are all away still", "[device][parked]") {
  using test::CallKind;
  const CallKind kind = GENERATE(CallKind::kCommit, CallKind::kAlias, CallKind::kDecommit);
  const Status failure{GENERATE(Status::Code::kFailed, Status::Code::kOutOfMemory), "test"};
  std::uint64_t failed = 0;
  for (std::uint64_t n = 1;; ++n) {
    CAPTURE(static_cast<int>(kind), n);
    Fixture fixture;
    REQUIRE(fixture.parked.park().ok());
    fixture.device.fail_call(n, failure, kind);
    if (fixture.parked.unpark().ok()) break;
    ++failed;
    CHECK(fixture.parked.parked());
    CHECK(fixture.store.held() == 0);
    fixture.device.fail_none();
    REQUIRE(fixture.parked.unpark().ok());
    CHECK(fixture.store.held() == 6 * kPage);
    fixture.check_contents();
  }
  CHECK(failed >= 4);
}
