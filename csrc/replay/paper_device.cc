#include "csrc/replay/paper_device.h"

#include "csrc/core/bytes.h"

#include <sys/mman.h>

#include <unordered_map>
#include <utility>

namespace berth::replay {
namespace {

constexpr Bytes kPage = Bytes{2} << 20;

class CountingDevice final : public PaperDevice {
 public:
  explicit CountingDevice(Bytes total) {
    properties_.name = "paper";
    properties_.total_bytes = total;
    properties_.page_bytes = kPage;
    properties_.maps_pages = properties_.aliases = properties_.asynchronous = true;
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
    memory_calls_.add(MemoryCall::kReserve);
    const Bytes whole = size + std::max(alignment, kPage);
    void* const at =
        mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return {Status::Code::kOutOfMemory, "mmap"};
    const Bytes first = align_up(reinterpret_cast<Bytes>(at), std::max(alignment, kPage));
    *base = reinterpret_cast<void*>(first);
    reservations_[first] = {at, whole};
    return {};
  }
  Status release(void* base, Bytes size) noexcept override {
    memory_calls_.add(MemoryCall::kFreeAddresses);
    const auto found = reservations_.find(reinterpret_cast<Bytes>(base));
    if (found == reservations_.end()) return {Status::Code::kFailed, "release"};
    (void)decommit(base, size);
    (void)munmap(found->second.first, found->second.second);
    reservations_.erase(found);
    return {};
  }
  Status commit(void* base, Bytes size, Residency) noexcept override {
    Bytes missing = 0;
    each(base, size, [&](Bytes page) { missing += pages_.count(page) == 0 ? kPage : 0; });
    if (missing > properties_.total_bytes - held_) return {Status::Code::kOutOfMemory, "commit"};
    each(base, size, [&](Bytes page) {
      if (pages_.count(page) != 0) return;
      memory_calls_.add(MemoryCall::kCreate);
      memory_calls_.add(MemoryCall::kMap);
      ++users_[pages_[page] = ++last_memory_];
    });
    held_ += missing;
    memory_calls_.add(MemoryCall::kSetAccess);
    return {};
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    for (std::size_t i = 0; i < pages; ++i) {
      const Bytes memory = pages_.at(reinterpret_cast<Bytes>(from[i]));
      pages_[reinterpret_cast<Bytes>(to) + i * kPage] = memory;
      ++users_[memory];
    }
    memory_calls_.add(MemoryCall::kMap, pages);
    memory_calls_.add(MemoryCall::kSetAccess);
    return {};
  }
  Status decommit(void* base, Bytes size) noexcept override {
    bool neighbour = false;  // those that are mapped go in one call
    each(base, size, [&](Bytes page) {
      const auto found = pages_.find(page);
      const bool mapped = found != pages_.end();
      if (mapped && !neighbour) memory_calls_.add(MemoryCall::kUnmap);
      neighbour = mapped;
      if (!mapped) return;
      const auto users = users_.find(found->second);
      pages_.erase(found);
      if (--users->second != 0) return;
      users_.erase(users);
      memory_calls_.add(MemoryCall::kRelease);
      held_ -= kPage;
    });
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

  template <class Visit>
  static void each(void* base, Bytes size, Visit&& visit) {
    const Bytes first = reinterpret_cast<Bytes>(base);
    for (Bytes at = first; at < first + size; at += kPage) visit(at);
  }
  Status count() noexcept {
    ++calls_;
    return {};
  }

  DeviceProperties properties_;
  std::unordered_map<Bytes, std::pair<void*, Bytes>> reservations_;
  std::unordered_map<Bytes, std::uint64_t> pages_;          // address -> memory
  std::unordered_map<std::uint64_t, std::uint64_t> users_;  // memory -> addresses
  Bytes held_ = 0;
  MemoryCallCounts memory_calls_;
  std::uint64_t calls_ = 0;  // all others
  std::uint64_t last_memory_ = 0, last_event_ = 0;
};

}  // namespace

std::unique_ptr<PaperDevice> make_paper_device(Bytes total) {
  return std::make_unique<CountingDevice>(align_up(total, kPage));
}

}  // namespace berth::replay
