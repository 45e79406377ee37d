#include "csrc/device/host_device.h"

#include "csrc/device/page_bitmap.h"
#include "tests/catch.h"
#include "tests/support/device_contract.h"

#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

using namespace berth;
using Residency = Device::Residency;
using test::free_of;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;

// Pages of [base, base + size) that are in memory, in bytes.
Bytes resident_bytes(void* base, Bytes size) {
  std::vector<unsigned char> pages(size / 4096);
  REQUIRE(mincore(base, size, pages.data()) == 0);
  Bytes resident = 0;
  for (const unsigned char page : pages) resident += (page & 1) * Bytes{4096};
  return resident;
}

}  // namespace

TEST_CASE("The host keeps the contract of devices", "[device][contract]") {
  const auto device = make_host_device(64 * kMiB);
  test::check_device_contract(*device, 3, 4);
}

TEST_CASE("Committed memory reads as zero and keeps what is written", "[device]") {
  const auto device = make_host_device();
  void* base = nullptr;
  REQUIRE(device->reserve(8 * kMiB, 0, &base).ok());
  REQUIRE(device->commit(base, 4 * kMiB, Residency::kOnDemand).ok());
  auto* const bytes = static_cast<unsigned char*>(base);
  REQUIRE(bytes[4 * kMiB - 1] == 0);
  std::memset(base, 7, 4 * kMiB);
  REQUIRE(device->commit(base, 8 * kMiB, Residency::kResident).ok());
  REQUIRE(bytes[4 * kMiB - 1] == 7);
  REQUIRE(bytes[4 * kMiB] == 0);
  REQUIRE(device->decommit(base, 8 * kMiB).ok());
  REQUIRE(device->commit(base, 8 * kMiB, Residency::kOnDemand).ok());
  REQUIRE(bytes[0] == 0);
  REQUIRE(device->release(base, 8 * kMiB).ok());
}

TEST_CASE("A resident commit makes every page resident and one on demand makes none", "[device]") {
  const auto device = make_host_device();
  void* base = nullptr;
  REQUIRE(device->reserve(16 * kMiB, 0, &base).ok());
  REQUIRE(reinterpret_cast<Bytes>(base) % (2 * kMiB) == 0);
  REQUIRE(device->commit(base, 16 * kMiB, Residency::kOnDemand).ok());
  REQUIRE(resident_bytes(base, 16 * kMiB) == 0);
  REQUIRE(device->commit(base, 8 * kMiB, Residency::kResident).ok());
  REQUIRE(resident_bytes(base, 16 * kMiB) == 8 * kMiB);
  REQUIRE(device->decommit(base, 16 * kMiB).ok());
  REQUIRE(resident_bytes(base, 16 * kMiB) == 0);
  REQUIRE(device->release(base, 16 * kMiB).ok());
}

TEST_CASE("Touching a page never makes more resident than was committed", "[device]") {
  const auto device = make_host_device();
  void* base = nullptr;
  REQUIRE(device->reserve(4 * kMiB, 0, &base).ok());
  auto* const bytes = static_cast<unsigned char*>(base);
  REQUIRE(device->commit(base, 64 << 10, Residency::kOnDemand).ok());
  bytes[0] = 1;
  REQUIRE(resident_bytes(base, 4 * kMiB) <= Bytes{64} << 10);
  // A block that was whole once and is in parts again.
  REQUIRE(device->commit(base, 4 * kMiB, Residency::kResident).ok());
  REQUIRE(device->decommit(bytes + (64 << 10), 4 * kMiB - (64 << 10)).ok());
  REQUIRE(resident_bytes(base, 4 * kMiB) == Bytes{64} << 10);
  REQUIRE(device->commit(bytes + 2 * kMiB, 4096, Residency::kOnDemand).ok());
  bytes[2 * kMiB] = 1;
  REQUIRE(resident_bytes(base, 4 * kMiB) == (Bytes{64} << 10) + 4096);
  REQUIRE(device->release(base, 4 * kMiB).ok());
}

TEST_CASE("What moves stays resident and nothing else becomes so", "[device]") {
  const auto device = make_host_device();
  if (device->properties().move_bytes == 0) return;  // before Linux 5.7
  void* base = nullptr;
  void* other = nullptr;
  REQUIRE(device->reserve(8 * kMiB, 0, &base).ok());
  REQUIRE(device->reserve(8 * kMiB, 0, &other).ok());
  auto* const from = static_cast<unsigned char*>(base);
  auto* const to = static_cast<unsigned char*>(other);
  REQUIRE(device->commit(from, 2 * kMiB, Residency::kResident).ok());
  REQUIRE(device->commit(from + 2 * kMiB, 6 * kMiB, Residency::kOnDemand).ok());
  from[5] = 77;
  const std::uint64_t calls = device->driver_calls();
  REQUIRE(device->move(to + 4 * kMiB, from, 2 * kMiB).ok());
  REQUIRE(device->move(to + 6 * kMiB, from + 2 * kMiB, 2 * kMiB).ok());
  REQUIRE(device->driver_calls() - calls == 4);  // and what is left behind is no huge page
  REQUIRE(resident_bytes(from, 8 * kMiB) == 0);
  REQUIRE(resident_bytes(to, 8 * kMiB) == 2 * kMiB);
  REQUIRE(to[4 * kMiB + 5] == 77);
  // Over the 2 MiB that the system keeps in one piece.
  REQUIRE_FALSE(device->move(to, from + 5 * kMiB, 2 * kMiB).ok());
  REQUIRE(device->commit(from, 4096, Residency::kOnDemand).ok());
  from[0] = 1;
  REQUIRE(resident_bytes(from, 2 * kMiB) == 4096);
  REQUIRE(device->decommit(to, 8 * kMiB).ok());
  REQUIRE(resident_bytes(to, 8 * kMiB) == 0);
  REQUIRE(device->release(base, 8 * kMiB).ok());
  REQUIRE(device->release(other, 8 * kMiB).ok());
}

TEST_CASE("Committing twice counts once against a stand-in total", "[device]") {
  const auto device = make_host_device(16 * kMiB);
  REQUIRE(device->properties().total_bytes == 16 * kMiB);
  void* base = nullptr;
  REQUIRE(device->reserve(64 * kMiB, 0, &base).ok());
  REQUIRE(free_of(*device) == 16 * kMiB);
  REQUIRE(device->commit(base, 10 * kMiB, Residency::kResident).ok());
  REQUIRE(resident_bytes(base, 10 * kMiB) == 0);
  REQUIRE(device->commit(base, 12 * kMiB, Residency::kOnDemand).ok());
  REQUIRE(free_of(*device) == 4 * kMiB);
  auto* const bytes = static_cast<unsigned char*>(base);
  const Status refused = device->commit(bytes + 8 * kMiB, 9 * kMiB, Residency::kOnDemand);
  REQUIRE(refused.code() == Status::Code::kOutOfMemory);
  REQUIRE(free_of(*device) == 4 * kMiB);
  REQUIRE(device->decommit(bytes + 4 * kMiB, 20 * kMiB).ok());
  REQUIRE(device->decommit(bytes + 4 * kMiB, 20 * kMiB).ok());
  REQUIRE(free_of(*device) == 12 * kMiB);
  void* pinned = nullptr;
  REQUIRE(device->reserve_pinned(1000, &pinned).ok());
  REQUIRE(free_of(*device) == 12 * kMiB - 4096);
  REQUIRE(device->reserve_pinned(13 * kMiB, &base).code() == Status::Code::kOutOfMemory);
  REQUIRE(base == nullptr);
  REQUIRE(device->release_pinned(pinned, 1000).ok());
  REQUIRE(device->release(bytes, 64 * kMiB).ok());
  REQUIRE(free_of(*device) == 16 * kMiB);
}

TEST_CASE("A resident commit beyond what is available is out of memory and not a crash",
          "[device]") {
  const auto device = make_host_device();
  const Bytes size = align_up(device->properties().total_bytes, kMiB);
  void* base = nullptr;
  REQUIRE(device->reserve(size, 0, &base).ok());
  const Status status = device->commit(base, size, Residency::kResident);
  REQUIRE(status.code() == Status::Code::kOutOfMemory);
  REQUIRE(device->describe(status).find("commit failed on cpu: ") == 0);
  REQUIRE(resident_bytes(base, 64 * kMiB) == 0);
  REQUIRE(device->release(base, size).ok());
}

TEST_CASE("Ranges that are not the device's are refused", "[device]") {
  const auto device = make_host_device(kMiB);
  void* base = nullptr;
  for (const Bytes size : {Bytes{0}, Bytes{4095}, kMaxBytes + 4096})
    REQUIRE(device->reserve(size, 0, &base).code() == Status::Code::kFailed);
  REQUIRE(device->reserve(4096, 3, &base).code() == Status::Code::kFailed);
  REQUIRE(device->reserve(kMaxBytes, 0, &base).code() == Status::Code::kOutOfMemory);
  REQUIRE(device->reserve(8192, 0, &base).ok());
  auto* const bytes = static_cast<unsigned char*>(base);
  REQUIRE_FALSE(device->commit(bytes, 3 * 4096, Residency::kOnDemand).ok());
  REQUIRE_FALSE(device->commit(bytes + 1, 4096, Residency::kOnDemand).ok());
  REQUIRE_FALSE(device->commit(bytes - 4096, 4096, Residency::kOnDemand).ok());
  REQUIRE_FALSE(device->commit(bytes, 0, Residency::kOnDemand).ok());
  REQUIRE_FALSE(device->decommit(bytes, kMaxBytes).ok());
  REQUIRE_FALSE(device->release(bytes, 4096).ok());
  REQUIRE_FALSE(device->release_pinned(bytes, 8192).ok());
  REQUIRE(device->release(bytes, 8192).ok());
  REQUIRE_FALSE(device->release(bytes, 8192).ok());
}

TEST_CASE("Reservations keep the alignment asked for", "[device]") {
  const auto device = make_host_device(kMiB);
  for (const Bytes alignment : {Bytes{1}, Bytes{4096}, kMiB, 64 * kMiB}) {
    void* base = nullptr;
    REQUIRE(device->reserve(12288, alignment, &base).ok());
    REQUIRE(reinterpret_cast<Bytes>(base) % alignment == 0);
    REQUIRE(device->release(base, 12288).ok());
  }
}

TEST_CASE("Work on the host is complete when it was given", "[device]") {
  const auto device = make_host_device(kMiB);
  const std::vector<int> from = {1, 2, 3};
  std::vector<int> to(3);
  DeviceEvent event = 7;
  REQUIRE(device->copy(to.data(), from.data(), sizeof(int) * 3, 0, &event).ok());
  REQUIRE(to == from);
  bool complete = false;
  REQUIRE(device->query(event, &complete).ok());
  REQUIRE(complete);
  REQUIRE(device->record(3, &event).ok());
  REQUIRE(device->wait(4, event).ok());
  REQUIRE(device->synchronize(event).ok());
  REQUIRE(device->synchronize_all().ok());
  device->destroy(event);
  bool capturing = true;
  REQUIRE(device->capturing(3, &capturing).ok());
  REQUIRE_FALSE(capturing);
}

TEST_CASE("Counters of committed pages agree with a plain list under random operations",
          "[device]") {
  const unsigned seed = 20261121;
  CAPTURE(seed);
  std::mt19937 random(seed);
  constexpr std::uint64_t kPages = 700;
  PageBitmap bits(kPages);
  std::vector<bool> list(kPages, false);
  for (int i = 0; i < 5000; ++i) {
    const std::uint64_t first = random() % (kPages + 1);
    const std::uint64_t last = first + random() % (kPages - first + 1);
    std::uint64_t set = 0;
    std::uint64_t next_set = last;
    std::uint64_t next_clear = last;
    for (std::uint64_t page = last; page-- > first;) {
      set += list[page] ? 1 : 0;
      (list[page] ? next_set : next_clear) = page;
    }
    REQUIRE(bits.count(first, last) == set);
    REQUIRE(bits.next_set(first, last) == next_set);
    REQUIRE(bits.next_clear(first, last) == next_clear);
    const bool value = random() % 2 == 0;
    REQUIRE((value ? bits.set(first, last) : bits.clear(first, last)) ==
            (value ? last - first - set : set));
    for (std::uint64_t page = first; page < last; ++page) list[page] = value;
  }
}
