// The driver's virtual memory: addresses, physical memory, and which is where.

#include "csrc/standin/entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <unordered_map>

namespace berth::standin {
namespace {

// Physical memory of cuMemCreate, or of another process.
struct Physical {
  int device = 0;
  int file = -1;  // of the device, or an imported one that is ours to close
  bool imported = false;
  std::uint64_t offset = 0;
  std::size_t size = 0;
  AllocationProperties properties{};
  std::size_t references = 1;  // handles
  std::size_t mappings = 0;

  [[nodiscard]] std::uintptr_t bytes() const { return bytes_of(file) + offset; }
};

// Under the machine's lock.
std::unordered_map<std::uint64_t, Physical>& physical() {
  static auto* all = new std::unordered_map<std::uint64_t, Physical>;
  return *all;
}

std::uint64_t next_handle = 0x1000;

bool multiple(std::uint64_t number) { return number != 0 && number % kGranularity == 0; }

void drop_if_unused(Machine& machine, std::uint64_t handle) {
  const auto found = physical().find(handle);
  if (found == physical().end() || found->second.references != 0 || found->second.mappings != 0)
    return;
  const Physical& memory = found->second;
  machine.accesses.erase(memory.bytes(), memory.bytes() + memory.size);
  if (memory.imported) {
    close(memory.file);
  } else {
    machine.device(memory.device).memory.release(memory.offset, memory.size);
  }
  physical().erase(found);
}

// What a shared file descriptor holds.
constexpr char kShared[] = "berth-standin-memory";

}  // namespace

extern "C" {

int cuMemAddressReserve(std::uintptr_t* address, std::size_t size, std::size_t /*alignment*/,
                        std::uintptr_t /*wanted*/, unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (address == nullptr || !multiple(size)) return kInvalidValue;
  // Room to start at a multiple of the granularity.
  void* memory = mmap(nullptr, size + kGranularity, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return kMemoryAllocation;
  const auto base = reinterpret_cast<std::uintptr_t>(memory);
  const std::uintptr_t begin = (base + kGranularity - 1) / kGranularity * kGranularity;
  if (begin != base) munmap(memory, begin - base);
  munmap(reinterpret_cast<void*>(begin + size), base + kGranularity - begin);
  entry.machine.space.add_reservation(begin, size);
  *address = begin;
  return kSuccess;
}

int cuMemAddressFree(std::uintptr_t address, std::size_t size) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (!entry.machine.space.remove_reservation(address, size)) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), size);
  return kSuccess;
}

int cuMemCreate(std::uint64_t* handle, std::size_t size, const AllocationProperties* properties,
                unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  Machine& machine = entry.machine;
  if (handle == nullptr || properties == nullptr || !multiple(size)) return kInvalidValue;
  if (!machine.valid_device(properties->location.id)) return kInvalidDevice;
  if ((properties->requested_handle_types & ~1) != 0)
    return kNotSupported;  // only file descriptors
  if (machine.driver == Driver::kNoVirtual ||
      (machine.driver == Driver::kNoDescriptors && properties->requested_handle_types != 0))
    return kNotSupported;
  machine.use(properties->location.id);
  DeviceState& device = machine.device(properties->location.id);
  const auto offset = device.memory.allocate(size);
  if (!offset) return kMemoryAllocation;
  *handle = next_handle++;
  physical()[*handle] = {
      properties->location.id, device.memory.file(), false, *offset, size, *properties};
  return kSuccess;
}

int cuMemRelease(std::uint64_t handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const auto found = physical().find(handle);
  if (found == physical().end() || found->second.references == 0) return kInvalidValue;
  --found->second.references;
  drop_if_unused(entry.machine, handle);
  return kSuccess;
}

int cuMemMap(std::uintptr_t address, std::size_t size, std::size_t offset, std::uint64_t handle,
             unsigned long long flags) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  Machine& machine = entry.machine;
  const auto found = physical().find(handle);
  if (found == physical().end() || !multiple(size) || address % kGranularity != 0 || flags != 0)
    return kInvalidValue;
  Physical& memory = found->second;
  if (offset > memory.size || size > memory.size - offset ||
      !machine.space.reserved(address, size) || machine.space.overlaps(address, address + size)) {
    return kInvalidValue;
  }
  if (map_file(memory.file, memory.offset + offset, size, reinterpret_cast<void*>(address)) ==
      nullptr) {
    return kMemoryAllocation;
  }
  // Not before cuMemSetAccess.
  mprotect(reinterpret_cast<void*>(address), size, PROT_NONE);
  machine.space.add({address, size, size, Allocation::Kind::kMapped, memory.device,
                     memory.offset + offset, handle, memory.bytes() + offset});
  ++memory.mappings;
  return kSuccess;
}

// Takes whole mappings away, one or several neighbours. What uses these addresses must be over: the
// driver does not say that it waits for it, and here it does not.
int cuMemUnmap(std::uintptr_t address, std::size_t size) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  Machine& machine = entry.machine;
  std::vector<Allocation> pieces;
  for (std::uintptr_t reached = address; reached < address + size; reached = pieces.back().end()) {
    const Allocation* piece = machine.space.at(reached);
    if (piece == nullptr || piece->kind != Allocation::Kind::kMapped ||
        piece->end() > address + size)
      return kInvalidValue;
    pieces.push_back(*piece);
  }
  if (pieces.empty()) return kInvalidValue;
  if (!machine.give_back(address, size, "unmap", true))
    machine.drain_device(entry.lock, pieces.front().device);  // else the queued copies would fault
  for (const Allocation& piece : pieces) {
    machine.space.remove(piece.begin);
    unmap_to_reserved(reinterpret_cast<void*>(piece.begin), piece.mapped);
    --physical().at(piece.handle).mappings;
    drop_if_unused(machine, piece.handle);
  }
  return kSuccess;
}

int cuMemSetAccess(std::uintptr_t address, std::size_t size, const AccessDescription* accesses,
                   std::size_t count) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  Machine& machine = entry.machine;
  for (std::uintptr_t reached = address; reached < address + size;) {
    const Allocation* piece = machine.space.holding(reached);
    if (piece == nullptr || piece->kind != Allocation::Kind::kMapped) return kInvalidValue;
    if (machine.driver == Driver::kWsl &&
        physical().at(piece->handle).properties.gpu_direct_rdma != 0)
      return kUnknown;
    reached = piece->end();
  }
  int protection = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!machine.valid_device(accesses[i].location.id)) return kInvalidDevice;
    protection |= accesses[i].flags;
  }
  const int pages = protection == 0   ? PROT_NONE
                    : protection == 1 ? PROT_READ
                                      : PROT_READ | PROT_WRITE;
  mprotect(reinterpret_cast<void*>(address), size, pages);
  return kSuccess;
}

int cuMemGetAllocationGranularity(std::size_t* granularity,
                                  const AllocationProperties* /*properties*/, int /*option*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  *granularity = kGranularity;
  return kSuccess;
}

int cuMemGetAllocationPropertiesFromHandle(AllocationProperties* properties, std::uint64_t handle) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const auto found = physical().find(handle);
  if (found == physical().end()) return kInvalidValue;
  *properties = found->second.properties;
  return kSuccess;
}

int cuMemRetainAllocationHandle(std::uint64_t* handle, void* address) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const Allocation* piece = entry.machine.space.holding(reinterpret_cast<std::uintptr_t>(address));
  if (piece == nullptr || piece->kind != Allocation::Kind::kMapped) return kInvalidValue;
  *handle = piece->handle;
  ++physical().at(piece->handle).references;
  return kSuccess;
}

// The descriptor is of a small file that says where the pages are; who may open that may map them.
int cuMemExportToShareableHandle(void* shareable, std::uint64_t handle, int type,
                                 unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const auto found = physical().find(handle);
  if (found == physical().end() || shareable == nullptr) return kInvalidValue;
  if (type != 1 || (found->second.properties.requested_handle_types & 1) == 0) return kNotSupported;
  const int file = memfd_create(kShared, MFD_CLOEXEC);
  if (file < 0) return kMemoryAllocation;
  const Physical& memory = found->second;
  const std::string text = fmt::format("{} {} {} {} {} {}", kShared, getpid(), memory.file,
                                       memory.device, memory.offset, memory.size);
  if (write(file, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    close(file);
    return kMemoryAllocation;
  }
  *static_cast<int*>(shareable) = file;
  return kSuccess;
}

int cuMemImportFromShareableHandle(std::uint64_t* handle, void* shareable, int type) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (handle == nullptr || type != 1) return kInvalidValue;
  const int descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  char text[256] = {};
  const ssize_t length = pread(descriptor, text, sizeof text - 1, 0);
  int process = 0, file = 0, device = 0;
  unsigned long long offset = 0, size = 0;
  const std::string format = std::string(kShared) + " %d %d %d %llu %llu";
  if (length <= 0 ||
      std::sscanf(text, format.c_str(), &process, &file, &device, &offset, &size) != 5 ||
      !entry.machine.valid_device(device)) {
    return kInvalidValue;
  }
  const int opened = open(fmt::format("/proc/{}/fd/{}", process, file).c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) return kInvalidResourceHandle;
  *handle = next_handle++;
  AllocationProperties properties{};
  properties.type = 1;
  properties.requested_handle_types = 1;
  properties.location = {1, device};
  physical()[*handle] = {device, opened, true, offset, size, properties};
  return kSuccess;
}

int cuMemGetAddressRange_v2(std::uintptr_t* base, std::size_t* size, std::uintptr_t address) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  const Allocation* found = entry.machine.space.holding(address);
  if (found == nullptr) return kInvalidValue;
  if (base != nullptr) *base = found->begin;
  if (size != nullptr) *size = found->size;
  return kSuccess;
}

}  // extern "C"
}  // namespace berth::standin
