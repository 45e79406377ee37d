#pragma once

#include "csrc/device/device.h"

#include <berth/config.h>

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

namespace berth {

struct CudaOptions {
  using Memory = MemoryKind;

  int index = 0;  // of the GPU, as cudaSetDevice takes it
  Memory memory = Memory::kAuto;
  // What one mapping of virtual memory holds, rounded up to the driver's granularity (2 MiB, which
  // 0 takes). Larger ones cost fewer driver calls and fewer descriptors when they are exported.
  Bytes page_bytes = 0;
};

// How memory of a device is named to another process, in PyTorch's own form: version byte, type
// byte 'c' or 'e', payload. The pointer is `offset` bytes into what the other process gets.
struct CudaSharedMemory {
  std::string handle;
  Bytes offset = 0;
};

// The memory, streams and events of one GPU.
//
// Virtual memory is tried when the device is made, with one page, which makes the GPU's context;
// plain memory makes it with the first call that needs one. No call makes another GPU's.
// The calling thread's current device is as before after each call. Calls may be made from any
// thread, also while a stream is captured, unless said otherwise. After set_cuda_over(), in a
// forked child, and once the driver said that it unloads, every call is kGone and reaches no
// driver.
//
// Lanes. A stream of PyTorch's, which is never destroyed, is keyed by its handle. Handles 0 and 1
// are one lane, the legacy default stream: 0. Handle 2 is a lane a thread, by our own number of the
// thread. Anybody else's stream is keyed by its CUDA id, odd, since handles return while old work
// runs; such a stream may be destroyed at any time, so that calls on its lane are kUnsupported and
// leave it alone, but inside a CudaStreamScope of it. So are calls on the per-thread lane of
// another thread, whose handle is ours here. No key has the highest bit set.
//
// Events are cudaEvent_t without timing, recycled. They belong to the device that recorded them,
// which destroys them; lanes of other devices may wait for them.
class CudaDevice : public Device {
 public:
  // Of a stream that is gone: every call on it is kUnsupported, as on a foreign one's.
  static constexpr LaneKey kGoneLane = ~LaneKey{0} >> 1;

  [[nodiscard]] virtual int index() const noexcept = 0;
  // kVirtual or kPlain. What was tried is in properties().memory.
  [[nodiscard]] virtual CudaOptions::Memory memory() const noexcept = 0;

  // The lane of a stream of PyTorch's, or of a handle 0, 1, 2: no driver call, no lock.
  [[nodiscard]] static LaneKey lane_of(cudaStream_t stream) noexcept {
    const auto handle = reinterpret_cast<LaneKey>(stream);
    if (handle > 2) [[likely]]
      return handle;
    // mutant: s8-handles
    return handle < 2 ? 0 : thread_lane();
  }
  // The same for a stream of anybody's. A foreign one that the driver does not know gets a lane
  // that no other call gets.
  [[nodiscard]] virtual LaneKey lane_of(cudaStream_t stream, bool foreign) noexcept = 0;
  // The handle of a lane, to be named, not to be used where the lane is a foreign one. Null for the
  // legacy default stream, and for a foreign lane that was forgotten.
  [[nodiscard]] virtual cudaStream_t stream_of(LaneKey lane) const noexcept = 0;
  // A foreign stream is destroyed: its handle may come back as another lane.
  virtual void forget_stream(cudaStream_t stream) noexcept = 0;

  // GPU `other` may reach this device's memory from now on, as PyTorch's enablePeerAccess(other,
  // index()) asks. Makes a context on `other`. kUnsupported where the two have no way to each
  // other.
  virtual Status enable_peer(int other) noexcept = 0;
  // From memory of GPU `from_device` to that of `to_device`, in the order of the stream. `mapped`:
  // one of the two may reach the other's memory (PyTorch's p2p_enabled).
  virtual Status copy_peer(void* to, int to_device, const void* from, int from_device, Bytes size,
                           cudaStream_t stream, bool mapped) noexcept = 0;

  // Memory by one cudaMalloc, whatever memory() is: other libraries register it as a whole, and it
  // has one legacy handle for other processes. `size` is a multiple of 512 bytes; so is the
  // address. cudaFree waits for all work of the device.
  virtual Status allocate_segment(Bytes size, void** base) noexcept = 0;
  virtual Status free_segment(void* base, Bytes size) noexcept = 0;

  // Names committed memory of this device for another process on this machine. It is readable there
  // as long as it stays committed here, and to whoever has the handle all of the segment or
  // reservation (kPlain) or the pages that `size` bytes touch (kVirtual), whose descriptors stay
  // open until then.
  virtual Status share(const void* pointer, Bytes size, CudaSharedMemory* shared) noexcept = 0;
  // Maps what another process shared, berth or PyTorch 2.11, while `base` or a copy lives. The same
  // handle gives the same mapping. The last one to go waits for the device. kUnsupported for a
  // handle of a newer PyTorch.
  virtual Status open_shared(const std::string& handle, std::shared_ptr<void>* base) noexcept = 0;

  // Bytes that a decommit or release was to give back and the driver did not take: mapped still, or
  // lost to the process. Memory with several addresses counts at each that was to go.
  [[nodiscard]] virtual Bytes retained_bytes() const noexcept = 0;
  // The cudaError_t behind the status of a call of CUDA's, for those who throw PyTorch's errors.
  [[nodiscard]] static cudaError_t error_of(const Status& status) noexcept {
    return static_cast<cudaError_t>(status.number());
  }

 private:
  // The calling thread's per-thread default stream. Numbers are not given out twice: the work of a
  // thread may outlive it.
  [[nodiscard]] static LaneKey thread_lane() noexcept;
};

// A stream of somebody else's that the calling thread has in its hand, alive as long as this is:
// the current one, or one that was passed to the call. Calls on its lane work inside.
//
// On the stack only; scopes may be nested, the innermost counts.
class CudaStreamScope {
 public:
  CudaStreamScope(CudaDevice& device, cudaStream_t stream) noexcept;
  ~CudaStreamScope();
  CudaStreamScope(const CudaStreamScope&) = delete;
  CudaStreamScope& operator=(const CudaStreamScope&) = delete;

  [[nodiscard]] LaneKey lane() const noexcept { return lane_; }
  // The stream that the thread holds as this lane, or null.
  [[nodiscard]] static cudaStream_t held(LaneKey lane) noexcept;

 private:
  const LaneKey lane_;
  const cudaStream_t stream_;
  const CudaStreamScope* const before_;
};

// How many GPUs the runtime sees. Throws Error(kSystem) where there is no CUDA runtime of the
// version that berth was built for.
[[nodiscard]] int cuda_device_count();

// Throws Error(kSystem) where there is no such runtime or GPU, or no virtual memory where that was
// asked for by name.
[[nodiscard]] std::unique_ptr<CudaDevice> make_cuda_device(const CudaOptions& options);

// Throws Error(kSystem) where GPU `index` has no virtual memory that works. A child process tries
// it and is gone afterwards, so that this one has not used the driver, and may fork children that
// do. What cannot be found out so is no error: the device finds it.
void require_virtual_memory(int index);
// What is wrong where virtual memory was asked for, and the device has plain memory.
[[nodiscard]] std::string lacks_virtual_memory(int index, const DeviceProperties& properties);

// No call reaches the driver from now on (true), as at the process's exit: whoever installs berth
// says so there, since the driver may go before the last block is freed.
void set_cuda_over(bool over) noexcept;
[[nodiscard]] bool cuda_is_over() noexcept;

}  // namespace berth
