#pragma once

#include "csrc/core/spin_mutex.h"
#include "csrc/cuda/cuda_device.h"
#include "csrc/device/lane_naming_device.h"

#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <memory>
#include <unordered_map>
#include <vector>

namespace berth::torch {

// Names the lanes of one GPU by what is the same in every run, since plans carry the names.
//
// A stream of PyTorch's pools is keyed by its c10::StreamId, the default stream by 0. Streams of
// somebody else's are keyed by the CUDA device's lane and a bit. The device below knows all of them
// by other keys, which this layer translates. PyTorch's streams of another GPU, which may use this
// one's blocks, have a second bit and that GPU's number: their events are made there (S11).
// Thread-safe.
class StreamLanes final : public LaneNamingDevice {
 public:
  explicit StreamLanes(CudaDevice& device) : LaneNamingDevice(device), cuda_(device) {}

  // Of a stream of this GPU.
  [[nodiscard]] LaneKey lane_of(const c10::cuda::CUDAStream& stream) noexcept {
    const auto id = static_cast<LaneKey>(stream.id());
    if (id == known_.load(std::memory_order_relaxed)) [[likely]]
      return id;
    return lane_slowly(stream);
  }
  // A stream by its handle: one of PyTorch's that was seen before, or somebody else's.
  [[nodiscard]] LaneKey lane_of(cudaStream_t stream) noexcept;
  // Of a stream of any GPU that uses a block of this one. Throws Error(kSystem) where that GPU is
  // not to be had.
  [[nodiscard]] LaneKey lane_of_user(const c10::cuda::CUDAStream& stream);
  // Null for the default stream and for lanes that are not known.
  [[nodiscard]] cudaStream_t stream_of(LaneKey lane) const noexcept;
  // Whether the stream is somebody else's, so that it must be held by a CudaStreamScope.
  [[nodiscard]] static bool foreign(LaneKey lane) noexcept { return (lane & kForeign) != 0; }

  Status record(LaneKey lane, DeviceEvent* event) noexcept override;
  Status wait(LaneKey lane, DeviceEvent event) noexcept override;
  Status capturing(LaneKey lane, bool* capturing) noexcept override;
  void destroy(DeviceEvent event) noexcept override;
  // Around fork(), with those of other GPUs: the lock is held over it.
  void before_fork() noexcept;
  void after_fork() noexcept;

  // With every other GPU that a user's stream belongs to. Refused while a stream that is known here
  // is captured: the driver would refuse as well, and void the capture.
  Status synchronize_all() noexcept override;

 private:
  static constexpr LaneKey kForeign = LaneKey{1} << 63;
  static constexpr LaneKey kElsewhere = LaneKey{1} << 62;

  // Another GPU, with its lanes and their events. Never goes once it is there.
  struct Other {
    int index = 0;
    std::unique_ptr<CudaDevice> device;
    std::unique_ptr<StreamLanes> lanes;
  };

  LaneKey lane_slowly(const c10::cuda::CUDAStream& stream) noexcept;
  StreamLanes& other_gpu(int index);
  // Of a lane of another GPU, or null.
  [[nodiscard]] StreamLanes* elsewhere(LaneKey* lane) const noexcept;
  [[nodiscard]] LaneKey below(LaneKey lane) const noexcept override;

  struct Lane {
    LaneKey id = 0;
    cudaStream_t stream = nullptr;
  };

  CudaDevice& cuda_;
  mutable SpinMutex mutex_;
  std::vector<Lane> lanes_;        // streams of PyTorch's pools
  std::atomic<LaneKey> known_{0};  // the last one asked for that is in `lanes_`, or 0
  std::vector<Other> others_;
  std::unordered_map<DeviceEvent, StreamLanes*> events_elsewhere_;
  std::atomic<std::size_t> event_count_elsewhere_{0};
};

}  // namespace berth::torch
