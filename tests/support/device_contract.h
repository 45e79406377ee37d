#pragma once

#include "csrc/core/bytes.h"
#include "csrc/device/device.h"
#include "tests/catch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <set>
#include <span>
#include <utility>
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

// Pages that come, go and get further addresses at random, beside a plain list of which memory is
// behind which page.
inline void check_aliases_at_random(Device& device, LaneKey lane, LaneKey other, unsigned seed) {
  constexpr std::size_t kRanges = 3, kPages = 5, kOperations = 400;
  const Bytes page = device.properties().page_bytes, all = free_of(device);
  struct Place {
    std::byte* at = nullptr;
    std::shared_ptr<std::uint64_t> memory;  // what was written there last; null: none
  };
  std::vector<Place> places;
  for (std::size_t i = 0; i < kRanges; ++i) {
    void* base = nullptr;
    REQUIRE(device.reserve(kPages * page, 0, &base).ok());
    for (std::size_t k = 0; k < kPages; ++k)
      places.push_back({static_cast<std::byte*>(base) + k * page, nullptr});
  }
  void* pinned = nullptr;
  REQUIRE(device.reserve_pinned(page, &pinned).ok());
  const Bytes left = free_of(device);
  auto* const word = static_cast<std::uint64_t*>(pinned);
  std::uint64_t last = 0;
  const auto write = [&](Place& place) {
    *place.memory = *word = ++last;
    copy_now(device, place.at + page - sizeof *word, word, sizeof *word, lane);
  };
  const auto check = [&](const Place& place) {
    *word = 0;
    copy_now(device, word, place.at + page - sizeof *word, sizeof *word, other);
    REQUIRE(*word == *place.memory);
  };
  std::mt19937 random(seed);
  int aliases = 0;
  for (std::size_t i = 0; i < kOperations; ++i) {
    CAPTURE(seed, i);
    // Some neighbours of one range.
    const std::size_t in_range = random() % kPages, count = 1 + random() % (kPages - in_range);
    Place* const first = &places[random() % kRanges * kPages + in_range];
    const std::span<Place> some(first, count);
    const auto has = [](const Place& place) { return place.memory != nullptr; };
    switch (random() % 4) {
      case 0:
        REQUIRE(device.commit(first->at, count * page, Device::Residency::kOnDemand).ok());
        for (Place& place : some) {
          if (has(place)) continue;
          place.memory = std::make_shared<std::uint64_t>();
          write(place);
        }
        break;
      case 1:
        REQUIRE(device.decommit(first->at, count * page).ok());
        for (Place& place : some) place.memory.reset();
        break;
      case 2: {
        // Mostly where it is legal: of pages that have memory, as far as there is none.
        const bool wild = random() % 8 == 0;
        const std::size_t empty =
            static_cast<std::size_t>(std::find_if(some.begin(), some.end(), has) - some.begin());
        const std::size_t pages = wild ? count : empty;
        std::vector<Place> sources = places;
        if (!wild) std::erase_if(sources, [&](const Place& place) { return !has(place); });
        if (sources.empty() || pages == 0) break;
        std::vector<const void*> from;
        std::vector<std::shared_ptr<std::uint64_t>> memory;
        for (std::size_t k = 0; k < pages; ++k) {
          const Place& source = sources[random() % sources.size()];
          from.push_back(source.at);
          memory.push_back(source.memory);
        }
        const bool legal =
            pages <= empty && std::none_of(memory.begin(), memory.end(),
                                           [](const auto& each) { return each == nullptr; });
        REQUIRE(device.alias(first->at, from.data(), pages).ok() == legal);
        for (std::size_t k = 0; legal && k < pages; ++k) some[k].memory = memory[k];
        aliases += legal ? 1 : 0;
        break;
      }
      default:
        if (has(*first)) write(*first);
    }
    std::set<const std::uint64_t*> memories;
    for (const Place& place : places) {
      if (!has(place)) continue;
      memories.insert(place.memory.get());
      check(place);
    }
    REQUIRE(left - free_of(device) == memories.size() * page);
  }
  REQUIRE(aliases > 20);
  for (std::size_t i = 0; i < kRanges; ++i)
    REQUIRE(device.release(places[i * kPages].at, kPages * page).ok());
  REQUIRE(device.release_pinned(pinned, page).ok());
  REQUIRE(free_of(device) == all);
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

  SECTION("Memory may have several addresses, or the device says that it has not") {
    void* pinned = nullptr;
    void* alias = nullptr;
    REQUIRE(device.reserve_pinned(2 * page, &pinned).ok());
    auto* const bytes = static_cast<unsigned char*>(pinned);
    const auto filled = [&](const void* at, unsigned char value) {
      std::memset(bytes, value ^ 0xFF, page);
      copy_now(device, bytes, at, page, other);
      return std::all_of(bytes, bytes + page, [&](unsigned char byte) { return byte == value; });
    };
    const auto fill = [&](void* at, unsigned char value) {
      std::memset(bytes, value, page);
      copy_now(device, at, bytes, page, lane);
    };
    const Bytes all = free_of(device);
    REQUIRE(device.reserve(size, 0, &base).ok());
    REQUIRE(device.commit(base, size, Residency::kOnDemand).ok());
    if (properties.maps_pages) REQUIRE(device.reserve(size, 0, &alias).ok());
    const auto at = [&](void* range, Bytes i) -> void* {
      return static_cast<std::byte*>(range) + i * page;
    };
    const void* const from[] = {at(base, 3), at(base, 1)};
    if (!properties.aliases) {
      REQUIRE(device.alias(alias, from, 2).code() == Status::Code::kUnsupported);
    } else {
      for (Bytes i = 0; i < 4; ++i) fill(at(base, i), static_cast<unsigned char>(10 + i));
      REQUIRE(device.alias(at(alias, 1), from, 2).ok());
      REQUIRE(free_of(device) == all - size);  // no memory of its own
      REQUIRE(filled(at(alias, 1), 13));
      REQUIRE(filled(at(alias, 2), 11));
      fill(at(alias, 1), 77);
      REQUIRE(filled(at(base, 3), 77));
      // Refused, and nothing changes: memory at `to`, none at from[i], addresses of nobody.
      const void* const nothing[] = {at(base, 0), at(alias, 0)};
      const void* const inside[] = {static_cast<const std::byte*>(from[0]) + page / 2};
      REQUIRE_FALSE(device.alias(alias, from, 2).ok());
      REQUIRE_FALSE(device.alias(at(alias, 3), from, 2).ok());
      REQUIRE_FALSE(device.alias(at(alias, 3), nothing + 1, 1).ok());
      REQUIRE_FALSE(device.alias(at(alias, 3), inside, 1).ok());
      REQUIRE_FALSE(device.alias(static_cast<std::byte*>(at(alias, 3)) + page / 2, from, 1).ok());
      REQUIRE_FALSE(device.alias(at(alias, 3), from, 0).ok());
      REQUIRE_FALSE(device.alias(pinned, from, 1).ok());
      // The memory is there while an address has it, whichever came first.
      REQUIRE(device.decommit(at(base, 3), page).ok());
      REQUIRE(free_of(device) == all - size);
      REQUIRE(filled(at(alias, 1), 77));
      const void* const again[] = {at(alias, 1)};
      REQUIRE(device.alias(at(base, 3), again, 1).ok());  // of an alias, where the first was
      REQUIRE(filled(at(base, 3), 77));
      REQUIRE(device.commit(at(alias, 1), 3 * page, Residency::kOnDemand).ok());  // one new page
      REQUIRE(free_of(device) == all - size - page);
      REQUIRE(filled(at(alias, 2), 11));
      REQUIRE(device.decommit(alias, size).ok());
      REQUIRE(free_of(device) == all - size);
      REQUIRE(filled(at(base, 3), 77));
      REQUIRE(device.alias(alias, from, 2).ok());
      REQUIRE(device.release(base, size).ok());
      base = std::exchange(alias, nullptr);
      REQUIRE(free_of(device) == all - 2 * page);
      REQUIRE(filled(at(base, 0), 77));
    }
    if (alias != nullptr) REQUIRE(device.release(alias, size).ok());
    REQUIRE(device.release(base, size).ok());
    REQUIRE(free_of(device) == all);
    REQUIRE(device.release_pinned(pinned, 2 * page).ok());
  }

  SECTION("Memory is where a list says that it is, whatever comes, goes and gets an alias") {
    if (properties.aliases)
      for (const unsigned seed : {1U, 2U, 3U}) check_aliases_at_random(device, lane, other, seed);
  }

  SECTION("Pages may go behind other addresses, or the device says that they stay") {
    void* other_base = nullptr;
    const Bytes all = free_of(device);
    REQUIRE(device.reserve(size, 0, &base).ok());
    REQUIRE(device.commit(base, size, Residency::kOnDemand).ok());
    if (properties.maps_pages) REQUIRE(device.reserve(size, 0, &other_base).ok());
    if (properties.move_bytes == 0) {
      REQUIRE(device.move(other_base, base, page).code() == Status::Code::kUnsupported);
    } else {
      void* pinned = nullptr;
      REQUIRE(device.reserve_pinned(size, &pinned).ok());
      auto* const bytes = static_cast<unsigned char*>(pinned);
      for (Bytes i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(i % 251);
      copy_now(device, base, bytes, size, lane);
      auto* const from = static_cast<std::byte*>(base);
      auto* const to = static_cast<std::byte*>(other_base);
      REQUIRE(device.move(to + page, from + 2 * page, 2 * page).ok());
      REQUIRE(free_of(device) == all - size - size);
      copy_now(device, bytes, to + page, 2 * page, lane);
      bool same = true;
      for (Bytes i = 0; i < 2 * page; ++i)
        same &= bytes[i] == static_cast<unsigned char>((2 * page + i) % 251);
      REQUIRE(same);
      // Refused, and nothing changes: none at `from`, some at `to`, parts of pages, nobody's.
      REQUIRE_FALSE(device.move(to, from + 2 * page, page).ok());
      REQUIRE_FALSE(device.move(to, from + page, 2 * page).ok());
      REQUIRE_FALSE(device.move(to + page, from, page).ok());
      REQUIRE_FALSE(device.move(to + page / 2, from, page).ok());
      REQUIRE_FALSE(device.move(to, from, 0).ok());
      REQUIRE_FALSE(device.move(pinned, from, page).ok());
      REQUIRE(free_of(device) == all - size - size);
      // What it went from may have memory again, and it may come back.
      REQUIRE(device.commit(from + 2 * page, page, Residency::kOnDemand).ok());
      REQUIRE(device.move(from + 3 * page, to + 2 * page, page).ok());
      copy_now(device, bytes, from + 3 * page, page, lane);
      REQUIRE(bytes[7] == static_cast<unsigned char>((3 * page + 7) % 251));
      REQUIRE(device.release_pinned(pinned, size).ok());
      REQUIRE(free_of(device) == all - size - page);
    }
    if (other_base != nullptr) REQUIRE(device.release(other_base, size).ok());
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
