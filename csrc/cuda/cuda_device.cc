#include "csrc/cuda/cuda_device.h"

#include "csrc/core/check.h"
#include "csrc/cuda/device_memory.h"
#include "csrc/cuda/event_pool.h"
#include "csrc/cuda/shared_memory.h"

#include <berth/error.h>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace berth {
namespace {

// Keys of lanes by their low bits. Handles of streams are pointers, whose two are 0.
constexpr LaneKey kForeignBit = 1;
constexpr LaneKey kThreadTag = 2;
constexpr LaneKey kTagMask = 3;
// Foreign lanes of streams that the driver does not know; its ids count up from the other end.
constexpr LaneKey kUnknownBit = LaneKey{1} << 62;

// How DeviceProperties::memory begins there.
constexpr char kPlain[] = "plain, ";

thread_local const CudaStreamScope* innermost = nullptr;

class CudaRuntimeDevice final : public CudaDevice {
 public:
  CudaRuntimeDevice(std::shared_ptr<CudaGpu> gpu, const CudaOptions& options);

  // Waits for the device, then gives back what is still held.
  ~CudaRuntimeDevice() override {
    (void)synchronize_all();
    for (const auto& [base, size] : pinned_)
      (void)calls_.cudaFreeHost(reinterpret_cast<void*>(base));
  }

  const DeviceProperties& properties() const noexcept override { return properties_; }
  int index() const noexcept override { return primary_.index; }
  CudaOptions::Memory memory() const noexcept override {
    return properties_.maps_pages ? CudaOptions::Memory::kVirtual : CudaOptions::Memory::kPlain;
  }

  Status free_bytes(Bytes* free) noexcept override {
    const CudaCurrentDevice current(calls_, primary_);
    if (!current.status().ok()) return current.status();
    std::size_t left = 0;
    std::size_t total = 0;
    const Status status = calls_.cudaMemGetInfo(&left, &total);
    if (status.ok()) *free = left;
    return status;
  }

  std::string describe(const Status& status) const override;

  Status reserve(Bytes size, Bytes alignment, void** base) noexcept override {
    *base = nullptr;
    if (cuda_is_over()) return gone("reserve");
    return memory_->reserve(size, alignment, base);
  }
  using Device::commit;
  Status commit(void* base, Bytes size, Residency, Bytes most) noexcept override {
    if (cuda_is_over()) return gone("commit");
    return memory_->commit(base, size, most);
  }
  ByteRange handle_at(const void* address) const noexcept override {
    return cuda_is_over() ? Device::handle_at(address) : memory_->handle_at(address);
  }
  Status decommit(void* base, Bytes size) noexcept override {
    if (cuda_is_over()) return gone("decommit");
    return memory_->decommit(base, size);
  }
  Status release(void* base, Bytes size) noexcept override {
    if (cuda_is_over()) return gone("release");
    return memory_->release(base, size);
  }
  Status alias(void* to, const void* const* from, std::size_t pages) noexcept override {
    if (cuda_is_over()) return gone("alias");
    return memory_->alias(to, from, pages);
  }
  Bytes retained_bytes() const noexcept override {
    return cuda_is_over() ? 0 : memory_->retained_bytes();
  }

  Status reserve_pinned(Bytes size, void** base) noexcept override;
  Status release_pinned(void* base, Bytes size) noexcept override;
  Status copy(void* to, const void* from, Bytes size, LaneKey lane,
              DeviceEvent* done) noexcept override;

  Status record(LaneKey lane, DeviceEvent* event) noexcept override;
  Status query(DeviceEvent event, bool* complete) noexcept override;
  Status wait(LaneKey lane, DeviceEvent event) noexcept override;
  Status synchronize(DeviceEvent event) noexcept override;
  Status synchronize_all() noexcept override;
  void destroy(DeviceEvent event) noexcept override {
    // In a forked child another thread may have held the lock.
    if (event != 0 && !cuda_is_over()) events_.give(handle_of(event));
  }
  Status capturing(LaneKey lane, bool* capturing) noexcept override;
  bool may_go(LaneKey lane) const noexcept override;

  using CudaDevice::lane_of;
  LaneKey lane_of(cudaStream_t stream, bool foreign) noexcept override;
  cudaStream_t stream_of(LaneKey lane) const noexcept override;
  void forget_stream(cudaStream_t stream) noexcept override;

  Status allocate_segment(Bytes size, void** base) noexcept override {
    *base = nullptr;
    if (cuda_is_over()) return gone("cudaMalloc");
    return plain().reserve(size, 0, base);
  }
  Status free_segment(void* base, Bytes size) noexcept override {
    if (cuda_is_over()) return gone("cudaFree");
    return plain().release(base, size);
  }

  Status enable_peer(int other) noexcept override;
  Status copy_peer(void* to, int to_device, const void* from, int from_device, Bytes size,
                   cudaStream_t stream, bool mapped) noexcept override;
  Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) noexcept override;
  Status open_shared(const std::string& handle, std::shared_ptr<void>* base) noexcept override;

  std::uint64_t driver_calls() const noexcept override {
    return calls_.made.load(std::memory_order_relaxed);
  }

 private:
  // A lane's stream, and its device current where the handle says too little.
  class OnLane {
   public:
    OnLane(CudaRuntimeDevice& gpu, LaneKey lane) noexcept;
    [[nodiscard]] const Status& status() const noexcept { return status_; }
    [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }

   private:
    cudaStream_t stream_ = nullptr;
    Status status_;
    std::optional<CudaCurrentDevice> current_;
  };

  // What segments come from.
  [[nodiscard]] CudaDeviceMemory& plain() noexcept { return plain_ ? *plain_ : *memory_; }

  static cudaEvent_t handle_of(DeviceEvent event) noexcept {
    return reinterpret_cast<cudaEvent_t>(event);
  }
  static Status gone(const char* call) noexcept {
    return {Status::Code::kGone, call, cudaErrorCudartUnloading};
  }

  const std::shared_ptr<CudaGpu> gpu_;
  const CudaCalls& calls_;
  CudaPrimary& primary_;
  DeviceProperties properties_;
  std::unique_ptr<CudaDeviceMemory> memory_;
  std::unique_ptr<CudaDeviceMemory> plain_;  // of segments, where memory_ is virtual
  CudaEventPool events_;
  CudaSharedMappings mappings_;

  mutable std::mutex mutex_;  // covers all below
  std::map<Bytes, Bytes> pinned_;
  std::unordered_map<LaneKey, cudaStream_t> foreign_;  // to name them
};

CudaRuntimeDevice::CudaRuntimeDevice(std::shared_ptr<CudaGpu> gpu, const CudaOptions& options)
    : gpu_(std::move(gpu)),
      calls_(gpu_->calls),
      primary_(gpu_->primary),
      events_(calls_, primary_),
      mappings_(gpu_) {
  int count = 0;
  const Status counted = calls_.cudaGetDeviceCount(&count);
  if (counted.number() == cudaErrorInsufficientDriver) {
    int driver = 0;
    (void)calls_.cudaDriverGetVersion(&driver);
    throw Error(
        ErrorKind::kSystem,
        fmt::format("the driver here is of CUDA {}.{}, and this process's runtime of CUDA "
                    "{}, which needs a newer one: {}",
                    driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, describe(counted)));
  }
  BERTH_CHECK(counted.ok(), kSystem, "there is no GPU: {}", describe(counted));
  BERTH_CHECK(options.index >= 0 && options.index < count, kSystem,
              "cuda:{} was requested, this process sees {}", options.index, count);
  cudaDeviceProp asked;
  const Status described = calls_.cudaGetDeviceProperties(&asked, options.index);
  BERTH_CHECK(described.ok(), kSystem, "{}", describe(described));
  std::string how = "as requested";
  if (options.memory != CudaOptions::Memory::kPlain)
    memory_ = make_virtual_memory(calls_, primary_, options.page_bytes, &how);
  properties_.maps_pages = memory_ != nullptr;
  properties_.memory = properties_.maps_pages ? how : kPlain + how;
  auto plain = make_plain_memory(calls_, primary_);
  (memory_ ? plain_ : memory_) = std::move(plain);
  properties_.name = asked.name;
  BERTH_CHECK(properties_.maps_pages || options.memory != CudaOptions::Memory::kVirtual, kSystem,
              "{}", lacks_virtual_memory(options.index, properties_));
  properties_.total_bytes = asked.totalGlobalMem;
  properties_.page_bytes = memory_->page_bytes();
  properties_.asynchronous = true;
  properties_.aliases = properties_.maps_pages;
}

std::string CudaRuntimeDevice::describe(const Status& status) const {
  if (status.ok()) return "no error";
  const std::string what = fmt::format("{} failed on cuda:{}", status.call(), primary_.index);
  if (status.code() == Status::Code::kGone)
    return fmt::format("{}: the driver is unloaded, or this is a forked child", what);
  constexpr std::string_view kOfSystem[] = {"pidfd_open", "pidfd_getfd",   "getrandom", "socket",
                                            "bind",       "listen",        "connect",   "send",
                                            "recvmsg",    "pthread_create"};
  const bool system =
      std::find(std::begin(kOfSystem), std::end(kOfSystem), status.call()) != std::end(kOfSystem);
  const char* more = "";
  if (status.code() == Status::Code::kSticky)
    more = ", an error of earlier work on the device";
  else if (system && status.number() == EPERM)
    more =
        ": this process has no ptrace rights over the one that shares, which virtual memory of "
        "PyTorch's own allocator needs; there, plain memory needs none "
        "(PYTORCH_ALLOC_CONF=expandable_segments:False), and neither does berth";
  else if (std::string_view(status.call()) == "connect")
    more =
        ": the process that shares is gone, or has another network namespace; plain memory needs "
        "none (BERTH_MEMORY=plain there)";
  else if (status.number() == (system ? EMFILE : int{cudaErrorOperatingSystem}))
    more =
        ": the process may have too few file descriptors (ulimit -n); plain memory needs none "
        "(BERTH_MEMORY=plain where memory is shared)";
  return fmt::format(
      "{}: {}{}", what,
      system ? std::generic_category().message(status.number()) : calls_.text(status.number()),
      more);
}

// --- Pinned memory and copies -------------------------------------------------------------------

Status CudaRuntimeDevice::reserve_pinned(Bytes size, void** base) noexcept {
  *base = nullptr;
  if (cuda_is_over()) return gone("reserve_pinned");
  if (size == 0 || size > kMaxBytes)
    return {Status::Code::kFailed, "reserve_pinned", cudaErrorInvalidValue};
  const CudaMemoryScope scope(calls_, primary_);
  if (!scope.status().ok()) return scope.status();
  void* memory = nullptr;
  // Portable: pinned for every GPU, as PyTorch's is.
  const Status status = calls_.cudaHostAlloc(&memory, size, cudaHostAllocPortable);
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  try {
    pinned_.emplace(reinterpret_cast<Bytes>(memory), size);
  } catch (const std::bad_alloc&) {
    (void)calls_.cudaFreeHost(memory);
    return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
  }
  *base = memory;
  return {};
}

Status CudaRuntimeDevice::release_pinned(void* base, Bytes size) noexcept {
  if (cuda_is_over()) return gone("release_pinned");
  const std::lock_guard lock(mutex_);
  const auto it = pinned_.find(reinterpret_cast<Bytes>(base));
  if (it == pinned_.end() || it->second != size)
    return {Status::Code::kFailed, "release_pinned", cudaErrorInvalidValue};
  const CudaMemoryScope scope(calls_, primary_);
  if (!scope.status().ok()) return scope.status();
  const Status status = calls_.cudaFreeHost(base);
  if (status.ok()) pinned_.erase(it);
  return status;
}

Status CudaRuntimeDevice::copy(void* to, const void* from, Bytes size, LaneKey lane,
                               DeviceEvent* done) noexcept {
  if (done != nullptr) *done = 0;
  if (cuda_is_over()) return gone("copy");
  const OnLane on(*this, lane);
  if (!on.status().ok()) return on.status();
  // The event first: a copy that is under way can no longer be refused.
  cudaEvent_t event = nullptr;
  if (done != nullptr) {
    if (const Status status = events_.take(&event); !status.ok()) return status;
  }
  Status status;
  if (size != 0) status = calls_.cudaMemcpyAsync(to, from, size, cudaMemcpyDefault, on.stream());
  if (status.ok() && done != nullptr) {
    status = calls_.cudaEventRecord(event, on.stream());
    if (status.ok()) {
      *done = reinterpret_cast<DeviceEvent>(event);
      return status;
    }
    // Nobody could tell when it is over, so it is over now.
    status = calls_.cudaStreamSynchronize(on.stream());
  }
  if (event != nullptr) events_.give(event);
  return status;
}

// --- Lanes and events ---------------------------------------------------------------------------

CudaRuntimeDevice::OnLane::OnLane(CudaRuntimeDevice& gpu, LaneKey lane) noexcept {
  if ((lane & kForeignBit) != 0) {
    // mutant: s2-device
    stream_ = CudaStreamScope::held(lane);
    if (stream_ == nullptr)
      status_ = {Status::Code::kUnsupported, "a stream that is not PyTorch's",
                 cudaErrorInvalidResourceHandle};
    return;
  }
  if ((lane & kTagMask) == kThreadTag) {
    // mutant: s9-other-thread
    if (lane != lane_of(cudaStreamPerThread)) {
      status_ = {Status::Code::kUnsupported, "another thread's default stream",
                 cudaErrorInvalidResourceHandle};
      return;
    }
    stream_ = cudaStreamPerThread;
  } else {
    stream_ = reinterpret_cast<cudaStream_t>(lane);
    if (lane != 0) return;
  }
  // A default stream is that of the current device.
  current_.emplace(gpu.calls_, gpu.primary_);
  status_ = current_->status();
}

Status CudaRuntimeDevice::record(LaneKey lane, DeviceEvent* event) noexcept {
  *event = 0;
  if (cuda_is_over()) return gone("record");
  const OnLane on(*this, lane);
  if (!on.status().ok()) return on.status();
  cudaEvent_t made = nullptr;
  Status status = events_.take(&made);
  if (!status.ok()) return status;
  status = calls_.cudaEventRecord(made, on.stream());
  if (status.number() == cudaErrorInvalidResourceHandle) {
    // Of another context, as of a thread's green one: it would come back first for ever.
    if (const Status replaced = events_.replace(&made); !replaced.ok()) return replaced;
    status = calls_.cudaEventRecord(made, on.stream());
  }
  if (status.ok())
    *event = reinterpret_cast<DeviceEvent>(made);
  else
    events_.give(made);
  return status;
}

Status CudaRuntimeDevice::query(DeviceEvent event, bool* complete) noexcept {
  *complete = false;
  if (cuda_is_over()) return gone("query");
  if (event == 0) {
    *complete = true;
    return {};
  }
  // mutant: s13-aside
  const CudaCaptureAside aside(calls_);
  if (!aside.status().ok()) return aside.status();
  const Status status = calls_.cudaEventQuery(handle_of(event));
  *complete = status.ok();
  return status.number() == cudaErrorNotReady ? Status() : status;
}

Status CudaRuntimeDevice::wait(LaneKey lane, DeviceEvent event) noexcept {
  if (cuda_is_over()) return gone("wait");
  if (event == 0) return {};
  const OnLane on(*this, lane);
  if (!on.status().ok()) return on.status();
  return calls_.cudaStreamWaitEvent(on.stream(), handle_of(event), cudaEventWaitDefault);
}

Status CudaRuntimeDevice::synchronize(DeviceEvent event) noexcept {
  if (cuda_is_over()) return gone("synchronize");
  if (event == 0) return {};
  const CudaCaptureAside aside(calls_);
  if (!aside.status().ok()) return aside.status();
  return calls_.cudaEventSynchronize(handle_of(event));
}

// Not while a capture is open: the driver refuses, and voids the capture.
Status CudaRuntimeDevice::synchronize_all() noexcept {
  const CudaCurrentDevice current(calls_, primary_);
  if (!current.status().ok()) return current.status();
  return calls_.cudaDeviceSynchronize();
}

Status CudaRuntimeDevice::capturing(LaneKey lane, bool* capturing) noexcept {
  *capturing = false;
  if (cuda_is_over()) return gone("capturing");
  const OnLane on(*this, lane);
  if (!on.status().ok()) return on.status();
  cudaStreamCaptureStatus captured = cudaStreamCaptureStatusNone;
  const Status status = calls_.cudaStreamIsCapturing(on.stream(), &captured);
  // The legacy stream waits for a stream that is captured: work on it would void the capture.
  const bool implicit = status.number() == cudaErrorStreamCaptureImplicit;
  *capturing = implicit || captured != cudaStreamCaptureStatusNone;
  return implicit ? Status() : status;
}

bool CudaRuntimeDevice::may_go(LaneKey lane) const noexcept {
  return (lane & kForeignBit) != 0 || (lane & kTagMask) == kThreadTag;
}

LaneKey CudaRuntimeDevice::lane_of(cudaStream_t stream, bool foreign) noexcept {
  // mutant: s8-foreign
  if (!foreign || reinterpret_cast<LaneKey>(stream) <= 2) return lane_of(stream);
  unsigned long long id = 0;
  // mutant: s10-id
  if (!calls_.cudaStreamGetId(stream, &id).ok()) {
    static std::atomic<LaneKey> unknown{0};
    return kUnknownBit | (unknown.fetch_add(1) << 1) | kForeignBit;
  }
  const LaneKey lane = LaneKey{id} << 1 | kForeignBit;
  const std::lock_guard lock(mutex_);
  try {
    foreign_.try_emplace(lane, stream);
  } catch (const std::bad_alloc&) {  // then it has no name
  }
  return lane;
}

cudaStream_t CudaRuntimeDevice::stream_of(LaneKey lane) const noexcept {
  if ((lane & kForeignBit) != 0) {
    if (cuda_is_over()) return nullptr;
    const std::lock_guard lock(mutex_);
    const auto it = foreign_.find(lane);
    return it != foreign_.end() ? it->second : nullptr;
  }
  return (lane & kTagMask) == kThreadTag ? cudaStreamPerThread
                                         : reinterpret_cast<cudaStream_t>(lane);
}

void CudaRuntimeDevice::forget_stream(cudaStream_t stream) noexcept {
  if (cuda_is_over()) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(foreign_, [&](const auto& known) { return known.second == stream; });
}

// --- Peers and other processes ------------------------------------------------------------------

Status CudaRuntimeDevice::enable_peer(int other) noexcept {
  if (cuda_is_over()) return gone("enable_peer");
  CudaPrimary peer{other};
  {
    const CudaCurrentDevice current(calls_, peer);
    if (!current.status().ok()) return current.status();
    const Status status = calls_.cudaDeviceEnablePeerAccess(primary_.index, 0);
    if (!status.ok() && status.number() != cudaErrorPeerAccessAlreadyEnabled) return status;
  }
  return memory_->add_peer(other);
}

Status CudaRuntimeDevice::copy_peer(void* to, int to_device, const void* from, int from_device,
                                    Bytes size, cudaStream_t stream, bool mapped) noexcept {
  // Virtual memory of two GPUs, neither of which may reach the other's, takes the call that says
  // whose is whose.
  if (mapped || to_device == from_device)
    return calls_.cudaMemcpyAsync(to, from, size, cudaMemcpyDeviceToDevice, stream);
  return calls_.cudaMemcpyPeerAsync(to, to_device, from, from_device, size, stream);
}

Status CudaRuntimeDevice::share(const void* pointer, Bytes size,
                                CudaSharedMemory* shared) noexcept {
  if (cuda_is_over()) return gone("share");
  try {
    const bool in_segment = plain_ && plain_->handle_at(pointer).size() != 0;
    return (in_segment ? plain_ : memory_)->share(pointer, size, shared);
  } catch (const std::bad_alloc&) {
    return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
  }
}

Status CudaRuntimeDevice::open_shared(const std::string& handle,
                                      std::shared_ptr<void>* base) noexcept {
  base->reset();
  if (cuda_is_over()) return gone("open_shared");
  try {
    return mappings_.open(handle, base);
  } catch (const std::bad_alloc&) {
    return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
  }
}

}  // namespace

std::string lacks_virtual_memory(int index, const DeviceProperties& properties) {
  std::string_view how = properties.memory;
  how.remove_prefix(std::min(how.size(), std::string_view(kPlain).size()));
  return fmt::format(
      "virtual memory was requested on cuda:{} ({}), which has none: {}; plain memory works "
      "without "
      "(BERTH_MEMORY=plain, or auto)",
      index, properties.name, how);
}

LaneKey CudaDevice::thread_lane() noexcept {
  static std::atomic<LaneKey> next{0};
  // mutant: s9-thread
  thread_local const LaneKey lane = next.fetch_add(1) << 2 | kThreadTag;
  return lane;
}

CudaStreamScope::CudaStreamScope(CudaDevice& device, cudaStream_t stream) noexcept
    : lane_(device.lane_of(stream, true)), stream_(stream), before_(innermost) {
  innermost = this;
}

CudaStreamScope::~CudaStreamScope() { innermost = before_; }

cudaStream_t CudaStreamScope::held(LaneKey lane) noexcept {
  return innermost != nullptr && innermost->lane_ == lane ? innermost->stream_ : nullptr;
}

int cuda_device_count() {
  const CudaCalls calls;
  int count = 0;
  const Status status = calls.cudaGetDeviceCount(&count);
  if (status.number() == cudaErrorNoDevice) return 0;
  BERTH_CHECK(status.ok(), kSystem, "cudaGetDeviceCount failed: {}", calls.text(status.number()));
  return count;
}

std::unique_ptr<CudaDevice> make_cuda_device(const CudaOptions& options) {
  auto gpu = std::make_shared<CudaGpu>();
  gpu->primary.index = options.index;
  return std::make_unique<CudaRuntimeDevice>(std::move(gpu), options);
}

}  // namespace berth
