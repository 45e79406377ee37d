#include "csrc/torch/step/spills.h"

#include "csrc/core/bytes.h"
#include "csrc/core/check.h"
#include "csrc/torch/step/captures.h"
#include "csrc/torch/step/denied_bytes.h"
#include "csrc/torch/step/elapsed.h"
#include "csrc/torch/step/leaving_blocks.h"
#include "csrc/torch/step/outside_memory.h"
#include "csrc/torch/step/profilers.h"
#include "csrc/torch/step/tap.h"
#include "csrc/torch/step/tensors.h"

#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <tuple>
#include <utility>

namespace berth::torch::step {

namespace {

// Smaller ones are not worth a copy each.
constexpr Bytes kLeast = 512;

// Uses of a step that are noted: 4 B each.
constexpr std::uint32_t kMostUses = 1U << 20;

// Longer than a kernel that runs takes.
constexpr OperatorTurns::Patience kPatience = std::chrono::seconds(30);

std::optional<c10::Stream> stream_now(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

// As below autograd, autocast, dispatch modes and the tap.
class Plain {
  const c10::impl::ForceDispatchKeyGuard keys_{
      c10::DispatchKeySet(c10::DispatchKey::BackendSelect),
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset |
          c10::DispatchKeySet(kTapKey) | c10::DispatchKeySet(kCompositeKey)};
};

void wait_for(c10::Stream first, c10::Stream then) {
  c10::Event done(first.device_type());
  done.record(first);
  done.block(then);
}

// Keeps from a profiler, and from what measures kernels, that a tensor's memory comes or goes.
class Unseen final : public MemoryListener {
 public:
  // `enabled`: libtorch's own table of blocks has it.
  explicit Unseen(bool enabled) : enabled_(enabled) {}
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  [[nodiscard]] bool memoryProfilingEnabled() const override { return enabled_; }

 private:
  const bool enabled_;
};

// None beside a profiler, whose place it would take: the guard then does nothing. What measures a
// kernel has that place, too.
std::shared_ptr<Unseen> unseen_if_alone(bool enabled) {
  return is_profiled() ? nullptr : std::make_shared<Unseen>(enabled);
}

}  // namespace

std::atomic<bool> Spills::on_{false};
thread_local bool Spills::fetches_ = false;
thread_local Bytes Spills::lacked_ = 0;

Spills::Spills() : turns_(kPatience) {
  BERTH_CHECK(::pthread_atfork(
                  [] {
                    get().mutex_.lock();
                    get().turns_.lock();
                  },
                  [] {
                    get().turns_.unlock();
                    get().mutex_.unlock();
                  },
                  [] {
                    get().turns_.forget_others_in_child();
                    get().turns_.unlock();
                    get().mutex_.unlock();
                  }) == 0,
              kSystem, "pthread_atfork has no memory left to register berth's handlers");
}

Spills& Spills::get() {
  static auto* const one = new Spills;  // never destroyed: storages that are away point to it
  return *one;
}

void Spills::allow(Bytes host_bytes) {
  const std::lock_guard lock(mutex_);
  memory_.allow(host_bytes);
  set_room_maker(*this);
  on_.store(true, std::memory_order_release);
}

Spills::Figures Spills::figures() const {
  const std::lock_guard lock(mutex_);
  Figures figures = figures_;
  figures.host = memory_.away();
  figures.host_peak = memory_.away_peak();
  return figures;
}

void Spills::watch_shortage() {
  const std::lock_guard lock(mutex_);
  least_lacking_ = most_lacking_ = lacking_;
}

Bytes Spills::shortage() const {
  const std::lock_guard lock(mutex_);
  return most_lacking_ - least_lacking_;
}

void Spills::set_lacks_room(Entry& entry, bool lacks) {
  if (std::exchange(entry.lacked_room, lacks) == lacks) return;
  if (lacks)
    lacking_ += entry.copy.bytes;
  else
    lacking_ -= entry.copy.bytes;
  most_lacking_ = std::max(most_lacking_, lacking_);
  least_lacking_ = std::min(least_lacking_, lacking_);
}

Bytes Spills::known(std::optional<c10::Device> device) const {
  const std::lock_guard lock(mutex_);
  Bytes all = 0;
  for (const Entry& one : entries_)
    if (!one.away && one.real == nullptr && !one.storage.expired() &&
        (!device || one.device == *device))
      all += one.bytes;
  return all;
}

std::string Spills::why_no_room() const {
  const std::lock_guard lock(mutex_);
  return why_;
}

// --- Who uses what ------------------------------------------------------------------------------

Spills::Entry* Spills::find_or_add(c10::StorageImpl& storage) {
  const auto found = by_storage_.find(&storage);  // the weak reference keeps its address
  if (found != by_storage_.end()) {
    Entry& entry = *found->second;
    // mutant: spills-pair-one
    return entry.real != nullptr ? entry.real : &entry;
  }
  if (storage._mutable_data_ptr_no_checks().get() == nullptr || storage.nbytes() < kLeast)
    return nullptr;
  drop_dead();
  Entry& entry = add(storage);
  entry.touched = clock_;
  if (made_.size() == kMostUses) return &entry;
  entry.made = made_.size();
  if (entry.made < made_before_.size() && made_before_[entry.made].bytes == entry.bytes)
    entry.used_before = made_before_[entry.made].used_at;
  made_.push_back({.bytes = entry.bytes});
  return &entry;
}

Spills::Entry& Spills::add(c10::StorageImpl& storage) {
  if (const c10::DeviceType type = storage.device_type(); type != c10::kCPU && !asks_for_room(type))
    allocators_ask_.store(false, std::memory_order_relaxed);
  entries_.push_back({.storage = Weak::reclaim_copy(&storage),
                      .address = &storage,
                      .device = storage.device(),
                      .bytes = storage.nbytes()});
  by_storage_.emplace(&storage, std::prev(entries_.end()));
  return entries_.back();
}

void Spills::note_use(Entry& entry) {
  if (clock_ == kMostUses) return;
  entry.touched = clock_;
  entry.used_at.push_back(clock_++);
}

std::uint64_t Spills::next_use(const Entry& entry) const {
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  const std::vector<std::uint32_t>& before = entry.used_before;
  if (entry.used_at.size() < before.size()) return before[entry.used_at.size()];
  // Of one that the step makes only this step is known.
  if (entry.made == kMadeBefore && !before.empty()) return std::uint64_t{length_} + before.front();
  if (length_ != 0 && (entry.made == kMadeBefore || !before.empty())) return kNever;
  // As far off as its last use.
  return std::uint64_t{clock_} + (clock_ - entry.touched);
}

void Spills::end_step() {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  for (Entry& one : entries_) {
    if (one.made != kMadeBefore) made_[one.made].used_at = one.used_at;
    one.made = kMadeBefore;
    one.used_before = std::exchange(one.used_at, {});
    one.touched = 0;
  }
  made_before_ = std::exchange(made_, {});
  length_ = std::exchange(clock_, 0);
}

void Spills::drop_dead(bool all) {
  if (!all && entries_.size() < 2 * alive_ + 256) return;
  for (auto one = entries_.begin(); one != entries_.end();) {
    if (!one->storage.expired() || one->away || one->uses > 0 || one->real != nullptr ||
        one->other != nullptr) {
      ++one;
      continue;
    }
    forget_copy(*one);
    if (one->made != kMadeBefore) made_[one->made].used_at = std::move(one->used_at);
    by_storage_.erase(one->address);
    one = entries_.erase(one);
  }
  alive_ = entries_.size();
}

// The weak reference of an entry keeps the storage where it is.
void Spills::let_compare(const c10::StorageImpl& storage) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  compared_ = &storage;
  for (const Entry& one : entries_)
    if (one.away) allow_bytes(*one.address);
}

void Spills::end_compare() {
  compared_ = nullptr;
  if (looked_at_.load(std::memory_order_relaxed)) return;
  for (const Entry& one : entries_)
    if (one.away) deny_bytes_again(*one.address);
}

void Spills::let_profilers_look() {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  set_looked_at(true);
}

void Spills::set_looked_at(bool looked_at) {
  looked_at_.store(looked_at, std::memory_order_relaxed);
  looks_on_ = std::this_thread::get_id();
  profiled_ = false;
  for (const Entry& one : entries_)
    if (one.away) looked_at ? allow_bytes(*one.address) : deny_bytes_again(*one.address);
}

void Spills::note_profiler() {
  const bool profiled = is_profiled();
  if (!profiled && !looked_at_.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  if (profiled) {
    if (!looked_at_.load(std::memory_order_relaxed)) set_looked_at(true);
    profiled_ = true;
  } else if (profiled_ && looks_on_ == std::this_thread::get_id()) {
    set_looked_at(false);
  }
}

void Spills::use(const Used& one, std::vector<void*>& used) {
  Entry* const entry = find_or_add(*one.storage);
  if (entry == nullptr) return;
  entries_.splice(entries_.end(), entries_, by_storage_.at(entry->address));
  ++entry->uses;
  note_use(*entry);
  used.push_back(entry);
  if (!entry->away) entry->bytes = one.storage->nbytes();
  wait_for_arrival(*entry);
  entry->written |= one.written;
  if (one.written && !entry->away) forget_copy(*entry);
  entry->stays |= one.stays;
  const std::optional<c10::Stream> stream = stream_now(entry->device);
  if (entry->stream && stream != entry->stream) entry->stays = true;
  entry->stream = stream;
}

void Spills::note_stream(Entry& entry) {
  if (!entry.stream) entry.stream = stream_now(entry.device);
}

void Spills::see(c10::StorageImpl& storage, std::shared_ptr<c10::Event> arriving) {
  if (!on()) return;
  const std::lock_guard lock(mutex_);
  Entry* const entry = find_or_add(storage);
  if (entry == nullptr) return;
  note_stream(*entry);
  if (arriving != nullptr) entry->arriving = std::move(arriving);
}

// --- Away and back ------------------------------------------------------------------------------

// A storage that is away has died, or has got other bytes.
void Spills::drop(void* entry) noexcept {
  Spills& spills = get();
  const std::lock_guard lock(spills.mutex_);
  auto& gone = *static_cast<Entry*>(entry);
  if (!gone.away) return;
  gone.away = false;
  spills.set_lacks_room(gone, false);
  spills.memory_.end_away(std::exchange(gone.copy, {}), gone.left_on);
}

// What the storage had is no memory, and nobody is to be told that it is gone.
void Spills::put(c10::StorageImpl& storage, c10::DataPtr block) {
  (void)storage.set_data_ptr(std::move(block)).release_context();
}

void Spills::bring_back(Entry& entry, bool scheduled, const std::optional<c10::Stream>& by) {
  Strong other;
  {
    const std::lock_guard lock(mutex_);
    if (!entry.away) return;
    other = other_of(entry);
  }
  const Strong storage = entry.storage.lock();
  if (storage == nullptr) return;
  const Elapsed elapsed;
  const c10::DeviceGuard here(entry.device);
  c10::DataPtr block;
  for (Bytes room = storage->nbytes(); block.get() == nullptr; room *= 2) {
    try {
      const c10::DebugInfoGuard unseen(c10::DebugInfoKind::PROFILER_STATE, unseen_if_alone(true));
      block = storage->allocator()->allocate(storage->nbytes());
    } catch (const c10::OutOfMemoryError&) {
      if (asks_for_room(entry.device.type()) || !make_room(entry.device, room)) throw;
    }
  }
  const std::lock_guard lock(mutex_);
  if (!entry.away) return;  // another thread has brought it back
  entry.away = false;
  set_lacks_room(entry, false);
  allow_bytes(*storage);
  put(*storage, std::move(block));
  if (other != nullptr && entry.other != nullptr && entry.other->address == other.get()) {
    entry.other->away = false;
    allow_bytes(*other);
    set_address(*other, storage->mutable_data());
  }
  if (entry.device.is_cpu()) {
    std::memcpy(storage->mutable_data(), entry.copy.plain.get(), entry.copy.bytes);
  } else {
    const Plain plain;
    const c10::Stream here_now = *stream_now(entry.device);
    const c10::Stream copies = by.value_or(here_now);
    if (copies != here_now) wait_for(here_now, copies);
    if (entry.left_on && entry.left_on != copies) wait_for(*entry.left_on, copies);
    const c10::StreamGuard on(copies);
    all_bytes(c10::Storage(storage)).copy_(entry.copy.pinned, /*non_blocking=*/true);
    if (copies != here_now) {
      entry.arriving = std::make_shared<c10::Event>(entry.device.type());
      entry.arriving->record(copies);
    }
  }
  if (!scheduled) figures_.in += entry.copy.bytes;
  memory_.come_back(entry.copy.bytes);
  entry.copied = true;
  if (entry.written) forget_copy(entry);
  if (!scheduled) figures_.ns += elapsed.ns();
}

void Spills::lay_out(const std::vector<void*>& entries, const Rooms& rooms) {
  const c10::DebugInfoGuard unseen(c10::DebugInfoKind::PROFILER_STATE, unseen_if_alone(true));
  std::vector<std::pair<Bytes, Entry*>> parts;  // without an entry: room
  for (const Bytes one : rooms) parts.emplace_back(one, nullptr);
  std::optional<c10::Device> device;
  {
    const std::lock_guard lock(mutex_);
    for (void* const one : entries) {
      Entry& entry = *static_cast<Entry*>(one);
      parts.emplace_back(entry.bytes, &entry);
      device = entry.device;
    }
  }
  if (!device) return;
  // First fit decreasing (D. S. Johnson, Near-optimal bin packing algorithms, 1973).
  std::stable_sort(parts.begin(), parts.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<c10::DataPtr> held;
  for (const auto& [bytes, entry] : parts) {
    if (entry != nullptr) {
      bring_back(*entry);
      continue;
    }
    fetches_ = true;
    const auto over = c10::make_scope_exit([] { fetches_ = false; });
    try {
      const c10::DeviceGuard here(*device);
      held.push_back(c10::GetAllocator(device->type())->allocate(bytes));
    } catch (const c10::OutOfMemoryError&) {  // what is there has to do
    }
  }
}

bool Spills::may_leave(const Entry& entry, const std::optional<c10::Stream>& stream) {
  const auto idle = [](const Entry& one) { return one.uses == 0 && !one.stays; };
  // mutant: spills-pair-idle
  return idle(entry) && !entry.away && entry.stream == stream && entry.real == nullptr &&
         (entry.other == nullptr || idle(*entry.other));
}

std::vector<Spills::Strong> Spills::candidates(c10::Device device, Bytes bytes) const {
  const std::optional<c10::Stream> stream = stream_now(device);
  std::vector<Weak> found;
  {
    const std::lock_guard lock(mutex_);
    // By the next use; where that is the same, those that were used longer ago come first.
    using Candidate = std::tuple<std::uint64_t, std::size_t, const Entry*>;
    std::vector<Candidate> heap;
    std::size_t left = entries_.size();
    for (const Entry& one : entries_) {
      --left;
      if (one.device == device && may_leave(one, stream) && !one.storage.expired())
        heap.emplace_back(next_use(one), left, &one);
    }
    std::make_heap(heap.begin(), heap.end());
    for (Bytes of_them = 0; !heap.empty() && of_them < bytes; heap.pop_back()) {
      std::pop_heap(heap.begin(), heap.end());
      const Entry& one = *std::get<const Entry*>(heap.back());
      found.push_back(one.storage);
      of_them += one.bytes;
    }
  }
  std::vector<Strong> storages;
  storages.reserve(found.size());
  for (const Weak& one : found)
    if (Strong storage = one.lock(); storage != nullptr) storages.push_back(std::move(storage));
  return storages;
}

Bytes Spills::leave(const std::vector<Strong>& storages, Bytes bytes) {
  std::vector<Strong> others;
  const std::lock_guard lock(mutex_);
  Bytes freed = 0;
  for (const Strong& storage : storages) {
    if (freed >= bytes) break;
    const auto found = by_storage_.find(storage.get());
    if (found == by_storage_.end()) continue;
    const Bytes size = storage->nbytes();
    others.push_back(other_of(*found->second));
    if (leave(*found->second, *storage, others.back())) freed += size;
  }
  return freed;
}

bool Spills::host_has(Bytes bytes) {
  for (auto one = entries_.begin(); !memory_.has(bytes) && one != entries_.end(); ++one)
    forget_copy(*one);
  return memory_.has(bytes);
}

void Spills::forget_copy(Entry& entry) {
  if (!std::exchange(entry.copied, false)) return;
  // Of one that is still on its way libtorch knows when the memory is free.
  if (entry.arriving != nullptr)
    memory_.drop_copy(std::exchange(entry.copy, {}));
  else
    memory_.end_copy(std::exchange(entry.copy, {}), entry.stream);
}

Spills::Copy Spills::copy_of(c10::StorageImpl& storage, Copy room) {
  const Bytes bytes = storage.nbytes();
  if (storage.device().is_cpu()) {
    if (room.bytes == 0) room.plain = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(room.plain.get(), storage.data(), bytes);
  } else {
    const Plain plain;
    if (room.bytes == 0)
      room.pinned = at::empty({static_cast<std::int64_t>(bytes)},
                              at::TensorOptions().dtype(at::kByte).pinned_memory(true));
    room.pinned.copy_(all_bytes(c10::Storage(Strong::reclaim_copy(&storage))),
                      /*non_blocking=*/true);
  }
  room.bytes = bytes;
  return room;
}

bool Spills::leave(Entry& entry, c10::StorageImpl& storage, const Strong& other,
                   const std::optional<c10::Stream>& by, c10::DataPtr* block) {
  const Bytes bytes = storage.nbytes();
  const c10::Device device = entry.device;
  if (!may_leave(entry, stream_now(device)) || bytes < kLeast ||
      (entry.other != nullptr && !may_leave_with(other)) ||
      storage.allocator() != c10::GetAllocator(device.type()) ||
      storage._mutable_data_ptr_no_checks().get() == nullptr || is_foreign(storage))
    return false;
  const bool scheduled = block != nullptr;
  wait_for_arrival(entry);
  std::optional<c10::Stream> copies = entry.stream;
  if (entry.copied && entry.copy.bytes == bytes) {
    entry.copied = false;
    memory_.leave_again(bytes);
    block = nullptr;
  } else {
    forget_copy(entry);
    if (!host_has(bytes)) {
      why_ = fmt::format("{} of tensors are on the host, of {} that host_memory allows",
                         format_bytes(memory_.away() + memory_.scheduled()),
                         format_bytes(memory_.allowed()));
      return false;
    }
    Copy room = memory_.take_spare(bytes, entry.stream);
    std::optional<c10::StreamGuard> on;
    if (by) {
      copies = by;
      if (room.bytes == 0) room = memory_.take_spare(bytes, by);
      wait_for(*entry.stream, *by);
      on.emplace(*by);
    }
    entry.copy = copy_of(storage, std::move(room));
    memory_.leave(bytes);
    if (!scheduled) figures_.out += bytes;
  }
  // A block of another stream is free once this stream has copied it.
  if (entry.stream)
    c10::impl::VirtualGuardImpl(device.type())
        .recordDataPtrOnStream(storage._mutable_data_ptr_no_checks(), *entry.stream);
  entry.away = true;
  set_lacks_room(entry, !scheduled);
  entry.written = false;
  entry.left_on = copies;
  if (MemoryListener* const listener = MemoryListener::get(); listener != nullptr)
    listener->left(storage._mutable_data_ptr_no_checks().get());
  ++figures_.left;
  const c10::DebugInfoGuard unseen(c10::DebugInfoKind::PROFILER_STATE, unseen_if_alone(false));
  c10::DataPtr had = storage.set_data_ptr(c10::DataPtr(nullptr, &entry, &drop, device));
  if (block != nullptr) *block = std::move(had);
  had.clear();
  deny_away(storage);
  if (entry.other != nullptr) {
    entry.other->away = true;
    set_address(*other, nullptr);
    deny_away(*other);
  }
  return true;
}

void Spills::wait_for_arrival(Entry& entry) {
  if (entry.arriving == nullptr) return;
  const c10::Stream now = *stream_now(entry.device);
  entry.arriving->block(now);
  if (now == entry.stream) entry.arriving.reset();
}

c10::DataPtr Spills::send(c10::StorageImpl& storage, const std::optional<c10::Stream>& by) {
  c10::DataPtr block(nullptr, storage.device());
  if (!on() || is_captured(storage.device())) return block;
  Strong other;
  const std::lock_guard lock(mutex_);
  Entry* const entry = find_or_add(storage);
  if (entry == nullptr || entry->address != &storage) return block;
  note_stream(*entry);
  try {
    other = other_of(*entry);
    (void)leave(*entry, storage, other, by, &block);
  } catch (const std::exception&) {  // no memory on the host: it stays
  }
  return block;
}

bool Spills::fetch(c10::StorageImpl& storage, const std::optional<c10::Stream>& by) {
  if (!away(storage) || is_captured(storage.device())) return false;
  Entry* entry = nullptr;
  {
    const std::lock_guard lock(mutex_);
    entry = find_or_add(storage);
    if (entry == nullptr || !entry->away || entry->stream != stream_now(entry->device))
      return false;
    ++entry->uses;
  }
  const auto over = c10::make_scope_exit([&] {
    const std::lock_guard lock(mutex_);
    --entry->uses;
  });
  fetches_ = true;
  const auto fetched = c10::make_scope_exit([] { fetches_ = false; });
  try {
    bring_back(*entry, true, by);
  } catch (const c10::OutOfMemoryError&) {
    return false;
  }
  return true;
}

at::Tensor Spills::copy_to_host(const at::Tensor& bytes) {
  const Plain plain;
  at::Tensor copy =
      at::empty({bytes.numel()},
                at::TensorOptions().dtype(at::kByte).pinned_memory(!bytes.device().is_cpu()));
  copy.copy_(bytes, /*non_blocking=*/true);
  return copy;
}

void Spills::copy_from_host(const at::Tensor& copy, at::Tensor bytes) {
  const Plain plain;
  bytes.copy_(copy, /*non_blocking=*/true);
}

c10::Storage Spills::find(const c10::StorageImpl* address) const {
  Weak known = Weak(Strong());
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_storage_.find(address);
    if (found == by_storage_.end()) return {};
    known = found->second->storage;
  }
  Strong storage = known.lock();
  return storage == nullptr ? c10::Storage() : c10::Storage(std::move(storage));
}

std::string Spills::who_stays(c10::Device device, Bytes asked) const {
  Bytes used = 0, others = 0;
  for (const Entry& one : entries_) {
    if (one.away || one.real != nullptr || one.device != device || one.storage.expired()) continue;
    (one.uses > 0 ? used : others) += one.bytes;
  }
  const Use::Need need = Use::need(device);
  const std::string where = "no tensor is left that could go to the host: ";
  const std::string rest =
      fmt::format("somebody else may have the address of {}", format_bytes(others));
  // What all wait for is not asked for by one.
  if (need.name.empty() || asked >= kMaxBytes)
    return fmt::format("{}operators use {} now, and {}", where, format_bytes(used), rest);
  const Bytes elsewhere = used - std::min(used, need.uses);
  return fmt::format("{}{} uses {} and requests {} beside these and its kernel's memory{}, and {}",
                     where, need.name, format_bytes(need.uses), format_bytes(asked),
                     elsewhere == 0 ? std::string()
                                    : fmt::format(", {} stay for other threads or for the schedule",
                                                  format_bytes(elsewhere)),
                     rest);
}

bool Spills::make_room(c10::Device device, Bytes bytes) noexcept {
  thread_local bool leaving = false;
  if (!on() || leaving) return false;
  if (bytes < kMaxBytes) lacked_ = bytes;
  leaving = true;
  const auto over = c10::make_scope_exit([&] { leaving = false; });
  try {
    if (is_captured(device)) return false;
    const Elapsed elapsed;
    const std::uint64_t ended = turns_.ended();
    {
      const std::lock_guard lock(mutex_);
      why_.clear();
      drop_dead(true);
    }
    // What leaves by a schedule already.
    Bytes freed = end_all_leaving(device);
    if (freed < bytes) freed += leave(candidates(device, bytes - freed), bytes - freed);
    // Some of the first ones had to stay.
    if (freed < bytes) freed += leave(candidates(device, kMaxBytes), bytes - freed);
    {
      const std::lock_guard lock(mutex_);
      if (freed == 0 && why_.empty()) why_ = who_stays(device, bytes);
      figures_.ns += elapsed.ns();
    }
    return freed > 0 || wait_for_others(ended);
  } catch (const std::exception& error) {  // no memory on the host, or a device that fails
    const std::lock_guard lock(mutex_);
    why_ = fmt::format("a tensor could not go to the host: {}", error.what());
    return false;
  }
}

}  // namespace berth::torch::step
