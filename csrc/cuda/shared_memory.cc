#include "csrc/cuda/shared_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

// Linux 5.3 and 5.6; older headers lack the names.
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

namespace berth {
namespace {

constexpr char kVersion = 2;
constexpr char kPlainType = 'c';
constexpr char kVirtualType = 'e';
constexpr char kOwnType = 'b';
constexpr std::array<char, 8> kDoorMark = {'b', 'e', 'r', 't', 'h', 'd', 'o', 'r'};
// PyTorch 2.13 counted up and changed the second type only.
constexpr char kNewestPlainVersion = 3;

struct Header {
  std::int32_t process = 0;
  std::int32_t padding = 0;
  std::uint64_t part_bytes = 0;  // 0: each its own
  std::uint64_t parts = 0;
};
static_assert(sizeof(Header) == 24 && sizeof(cudaIpcMemHandle_t) == 64);

template <typename T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Takes a value off the front of a text that is long enough.
template <typename T>
T take(std::string_view& text) {
  T value;
  std::memcpy(&value, text.data(), sizeof value);
  text.remove_prefix(sizeof value);
  return value;
}

Status system_failure(const char* name) {
  return {errno == ENOSYS ? Status::Code::kUnsupported : Status::Code::kFailed, name, errno};
}

}  // namespace

std::string shared_plain_handle(const cudaIpcMemHandle_t& handle) {
  std::string text{kVersion, kPlainType};
  append(text, handle);
  return text;
}

std::string shared_virtual_handle(const std::vector<SharedPart>& parts,
                                  const DescriptorDoor* door) {
  const Bytes size = parts.front().size;
  const bool pytorch = std::all_of(parts.begin(), parts.end(), [&](const SharedPart& part) {
    return part.size == size && part.descriptor >= 0;
  });
  std::string text{kVersion, pytorch ? kVirtualType : kOwnType};
  append(text, Header{getpid(), 0, pytorch ? size : 0, parts.size()});
  if (pytorch) {
    for (const SharedPart& part : parts) append(text, std::int32_t{part.descriptor});
    if (door == nullptr) return text;
    append(text, kDoorMark);
  }
  append(text, *door);
  for (const SharedPart& part : parts) {
    if (!pytorch) append(text, std::uint64_t{part.size});
    append(text, part.number);
  }
  return text;
}

namespace {

// What a handle of either form says.
struct SharedParts {
  std::vector<SharedPart> parts;  // none: it is no handle
  std::optional<DescriptorDoor> door;
};

SharedParts parts_of(const Header& header, std::string_view rest) {
  const bool pytorch = header.part_bytes != 0;
  SharedParts shared;
  const auto left = [&](std::size_t each) { return rest.size() / each >= header.parts; };
  if (header.parts == 0 || !left(1)) return {};
  shared.parts.resize(header.parts);
  if (pytorch) {
    if (!left(sizeof(std::int32_t))) return {};
    for (SharedPart& part : shared.parts)
      part = {.size = header.part_bytes, .descriptor = take<std::int32_t>(rest)};
  }
  if (!pytorch || !rest.empty()) {
    if (rest.size() < sizeof kDoorMark + sizeof(DescriptorDoor)) return {};
    if (pytorch && take<std::array<char, 8>>(rest) != kDoorMark) return {};
    shared.door = take<DescriptorDoor>(rest);
    if (!left((pytorch ? 1 : 2) * sizeof(std::uint64_t))) return {};
    for (SharedPart& part : shared.parts) {
      if (!pytorch) part.size = take<std::uint64_t>(rest);
      part.number = take<std::uint64_t>(rest);
    }
  }
  Bytes sum = 0;
  for (const SharedPart& part : shared.parts) {
    if (part.size == 0 || part.size > kMaxBytes - sum) return {};
    sum += part.size;
  }
  return rest.empty() ? shared : SharedParts{};
}

}  // namespace

// One mapping, undone by its destructor as far as it came.
struct CudaSharedMappings::Mapping {
  explicit Mapping(std::shared_ptr<CudaGpu> the_gpu) : gpu(std::move(the_gpu)) {}
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  ~Mapping() {
    if (cuda_is_over()) return;  // in a forked child another thread may have held the lock
    if (listed) {
      const std::lock_guard lock(listed->mutex);
      const auto it = listed->open.find(name);
      // Somebody may have opened it anew since the last holder left.
      if (it != listed->open.end() && it->second.expired()) listed->open.erase(it);
    }
    const CudaCalls& calls = gpu->calls;
    const CudaMemoryScope scope(calls, gpu->primary);
    if (!scope.status().ok()) return;
    if (plain) (void)calls.cudaIpcCloseMemHandle(base);
    // Unmapping does not wait for the work that uses the memory.
    if (mapped != 0) (void)calls.cudaDeviceSynchronize();
    while (mapped != 0) {
      const Bytes part = parts[--mapped].size;
      (void)calls.cuMemUnmap(end -= part, part);
    }
    for (const CUmemGenericAllocationHandle handle : handles) (void)calls.cuMemRelease(handle);
    if (size != 0) (void)calls.cuMemAddressFree(address, size);
  }

  Status open_plain(const cudaIpcMemHandle_t& handle) noexcept {
    const Status status =
        gpu->calls.cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
    plain = status.ok();
    return status;
  }

  Status open_virtual(int process) {
    const CudaCalls& calls = gpu->calls;
    handles.reserve(parts.size());
    if (const Status status = import(process); !status.ok()) return status;
    Bytes wanted = 0;
    for (const SharedPart& part : parts) wanted += part.size;
    Status status = calls.cuMemAddressReserve(&address, wanted, 0, 0, 0);
    if (!status.ok()) return status;
    size = wanted;
    for (end = address; mapped < handles.size(); end += parts[mapped++].size) {
      status = calls.cuMemMap(end, parts[mapped].size, 0, handles[mapped], 0);
      if (!status.ok()) return status;
    }
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = gpu->primary.index;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    status = calls.cuMemSetAccess(address, size, &access, 1);
    if (status.ok()) base = reinterpret_cast<void*>(address);
    return status;
  }

  Status import(int of) {
    if (door) {
      std::vector<std::uint64_t> numbers;
      numbers.reserve(parts.size());
      for (const SharedPart& part : parts) numbers.push_back(part.number);
      return fetch_descriptors(*door, numbers,
                               [&](int descriptor) { return import_one(descriptor); });
    }
    const auto process = static_cast<int>(syscall(SYS_pidfd_open, of, 0));
    if (process < 0) return system_failure("pidfd_open");
    Status status;
    for (const SharedPart& part : parts) {
      const auto ours = static_cast<int>(syscall(SYS_pidfd_getfd, process, part.descriptor, 0));
      if (ours < 0) {
        status = system_failure("pidfd_getfd");
        break;
      }
      status = import_one(ours);
      close(ours);
      if (!status.ok()) break;
    }
    close(process);
    return status;
  }

  // What is imported stays without the descriptor.
  Status import_one(int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    const Status status = gpu->calls.cuMemImportFromShareableHandle(
        &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
        CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    if (status.ok()) handles.push_back(handle);
    return status;
  }

  const std::shared_ptr<CudaGpu> gpu;
  std::shared_ptr<State> listed;  // once it has a name there
  std::string name;
  void* base = nullptr;
  bool plain = false;
  CUdeviceptr address = 0;
  Bytes size = 0;  // 0: no addresses reserved
  std::vector<SharedPart> parts;
  std::optional<DescriptorDoor> door;
  std::size_t mapped = 0;  // parts, from the first on
  CUdeviceptr end = 0;     // of these
  std::vector<CUmemGenericAllocationHandle> handles;
};

Status CudaSharedMappings::open(const std::string& handle, std::shared_ptr<void>* base) {
  const Status refused{Status::Code::kFailed, "open_shared", cudaErrorInvalidValue};
  std::string_view rest = handle;
  if (rest.size() < 2) return refused;
  const char version = take<char>(rest);
  const char type = take<char>(rest);
  if (version < 1 || (type != kPlainType && type != kVirtualType && type != kOwnType))
    return refused;
  if (version > (type == kPlainType ? kNewestPlainVersion : kVersion))
    return {Status::Code::kUnsupported, "open_shared", cudaErrorNotSupported};

  const std::lock_guard lock(state_->mutex);
  if (const auto known = state_->open.find(handle); known != state_->open.end()) {
    *base = known->second.lock();
    if (*base) return {};
  }
  const CudaMemoryScope scope(state_->gpu->calls, state_->gpu->primary);
  if (!scope.status().ok()) return scope.status();
  const auto mapping = std::make_shared<Mapping>(state_->gpu);
  Status status;
  if (type == kPlainType) {
    if (rest.size() != sizeof(cudaIpcMemHandle_t)) return refused;
    status = mapping->open_plain(take<cudaIpcMemHandle_t>(rest));
  } else {
    if (rest.size() < sizeof(Header)) return refused;
    const auto header = take<Header>(rest);
    if ((header.part_bytes == 0) != (type == kOwnType)) return refused;
    SharedParts shared = parts_of(header, rest);
    if (shared.parts.empty()) return refused;
    mapping->parts = std::move(shared.parts);
    mapping->door = shared.door;
    status = mapping->open_virtual(header.process);
  }
  if (!status.ok()) return status;
  mapping->name = handle;
  const std::shared_ptr<void> made(mapping, mapping->base);
  state_->open[handle] = made;
  mapping->listed = state_;
  *base = made;
  return {};
}

}  // namespace berth
