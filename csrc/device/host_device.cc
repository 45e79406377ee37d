#include "csrc/device/host_device.h"

#include "csrc/core/interval_map.h"
#include "csrc/device/host_memory.h"
#include "csrc/device/page_bitmap.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14; older headers lack the name
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4  // Linux 5.7
#endif

namespace berth {
namespace {

constexpr Bytes kHugePage = Bytes{2} << 20;

// One reservation and its committed pages.
//
// Huge pages are advised for exactly those aligned 2 MiB that are committed whole: neither a first
// touch nor khugepaged then makes pages resident that nobody committed.
struct Reservation {
  Bytes size = 0;
  PageBitmap committed;
  bool lost = false;  // some of the addresses may be somebody else's: see put_back()
};

class HostDevice final : public Device {
 public:
  explicit HostDevice(Bytes total_bytes) : stand_in_(total_bytes != 0) {
    properties_.name = "cpu";
    const long page = sysconf(_SC_PAGESIZE);
    if (page > 0) properties_.page_bytes = static_cast<Bytes>(page);
    if (stand_in_) {
      properties_.total_bytes = total_bytes;
    } else {
      memory_.emplace();
      properties_.total_bytes = memory_->total();
    }
    // mremap() takes what the kernel keeps as one mapping: commit() and drop() advise whole 2 MiB.
    if (pages_move()) properties_.move_bytes = kHugePage;
  }

  ~HostDevice() override {
    for (const auto& [base, range] : reservations_)
      if (!range.lost) munmap(reinterpret_cast<void*>(base), range.size);
    for (const auto& [base, size] : pinned_) munmap(reinterpret_cast<void*>(base), size);
  }

  const DeviceProperties& properties() const noexcept override { return properties_; }

  Status free_bytes(Bytes* free) noexcept override {
    Bytes left = 0;
    {
      const std::lock_guard lock(mutex_);
      left = properties_.total_bytes - std::min(properties_.total_bytes, committed_);
    }
    try {
      *free = stand_in_ ? left : std::min(left, memory_->available());
      return {};
    } catch (const std::bad_alloc&) {
      return {Status::Code::kOutOfMemory, "malloc", ENOMEM};
    }
  }

  std::string describe(const Status& status) const override {
    if (status.ok()) return "no error";
    if (status.number() == 0) return fmt::format("{} failed on cpu", status.call());
    return fmt::format("{} failed on cpu: {} (errno {})", status.call(),
                       std::generic_category().message(status.number()), status.number());
  }

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    *base = nullptr;
    const Bytes page = properties_.page_bytes;
    if (size == 0 || size > kMaxBytes || size % page != 0 ||
        (alignment != 0 && !is_power_of_two(alignment)) || alignment > kMaxBytes)
      return {Status::Code::kFailed, "reserve", EINVAL};
    alignment = std::max({alignment, page, size >= kHugePage ? kHugePage : page});
    Reservation range{size, PageBitmap(size / page)};
    void* memory = nullptr;
    if (!range.committed.valid()) return {Status::Code::kOutOfMemory, "mmap", ENOMEM};
    if (const Status status = map(size, alignment, MAP_NORESERVE, &memory); !status.ok())
      return status;
    const std::lock_guard lock(mutex_);
    try {
      reservations_.emplace(reinterpret_cast<Bytes>(memory), std::move(range));
    } catch (const std::bad_alloc&) {
      munmap(memory, size);
      return {Status::Code::kOutOfMemory, "malloc", ENOMEM};
    }
    *base = memory;
    return {};
  }

  Status commit(void* base, Bytes size, Residency residency, Bytes) noexcept override {
    const bool populate = residency == Residency::kResident && !stand_in_;
    std::vector<ByteRange> added;  // page indices that this call commits
    Pages pages;
    try {
      const std::lock_guard lock(mutex_);
      if (!find_pages(base, size, &pages)) return {Status::Code::kFailed, "commit", EINVAL};
      PageBitmap& bits = pages.range->committed;
      const Bytes page = properties_.page_bytes;
      const Bytes more = (pages.last - pages.first - bits.count(pages.first, pages.last)) * page;
      if (more > properties_.total_bytes - std::min(properties_.total_bytes, committed_))
        return {Status::Code::kOutOfMemory, "commit", ENOMEM};
      if (populate) {
        // Populating more than there is would bring the out-of-memory killer, not an error.
        if (more > memory_->available()) return {Status::Code::kOutOfMemory, "commit", ENOMEM};
        for (Bytes at = bits.next_clear(pages.first, pages.last); at < pages.last;) {
          const Bytes end = bits.next_set(at, pages.last);
          added.push_back({at, end});
          at = bits.next_clear(end, pages.last);
        }
      }
      bits.set(pages.first, pages.last);
      committed_ += more;
      if (!stand_in_) advise_huge(pages);
    } catch (const std::bad_alloc&) {
      return {Status::Code::kOutOfMemory, "malloc", ENOMEM};
    }
    if (!populate) return {};
    // Outside the lock: gigabytes take their time.
    const Status status = make_resident(base, size);
    if (status.ok()) return status;
    const std::lock_guard lock(mutex_);
    if (!find_pages(base, size, &pages)) return status;
    for (const ByteRange& part : added) {
      Pages undo = pages;
      undo.first = part.first;
      undo.last = part.last;
      (void)drop(undo);
    }
    return status;
  }

  Status decommit(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    Pages pages;
    if (!find_pages(base, size, &pages)) return {Status::Code::kFailed, "decommit", EINVAL};
    return drop(pages);
  }

  Status release(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = reservations_.find(reinterpret_cast<Bytes>(base));
    if (it == reservations_.end() || it->second.size != size)
      return {Status::Code::kFailed, "release", EINVAL};
    count_call();
    if (!it->second.lost && munmap(base, size) != 0)
      return {Status::Code::kFailed, "munmap", errno};
    committed_ -=
        it->second.committed.count(0, size / properties_.page_bytes) * properties_.page_bytes;
    reservations_.erase(it);
    return {};
  }

  // Anonymous private memory has one address.
  Status alias(void*, const void* const*, std::size_t) noexcept override {
    return {Status::Code::kUnsupported, "alias", ENOTSUP};
  }

  Status move(void* to, void* from, Bytes size) noexcept override {
    if (properties_.move_bytes == 0) return Device::move(to, from, size);
    const std::lock_guard lock(mutex_);
    const Bytes page = properties_.page_bytes, first = reinterpret_cast<Bytes>(from);
    Pages source, target;
    if (!find_pages(from, size, &source) || !find_pages(to, size, &target) ||
        align_down(first, kHugePage) != align_down(first + size - 1, kHugePage) ||
        source.range->committed.count(source.first, source.last) * page != size ||
        target.range->committed.count(target.first, target.last) != 0)
      return {Status::Code::kFailed, "move", EINVAL};
    count_call();
    if (mremap(from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) ==
        MAP_FAILED) {
      const int error = errno;
      put_back(target);
      return {error == ENOMEM ? Status::Code::kOutOfMemory : Status::Code::kFailed, "mremap",
              error};
    }
    source.range->committed.clear(source.first, source.last);
    target.range->committed.set(target.first, target.last);
    advise_small(source);
    return {};
  }

  Status reserve_pinned(Bytes size, void** base) noexcept override {
    *base = nullptr;
    if (size == 0 || size > kMaxBytes) return {Status::Code::kFailed, "reserve_pinned", EINVAL};
    size = align_up(size, properties_.page_bytes);
    const std::lock_guard lock(mutex_);
    if (size > properties_.total_bytes - std::min(properties_.total_bytes, committed_))
      return {Status::Code::kOutOfMemory, "reserve_pinned", ENOMEM};
    void* memory = nullptr;
    if (const Status status = map(size, properties_.page_bytes, 0, &memory); !status.ok())
      return status;
    try {
      pinned_.emplace(reinterpret_cast<Bytes>(memory), size);
    } catch (const std::bad_alloc&) {
      munmap(memory, size);
      return {Status::Code::kOutOfMemory, "malloc", ENOMEM};
    }
    committed_ += size;
    *base = memory;
    return {};
  }

  Status release_pinned(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = pinned_.find(reinterpret_cast<Bytes>(base));
    if (it == pinned_.end() || size > kMaxBytes ||
        it->second != align_up(size, properties_.page_bytes))
      return {Status::Code::kFailed, "release_pinned", EINVAL};
    count_call();
    if (munmap(base, it->second) != 0) return {Status::Code::kFailed, "munmap", errno};
    committed_ -= it->second;
    pinned_.erase(it);
    return {};
  }

  Status copy(void* to, const void* from, Bytes size, LaneKey,
              DeviceEvent* done) noexcept override {
    if (size != 0) std::memmove(to, from, size);
    if (done != nullptr) *done = 0;
    return {};
  }

  // Work of a lane is done when the call that gave it returns, so every event is complete from the
  // start: 0.
  Status record(LaneKey, DeviceEvent* event) noexcept override {
    *event = 0;
    return {};
  }
  Status query(DeviceEvent, bool* complete) noexcept override {
    *complete = true;
    return {};
  }
  Status wait(LaneKey, DeviceEvent) noexcept override { return {}; }
  Status synchronize(DeviceEvent) noexcept override { return {}; }
  Status synchronize_all() noexcept override { return {}; }
  void destroy(DeviceEvent) noexcept override {}
  Status capturing(LaneKey, bool* capturing) noexcept override {
    *capturing = false;
    return {};
  }

  std::uint64_t driver_calls() const noexcept override {
    return calls_.load(std::memory_order_relaxed);
  }

 private:
  // Page indices [first, last) of the range at `base`.
  struct Pages {
    Bytes base = 0;
    Reservation* range = nullptr;
    Bytes first = 0;
    Bytes last = 0;
  };

  void count_call() noexcept { calls_.fetch_add(1, std::memory_order_relaxed); }

  Status map(Bytes size, Bytes alignment, int flags, void** base) noexcept {
    const Bytes page = properties_.page_bytes;
    const Bytes spare = alignment > page ? alignment : 0;
    count_call();
    void* memory = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED) return {Status::Code::kOutOfMemory, "mmap", errno};
    if (spare != 0) {
      const Bytes first = reinterpret_cast<Bytes>(memory);
      const Bytes aligned = align_up(first, alignment);
      const Bytes head = aligned - first;
      count_call();
      if (head != 0) munmap(memory, head);
      if (spare != head) munmap(reinterpret_cast<void*>(aligned + size), spare - head);
      memory = reinterpret_cast<void*>(aligned);
    }
    *base = memory;
    return {};
  }

  bool find_pages(void* base, Bytes size, Pages* pages) noexcept {
    const Bytes address = reinterpret_cast<Bytes>(base);
    const Bytes page = properties_.page_bytes;
    auto it = reservations_.upper_bound(address);
    if (size == 0 || size % page != 0 || it == reservations_.begin()) return false;
    --it;
    const Bytes offset = address - it->first;
    if (offset % page != 0 || offset > it->second.size || size > it->second.size - offset ||
        it->second.lost)
      return false;
    *pages = {it->first, &it->second, offset / page, (offset + size) / page};
    return true;
  }

  // The aligned 2 MiB that `pages` touch, as page indices.
  [[nodiscard]] ByteRange huge_blocks(const Pages& pages) const noexcept {
    const Bytes huge = kHugePage / properties_.page_bytes;
    return {align_down(pages.first, huge), align_up(pages.last, huge)};
  }

  void advise_huge(const Pages& pages) noexcept {
    const Bytes page = properties_.page_bytes;
    const Bytes huge = kHugePage / page;
    const Bytes end = align_down(pages.range->size / page, huge);
    auto [at, last] = huge_blocks(pages);
    // Blocks in the middle are whole; only the two at the ends may hold uncommitted pages.
    if (last > end) last = end;
    if (at < last && pages.range->committed.count(at, at + huge) != huge) at += huge;
    if (at < last && pages.range->committed.count(last - huge, last) != huge) last -= huge;
    if (at >= last) return;
    count_call();
    // A kernel without huge pages refuses; the pages are small ones then.
    (void)madvise(reinterpret_cast<void*>(pages.base + at * page), (last - at) * page,
                  MADV_HUGEPAGE);
  }

  Status drop(const Pages& pages) noexcept {
    const Bytes page = properties_.page_bytes;
    PageBitmap& bits = pages.range->committed;
    if (bits.count(pages.first, pages.last) == 0) return {};
    count_call();
    if (madvise(reinterpret_cast<void*>(pages.base + pages.first * page),
                (pages.last - pages.first) * page, MADV_DONTNEED) != 0)
      return {Status::Code::kFailed, "madvise", errno};
    committed_ -= bits.clear(pages.first, pages.last) * page;
    advise_small(pages);
    return {};
  }

  // The 2 MiB that `pages` touch are not committed whole.
  void advise_small(const Pages& pages) noexcept {
    if (pages.range->size < kHugePage || stand_in_) return;
    const Bytes page = properties_.page_bytes;
    const auto [first, last] = huge_blocks(pages);
    count_call();
    (void)madvise(reinterpret_cast<void*>(pages.base + first * page),
                  std::min(last * page, pages.range->size) - first * page, MADV_NOHUGEPAGE);
  }

  // A failing mremap() may have unmapped where it was to go. Where another thread was faster there,
  // the addresses are its own: that reservation stays as it is from here on.
  void put_back(const Pages& pages) noexcept {
    const Bytes page = properties_.page_bytes;
    void* const at = reinterpret_cast<void*>(pages.base + pages.first * page);
    const Bytes size = (pages.last - pages.first) * page;
    count_call();
    // Where it is still mapped that is all right, and it says so.
    if (msync(at, size, MS_ASYNC) == 0) return;
    count_call();
    void* const got =
        mmap(at, size, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (got == at) return;
    if (got != MAP_FAILED) munmap(got, size);  // before Linux 4.17
    pages.range->lost = true;
  }

  // Whether mremap() can leave the addresses that memory goes from (Linux 5.7).
  bool pages_move() noexcept {
    const Bytes page = properties_.page_bytes;
    void* pages = nullptr;
    if (!map(2 * page, page, MAP_NORESERVE, &pages).ok()) return false;
    void* const second = static_cast<std::byte*>(pages) + page;
    count_call();
    const bool moved = mremap(pages, page, page, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP,
                              second) == second;
    munmap(pages, page);
    munmap(second, page);
    return moved;
  }

  Status make_resident(void* base, Bytes size) noexcept {
    int result = 0;
    do {
      count_call();
      result = madvise(base, size, MADV_POPULATE_WRITE);
    } while (result != 0 && (errno == EINTR || errno == EAGAIN));
    if (result == 0) return {};
    if (errno == ENOMEM || errno == EFAULT) return {Status::Code::kOutOfMemory, "madvise", errno};
    if (errno != EINVAL) return {Status::Code::kFailed, "madvise", errno};
    // Before Linux 5.14: a write that changes nothing, as others may use pages committed before.
    auto* const bytes = static_cast<unsigned char*>(base);
    for (Bytes at = 0; at < size; at += properties_.page_bytes)
      __atomic_fetch_or(bytes + at, 0, __ATOMIC_RELAXED);
    return {};
  }

  const bool stand_in_;
  DeviceProperties properties_;
  std::optional<HostMemory> memory_;           // unless stand_in_
  std::mutex mutex_;                           // covers all below
  std::map<Bytes, Reservation> reservations_;  // by address
  std::map<Bytes, Bytes> pinned_;
  Bytes committed_ = 0;
  std::atomic<std::uint64_t> calls_{0};
};

}  // namespace

std::unique_ptr<Device> make_host_device(Bytes total_bytes) {
  return std::make_unique<HostDevice>(total_bytes);
}

}  // namespace berth
