#include "csrc/cuda/shared_memory.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

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
// PyTorch 2.13 counted up and changed the second type only.
constexpr char kNewestPlainVersion = 3;

struct Header {
  std::int32_t process = 0;
  std::int32_t padding = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t pages = 0;
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

std::string shared_virtual_handle(Bytes page_bytes, const std::vector<int>& descriptors) {
  std::string text{kVersion, kVirtualType};
  append(text, Header{getpid(), 0, page_bytes, descriptors.size()});
  for (const int descriptor : descriptors) append(text, std::int32_t{descriptor});
  return text;
}

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
    const CudaCurrentDevice current(calls, gpu->primary);
    if (!current.status().ok()) return;
    if (plain) (void)calls.cudaIpcCloseMemHandle(base);
    // Unmapping does not wait for the work that uses the memory.
    if (mapped != 0) (void)calls.cudaDeviceSynchronize();
    while (mapped != 0) (void)calls.cuMemUnmap(address + --mapped * page_bytes, page_bytes);
    for (const CUmemGenericAllocationHandle handle : handles) (void)calls.cuMemRelease(handle);
    if (size != 0) (void)calls.cuMemAddressFree(address, size);
  }

  Status open_plain(const cudaIpcMemHandle_t& handle) noexcept {
    const Status status =
        gpu->calls.cudaIpcOpenMemHandle(&base, handle, cudaIpcMemLazyEnablePeerAccess);
    plain = status.ok();
    return status;
  }

  // `descriptors` is the handle's rest.
  Status open_virtual(const Header& header, std::string_view descriptors) {
    const CudaCalls& calls = gpu->calls;
    handles.reserve(header.pages);
    if (const Status status = import(header, descriptors); !status.ok()) return status;
    page_bytes = header.page_bytes;
    const Bytes wanted = page_bytes * header.pages;
    Status status = calls.cuMemAddressReserve(&address, wanted, 0, 0, 0);
    if (!status.ok()) return status;
    size = wanted;
    for (; mapped < handles.size(); ++mapped) {
      status = calls.cuMemMap(address + mapped * page_bytes, page_bytes, 0, handles[mapped], 0);
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

  Status import(const Header& header, std::string_view descriptors) {
    const auto& calls = gpu->calls;
    const auto process = static_cast<int>(syscall(SYS_pidfd_open, header.process, 0));
    if (process < 0) return system_failure("pidfd_open");
    Status status;
    for (std::uint64_t i = 0; i < header.pages && status.ok(); ++i) {
      const auto theirs = take<std::int32_t>(descriptors);
      const auto ours = static_cast<int>(syscall(SYS_pidfd_getfd, process, theirs, 0));
      if (ours < 0) {
        status = system_failure("pidfd_getfd");
        break;
      }
      CUmemGenericAllocationHandle handle = 0;
      status = calls.cuMemImportFromShareableHandle(
          &handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(ours)),
          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      close(ours);
      if (status.ok()) handles.push_back(handle);
    }
    close(process);
    return status;
  }

  const std::shared_ptr<CudaGpu> gpu;
  std::shared_ptr<State> listed;  // once it has a name there
  std::string name;
  void* base = nullptr;
  bool plain = false;
  CUdeviceptr address = 0;
  Bytes size = 0;  // 0: no addresses reserved
  Bytes page_bytes = 0;
  std::size_t mapped = 0;  // pages, from the first on
  std::vector<CUmemGenericAllocationHandle> handles;
};

Status CudaSharedMappings::open(const std::string& handle, std::shared_ptr<void>* base) {
  const Status refused{Status::Code::kFailed, "open_shared", cudaErrorInvalidValue};
  std::string_view rest = handle;
  if (rest.size() < 2) return refused;
  const char version = take<char>(rest);
  const char type = take<char>(rest);
  if (version < 1 || (type != kPlainType && type != kVirtualType)) return refused;
  if (version > (type == kPlainType ? kNewestPlainVersion : kVersion))
    return {Status::Code::kUnsupported, "open_shared", cudaErrorNotSupported};

  const std::lock_guard lock(state_->mutex);
  if (const auto known = state_->open.find(handle); known != state_->open.end()) {
    *base = known->second.lock();
    if (*base) return {};
  }
  const CudaCurrentDevice current(state_->gpu->calls, state_->gpu->primary);
  if (!current.status().ok()) return current.status();
  const auto mapping = std::make_shared<Mapping>(state_->gpu);
  Status status;
  if (type == kPlainType) {
    if (rest.size() != sizeof(cudaIpcMemHandle_t)) return refused;
    status = mapping->open_plain(take<cudaIpcMemHandle_t>(rest));
  } else {
    if (rest.size() < sizeof(Header)) return refused;
    const auto header = take<Header>(rest);
    if (header.pages == 0 || header.page_bytes == 0 || rest.size() / 4 != header.pages ||
        rest.size() % 4 != 0 || header.page_bytes > kMaxBytes / header.pages)
      return refused;
    status = mapping->open_virtual(header, rest);
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
