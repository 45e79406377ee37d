#include "csrc/standin/entry.h"
#include "csrc/standin/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace berth::standin {
namespace {

constexpr unsigned kIpcMagic = 0x42525448;  // BRTH

// What an IPC handle holds: where another process of this machine finds the pages.
struct IpcContents {
  unsigned magic = kIpcMagic;
  int process = 0;
  int file = 0;
  int device = 0;
  std::uint64_t offset = 0;
  std::uint64_t size = 0;
};
static_assert(sizeof(IpcContents) <= sizeof(IpcHandle));

std::uintptr_t address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// Memory goes back once all work of the device is over, as cudaFree and cudaFreeHost do it.
void free_after_work(Entry& entry, const Allocation& allocation) {
  entry.machine.drain_device(entry.lock, allocation.device);
  entry.machine.give_back(allocation.begin, allocation.mapped, "free", false);
  entry.machine.release(allocation);
}

constexpr int kLocationDevice = 1;  // of cudaMemLocationType; the others are the host

// The managed allocation that holds a range, or null.
Allocation* managed_at(Machine& machine, const void* pointer, std::size_t size) {
  const Allocation* const found = machine.space.holding(address_of(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kManaged ||
      size > found->begin + found->size - address_of(pointer)) {
    return nullptr;
  }
  return machine.space.at(found->begin);
}

}  // namespace

extern "C" {

int cudaMalloc(void** pointer, std::size_t size) {
  BERTH_STANDIN_ENTER();
  if (pointer == nullptr) return remember(kInvalidValue);
  *pointer = nullptr;
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  if (size == 0) return kSuccess;
  Allocation made;
  const Status status =
      entry.machine.allocate(Machine::current_device(), size, Allocation::Kind::kDevice, made);
  if (status != kSuccess) return remember(status);
  *pointer = reinterpret_cast<void*>(made.begin);
  return kSuccess;
}

// Both sides reach it. More than the device has may be asked for; what fits counts as the device's,
// as if a kernel had used it.
int cudaMallocManaged(void** pointer, std::size_t size, unsigned flags) {
  BERTH_STANDIN_ENTER();
  constexpr unsigned kGlobal = 1, kHost = 2;  // cudaMemAttachGlobal, cudaMemAttachHost
  if (pointer == nullptr) return remember(kInvalidValue);
  *pointer = nullptr;
  if (size == 0 || (flags != kGlobal && flags != kHost)) return remember(kInvalidValue);
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  Allocation made;
  const Status status = entry.machine.allocate_managed(Machine::current_device(), size, made);
  if (status != kSuccess) return remember(status);
  *pointer = reinterpret_cast<void*>(made.begin);
  return kSuccess;
}

// Nothing moves; what counts as the device's does, the whole allocation and at once.
int cudaMemPrefetchAsync(const void* pointer, std::size_t size, Location location,
                         unsigned /*flags*/, StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(stream, [&](Entry& entry, const StreamPointer& queue) {
    Allocation* const found = managed_at(entry.machine, pointer, size);
    if (found == nullptr) return kInvalidValue;
    const bool to_device = location.type == kLocationDevice;
    if (to_device && !entry.machine.valid_device(location.id)) return kInvalidDevice;
    const Status status = entry.machine.enqueue(
        entry.lock, *queue, {.kind = Operation::Kind::kKernel, .name = "cudaMemPrefetchAsync"});
    if (status == kSuccess && !queue->capture)
      entry.machine.migrate(*found, to_device ? location.id : -1);
    return status;
  });
}

// Advice is taken and not followed.
int cudaMemAdvise(const void* pointer, std::size_t size, int advice, Location location) {
  BERTH_STANDIN_ENTER();
  constexpr int kFirst = 1, kLast = 6;
  Entry entry;
  if (managed_at(entry.machine, pointer, size) == nullptr || advice < kFirst || advice > kLast)
    return remember(kInvalidValue);
  if (location.type == kLocationDevice && !entry.machine.valid_device(location.id))
    return remember(kInvalidDevice);
  return kSuccess;
}

int cudaFree(void* pointer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (pointer == nullptr) {  // how programs make the thread's context
    if (!entry.machine.devices.empty()) entry.machine.use(Machine::current_device());
    return kSuccess;
  }
  const Allocation* found = entry.machine.space.at(address_of(pointer));
  if (found == nullptr ||
      (found->kind != Allocation::Kind::kDevice && found->kind != Allocation::Kind::kPool &&
       found->kind != Allocation::Kind::kManaged)) {
    return remember(kInvalidValue);
  }
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  if (found->kind == Allocation::Kind::kPool) {
    entry.lock.unlock();
    return cudaFreeAsync(pointer, kLegacyStream);
  }
  free_after_work(entry, Allocation(*found));
  return kSuccess;
}

int cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  entry.machine.use(Machine::current_device());
  const DeviceMemory& memory = entry.machine.device(Machine::current_device()).memory;
  *free = memory.free();
  *total = memory.total();
  return kSuccess;
}

int cudaPointerGetAttributes(PointerAttributes* attributes, const void* pointer) {
  BERTH_STANDIN_ENTER();
  if (attributes == nullptr) return remember(kInvalidValue);
  Entry entry;
  *attributes = {};
  attributes->host_pointer = const_cast<void*>(pointer);
  const Allocation* found = entry.machine.space.holding(address_of(pointer));
  if (found == nullptr) {
    attributes->type = kMemoryUnregistered;
    attributes->device = -2;
    return kSuccess;
  }
  attributes->device = found->device;
  attributes->device_pointer = const_cast<void*>(pointer);
  const bool managed = found->kind == Allocation::Kind::kManaged;
  attributes->type = managed ? kMemoryManaged : found->on_device() ? kMemoryDevice : kMemoryHost;
  if (found->on_device() && !managed) attributes->host_pointer = nullptr;
  return kSuccess;
}

int cudaHostAlloc(void** pointer, std::size_t size, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  *pointer = nullptr;
  Entry entry;
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  if (size == 0) return kSuccess;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return remember(kMemoryAllocation);
  entry.machine.use(Machine::current_device());
  entry.machine.space.add(
      {address_of(memory), size, size, Allocation::Kind::kHost, Machine::current_device(), 0, 0});
  *pointer = memory;
  return kSuccess;
}

int cudaMallocHost(void** pointer, std::size_t size) { return cudaHostAlloc(pointer, size, 0); }

int cudaFreeHost(void* pointer) {
  BERTH_STANDIN_ENTER();
  if (pointer == nullptr) return kSuccess;
  Entry entry;
  const Allocation* found = entry.machine.space.at(address_of(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kHost) return remember(kInvalidValue);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  free_after_work(entry, Allocation(*found));
  return kSuccess;
}

int cudaHostRegister(void* pointer, std::size_t size, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (pointer == nullptr || size == 0) return remember(kInvalidValue);
  const std::uintptr_t begin = address_of(pointer);
  if (entry.machine.space.overlaps(begin, begin + size))
    return remember(kHostMemoryAlreadyRegistered);
  entry.machine.use(Machine::current_device());
  entry.machine.space.add(
      {begin, size, size, Allocation::Kind::kRegistered, Machine::current_device(), 0, 0});
  return kSuccess;
}

int cudaHostUnregister(void* pointer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const Allocation* found = entry.machine.space.at(address_of(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kRegistered)
    return remember(kHostMemoryNotRegistered);
  entry.machine.drain_device(entry.lock, found->device);
  entry.machine.space.remove(address_of(pointer));
  return kSuccess;
}

int cudaHostGetDevicePointer(void** device, void* host, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const Allocation* found = entry.machine.space.holding(address_of(host));
  if (found == nullptr || found->on_device()) return remember(kInvalidValue);
  *device = host;
  return kSuccess;
}

// A handle stands for the whole allocation, whichever of its addresses was asked for.
int cudaIpcGetMemHandle(IpcHandle* handle, void* pointer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const Allocation* found = entry.machine.space.holding(address_of(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kDevice) return remember(kInvalidValue);
  const IpcContents contents{
      kIpcMagic,     getpid(),      entry.machine.device(found->device).memory.file(),
      found->device, found->offset, found->mapped};
  *handle = {};
  std::memcpy(handle->bytes, &contents, sizeof contents);
  return kSuccess;
}

int cudaIpcOpenMemHandle(void** pointer, IpcHandle handle, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  IpcContents contents;
  std::memcpy(&contents, handle.bytes, sizeof contents);
  Entry entry;
  if (contents.magic != kIpcMagic || !entry.machine.valid_device(contents.device))
    return remember(kInvalidValue);
  // As with a real driver, a process cannot open what it made itself.
  if (contents.process == getpid()) return remember(kDeviceUninitialized);
  entry.machine.use(Machine::current_device());
  const int file = open(fmt::format("/proc/{}/fd/{}", contents.process, contents.file).c_str(),
                        O_RDWR | O_CLOEXEC);
  if (file < 0) return remember(kInvalidResourceHandle);
  void* address = map_file(file, contents.offset, contents.size);
  close(file);
  if (address == nullptr) return remember(kMemoryAllocation);
  entry.machine.space.add({address_of(address), contents.size, contents.size,
                           Allocation::Kind::kImported, contents.device, 0, 0});
  *pointer = address;
  return kSuccess;
}

int cudaIpcCloseMemHandle(void* pointer) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const Allocation* found = entry.machine.space.at(address_of(pointer));
  if (found == nullptr || found->kind != Allocation::Kind::kImported)
    return remember(kInvalidValue);
  free_after_work(entry, Allocation(*found));
  return kSuccess;
}

}  // extern "C"
}  // namespace berth::standin
