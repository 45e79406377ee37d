#include "csrc/device/address_table.h"

#include "csrc/device/noting_device.h"
#include "tests/catch.h"
#include "tests/support/simulated_device.h"

#include <cstddef>
#include <cstdint>
#include <memory>

using namespace berth;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

}  // namespace

TEST_CASE("Addresses are known by the device whose memory came there last", "[device][addresses]") {
  auto const table = std::make_unique<AddressTable>();
  const auto at = [](std::uintptr_t address) { return reinterpret_cast<const void*>(address); };
  constexpr std::uintptr_t kFar = std::uintptr_t{1} << 46;
  table->note(at(kFar), 10 * kMiB, 3);
  table->note(at(kFar + 6 * kMiB), 1, 0);
  CHECK(table->find(at(kFar - 1)) == AddressTable::kNone);
  CHECK(table->find(at(kFar)) == 3);
  CHECK(table->find(at(kFar + 6 * kMiB)) == 0);
  CHECK(table->find(at(kFar + 10 * kMiB - 1)) == 3);
  CHECK(table->find(at(kFar + 10 * kMiB)) == AddressTable::kNone);
  table->note(at(~std::uintptr_t{0} - kMiB), kMiB, 1);  // no address of a device
  CHECK(table->find(at(~std::uintptr_t{0} - kMiB)) == AddressTable::kNone);
  CHECK(table->find(nullptr) == AddressTable::kNone);
}

TEST_CASE("What a noting device reserves is known by its number", "[device][addresses]") {
  for (const bool maps : {true, false}) {
    const auto table = std::make_unique<AddressTable>();
    test::SimulatedDevice device({.total_bytes = 64 * kMiB, .maps_pages = maps});
    NotingDevice noting(device, *table, 7);
    void* base = nullptr;
    REQUIRE(noting.reserve(8 * kMiB, kMiB, &base).ok());
    CHECK(table->find(base) == 7);
    CHECK(table->find(static_cast<std::byte*>(base) + 8 * kMiB - 1) == 7);
    device.fail_call(1, {Status::Code::kOutOfMemory, "reserve"}, test::CallKind::kReserve);
    void* none = nullptr;
    CHECK(!noting.reserve(8 * kMiB, kMiB, &none).ok());
    CHECK(table->find(none) == AddressTable::kNone);
    CHECK(noting.release(base, 8 * kMiB).ok());
  }
}
