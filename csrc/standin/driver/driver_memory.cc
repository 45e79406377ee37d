// The driver's virtual memory: addresses, physical memory, and which is where.

#include "csrc/standin/entry.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>
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

Status refusal(Machine& machine) {
  if ((machine.refusals & kWithoutContext) != 0 && !Machine::has_context())
    return kDeviceUninitialized;  // CUDA_ERROR_INVALID_CONTEXT
  return (machine.refusals & kBesideCapture) != 0 ? machine.refuse_during_capture() : kSuccess;
}

bool multiple(std::uint64_t number) { return number != 0 && number % kGranularity == 0; }

// Files of other processes' devices that imported memory lies in: one descriptor each.
struct ImportedFile {
  int file = -1;
  std::size_t uses = 0;
};
std::unordered_map<ino_t, ImportedFile>& imported_files() {
  static auto* all = new std::unordered_map<ino_t, ImportedFile>;
  return *all;
}

void close_imported(int file) {
  for (auto it = imported_files().begin(); it != imported_files().end(); ++it) {
    if (it->second.file != file) continue;
    if (--it->second.uses == 0) {
      close(file);
      imported_files().erase(it);
    }
    return;
  }
}

void drop_if_unused(Machine& machine, std::uint64_t handle) {
  const auto found = physical().find(handle);
  if (found == physical().end() || found->second.references != 0 || found->second.mappings != 0)
    return;
  const Physical& memory = found->second;
  machine.accesses.erase(memory.bytes(), memory.bytes() + memory.size);
  if (memory.imported) {
    close_imported(memory.file);
  } else {
    machine.device(memory.device).memory.release(memory.offset, memory.size);
  }
  physical().erase(found);
}

// A shared file descriptor is of the device's file, opened anew, and its position says which bytes
// are meant: from the low bits on the device, how many units of memory, and at which page of the
// file. So whoever has it needs nothing else, and no rights over the process that shares.
constexpr std::uint64_t kFilePage = 4096;
constexpr unsigned kDeviceBits = 6, kSizeBits = 22;

std::uint64_t position_of(const Physical& memory) {
  return static_cast<std::uint64_t>(memory.device) | memory.size / kGranularity << kDeviceBits |
         memory.offset / kFilePage << (kDeviceBits + kSizeBits);
}

// False where the descriptor is none of ours.
bool read_shared(int descriptor, Physical* memory) {
  char name[64] = {};
  if (readlink(fmt::format("/proc/self/fd/{}", descriptor).c_str(), name, sizeof name - 1) < 0 ||
      std::string_view(name).find(kDeviceFile) == std::string_view::npos)
    return false;
  const auto position = static_cast<std::uint64_t>(lseek(descriptor, 0, SEEK_CUR));
  memory->device = static_cast<int>(position & ((1 << kDeviceBits) - 1));
  memory->size = (position >> kDeviceBits & ((1 << kSizeBits) - 1)) * kGranularity;
  memory->offset = (position >> (kDeviceBits + kSizeBits)) * kFilePage;
  return memory->size != 0;
}

}  // namespace

extern "C" {

int cuMemAddressReserve(std::uintptr_t* address, std::size_t size, std::size_t /*alignment*/,
                        std::uintptr_t /*wanted*/, unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
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
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
  if (!entry.machine.space.remove_reservation(address, size)) return kInvalidValue;
  munmap(reinterpret_cast<void*>(address), size);
  return kSuccess;
}

int cuMemCreate(std::uint64_t* handle, std::size_t size, const AllocationProperties* properties,
                unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
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
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
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
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
  Machine& machine = entry.machine;
  const auto found = physical().find(handle);
  if (found == physical().end() || !multiple(size) || address % kGranularity != 0 || flags != 0)
    return kInvalidValue;
  Physical& memory = found->second;
  // "Currently must be zero."
  if (offset != 0 || size > memory.size || !machine.space.reserved(address, size) ||
      machine.space.overlaps(address, address + size)) {
    return kInvalidValue;
  }
  if (map_file(memory.file, memory.offset, size, reinterpret_cast<void*>(address)) == nullptr) {
    return kMemoryAllocation;
  }
  // Not before cuMemSetAccess.
  mprotect(reinterpret_cast<void*>(address), size, PROT_NONE);
  machine.space.add({address, size, size, Allocation::Kind::kMapped, memory.device, memory.offset,
                     handle, memory.bytes()});
  ++memory.mappings;
  return kSuccess;
}

// Takes whole mappings away, one or several neighbours. What uses these addresses must be over: the
// driver does not say that it waits for it, and here it does not.
int cuMemUnmap(std::uintptr_t address, std::size_t size) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
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
  machine.check_registrations(address, size);
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
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
  Machine& machine = entry.machine;
  for (std::uintptr_t reached = address; reached < address + size;) {
    const Allocation* piece = machine.space.holding(reached);
    if (piece == nullptr || piece->kind != Allocation::Kind::kMapped) return kInvalidValue;
    if (machine.driver == Driver::kWsl &&
        physical().at(piece->handle).properties.gpu_direct_rdma != 0)
      return kUnknown;
    reached = piece->end();
  }
  std::uint64_t reach = 0, others = ~std::uint64_t{0};
  for (std::size_t i = 0; i < count; ++i) {
    const int device = accesses[i].location.id;
    if (!machine.valid_device(device)) return kInvalidDevice;
    const std::uint64_t bit = std::uint64_t{1} << device;
    others &= ~bit;
    if (accesses[i].flags != 0) reach |= bit;
  }
  // Devices that are not named have what they had.
  for (std::uintptr_t reached = address; reached < address + size;) {
    Allocation* const piece = machine.space.at(machine.space.holding(reached)->begin);
    piece->reach = (piece->reach & others) | reach;
    mprotect(reinterpret_cast<void*>(piece->begin), piece->mapped,
             piece->reach == 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
    reached = piece->end();
  }
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

int cuMemExportToShareableHandle(void* shareable, std::uint64_t handle, int type,
                                 unsigned long long /*flags*/) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
  const auto found = physical().find(handle);
  if (found == physical().end() || shareable == nullptr) return kInvalidValue;
  if (type != 1 || (found->second.properties.requested_handle_types & 1) == 0) return kNotSupported;
  const Physical& memory = found->second;
  const int file = open(fmt::format("/proc/self/fd/{}", memory.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return kOperatingSystem;
  if (lseek(file, static_cast<off_t>(position_of(memory)), SEEK_SET) < 0) {
    close(file);
    return kOperatingSystem;
  }
  *static_cast<int*>(shareable) = file;
  return kSuccess;
}

int cuMemImportFromShareableHandle(std::uint64_t* handle, void* shareable, int type) {
  BERTH_STANDIN_ENTER_DRIVER();
  Entry entry;
  if (const Status refused = refusal(entry.machine); refused != kSuccess) return refused;
  if (handle == nullptr || type != 1) return kInvalidValue;
  const int descriptor = static_cast<int>(reinterpret_cast<std::intptr_t>(shareable));
  Physical memory;
  struct stat about = {};
  if (!read_shared(descriptor, &memory) || fstat(descriptor, &about) != 0 ||
      !entry.machine.valid_device(memory.device))
    return kInvalidValue;
  ImportedFile& imported = imported_files()[about.st_ino];
  if (imported.uses == 0) imported.file = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (imported.file < 0) {
    imported_files().erase(about.st_ino);
    return kOperatingSystem;
  }
  ++imported.uses;
  memory.file = imported.file;
  memory.imported = true;
  memory.properties.type = 1;
  memory.properties.requested_handle_types = 1;
  memory.properties.location = {1, memory.device};
  *handle = next_handle++;
  physical()[*handle] = memory;
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
