#include "csrc/standin/entry.h"
#include "csrc/standin/pool.h"

#include <algorithm>
#include <utility>

namespace berth::standin {
namespace {

enum Attribute {
  kReuseFollowEvents = 1,
  kReuseOpportunistic = 2,
  kReuseInternal = 3,
  kReleaseThreshold = 4,
  kReservedCurrent = 5,
  kReservedHigh = 6,
  kUsedCurrent = 7,
  kUsedHigh = 8,
};

std::shared_ptr<Pool> pool_of(const Machine& machine, Opaque handle) {
  const auto found = machine.pools.find(handle);
  return found == machine.pools.end() ? nullptr : found->second;
}

// Gives kept blocks back whose free has run, until the pool holds at most `keep` bytes.
void trim(Machine& machine, Pool& pool, std::size_t keep) {
  for (auto it = pool.kept.begin(); it != pool.kept.end() && pool.reserved > keep;) {
    const Pool::KeptBlock& block = *it->second;
    if (!block.free_has_run) {
      ++it;
      continue;
    }
    const Allocation* found = machine.space.at(block.begin);
    machine.give_back(block.begin, block.size, "trim", false);
    if (found != nullptr) machine.release(*found);
    pool.reserved -= block.size;
    it = pool.kept.erase(it);
  }
}

// A kept block of exactly this size that the stream may take, or null.
std::shared_ptr<Pool::KeptBlock> take_kept(Pool& pool, const Stream& stream, std::size_t size) {
  auto [it, end] = pool.kept.equal_range(size);
  for (; it != end; ++it) {
    const Pool::KeptBlock& block = *it->second;
    const bool ordered = block.stream == stream.id || block.free_has_run;
    if (!ordered) continue;
    auto taken = std::move(it->second);
    pool.kept.erase(it);
    return taken;
  }
  return nullptr;
}

Status allocate_from(Entry& entry, Pool& pool, const StreamPointer& stream, std::size_t size,
                     void** pointer) {
  Machine& machine = entry.machine;
  const std::size_t counted = counted_bytes(size);
  std::uintptr_t begin = 0;
  if (const auto block = take_kept(pool, *stream, counted)) {
    begin = block->begin;
    // The runtime orders the new owner after the free; nobody has to wait for it.
    stream->clock.join(block->clock);
  } else {
    Allocation made;
    Status status = machine.allocate(pool.device, size, Allocation::Kind::kPool, made);
    if (status == kMemoryAllocation) {
      machine.drain_device(entry.lock, pool.device);
      trim(machine, pool, 0);
      status = machine.allocate(pool.device, size, Allocation::Kind::kPool, made);
    }
    if (status != kSuccess) return status;
    made.handle = reinterpret_cast<std::uintptr_t>(&pool);
    machine.space.add(made);
    begin = made.begin;
    pool.reserved += counted;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
  }
  pool.used += counted;
  pool.used_high = std::max(pool.used_high, pool.used);
  *pointer = reinterpret_cast<void*>(begin);
  return kSuccess;
}

Status free_to_pool(Entry& entry, const StreamPointer& stream, void* pointer) {
  Machine& machine = entry.machine;
  const Allocation* found = machine.space.at(reinterpret_cast<std::uintptr_t>(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kPool) return kInvalidValue;
  const std::shared_ptr<Pool> pool = pool_of(machine, reinterpret_cast<Opaque>(found->handle));
  if (!pool) return kInvalidValue;
  // Inside a capture the address belongs to the graph, so nobody else gets it.
  if (stream->capture) {
    Operation node{.kind = Operation::Kind::kFree, .name = "cudaFreeAsync"};
    return machine.enqueue(entry.lock, *stream, std::move(node));
  }
  auto block = std::make_shared<Pool::KeptBlock>();
  block->begin = found->begin;
  block->size = found->mapped;
  block->stream = stream->id;
  Operation operation{.kind = Operation::Kind::kFree, .name = "cudaFreeAsync"};
  operation.accesses.push_back({block->begin, block->size, Accesses::Kind::kWrite});
  operation.work = [block] { block->free_has_run = true; };
  const Status status = machine.enqueue(entry.lock, *stream, std::move(operation));
  if (status != kSuccess) return status;
  block->clock = stream->clock;
  pool->used -= block->size;
  pool->kept.emplace(block->size, std::move(block));
  if (pool->reserved > pool->release_threshold)
    trim(machine, *pool, std::max(pool->used, pool->release_threshold));
  return kSuccess;
}

int allocate_async(void** pointer, std::size_t size, Opaque handle, StreamHandle stream_handle) {
  if (pointer == nullptr) return remember(kInvalidValue);
  *pointer = nullptr;
  return call_on_stream(stream_handle, [&](Entry& entry, const StreamPointer& stream) {
    const std::shared_ptr<Pool> pool = handle == nullptr ? entry.machine.device(stream->device).pool
                                                         : pool_of(entry.machine, handle);
    if (!pool) return kInvalidValue;
    if (size == 0) return kSuccess;
    return allocate_from(entry, *pool, stream, size, pointer);
  });
}

}  // namespace

extern "C" {

int cudaMallocAsync(void** pointer, std::size_t size, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  return allocate_async(pointer, size, nullptr, stream);
}

int cudaMallocFromPoolAsync(void** pointer, std::size_t size, Opaque pool, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  if (pool == nullptr) return remember(kInvalidValue);
  return allocate_async(pointer, size, pool, stream);
}

int cudaFreeAsync(void* pointer, StreamHandle handle) {
  BERTH_STANDIN_ENTER();
  if (pointer == nullptr) return kSuccess;
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    return free_to_pool(entry, stream, pointer);
  });
}

int cudaDeviceGetDefaultMemPool(Opaque* pool, int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  *pool = entry.machine.device(device).default_pool.get();
  return kSuccess;
}

int cudaDeviceGetMemPool(Opaque* pool, int device) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  *pool = entry.machine.device(device).pool.get();
  return kSuccess;
}

int cudaDeviceSetMemPool(int device, Opaque handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Pool> pool = pool_of(entry.machine, handle);
  if (!entry.machine.valid_device(device)) return remember(kInvalidDevice);
  if (!pool || pool->device != device) return remember(kInvalidValue);
  entry.machine.device(device).pool = pool;
  return kSuccess;
}

int cudaMemPoolCreate(Opaque* handle, const PoolProperties* properties) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (properties == nullptr || !entry.machine.valid_device(properties->location.id))
    return remember(kInvalidValue);
  auto pool = std::make_shared<Pool>();
  pool->device = properties->location.id;
  *handle = pool.get();
  entry.machine.pools.emplace(pool.get(), std::move(pool));
  return kSuccess;
}

int cudaMemPoolDestroy(Opaque handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Pool> pool = pool_of(entry.machine, handle);
  if (!pool || pool == entry.machine.device(pool->device).default_pool)
    return remember(kInvalidValue);
  entry.machine.drain_device(entry.lock, pool->device);
  trim(entry.machine, *pool, 0);
  DeviceState& device = entry.machine.device(pool->device);
  if (device.pool == pool) device.pool = device.default_pool;
  entry.machine.pools.erase(handle);
  return kSuccess;
}

int cudaMemPoolGetAttribute(Opaque handle, int attribute, void* value) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Pool> pool = pool_of(entry.machine, handle);
  if (!pool || value == nullptr) return remember(kInvalidValue);
  auto& number = *static_cast<std::uint64_t*>(value);
  switch (attribute) {
    case kReuseFollowEvents:
    case kReuseOpportunistic:
    case kReuseInternal:
      *static_cast<int*>(value) = static_cast<int>(pool->reuse_flags[attribute - 1]);
      return kSuccess;
    case kReleaseThreshold:
      number = pool->release_threshold;
      return kSuccess;
    case kReservedCurrent:
      number = pool->reserved;
      return kSuccess;
    case kReservedHigh:
      number = pool->reserved_high;
      return kSuccess;
    case kUsedCurrent:
      number = pool->used;
      return kSuccess;
    case kUsedHigh:
      number = pool->used_high;
      return kSuccess;
    default:
      return remember(kInvalidValue);
  }
}

int cudaMemPoolSetAttribute(Opaque handle, int attribute, void* value) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Pool> pool = pool_of(entry.machine, handle);
  if (!pool || value == nullptr) return remember(kInvalidValue);
  switch (attribute) {
    case kReuseFollowEvents:
    case kReuseOpportunistic:
    case kReuseInternal:
      pool->reuse_flags[attribute - 1] = static_cast<std::uint64_t>(*static_cast<int*>(value));
      return kSuccess;
    case kReleaseThreshold:
      pool->release_threshold = *static_cast<std::uint64_t*>(value);
      return kSuccess;
    case kReservedHigh:
      pool->reserved_high = pool->reserved;
      return kSuccess;  // only a reset is allowed
    case kUsedHigh:
      pool->used_high = pool->used;
      return kSuccess;
    default:
      return remember(kInvalidValue);
  }
}

int cudaMemPoolSetAccess(Opaque handle, const AccessDescription* accesses, std::size_t count) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (!pool_of(entry.machine, handle)) return remember(kInvalidValue);
  for (std::size_t i = 0; i < count; ++i) {
    if (!entry.machine.valid_device(accesses[i].location.id)) return remember(kInvalidDevice);
  }
  return kSuccess;
}

int cudaMemPoolTrimTo(Opaque handle, std::size_t keep) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Pool> pool = pool_of(entry.machine, handle);
  if (!pool) return remember(kInvalidValue);
  trim(entry.machine, *pool, keep);
  return kSuccess;
}

}  // extern "C"
}  // namespace berth::standin
