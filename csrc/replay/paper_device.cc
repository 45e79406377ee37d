#include "csrc/replay/paper_device.h"

#include "csrc/core/bytes.h"
#include "csrc/facts/rounding.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

namespace berth::replay {
namespace {

constexpr Bytes kPage = Bytes{2} << 20;

class CountingDevice final : public PaperDevice {
 public:
  CountingDevice(Bytes total, PaperMemory memory) {
    const bool maps = memory == PaperMemory::kVirtual;
    properties_.name = "paper";
    properties_.total_bytes = total;
    properties_.page_bytes = maps ? kPage : facts::kCudaUnit;  // as on plain memory of CUDA
    properties_.maps_pages = properties_.aliases = maps;
    properties_.asynchronous = true;
  }

  [[nodiscard]] const DeviceProperties& properties() const noexcept override { return properties_; }
  Status free_bytes(Bytes* free) noexcept override {
    *free = properties_.total_bytes - held_;
    return {};
  }
  [[nodiscard]] std::string describe(const Status& status) const override { return status.call(); }

  // Addresses come from the system, so that they are nobody else's; an alignment is had by asking
  // for more.
  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    const bool maps = properties_.maps_pages;
    memory_calls_.add(maps ? MemoryCall::kReserve : MemoryCall::kMalloc);
    if (!maps && size > properties_.total_bytes - held_)
      return {Status::Code::kOutOfMemory, "cudaMalloc"};
    const Bytes whole = size + std::max(alignment, kPage);
    void* const at =
        mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return {Status::Code::kOutOfMemory, "mmap"};
    const Bytes first = align_up(reinterpret_cast<Bytes>(at), std::max(alignment, kPage));
    *base = reinterpret_cast<void*>(first);
    reservations_[first] = {at, whole};
    if (!maps) held_ += size;
    return {};
  }
  Status release(void* base, Bytes size) noexcept override {
    const bool maps = properties_.maps_pages;
    memory_calls_.add(maps ? MemoryCall::kFreeAddresses : MemoryCall::kFree);
    const auto found = reservations_.find(reinterpret_cast<Bytes>(base));
    if (found == reservations_.end()) return {Status::Code::kFailed, "release"};
    if (maps)
      (void)decommit(base, size);
    else
      held_ -= size;
    (void)munmap(found->second.first, found->second.second);
    reservations_.erase(found);
    return {};
  }
  // One handle for each stretch without memory.
  Status commit(void* base, Bytes size, Residency, Bytes most) noexcept override {
    if (!properties_.maps_pages) return {};
    const Bytes first = reinterpret_cast<Bytes>(base), last = first + size;
    std::vector<ByteRange> missing;
    Bytes wanted = 0;
    for (Bytes at = first; at < last;) {
      const auto next = handles_.upper_bound(at);
      if (next != handles_.begin() && std::prev(next)->second.last > at) {
        at = std::prev(next)->second.last;
        continue;
      }
      const Bytes end = next == handles_.end() ? last : std::min(last, next->first);
      missing.push_back({at, end});
      wanted += end - at;
      at = end;
    }
    if (wanted > properties_.total_bytes - held_) return {Status::Code::kOutOfMemory, "commit"};
    for (const ByteRange range : missing)
      for (Bytes at = range.first; at < range.last;) {
        const Bytes end = at + std::min(most, range.last - at);
        memory_calls_.add(MemoryCall::kCreate);
        memory_calls_.add(MemoryCall::kMap);
        handles_[at] = {end, std::make_shared<Bytes>(end - at)};
        at = end;
      }
    held_ += wanted;
    memory_calls_.add(MemoryCall::kSetAccess, missing.size());
    return {};
  }
  [[nodiscard]] ByteRange handle_at(const void* address) const noexcept override {
    const auto handle = std::prev(handles_.upper_bound(reinterpret_cast<Bytes>(address)));
    return {handle->first, handle->second.last};
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    Bytes at = reinterpret_cast<Bytes>(to);
    for (std::size_t i = 0; i < pages;) {
      const auto found = handles_.find(reinterpret_cast<Bytes>(from[i]));
      if (found == handles_.end()) return {Status::Code::kFailed, "alias"};
      const Bytes size = found->second.last - found->first;
      handles_[at] = {at + size, found->second.memory};
      memory_calls_.add(MemoryCall::kMap);
      at += size;
      i += size / kPage;
    }
    memory_calls_.add(MemoryCall::kSetAccess);
    return {};
  }
  Status decommit(void* base, Bytes size) noexcept override {
    const Bytes first = reinterpret_cast<Bytes>(base), last = first + size;
    Bytes before = 0;  // neighbours go in one call
    for (auto it = handles_.lower_bound(first); it != handles_.end() && it->first < last;) {
      if (it->first != before) memory_calls_.add(MemoryCall::kUnmap);
      before = it->second.last;
      if (it->second.memory.use_count() == 1) {
        memory_calls_.add(MemoryCall::kRelease);
        held_ -= *it->second.memory;
      }
      it = handles_.erase(it);
    }
    return {};
  }

  Status reserve_pinned(Bytes, void**) noexcept override { return kNone; }
  Status release_pinned(void*, Bytes) noexcept override { return kNone; }
  Status copy(void*, const void*, Bytes, LaneKey, DeviceEvent*) noexcept override { return kNone; }

  Status record(LaneKey, DeviceEvent* event) noexcept override {
    ++calls_;
    *event = ++last_event_;
    return {};
  }
  Status query(DeviceEvent, bool* complete) noexcept override {
    ++calls_;
    *complete = true;
    return {};
  }
  Status wait(LaneKey, DeviceEvent) noexcept override { return count(); }
  Status synchronize(DeviceEvent) noexcept override { return count(); }
  Status synchronize_all() noexcept override { return count(); }
  void destroy(DeviceEvent) noexcept override {}
  Status capturing(LaneKey, bool* capturing) noexcept override {
    *capturing = false;
    return {};
  }
  [[nodiscard]] std::uint64_t driver_calls() const noexcept override {
    return calls_ + memory_calls_.all();
  }
  [[nodiscard]] const MemoryCallCounts& memory_calls() const noexcept override {
    return memory_calls_;
  }

 private:
  static constexpr Status kNone{Status::Code::kUnsupported, "paper"};

  struct Handle {
    Bytes last = 0;
    std::shared_ptr<Bytes> memory;  // of each of its addresses: its size
  };

  Status count() noexcept {
    ++calls_;
    return {};
  }

  DeviceProperties properties_;
  std::unordered_map<Bytes, std::pair<void*, Bytes>> reservations_;
  std::map<Bytes, Handle> handles_;  // by their first addresses
  Bytes held_ = 0;
  MemoryCallCounts memory_calls_;
  std::uint64_t calls_ = 0;  // all others
  std::uint64_t last_event_ = 0;
};

}  // namespace

std::unique_ptr<PaperDevice> make_paper_device(Bytes total, PaperMemory memory) {
  return std::make_unique<CountingDevice>(align_up(total, kPage), memory);
}

}  // namespace berth::replay
