#include "csrc/core/check.h"
#include "csrc/cuda/device_memory.h"
#include "csrc/cuda/memory_forms.h"
#include "csrc/cuda/shared_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>
#include <vector>

namespace berth {
namespace {

// Physical memory: one reference of the driver's, however many addresses have it. The driver maps
// it, and takes it back, as a whole.
struct Memory {
  CUmemGenericAllocationHandle handle = 0;
  Bytes size = 0;
  std::uint64_t number = 0;  // for other processes, once it was shared
};

// It at one address.
struct Mapping {
  enum class State : std::uint8_t {
    kFresh,  // mapped by the call that is under way
    kReady,
    // What the driver would not take back, counted as retained; the next commit of these addresses
    // has it, unless others have it as well.
    kMapped,  // perhaps without access
    kHeld,    // not mapped, and no other address is
  };
  std::shared_ptr<Memory> memory;
  State state = State::kHeld;
  int descriptor = -1;  // once it was shared

  [[nodiscard]] Bytes size() const noexcept { return memory->size; }
  [[nodiscard]] bool mapped() const noexcept { return state != State::kHeld; }
};
using Mappings = std::map<Bytes, Mapping>;  // by address, disjoint

struct Reservation {
  Bytes reserved = 0;  // what cuMemAddressReserve gave, at most an alignment below
  Bytes reserved_size = 0;
  Bytes size = 0;
  Mappings mappings;
  bool released = false;  // but the driver would not take all of it back
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
    const std::lock_guard lock(mutex_);
    const CudaMemoryScope scope(calls_, primary_);
    for (auto& [base, range] : reservations_) {
      (void)unmap(range, {base, base + range.size});
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
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    finish_releases();
    try {
      Reservation range;
      range.size = size;
      range.reserved_size = size + spare;
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

  Status commit(void* base, Bytes size, Bytes most) noexcept override {
    const std::lock_guard lock(mutex_);
    ByteRange bytes;
    Reservation* const range = find(base, size, &bytes);
    if (range == nullptr || most < page_)
      return {Status::Code::kFailed, "commit", cudaErrorInvalidValue};
    if (first_not_ready(*range, bytes).size() == 0) return {};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    Status status = bring(*range, bytes, align_down(most, page_));
    for (ByteRange run = first_not_ready(*range, bytes); status.ok() && run.size() != 0;
         run = first_not_ready(*range, {run.last, bytes.last}))
      status = calls_.cuMemSetAccess(run.first, run.size(), accesses_.data(), access_count_);
    finish(*range, bytes, status);
    return status;
  }

  Status decommit(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    ByteRange bytes;
    Reservation* const range = find(base, size, &bytes);
    // mutant: handle-part
    if (range == nullptr || !is_whole(*range, bytes))
      return {Status::Code::kFailed, "decommit", cudaErrorInvalidValue};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    return unmap(*range, bytes);
  }

  Status release(void* base, Bytes size) noexcept override {
    const std::lock_guard lock(mutex_);
    const auto it = reservations_.find(reinterpret_cast<Bytes>(base));
    if (it == reservations_.end() || it->second.size != size || it->second.released)
      return {Status::Code::kFailed, "release", cudaErrorInvalidValue};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    Reservation& range = it->second;
    const bool was_empty = range.mappings.empty();
    const Status unmapped = unmap(range, {it->first, it->first + size});
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

  ByteRange handle_at(const void* address) const noexcept override {
    const std::lock_guard lock(mutex_);
    const Bytes at = reinterpret_cast<Bytes>(address);
    const auto range = reservations_.upper_bound(at);
    if (range != reservations_.begin()) {
      const Mappings& mappings = std::prev(range)->second.mappings;
      const auto after = mappings.upper_bound(at);
      if (after != mappings.begin() && end_of(*std::prev(after)) > at)
        return {std::prev(after)->first, end_of(*std::prev(after))};
    }
    return {align_down(at, page_), align_down(at, page_) + page_};
  }

  Status alias(void* to, const void* const* from, std::size_t count) noexcept override {
    const std::lock_guard lock(mutex_);
    constexpr Status invalid(Status::Code::kFailed, "alias", cudaErrorInvalidValue);
    ByteRange bytes;
    if (count > kMaxBytes / page_) return invalid;
    Reservation* const range = find(to, count * page_, &bytes);
    if (range == nullptr) return invalid;
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    if (const Status status = clear(*range, bytes); !status.ok()) return status;
    Status status;
    for (Bytes at = bytes.first; at < bytes.last && status.ok();) {
      const std::shared_ptr<Memory> memory =
          whole_behind(from + (at - bytes.first) / page_, (bytes.last - at) / page_);
      if (memory == nullptr) {
        status = invalid;
      } else {
        status = map(*range, at, memory);
        at += memory->size;
      }
    }
    if (status.ok())
      status = calls_.cuMemSetAccess(bytes.first, bytes.size(), accesses_.data(), access_count_);
    finish(*range, bytes, status);
    return status;
  }

  Status add_peer(int other) noexcept override {
    const std::lock_guard lock(mutex_);
    const CUmemAccessDesc access = access_of(other);
    for (std::size_t i = 0; i < access_count_; ++i)
      if (accesses_[i].location.id == other) return {};
    if (access_count_ == kMaxAccesses)
      return {Status::Code::kUnsupported, "enable_peer", cudaErrorTooManyPeers};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    for (auto& [base, range] : reservations_) {
      for (auto it = range.mappings.begin(); it != range.mappings.end();) {
        ByteRange run{it->first, it->first};
        for (; it != range.mappings.end() && it->first == run.last &&
               it->second.state == Mapping::State::kReady;
             ++it)
          run.last = end_of(*it);
        if (run.size() == 0) {
          ++it;
          continue;
        }
        const Status status = calls_.cuMemSetAccess(run.first, run.size(), &access, 1);
        if (!status.ok()) return status;
      }
    }
    accesses_[access_count_++] = access;
    return {};
  }

  Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) override {
    const std::lock_guard lock(mutex_);
    constexpr Status invalid(Status::Code::kFailed, "share", cudaErrorInvalidValue);
    const Bytes address = reinterpret_cast<Bytes>(pointer), first = align_down(address, page_);
    ByteRange bytes;
    Reservation* const range =
        size > kMaxBytes || address + size < address
            ? nullptr
            : find(pointer_at(first), align_up(address + size, page_) - first, &bytes);
    if (size == 0 || range == nullptr || first_not_ready(*range, bytes).size() != 0) return invalid;
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    // Other berths ask for descriptors; PyTorch's allocator wants them open, which few may be.
    const Status serves = server_.start();
    std::vector<SharedPart> parts;
    auto it = std::prev(range->mappings.upper_bound(address));
    shared->offset = address - it->first;
    const auto first_mapping = it;
    bool equal = true;
    std::size_t closed = 0;
    for (; it != range->mappings.end() && it->first < bytes.last; ++it) {
      Mapping& mapping = it->second;
      if (mapping.memory->number == 0) {
        shared_.emplace(next_number_, mapping.memory->handle);
        mapping.memory->number = next_number_++;
      }
      equal &= mapping.size() == first_mapping->second.size();
      if (mapping.descriptor < 0) ++closed;
      parts.push_back({mapping.size(), -1, mapping.memory->number});
    }
    if (equal && (open_descriptors_ + closed <= most_descriptors() || !serves.ok())) {
      const Status status = open_descriptors(first_mapping, it, parts);
      if (!status.ok() && (!serves.ok() || breaks(status))) return status;
    }
    if (!serves.ok() && parts.back().descriptor < 0) return serves;
    shared->handle = shared_virtual_handle(parts, serves.ok() ? &server_.door() : nullptr);
    return {};
  }

  Bytes retained_bytes() const noexcept override {
    const std::lock_guard lock(mutex_);
    return retained_;
  }

 private:
  // Further calls fail as well.
  static bool breaks(const Status& status) noexcept {
    return status.code() == Status::Code::kSticky || status.code() == Status::Code::kGone;
  }

  // A quarter of what the process may have, kMostDescriptors at most.
  static std::size_t most_descriptors() noexcept {
    constexpr rlim_t kMostDescriptors = 256;
    rlimit allowed{};
    if (getrlimit(RLIMIT_NOFILE, &allowed) != 0) return 0;
    return static_cast<std::size_t>(std::min(allowed.rlim_cur / 4, kMostDescriptors));
  }

  // Each of these mappings keeps one until it is unmapped. After a failure `parts` have none.
  Status open_descriptors(Mappings::iterator it, Mappings::iterator end,
                          std::vector<SharedPart>& parts) noexcept {
    const auto first = it;
    for (; it != end; ++it) {
      if (it->second.descriptor >= 0) continue;
      int descriptor = -1;
      const Status status = calls_.cuMemExportToShareableHandle(
          &descriptor, it->second.memory->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
      if (!status.ok()) return status;
      it->second.descriptor = descriptor;
      ++open_descriptors_;
    }
    auto part = parts.begin();
    for (it = first; it != end; ++it, ++part) part->descriptor = it->second.descriptor;
    return {};
  }

  // For another process, by the server's thread.
  Status export_shared(std::uint64_t number, int* descriptor) noexcept {
    if (cuda_is_over())
      return {Status::Code::kGone, "cuMemExportToShareableHandle", cudaErrorCudartUnloading};
    const std::lock_guard lock(mutex_);
    const auto it = shared_.find(number);
    if (it == shared_.end())
      return {Status::Code::kFailed, "share", cudaErrorInvalidResourceHandle};
    const CudaMemoryScope scope(calls_, primary_);
    if (!scope.status().ok()) return scope.status();
    return calls_.cuMemExportToShareableHandle(descriptor, it->second,
                                               CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  }

  static CUmemAccessDesc access_of(int index) noexcept {
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return access;
  }

  static Bytes end_of(const Mappings::value_type& mapping) noexcept {
    return mapping.first + mapping.second.size();
  }

  // Fails where the driver still has memory of it.
  Status free_addresses(const Reservation& range) noexcept {
    if (!range.mappings.empty())
      return {Status::Code::kFailed, "cuMemUnmap", cudaErrorNotPermitted};
    return calls_.cuMemAddressFree(range.reserved, range.reserved_size);
  }

  // Of ranges that their owners have released, what the driver would not take back then.
  void finish_releases() noexcept {
    for (auto it = reservations_.begin(); it != reservations_.end();) {
      const auto next = std::next(it);
      if (it->second.released) {
        (void)unmap(it->second, {it->first, it->first + it->second.size});
        if (free_addresses(it->second).ok()) reservations_.erase(it);
      }
      it = next;
    }
  }

  // The reservation that these whole pages lie in; null where there is none.
  Reservation* find(void* base, Bytes size, ByteRange* bytes) noexcept {
    const Bytes address = reinterpret_cast<Bytes>(base);
    auto it = reservations_.upper_bound(address);
    if (size == 0 || size % page_ != 0 || it == reservations_.begin()) return nullptr;
    --it;
    const Bytes offset = address - it->first;
    if (it->second.released || offset % page_ != 0 || offset > it->second.size ||
        size > it->second.size - offset)
      return nullptr;
    *bytes = {address, address + size};
    return &it->second;
  }

  // The first mapping that has bytes at `at` or behind it.
  static Mappings::iterator first_behind(Reservation& range, Bytes at) noexcept {
    const auto after = range.mappings.upper_bound(at);
    if (after == range.mappings.begin() || end_of(*std::prev(after)) <= at) return after;
    return std::prev(after);
  }

  // The first stretch of these bytes that is not ready: addresses without memory, and mappings in
  // other states. Empty where all are ready.
  static ByteRange first_not_ready(Reservation& range, ByteRange bytes) noexcept {
    auto it = first_behind(range, bytes.first);
    const auto ready = [&] {
      return it != range.mappings.end() && it->second.state == Mapping::State::kReady;
    };
    for (; ready() && it->first <= bytes.first; ++it)
      bytes.first = std::min(bytes.last, end_of(*it));
    while (it != range.mappings.end() && it->first < bytes.last && !ready()) ++it;
    if (it != range.mappings.end() && it->first < bytes.last)
      bytes.last = std::max(bytes.first, it->first);
    return bytes;
  }

  // Whether no mapping has some of these bytes and others.
  static bool is_whole(Reservation& range, ByteRange bytes) noexcept {
    const auto cut = [&](Bytes at) {
      const auto it = first_behind(range, at);
      return it != range.mappings.end() && it->first < at;
    };
    return !cut(bytes.first) && !cut(bytes.last);
  }

  // The memory that the first of these addresses are all of, in order; null where there is none.
  std::shared_ptr<Memory> whole_behind(const void* const* from, std::size_t count) noexcept {
    ByteRange page;
    Reservation* const range = find(const_cast<void*>(from[0]), page_, &page);
    if (range == nullptr) return nullptr;
    const auto it = range->mappings.find(page.first);
    if (it == range->mappings.end() || it->second.state != Mapping::State::kReady) return nullptr;
    const std::size_t pages = it->second.size() / page_;
    // mutant: handle-alias
    if (pages > count) return nullptr;
    for (std::size_t i = 0; i < pages; ++i)
      if (reinterpret_cast<Bytes>(from[i]) != page.first + i * page_) return nullptr;
    return it->second.memory;
  }

  void set(Mapping& mapping, Mapping::State state) noexcept {
    const auto retained = [](Mapping::State of) {
      return of == Mapping::State::kMapped || of == Mapping::State::kHeld;
    };
    if (retained(mapping.state)) retained_ -= mapping.size();
    if (retained(state)) retained_ += mapping.size();
    mapping.state = state;
  }

  // Memory wherever these bytes have none: what they retain, where it is only theirs, else new.
  Status bring(Reservation& range, ByteRange bytes, Bytes most) noexcept {
    for (auto it = first_behind(range, bytes.first);
         it != range.mappings.end() && it->first < bytes.last;) {
      const auto next = std::next(it);
      Mapping& mapping = it->second;
      if (mapping.state != Mapping::State::kReady) {
        // mutant: alias-retained, handle-kept
        const bool usable = mapping.memory.use_count() == 1 && it->first >= bytes.first &&
                            end_of(*it) <= bytes.last;
        Status status;
        if (!usable)
          status = clear(range, it);
        else if (!mapping.mapped())
          status = map(range, it);
        if (!status.ok()) return status;
      }
      it = next;
    }
    Bytes at = bytes.first;
    while (at < bytes.last) {
      const auto next = first_behind(range, at);
      if (next != range.mappings.end() && next->first <= at) {
        at = end_of(*next);
        continue;
      }
      const Bytes end =
          next == range.mappings.end() ? bytes.last : std::min(bytes.last, next->first);
      for (Bytes size = 0; at < end; at += size) {
        // mutant: handle-most
        size = std::min(most, end - at);
        if (const Status status = create(range, at, size); !status.ok()) return status;
      }
    }
    return {};
  }

  Status create(Reservation& range, Bytes at, Bytes size) noexcept {
    std::shared_ptr<Memory> memory;
    try {
      memory = std::make_shared<Memory>();
    } catch (const std::bad_alloc&) {
      return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
    }
    memory->size = size;
    const Status status = calls_.cuMemCreate(&memory->handle, size, &property_, 0);
    return status.ok() ? map(range, at, memory) : status;
  }

  // At addresses without memory. After a failure they have none, or retain it.
  Status map(Reservation& range, Bytes at, const std::shared_ptr<Memory>& memory) noexcept {
    Mappings::iterator it;
    try {
      it = range.mappings.emplace(at, Mapping{memory}).first;
    } catch (const std::bad_alloc&) {
      // Of what was made just now the creator's reference is the last.
      if (memory.use_count() == 1) (void)calls_.cuMemRelease(memory->handle);
      return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
    }
    retained_ += memory->size;  // as kHeld
    return map(range, it, memory.use_count() == 2);
  }

  // What is held. Where that fails it goes back, if it is only this mapping's.
  Status map(Reservation& range, Mappings::iterator it, bool only = true) noexcept {
    const Status status =
        calls_.cuMemMap(it->first, it->second.size(), 0, it->second.memory->handle, 0);
    if (status.ok())
      set(it->second, Mapping::State::kFresh);
    else
      (void)let_go(range, it, only);
    return status;
  }

  // Of one that is not mapped; its memory goes back with its last address.
  Status let_go(Reservation& range, Mappings::iterator it, bool only) noexcept {
    if (only) {
      if (const Status status = calls_.cuMemRelease(it->second.memory->handle); !status.ok())
        return status;
      if (it->second.memory->number != 0) shared_.erase(it->second.memory->number);
    }
    if (it->second.descriptor >= 0) {
      close(it->second.descriptor);
      --open_descriptors_;
    }
    retained_ -= it->second.size();
    range.mappings.erase(it);
    return {};
  }

  // Fails where it stays mapped, and is as it was.
  Status unmap(Reservation& range, Mappings::iterator it) noexcept {
    if (it->second.mapped()) {
      const Status status = calls_.cuMemUnmap(it->first, it->second.size());
      if (!status.ok()) return status;
      set(it->second, Mapping::State::kHeld);
    }
    // mutant: alias-reference
    (void)let_go(range, it, it->second.memory.use_count() == 1);
    return {};
  }

  // Nothing is retained there afterwards.
  Status clear(Reservation& range, Mappings::iterator it) noexcept {
    if (it->second.mapped()) {
      const Status status = calls_.cuMemUnmap(it->first, it->second.size());
      if (!status.ok()) return status;
      set(it->second, Mapping::State::kHeld);
    }
    return let_go(range, it, it->second.memory.use_count() == 1);
  }

  // Of addresses that have no memory in use; fails where they have some.
  Status clear(Reservation& range, ByteRange bytes) noexcept {
    for (auto it = first_behind(range, bytes.first);
         it != range.mappings.end() && it->first < bytes.last;) {
      const auto next = std::next(it);
      // mutant: alias-over
      if (it->second.state == Mapping::State::kReady)
        return {Status::Code::kFailed, "alias", cudaErrorInvalidValue};
      if (const Status status = clear(range, it); !status.ok()) return status;
      it = next;
    }
    return {};
  }

  // Of a call that mapped memory at these bytes: it is ready, or, after a failure, gone again.
  void finish(Reservation& range, ByteRange bytes, const Status& status) noexcept {
    for (auto it = first_behind(range, bytes.first);
         it != range.mappings.end() && it->first < bytes.last;) {
      const auto next = std::next(it);
      if (status.ok()) set(it->second, Mapping::State::kReady);
      // mutant: alias-undo
      else if (it->second.state == Mapping::State::kFresh && !unmap(range, it).ok())
        set(it->second, Mapping::State::kMapped);
      it = next;
    }
  }

  // Neighbours that are mapped go in one call, which takes several mappings where each is whole.
  // Where the driver refuses they stay as they are, and go one by one.
  void unmap_runs(Reservation& range, ByteRange bytes) noexcept {
    auto it = first_behind(range, bytes.first);
    while (it != range.mappings.end() && it->first < bytes.last) {
      const auto from = it;
      ByteRange run{it->first, it->first};
      for (; it != range.mappings.end() && it->first == run.last && it->first < bytes.last &&
             it->second.mapped();
           ++it)
        run.last = end_of(*it);
      if (it == from) {
        ++it;
      } else if (std::next(from) != it && calls_.cuMemUnmap(run.first, run.size()).ok()) {
        for (auto gone = from; gone != it; ++gone) set(gone->second, Mapping::State::kHeld);
      }
    }
  }

  // Gives memory back. Where the driver unmaps none, nothing changed and that is said; where it
  // unmaps some, the others are retained.
  Status unmap(Reservation& range, ByteRange bytes) noexcept {
    unmap_runs(range, bytes);
    Status failure;
    bool any = false;
    const auto begin = [&] { return first_behind(range, bytes.first); };
    for (auto it = begin(); it != range.mappings.end() && it->first < bytes.last;) {
      const auto next = std::next(it);
      const Status status = unmap(range, it);
      it = next;
      if (status.ok()) {
        any = true;
        continue;
      }
      failure = status;
      if (breaks(status)) break;
    }
    if (failure.ok() || !any) return failure;
    for (auto it = begin(); it != range.mappings.end() && it->first < bytes.last; ++it)
      if (it->second.state == Mapping::State::kReady) set(it->second, Mapping::State::kMapped);
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
  std::size_t open_descriptors_ = 0;
  std::unordered_map<std::uint64_t, CUmemGenericAllocationHandle> shared_;  // by Memory::number
  std::uint64_t next_number_ = 1;
  // Its thread takes the lock: it ends first.
  DescriptorServer server_{
      [this](std::uint64_t number, int* descriptor) { return export_shared(number, descriptor); }};
};

}  // namespace

std::unique_ptr<CudaDeviceMemory> make_virtual_memory(const CudaCalls& calls, CudaPrimary& primary,
                                                      Bytes page_bytes, std::string* how) {
  const MemoryPromises promises = memory_promises(calls, primary.index);
  if (!promises.mapped) {
    *how = "the driver has no virtual memory for it";
    return nullptr;
  }
  const CudaMemoryScope scope(calls, primary);
  BERTH_CHECK(scope.status().ok(), kSystem, "{} failed on cuda:{}: {}", scope.status().call(),
              primary.index, calls.text(scope.status().number()));
  std::string tried;
  for (const MemoryForm& form : kMemoryForms) {
    if (!form.mapped || !form.promised(promises)) continue;
    const MemoryTry found = try_memory_form(calls, primary, form, page_bytes);
    if (found.usable()) {
      *how = fmt::format("virtual, in pages of {}, {}{}{}", format_bytes(found.page), form.text,
                         tried.empty() ? "" : "; in vain: ", tried);
      return std::make_unique<VirtualMemory>(calls, primary, form.property(primary.index),
                                             found.granularity, found.page);
    }
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", form.text, found.failure);
  }
  *how = "its virtual memory does not work: " + tried;
  return nullptr;
}

}  // namespace berth
