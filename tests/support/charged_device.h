#pragma once

#include "csrc/device/driver_costs.h"
#include "csrc/device/forwarding_device.h"

#include <iterator>
#include <map>
#include <memory>
#include <vector>

namespace berth::test {

// A layer that counts the calls of CUDA's which a GPU would need for the memory of the device
// below, as csrc/cuda makes them, so that they have a price: by handles where it maps pages, else
// an allocation a reservation. What the device below refuses or has done before is not counted.
// Not thread-safe.
class ChargedDevice final : public ForwardingDevice {
 public:
  explicit ChargedDevice(Device& device) : ForwardingDevice(device) {}

  [[nodiscard]] const MemoryCallCounts& memory_calls() const noexcept { return calls_; }

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    const Status status = device_.reserve(size, alignment, base);
    if (status.ok()) calls_.add(maps() ? MemoryCall::kReserve : MemoryCall::kMalloc);
    return status;
  }
  Status release(void* base, Bytes size) noexcept override {
    const Status status = device_.release(base, size);
    if (!status.ok()) return status;
    drop(base, size);
    calls_.add(maps() ? MemoryCall::kFreeAddresses : MemoryCall::kFree);
    return status;
  }
  using Device::commit;
  Status commit(void* base, Bytes size, Residency residency, Bytes most) noexcept override {
    const Status status = device_.commit(base, size, residency, most);
    if (!status.ok() || !maps()) return status;
    const Bytes first = reinterpret_cast<Bytes>(base), last = first + size;
    bool before = true;  // had memory
    for (Bytes at = first; at < last;) {
      const auto next = handles_.upper_bound(at);
      if (next != handles_.begin() && std::prev(next)->second.last > at) {
        at = std::prev(next)->second.last;
        before = true;
        continue;
      }
      if (before) calls_.add(MemoryCall::kSetAccess);  // one call a stretch
      before = false;
      const Bytes end = device_.handle_at(reinterpret_cast<void*>(at)).last;
      calls_.add(MemoryCall::kCreate);
      calls_.add(MemoryCall::kMap);
      handles_[at] = {end, std::make_shared<bool>()};
      at = end;
    }
    return status;
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    const Status status = device_.alias(to, from, pages);
    if (!status.ok()) return status;
    const Bytes page = properties().page_bytes;
    for (std::size_t i = 0; i < pages;) {
      const auto source = handles_.find(reinterpret_cast<Bytes>(from[i]));
      const Bytes size = source->second.last - source->first;
      const Bytes at = reinterpret_cast<Bytes>(to) + i * page;
      handles_[at] = {at + size, source->second.memory};
      calls_.add(MemoryCall::kMap);
      i += size / page;
    }
    calls_.add(MemoryCall::kSetAccess);
    return status;
  }
  Status decommit(void* base, Bytes size) noexcept override {
    const Status status = device_.decommit(base, size);
    if (status.ok()) drop(base, size);
    return status;
  }

 private:
  struct Handle {
    Bytes last = 0;
    std::shared_ptr<bool> memory;  // of each of its addresses
  };

  [[nodiscard]] bool maps() const noexcept { return properties().maps_pages; }

  // Neighbours are unmapped in one call; memory goes with its last address.
  void drop(void* base, Bytes size) noexcept {
    const Bytes first = reinterpret_cast<Bytes>(base), last = first + size;
    Bytes before = 0;
    for (auto it = handles_.lower_bound(first); it != handles_.end() && it->first < last;) {
      if (it->first != before) calls_.add(MemoryCall::kUnmap);
      before = it->second.last;
      if (it->second.memory.use_count() == 1) calls_.add(MemoryCall::kRelease);
      it = handles_.erase(it);
    }
  }

  std::map<Bytes, Handle> handles_;  // by their first addresses
  MemoryCallCounts calls_;
};

}  // namespace berth::test
