#include "csrc/device/metered_device.h"

#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <map>
#include <random>

using namespace berth;

namespace {

constexpr Bytes kPage = Bytes{64} << 10;

// What came and did not go.
struct Ledger final : MeteredDevice::Watcher {
  void reserved(void* base, Bytes size, MeteredDevice::Holding) noexcept override {
    bytes += size;
    last = base;
  }
  void releasing(void* base, Bytes size, MeteredDevice::Holding) noexcept override {
    bytes -= size;
    last = base;
  }
  Bytes bytes = 0;
  void* last = nullptr;
};

test::SimulatedDevice make_device(bool maps) {
  return test::SimulatedDevice({.total_bytes = 64 << 20, .page_bytes = kPage, .maps_pages = maps});
}

}  // namespace

TEST_CASE("Pages count once however often they are committed", "[device][meter]") {
  auto device = make_device(true);
  Ledger ledger;
  MeteredDevice meter(device, &ledger);
  void* base = nullptr;
  REQUIRE(meter.reserve(16 * kPage, kPage, &base).ok());
  CHECK(meter.held() == 0);
  auto* const first = static_cast<std::byte*>(base);
  REQUIRE(meter.commit(first + kPage, 2 * kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(meter.commit(first, 8 * kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(meter.commit(first, 8 * kPage, Device::Residency::kResident).ok());
  CHECK(meter.held() == 8 * kPage);
  CHECK(ledger.bytes == 8 * kPage);
  REQUIRE(meter.decommit(first + 2 * kPage, 2 * kPage).ok());
  CHECK(meter.held() == 6 * kPage);
  REQUIRE(meter.decommit(first, 8 * kPage).ok());
  CHECK(meter.held() == 0);
  REQUIRE(meter.commit(first, kPage, Device::Residency::kOnDemand).ok());
  REQUIRE(meter.release(base, 16 * kPage).ok());
  CHECK(meter.held() == 0);
  CHECK(ledger.bytes == 0);
}

TEST_CASE("A limit refuses before the device hears of the request", "[device][meter]") {
  for (const bool maps : {true, false}) {
    auto device = make_device(maps);
    MeteredDevice meter(device);
    meter.set_limit(4 * kPage);
    void* base = nullptr;
    if (maps) {
      REQUIRE(meter.reserve(16 * kPage, kPage, &base).ok());
      REQUIRE(meter.commit(base, 3 * kPage, Device::Residency::kOnDemand).ok());
      const auto calls = device.calls(test::CallKind::kCommit);
      const Status refused = meter.commit(base, 5 * kPage, Device::Residency::kOnDemand);
      CHECK(refused.code() == Status::Code::kOutOfMemory);
      CHECK(device.calls(test::CallKind::kCommit) == calls);
      CHECK(meter.commit(base, 4 * kPage, Device::Residency::kOnDemand).ok());
      REQUIRE(meter.release(base, 16 * kPage).ok());
    } else {
      REQUIRE(meter.reserve(4 * kPage, kPage, &base).ok());
      void* other = nullptr;
      CHECK(meter.reserve(kPage, kPage, &other).code() == Status::Code::kOutOfMemory);
      CHECK(meter.refusals() == 1);
      Bytes free = 1;
      REQUIRE(meter.free_bytes(&free).ok());
      CHECK(free == 0);
      REQUIRE(meter.release(base, 4 * kPage).ok());
    }
    CHECK(meter.held() == 0);
  }
}

TEST_CASE("Random commits and returns that also fail are counted as a page map counts them",
          "[device][meter][property]") {
  const unsigned seed = Catch::rngSeed() + 1;
  CAPTURE(seed);
  std::mt19937 random(seed);
  auto device = make_device(true);
  Ledger ledger;
  MeteredDevice meter(device, &ledger);
  constexpr unsigned kPages = 40;
  void* base = nullptr;
  REQUIRE(meter.reserve(kPages * kPage, kPage, &base).ok());
  std::vector<bool> pages(kPages);
  for (int round = 0; round < 4000; ++round) {
    const unsigned first = random() % kPages;
    const unsigned count = 1 + random() % (kPages - first);
    void* const at = static_cast<std::byte*>(base) + first * kPage;
    const bool commit = random() % 2 == 0;
    if (random() % 4 == 0) device.fail_call(1, {Status::Code::kFailed, "injected"});
    const Status status = commit ? meter.commit(at, count * kPage, Device::Residency::kOnDemand)
                                 : meter.decommit(at, count * kPage);
    device.fail_none();
    if (status.ok())
      for (unsigned page = first; page < first + count; ++page) pages[page] = commit;
    const Bytes expected = kPage * static_cast<Bytes>(std::count(pages.begin(), pages.end(), true));
    REQUIRE(meter.held() == expected);
    REQUIRE(ledger.bytes == expected);
  }
  REQUIRE(meter.release(base, kPages * kPage).ok());
  CHECK(meter.held() == 0);
}

TEST_CASE("Memory of others counts and is refused above the limit", "[device][meter]") {
  auto device = make_device(false);
  MeteredDevice meter(device);
  meter.set_limit(10 * kPage);
  REQUIRE(meter.take(8 * kPage).ok());
  void* base = nullptr;
  CHECK(meter.reserve(4 * kPage, kPage, &base).code() == Status::Code::kOutOfMemory);
  CHECK(meter.take(4 * kPage).code() == Status::Code::kOutOfMemory);
  CHECK(meter.held() == 8 * kPage);
  CHECK(meter.refusals() == 2);
  meter.give(8 * kPage);
  REQUIRE(meter.reserve(4 * kPage, kPage, &base).ok());
  CHECK(meter.held() == 4 * kPage);
}
