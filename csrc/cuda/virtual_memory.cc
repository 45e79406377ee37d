#include "csrc/core/check.h"
#include "csrc/cuda/device_memory.h"
#include "csrc/cuda/shared_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace berth {
namespace {

// Physical memory of a page, since the driver cannot give a part of one back: one reference of the
// driver's, however many addresses have it.
struct Memory {
  CUmemGenericAllocationHandle handle = 0;
};

// An address of such memory.
struct Page {
  enum class State : std::uint8_t {
    kNone,
    kFresh,  // mapped by the call that is under way
    kReady,
    // What the driver would not take back, counted as retained; the next commit has it, unless
    // other addresses do.
    kMapped,  // perhaps without access
    kHeld,    // not mapped, and no other address is
  };
  std::shared_ptr<Memory> memory = nullptr;  // of each of its addresses; null in kNone
  State state = State::kNone;
};

struct Reservation {
  Bytes reserved = 0;  // what cuMemAddressReserve gave, at most an alignment below
  Bytes reserved_size = 0;
  Bytes size = 0;
  std::vector<Page> pages;
  std::map<std::size_t, int> descriptors;  // of pages that were shared
  bool released = false;                   // but the driver would not take all of it back
};

// The most GPUs that reach one's memory: this one and its peers.
constexpr std::size_t kMaxAccesses = 64;

class VirtualMemory final : public CudaDeviceMemory {
 public:
  VirtualMemory(const CudaCalls& calls, CudaPrimary& primary, const CUmemAllocationProp& property,
                Bytes granularity, Bytes page)
      : calls_(calls),
        primary_(primary),
        property_(property),
        granularity_(granularity),
        page_(page) {
    accesses_[0] = access_of(primary.index);
  }

  ~VirtualMemory() override {
    for (auto& [base, range] : reservations_) {
      (void)unmap(range, base, 0, range.pages.size());
      (void)calls_.cuMemAddressFree(range.reserved, range.reserved_size);
    }
  }

  Bytes page_bytes() const noexcept override { return page_; }

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    *base = nullptr;
    if (size == 0 || size > kMaxBytes || size % page_ != 0 || alignment > kMaxBytes ||
        (alignment != 0 && !is_power_of_two(alignment)))
      return {Status::Code::kFailed, "reserve", cudaErrorInvalidValue};
    // The driver aligns to its own granularity; addresses for more than that cost nothing.
    alignment = std::max(alignment, page_);
    const Bytes spare = alignment > granularity_ ? alignment : 0;
    const std::lock_guard lock(mutex_);
    finish_releases();
    try {
      Reservation range;
      range.size = size;
      range.reserved_size = size + spare;
      range.pages.resize(size / page_);
      CUdeviceptr address = 0;
      const Status status = calls_.cuMemAddressReserve(&address, range.reserved_size, 0, 0, 0);
      if (!status.ok()) return status;
      range.reserved = address;
      address = align_up(address, alignment);
      try {
        reservations_.emplace(address, std::move(range));
      } catch (const std::bad_alloc&) {
        (void)calls_.cuMemAddressFree(range.reserved, range.reserved_size);
        throw;
      }
      *base = reinterpret_cast<void*>(address);
      return {};
    } catch (const std::bad_alloc&) {
      return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
    }
  }

  Status commit(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    Pages pages;
    if (!find(base, size, &pages)) return {Status::Code::kFailed, "commit", cudaErrorInvalidValue};
    std::vector<Page>& all = pages.range->pages;
    if (std::all_of(all.begin() + pages.first, all.begin() + pages.last,
                    [](const Page& page) { return page.state == Page::State::kReady; }))
      return {};
    // Access is given to a context's device.
    const CudaCurrentDevice current(calls_, primary_);
    if (!current.status().ok()) return current.status();
    Status status;
    for (std::size_t i = pages.first; i < pages.last && status.ok(); ++i)
      if (all[i].state != Page::State::kReady) status = bring(all[i], pages.base + i * page_);
    for (std::size_t i = pages.first; i < pages.last && status.ok();) {
      if (all[i].state == Page::State::kReady) {
        ++i;
        continue;
      }
      std::size_t end = i;
      while (end < pages.last && all[end].state != Page::State::kReady) ++end;
      status = calls_.cuMemSetAccess(pages.base + i * page_, (end - i) * page_, accesses_.data(),
                                     access_count_);
      i = end;
    }
    if (!status.ok()) {
      undo(pages);
      return status;
    }
    for (std::size_t i = pages.first; i < pages.last; ++i) set(all[i], Page::State::kReady);
    return {};
  }

  Status decommit(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    Pages pages;
    if (!find(base, size, &pages))
      return {Status::Code::kFailed, "decommit", cudaErrorInvalidValue};
    return unmap(*pages.range, pages.base, pages.first, pages.last);
  }

  Status release(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = reservations_.find(reinterpret_cast<Bytes>(base));
    if (it == reservations_.end() || it->second.size != size || it->second.released)
      return {Status::Code::kFailed, "release", cudaErrorInvalidValue};
    Reservation& range = it->second;
    const bool was_empty = empty(range);
    const Status unmapped = unmap(range, it->first, 0, range.pages.size());
    if (!unmapped.ok()) return unmapped;
    const Status freed = free_addresses(range);
    if (freed.ok()) {
      reservations_.erase(it);
    } else if (was_empty) {
      return freed;
    } else {
      range.released = true;  // memory of it is gone, so nobody may go on with it
    }
    return {};
  }

  Status alias(void* to, const void* const* from, std::size_t count) noexcept override {
    const std::lock_guard lock(mutex_);
    constexpr Status invalid(Status::Code::kFailed, "alias", cudaErrorInvalidValue);
    Pages pages;
    if (count > kMaxBytes / page_ || !find(to, count * page_, &pages)) return invalid;
    // Access is given to a context's device.
    const CudaCurrentDevice current(calls_, primary_);
    if (!current.status().ok()) return current.status();
    Status status;
    for (std::size_t i = pages.first; i < pages.last && status.ok(); ++i) {
      Page& page = pages.range->pages[i];
      Pages source;
      if (page.state == Page::State::kReady ||
          !find(const_cast<void*>(from[i - pages.first]), page_, &source) ||
          source.range->pages[source.first].state != Page::State::kReady) {
        status = invalid;
      } else {
        status = map_again(page, pages.base + i * page_, source.range->pages[source.first]);
      }
    }
    if (status.ok())
      status = calls_.cuMemSetAccess(pages.base + pages.first * page_, count * page_,
                                     accesses_.data(), access_count_);
    if (!status.ok()) {
      undo(pages);
      return status;
    }
    for (std::size_t i = pages.first; i < pages.last; ++i)
      set(pages.range->pages[i], Page::State::kReady);
    return {};
  }

  Status add_peer(int other) noexcept override {
    const std::lock_guard lock(mutex_);
    const CUmemAccessDesc access = access_of(other);
    for (std::size_t i = 0; i < access_count_; ++i)
      if (accesses_[i].location.id == other) return {};
    if (access_count_ == kMaxAccesses)
      return {Status::Code::kUnsupported, "enable_peer", cudaErrorTooManyPeers};
    for (auto& [base, range] : reservations_) {
      for (std::size_t i = 0; i < range.pages.size();) {
        std::size_t end = i;
        while (end < range.pages.size() && range.pages[end].state == Page::State::kReady) ++end;
        if (end != i) {
          const Status status =
              calls_.cuMemSetAccess(base + i * page_, (end - i) * page_, &access, 1);
          if (!status.ok()) return status;
        }
        i = end + 1;
      }
    }
    accesses_[access_count_++] = access;
    return {};
  }

  Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) override {
    const std::lock_guard lock(mutex_);
    const Bytes first = align_down(reinterpret_cast<Bytes>(pointer), page_);
    const Bytes end = reinterpret_cast<Bytes>(pointer) + size;
    Pages pages;
    if (size == 0 || size > kMaxBytes || end < first ||
        !find(reinterpret_cast<void*>(first), align_up(end, page_) - first, &pages))
      return {Status::Code::kFailed, "share", cudaErrorInvalidValue};
    std::vector<int> descriptors;
    for (std::size_t i = pages.first; i < pages.last; ++i) {
      const Page& page = pages.range->pages[i];
      if (page.state != Page::State::kReady)
        return {Status::Code::kFailed, "share", cudaErrorInvalidValue};
      const auto [it, fresh] = pages.range->descriptors.try_emplace(i, -1);
      if (it->second < 0) {
        const Status status = calls_.cuMemExportToShareableHandle(
            &it->second, page.memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (!status.ok()) {
          pages.range->descriptors.erase(it);
          return status;
        }
      }
      descriptors.push_back(it->second);
    }
    shared->handle = shared_virtual_handle(page_, descriptors);
    shared->offset = reinterpret_cast<Bytes>(pointer) - first;
    return {};
  }

  Bytes retained_bytes() const noexcept override {
    const std::lock_guard lock(mutex_);
    return retained_;
  }

 private:
  // Page numbers [first, last) of the range at `base`.
  struct Pages {
    Bytes base = 0;
    Reservation* range = nullptr;
    std::size_t first = 0;
    std::size_t last = 0;
  };

  static CUmemAccessDesc access_of(int index) noexcept {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
  }

  static bool empty(const Reservation& range) noexcept {
    return std::all_of(range.pages.begin(), range.pages.end(),
                       [](const Page& page) { return page.state == Page::State::kNone; });
  }

  // Fails where the driver still has pages of it.
  Status free_addresses(const Reservation& range) noexcept {
    if (!empty(range)) return {Status::Code::kFailed, "cuMemUnmap", cudaErrorNotPermitted};
    return calls_.cuMemAddressFree(range.reserved, range.reserved_size);
  }

  // Of ranges that their owners have released, what the driver would not take back then.
  void finish_releases() noexcept {
    for (auto it = reservations_.begin(); it != reservations_.end();) {
      const auto next = std::next(it);
      if (it->second.released) {
        (void)unmap(it->second, it->first, 0, it->second.pages.size());
        if (free_addresses(it->second).ok()) reservations_.erase(it);
      }
      it = next;
    }
  }

  bool find(void* base, Bytes size, Pages* pages) noexcept {
    const Bytes address = reinterpret_cast<Bytes>(base);
    auto it = reservations_.upper_bound(address);
    if (size == 0 || size % page_ != 0 || it == reservations_.begin()) return false;
    --it;
    const Bytes offset = address - it->first;
    if (it->second.released || offset % page_ != 0 || offset > it->second.size ||
        size > it->second.size - offset)
      return false;
    *pages = {it->first, &it->second, offset / page_, (offset + size) / page_};
    return true;
  }

  static bool mapped(const Page& page) noexcept {
    return page.state != Page::State::kNone && page.state != Page::State::kHeld;
  }

  void set(Page& page, Page::State state) noexcept {
    const auto retained = [](Page::State of) {
      return of == Page::State::kMapped || of == Page::State::kHeld;
    };
    if (retained(page.state)) retained_ -= page_;
    if (retained(state)) retained_ += page_;
    page.state = state;
  }

  // Memory of its own at a page that has none to use: new, or what it retains.
  Status bring(Page& page, CUdeviceptr address) noexcept {
    // Other addresses may have what it retains.
    if (page.state != Page::State::kNone && page.memory.use_count() > 1)
      if (const Status status = clear(page, address); !status.ok()) return status;
    if (page.state == Page::State::kMapped) return {};
    if (page.state == Page::State::kNone) {
      std::shared_ptr<Memory> memory;
      try {
        memory = std::make_shared<Memory>();
      } catch (const std::bad_alloc&) {
        return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
      }
      const Status status = calls_.cuMemCreate(&memory->handle, page_, &property_, 0);
      if (!status.ok()) return status;
      page.memory = std::move(memory);
    }
    return map(page, address);
  }

  // The memory of a page that is ready at another one, too.
  Status map_again(Page& page, CUdeviceptr address, const Page& source) noexcept {
    if (const Status status = clear(page, address); !status.ok()) return status;
    page.memory = source.memory;
    return map(page, address);
  }

  // The memory that the page has. After a failure the page has none, or retains it.
  Status map(Page& page, CUdeviceptr address) noexcept {
    const Status status = calls_.cuMemMap(address, page_, 0, page.memory->handle, 0);
    set(page, status.ok() ? Page::State::kFresh : Page::State::kHeld);
    if (!status.ok()) (void)let_go(page);
    return status;
  }

  // Fails where the page stays mapped, and is as it was.
  Status unmap(Page& page, CUdeviceptr address) noexcept {
    if (mapped(page)) {
      const Status status = calls_.cuMemUnmap(address, page_);
      if (!status.ok()) return status;
    }
    set(page, Page::State::kHeld);
    (void)let_go(page);
    return {};
  }

  // Of a page that is not mapped. The memory goes back with its last address.
  Status let_go(Page& page) noexcept {
    if (page.memory.use_count() == 1)
      if (const Status status = calls_.cuMemRelease(page.memory->handle); !status.ok())
        return status;
    page.memory.reset();
    set(page, Page::State::kNone);
    return {};
  }

  // Nothing is retained afterwards.
  Status clear(Page& page, CUdeviceptr address) noexcept {
    if (page.state == Page::State::kNone) return {};
    if (const Status status = unmap(page, address); !status.ok()) return status;
    return page.state == Page::State::kNone ? Status() : let_go(page);
  }

  // Of a call that failed: the newest first.
  void undo(const Pages& pages) noexcept {
    for (std::size_t i = pages.last; i-- > pages.first;) {
      Page& page = pages.range->pages[i];
      if (page.state == Page::State::kFresh && !unmap(page, pages.base + i * page_).ok())
        set(page, Page::State::kMapped);
    }
  }

  // Neighbours that are mapped go in one call, which takes several mappings where each is whole.
  // Where the driver refuses they stay as they are, and go one by one.
  void unmap_runs(Reservation& range, Bytes base, std::size_t first, std::size_t last) noexcept {
    for (std::size_t i = first; i < last;) {
      std::size_t end = i;
      while (end < last && mapped(range.pages[end])) ++end;
      if (end - i > 1 && calls_.cuMemUnmap(base + i * page_, (end - i) * page_).ok())
        for (std::size_t k = i; k < end; ++k) set(range.pages[k], Page::State::kHeld);
      i = std::max(end, i + 1);
    }
  }

  // Gives pages back. Where the driver unmaps none, nothing changed and that is said; where it
  // unmaps some, the others are retained.
  Status unmap(Reservation& range, Bytes base, std::size_t first, std::size_t last) noexcept {
    unmap_runs(range, base, first, last);
    Status failure;
    bool any = false;
    for (std::size_t i = first; i < last; ++i) {
      Page& page = range.pages[i];
      if (page.state == Page::State::kNone) continue;
      const Status status = unmap(page, base + i * page_);
      if (!status.ok()) {
        failure = status;
        if (status.code() == Status::Code::kSticky || status.code() == Status::Code::kGone) break;
        continue;
      }
      any = true;
      if (const auto shared = range.descriptors.find(i); shared != range.descriptors.end()) {
        close(shared->second);
        range.descriptors.erase(shared);
      }
    }
    if (failure.ok() || !any) return failure;
    for (std::size_t i = first; i < last; ++i)
      if (range.pages[i].state == Page::State::kReady) set(range.pages[i], Page::State::kMapped);
    return {};
  }

  const CudaCalls& calls_;
  CudaPrimary& primary_;
  const CUmemAllocationProp property_;
  const Bytes granularity_;  // the driver's
  const Bytes page_;
  mutable std::mutex mutex_;                   // covers all below
  std::map<Bytes, Reservation> reservations_;  // by base
  std::array<CUmemAccessDesc, kMaxAccesses> accesses_{};
  std::size_t access_count_ = 1;
  Bytes retained_ = 0;
};

// --- What works ---------------------------------------------------------------------------------

// One page through all that berth does with one. Nothing of it is left.
Status try_page(const CudaCalls& calls, const CudaPrimary& primary,
                const CUmemAllocationProp& property, Bytes page) noexcept {
  // What goes wrong once may go well the second time: then only the form is not taken.
  const auto give_back = [](auto&& call, Status* status) {
    const Status given = call();
    if (!given.ok()) (void)call();
    if (status->ok()) *status = given;
  };
  CUdeviceptr address = 0;
  if (const Status status = calls.cuMemAddressReserve(&address, page, 0, 0, 0); !status.ok())
    return status;
  CUmemGenericAllocationHandle handle = 0;
  Status status = calls.cuMemCreate(&handle, page, &property, 0);
  if (status.ok()) {
    status = calls.cuMemMap(address, page, 0, handle, 0);
    if (status.ok()) {
      CUmemAccessDesc access{};
      access.location = property.location;
      access.location.id = primary.index;
      access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
      status = calls.cuMemSetAccess(address, page, &access, 1);
      if (status.ok() && property.requestedHandleTypes != 0) {
        int descriptor = -1;
        status = calls.cuMemExportToShareableHandle(&descriptor, handle,
                                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
        if (status.ok()) close(descriptor);
      }
      give_back([&] { return calls.cuMemUnmap(address, page); }, &status);
    }
    give_back([&] { return calls.cuMemRelease(handle); }, &status);
  }
  give_back([&] { return calls.cuMemAddressFree(address, page); }, &status);
  return status;
}

// A device that is full, or that an earlier error broke, says nothing about what it can.
bool says_nothing(const Status& status) noexcept {
  return status.code() == Status::Code::kOutOfMemory || status.code() == Status::Code::kSticky ||
         status.code() == Status::Code::kGone;
}

}  // namespace

std::unique_ptr<CudaDeviceMemory> make_virtual_memory(const CudaCalls& calls, CudaPrimary& primary,
                                                      Bytes page_bytes, std::string* how) {
  const auto check = [&](const Status& status) {
    BERTH_CHECK(status.ok(), kSystem, "{} failed on cuda:{}: {}", status.call(), primary.index,
                calls.text(status.number()));
  };
  CUdevice device = 0;
  check(calls.cuDeviceGet(&device, primary.index));
  const auto has = [&](CUdevice_attribute attribute) {
    int value = 0;
    check(calls.cuDeviceGetAttribute(&value, attribute, device));
    return value != 0;
  };
  if (calls.cuMemAddressReserve.pointer == nullptr ||
      !has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
    *how = "the driver has no virtual memory for it";
    return nullptr;
  }
  const bool descriptors = has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  const bool rdma = has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  const CudaCurrentDevice current(calls, primary);
  check(current.status());

  // Best first. An attribute that is 0 is believed, one that is 1 is not.
  struct Form {
    bool descriptors, rdma;
    const char* text;
  };
  std::string tried;
  for (const Form form : {Form{true, true, "with file descriptors and RDMA"},
                          Form{true, false, "with file descriptors, without RDMA"},
                          Form{false, false, "without file descriptors and RDMA"}}) {
    if ((form.descriptors && !descriptors) || (form.rdma && !rdma)) continue;
    CUmemAllocationProp property{};
    property.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    property.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    property.location.id = primary.index;
    if (form.descriptors) property.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    property.allocFlags.gpuDirectRDMACapable = form.rdma ? 1 : 0;
    std::size_t granularity = 0;
    Status status = calls.cuMemGetAllocationGranularity(&granularity, &property,
                                                        CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (status.ok()) {
      BERTH_CHECK(is_power_of_two(granularity) && page_bytes <= kMaxBytes, kSystem,
                  "pages of {} bytes on cuda:{}, whose driver maps in units of {}", page_bytes,
                  primary.index, granularity);
      Bytes page = granularity;
      while (page < page_bytes) page *= 2;
      status = try_page(calls, primary, property, page);
      if (status.ok() || says_nothing(status)) {
        *how = fmt::format("virtual, in pages of {}, {}{}{}", format_bytes(page), form.text,
                           tried.empty() ? "" : "; in vain: ", tried);
        return std::make_unique<VirtualMemory>(calls, primary, property, granularity, page);
      }
    }
    tried += fmt::format("{}{}: {} failed: {}", tried.empty() ? "" : "; ", form.text, status.call(),
                         calls.text(status.number()));
  }
  *how = "its virtual memory does not work: " + tried;
  return nullptr;
}

}  // namespace berth
