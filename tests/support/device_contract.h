#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"
#include "tests/catch.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace berth::test {

inline Bytes free_of(Device& device) {
  Bytes free = 0;
  REQUIRE(device.free_bytes(&free).ok());
  return free;
}

// Bytes of `from` at `to`, when the call returns. Both may be the device's.
inline void copy_now(Device& device, void* to, const void* from, Bytes size, LaneKey lane) {
  DeviceEvent done = 0;
  const Status status = device.copy(to, from, size, lane, &done);
  CAPTURE(device.describe(status));
  REQUIRE(status.ok());
  REQUIRE(device.synchronize(done).ok());
  device.destroy(done);
}

// What is the same for every device, as Device's comments have it. One call a section of the test
// case that it stands in, which names the device.
//
// `device` has at least 16 pages or 64 MiB, whichever is more, and nobody else takes memory of it.
// `lane` and `other` are two of its lanes.
inline void check_device_contract(Device& device, LaneKey lane, LaneKey other) {
  using Residency = Device::Residency;
  const DeviceProperties& properties = device.properties();
  const Bytes page = properties.page_bytes;
  const Bytes size = 4 * page;
  void* base = nullptr;

  SECTION("Committed memory keeps what is copied to it") {
    void* pinned = nullptr;
    REQUIRE(device.reserve_pinned(2 * size, &pinned).ok());
    auto* const bytes = static_cast<unsigned char*>(pinned);
    REQUIRE(device.reserve(size, 0, &base).ok());
    for (const Residency residency : {Residency::kOnDemand, Residency::kResident}) {
      REQUIRE(device.commit(base, size, residency).ok());
      for (Bytes i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i % 251);
      copy_now(device, base, bytes, size, lane);
      REQUIRE(device.commit(base, size, residency).ok());  // no error, and changes nothing
      copy_now(device, bytes + size, base, size, other);
      REQUIRE(std::memcmp(bytes, bytes + size, size) == 0);
    }
    REQUIRE(device.release(base, size).ok());
    REQUIRE(device.release_pinned(pinned, 2 * size).ok());
  }

  SECTION("Ranges that are not the device's are refused") {
    for (const Bytes wrong : {Bytes{0}, page - 1, kMaxBytes + page})
      REQUIRE(device.reserve(wrong, 0, &base).code() == Status::Code::kFailed);
    REQUIRE(device.reserve(page, 3, &base).code() == Status::Code::kFailed);
    REQUIRE(base == nullptr);
    REQUIRE(device.reserve(2 * page, 0, &base).ok());
    auto* const bytes = static_cast<std::byte*>(base);
    REQUIRE_FALSE(device.commit(bytes, 3 * page, Residency::kOnDemand).ok());
    REQUIRE_FALSE(device.commit(bytes - page, page, Residency::kOnDemand).ok());
    REQUIRE_FALSE(device.commit(bytes, 0, Residency::kOnDemand).ok());
    REQUIRE_FALSE(device.decommit(bytes, kMaxBytes).ok());
    REQUIRE_FALSE(device.release(bytes, page).ok());
    REQUIRE_FALSE(device.release(bytes + page, page).ok());
    REQUIRE_FALSE(device.release_pinned(bytes, 2 * page).ok());
    REQUIRE(device.release(bytes, 2 * page).ok());
    REQUIRE_FALSE(device.release(bytes, 2 * page).ok());
  }

  SECTION("Reservations keep the alignment asked for") {
    for (const Bytes alignment : {Bytes{1}, page, 4 * page, Bytes{8} << 20}) {
      REQUIRE(device.reserve(3 * page, alignment, &base).ok());
      REQUIRE(reinterpret_cast<Bytes>(base) % alignment == 0);
      REQUIRE(device.commit(base, 3 * page, Residency::kOnDemand).ok());
      REQUIRE(device.release(base, 3 * page).ok());
    }
  }

  SECTION("Memory counts once however often it is committed") {
    const Bytes all = free_of(device);
    REQUIRE(device.reserve(size, 0, &base).ok());
    REQUIRE(device.commit(base, size, Residency::kOnDemand).ok());
    const Bytes left = free_of(device);
    REQUIRE(all - left >= size);
    REQUIRE(device.commit(base, size, Residency::kOnDemand).ok());
    REQUIRE(free_of(device) == left);
    auto* const half = static_cast<std::byte*>(base) + size / 2;
    if (properties.maps_pages) {
      for (int i = 0; i < 2; ++i) {
        REQUIRE(device.decommit(half, size / 2).ok());
        REQUIRE(free_of(device) == all - size / 2);
      }
      REQUIRE(device.commit(base, size, Residency::kOnDemand).ok());
      REQUIRE(free_of(device) == left);
    } else {
      REQUIRE(device.decommit(half, size / 2).code() == Status::Code::kUnsupported);
    }
    REQUIRE(device.release(base, size).ok());
    REQUIRE(free_of(device) == all);
  }

  SECTION("More than there is is out of memory and takes nothing") {
    const Bytes all = free_of(device);
    const Bytes more = align_up(all, page) + page;
    Status status = device.reserve(more, 0, &base);
    if (properties.maps_pages) {
      REQUIRE(status.ok());
      status = device.commit(base, more, Residency::kResident);
    }
    REQUIRE(status.code() == Status::Code::kOutOfMemory);
    REQUIRE(device.describe(status).find(status.call()) == 0);
    REQUIRE(free_of(device) == all);
    if (base != nullptr) REQUIRE(device.release(base, more).ok());
  }

  SECTION("Work is over when its event is, and no event is complete") {
    DeviceEvent first = 0;
    DeviceEvent second = 0;
    REQUIRE(device.record(lane, &first).ok());
    REQUIRE(device.wait(other, first).ok());
    REQUIRE(device.record(other, &second).ok());
    REQUIRE(device.synchronize(second).ok());
    bool complete = false;
    for (const DeviceEvent event : {first, second, DeviceEvent{0}}) {
      complete = false;
      REQUIRE(device.query(event, &complete).ok());
      REQUIRE(complete);
      REQUIRE(device.wait(lane, event).ok());
      REQUIRE(device.synchronize(event).ok());
      device.destroy(event);
    }
    REQUIRE(device.synchronize_all().ok());
    bool capturing = true;
    REQUIRE(device.capturing(lane, &capturing).ok());
    REQUIRE_FALSE(capturing);
  }

  SECTION("Pinned memory is given back by the size it was asked for") {
    for (const Bytes wrong : {Bytes{0}, kMaxBytes + 1})
      REQUIRE(device.reserve_pinned(wrong, &base).code() == Status::Code::kFailed);
    REQUIRE(device.reserve_pinned(1000, &base).ok());
    std::memset(base, 1, 1000);
    REQUIRE_FALSE(device.release_pinned(base, 9999).ok());
    REQUIRE(device.release_pinned(base, 1000).ok());
    REQUIRE_FALSE(device.release_pinned(base, 1000).ok());
  }

  SECTION("Calls are counted") {
    const std::uint64_t before = device.driver_calls();
    REQUIRE(device.reserve(page, 0, &base).ok());
    REQUIRE(device.driver_calls() > before);
    REQUIRE(device.release(base, page).ok());
  }
}

}  // namespace berth::test
