#include "csrc/device/page_store.h"

#include "csrc/device/host_device.h"
#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <map>
#include <random>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

// What came and did not go.
struct Ledger final : PageStore::Watcher {
  void reserved(void* base, Bytes size, PageStore::Holding) noexcept override {
    bytes += size;
    last = base;
  }
  void releasing(void* base, Bytes size, PageStore::Holding) noexcept override {
    bytes -= size;
    last = base;
  }
  void moved(void* to, void*, Bytes) noexcept override { last = to; }
  Bytes bytes = 0;
  void* last = nullptr;
};

test::SimulatedDevice make_device(bool maps) {
  return test::SimulatedDevice({.total_bytes = 64 << 20, .page_bytes = kPage, .maps_pages = maps});
}

}  // namespace

TEST_CASE("Pages count once however often they are committed", "[device][store]") {
  auto device = make_device(true);
  Ledger ledger;
  PageStore store(device, &ledger);
  void* base = nullptr;
  REQUIRE(store.reserve(16 * kPage, kPage, &base).ok());
  CHECK(store.held() == 0);
  auto* const first = static_cast<std::byte*>(base);
  REQUIRE(store.commit(first + kPage, 2 * kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(store.commit(first, 8 * kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(store.commit(first, 8 * kPage, Device::Residency::kResident).ok());
  CHECK(store.held() == 8 * kPage);
  CHECK(ledger.bytes == 8 * kPage);
  REQUIRE(store.decommit(first + 2 * kPage, 2 * kPage).ok());
  CHECK(store.held() == 6 * kPage);
  REQUIRE(store.decommit(first, 8 * kPage).ok());
  CHECK(store.held() == 0);
  REQUIRE(store.commit(first, kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(store.release(base, 16 * kPage).ok());
  CHECK(store.held() == 0);
  CHECK(ledger.bytes == 0);
}

TEST_CASE("A target refuses pages but for who must have them", "[device][store][target]") {
  auto device = make_device(true);
  PageStore store(device);
  void* base = nullptr;
  REQUIRE(store.reserve(16 * kPage, kPage, &base).ok());
  store.set_target(2 * kPage);
  REQUIRE(store.commit(base, 2 * kPage, Device::Residency::kOnDemand).ok());
  auto* const next = static_cast<std::byte*>(base) + 2 * kPage;
  const Status refused = store.commit(next, kPage, Device::Residency::kOnDemand);
  CHECK(refused.code() == Status::Code::kOutOfMemory);
  CHECK(store.describe(refused).find("should be held at most") != std::string::npos);
  CHECK(store.refusals() == 0);
  CHECK(store.room() == kMaxBytes);
  {
    const PageStore::Exceeding exceeding(store);
    CHECK(store.commit(next, kPage, Device::Residency::kOnDemand).ok());
  }
  CHECK(store.held() == 3 * kPage);
  CHECK(!store.commit(next + kPage, kPage, Device::Residency::kOnDemand).ok());
  store.set_target(0);
  CHECK(store.commit(next + kPage, kPage, Device::Residency::kOnDemand).ok());
}

TEST_CASE("A limit refuses before the device hears of the request", "[device][store]") {
  for (const bool maps : {true, false}) {
    auto device = make_device(maps);
    PageStore store(device);
    store.set_limit(4 * kPage);
    void* base = nullptr;
    if (maps) {
      REQUIRE(store.reserve(16 * kPage, kPage, &base).ok());
      REQUIRE(store.commit(base, 3 * kPage, Device::Residency::kOnDemand).ok());
      const auto calls = device.calls(test::CallKind::kCommit);
      const Status refused = store.commit(base, 5 * kPage, Device::Residency::kOnDemand);
      CHECK(refused.code() == Status::Code::kOutOfMemory);
      CHECK(device.calls(test::CallKind::kCommit) == calls);
      CHECK(store.commit(base, 4 * kPage, Device::Residency::kOnDemand).ok());
      REQUIRE(store.release(base, 16 * kPage).ok());
    } else {
      REQUIRE(store.reserve(4 * kPage, kPage, &base).ok());
      void* other = nullptr;
      CHECK(store.reserve(kPage, kPage, &other).code() == Status::Code::kOutOfMemory);
      CHECK(store.refusals() == 1);
      Bytes free = 1;
      REQUIRE(store.free_bytes(&free).ok());
      CHECK(free == 0);
      REQUIRE(store.release(base, 4 * kPage).ok());
    }
    CHECK(store.held() == 0);
  }
}

TEST_CASE("Random commits and returns that also fail are counted as a page map counts them",
          "[device][store][property]") {
  const unsigned seed = Catch::rngSeed() + 1;
  CAPTURE(seed);
  std::mt19937 random(seed);
  auto device = make_device(true);
  Ledger ledger;
  PageStore store(device, &ledger);
  constexpr unsigned kPages = 40;
  void* base = nullptr;
  REQUIRE(store.reserve(kPages * kPage, kPage, &base).ok());
  std::vector<bool> pages(kPages);
  for (int round = 0; round < 4000; ++round) {
    const unsigned first = random() % kPages;
    const unsigned count = 1 + random() % (kPages - first);
    void* const at = static_cast<std::byte*>(base) + first * kPage;
    const bool commit = random() % 2 == 0;
    if (random() % 4 == 0) device.fail_call(1, {Status::Code::kFailed, "injected"});
    const Status status = commit ? store.commit(at, count * kPage, Device::Residency::kOnDemand)
                                 : store.decommit(at, count * kPage);
    device.fail_none();
    if (status.ok())
      for (unsigned page = first; page < first + count; ++page) pages[page] = commit;
    const Bytes expected = kPage * static_cast<Bytes>(std::count(pages.begin(), pages.end(), true));
    REQUIRE(store.held() == expected);
    REQUIRE(ledger.bytes == expected);
  }
  REQUIRE(store.release(base, kPages * kPage).ok());
  CHECK(store.held() == 0);
}

TEST_CASE("Memory of others counts and is refused above the limit", "[device][store]") {
  auto device = make_device(false);
  PageStore store(device);
  store.set_limit(10 * kPage);
  REQUIRE(store.take(8 * kPage).ok());
  void* base = nullptr;
  CHECK(store.reserve(4 * kPage, kPage, &base).code() == Status::Code::kOutOfMemory);
  CHECK(store.take(4 * kPage).code() == Status::Code::kOutOfMemory);
  CHECK(store.held() == 8 * kPage);
  CHECK(store.refusals() == 2);
  store.give(8 * kPage);
  REQUIRE(store.reserve(4 * kPage, kPage, &base).ok());
  CHECK(store.held() == 4 * kPage);
}

TEST_CASE("A page behind several addresses counts once, until the last of them",
          "[device][store]") {
  auto device = make_device(true);
  Ledger ledger;
  PageStore store(device, &ledger);
  void* home = nullptr;
  void* away = nullptr;
  REQUIRE(store.reserve(16 * kPage, kPage, &home).ok());
  REQUIRE(store.reserve(16 * kPage, kPage, &away).ok());
  auto* const first = static_cast<std::byte*>(home);
  REQUIRE(store.commit(first, 4 * kPage, Device::Residency::kOnDemand).ok());
  const void* const from[] = {first + 3 * kPage, first + kPage};
  REQUIRE(store.alias(away, from, 2).ok());
  CHECK(store.held() == 4 * kPage);
  CHECK(device.committed() == 4 * kPage);
  REQUIRE(store.decommit(first, 4 * kPage).ok());
  CHECK(store.held() == 2 * kPage);
  CHECK(ledger.bytes == 2 * kPage);
  CHECK(device.committed() == 2 * kPage);
  SECTION("given back page by page") {
    REQUIRE(store.decommit(away, kPage).ok());
    CHECK(store.held() == kPage);
    REQUIRE(store.decommit(away, 2 * kPage).ok());
  }
  SECTION("given back with its addresses") { REQUIRE(store.release(away, 16 * kPage).ok()); }
  CHECK(store.held() == 0);
  CHECK(ledger.bytes == 0);
  CHECK(device.committed() == 0);
  CHECK(store.peak() == 4 * kPage);
}

TEST_CASE("Pages that move are held once, where they are", "[device][store]") {
  const auto device = make_host_device(64 << 20);
  const Bytes page = device->properties().page_bytes;
  if (device->properties().move_bytes == 0) return;  // before Linux 5.7
  Ledger ledger;
  PageStore store(*device, &ledger);
  void* base = nullptr;
  void* other = nullptr;
  REQUIRE(store.reserve(16 * page, page, &base).ok());
  REQUIRE(store.reserve(16 * page, page, &other).ok());
  auto* const from = static_cast<std::byte*>(base);
  auto* const to = static_cast<std::byte*>(other);
  REQUIRE(store.commit(from, 8 * page, Device::Residency::kOnDemand).ok());
  REQUIRE(store.commit(to, page, Device::Residency::kOnDemand).ok());
  REQUIRE(store.move(to + page, from + 2 * page, 3 * page).ok());
  CHECK(store.held() == 9 * page);
  CHECK(store.peak() == 9 * page);
  CHECK(ledger.bytes == 9 * page);
  CHECK(ledger.last == to + page);
  CHECK_FALSE(store.move(to + page, from, page).ok());
  CHECK(ledger.bytes == 9 * page);
  // What is there is not asked for again, what went is.
  REQUIRE(store.commit(to, 4 * page, Device::Residency::kOnDemand).ok());
  CHECK(store.held() == 9 * page);
  REQUIRE(store.commit(from, 8 * page, Device::Residency::kOnDemand).ok());
  CHECK(store.held() == 12 * page);
  REQUIRE(store.decommit(to, 2 * page).ok());
  CHECK(store.held() == 10 * page);
  REQUIRE(store.release(base, 16 * page).ok());
  REQUIRE(store.release(other, 16 * page).ok());
  CHECK(store.held() == 0);
  CHECK(ledger.bytes == 0);
}

TEST_CASE("What is left is known without a call where there is a limit, or was a refusal",
          "[device][store]") {
  auto device = make_device(true);
  PageStore store(device);
  void* base = nullptr;
  REQUIRE(store.reserve(64 * kPage, kPage, &base).ok());
  auto* const first = static_cast<std::byte*>(base);
  CHECK(store.room() == kMaxBytes);
  REQUIRE(store.commit(first, 2 * kPage, Device::Residency::kOnDemand).ok());
  device.fail_call(1, {Status::Code::kOutOfMemory, "full"}, test::CallKind::kCommit);
  CHECK_FALSE(store.commit(first, 6 * kPage, Device::Residency::kOnDemand).ok());
  CHECK(store.room() == 4 * kPage);
  store.set_limit(3 * kPage);
  CHECK(store.room() == kPage);
  store.set_limit(16 * kPage);
  // The device has more by now.
  REQUIRE(store.commit(first, 8 * kPage, Device::Residency::kOnDemand).ok());
  CHECK(store.room() == 8 * kPage);
  store.set_limit(0);
  CHECK(store.room() == kMaxBytes);
  REQUIRE(store.release(base, 64 * kPage).ok());
}

TEST_CASE("What is left is no more than the store below leaves", "[device][store]") {
  auto device = make_device(true);
  PageStore all(device), own(static_cast<Device&>(all));
  void *base = nullptr, *others = nullptr;
  REQUIRE(own.reserve(16 * kPage, kPage, &base).ok());
  REQUIRE(all.reserve(16 * kPage, kPage, &others).ok());
  all.set_limit(8 * kPage);
  REQUIRE(own.commit(base, 2 * kPage, Device::Residency::kOnDemand).ok());
  CHECK(own.room() == 6 * kPage);
  REQUIRE(all.commit(others, 4 * kPage, Device::Residency::kOnDemand).ok());
  CHECK(own.room() == 2 * kPage);
  own.set_limit(3 * kPage);
  CHECK(own.room() == kPage);
  all.set_limit(0);
  own.set_limit(0);
  CHECK(own.room() == kMaxBytes);
  REQUIRE(own.release(base, 16 * kPage).ok());
  REQUIRE(all.release(others, 16 * kPage).ok());
}
