#include "csrc/torch/cuda/stream_lanes.h"

#include <mutex>
#include <new>

namespace berth::torch {

LaneKey StreamLanes::lane_slowly(const c10::cuda::CUDAStream& stream) noexcept {
  const auto id = static_cast<LaneKey>(stream.id());
  // Ids of PyTorch's own streams are odd; others are the handle itself (c10/cuda/CUDAStream.cpp).
  if (id == 0) return 0;
  if ((id & 1) == 0) return lane_of(reinterpret_cast<cudaStream_t>(id));
  {
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_) {
      if (lane.id != id) continue;
      known_.store(id, std::memory_order_relaxed);
      return id;
    }
  }
  try {
    const cudaStream_t handle = stream.stream();
    const std::lock_guard lock(mutex_);
    lanes_.push_back({id, handle});
    known_.store(id, std::memory_order_relaxed);
    return id;
  } catch (...) {  // no memory for the entry: a lane that gives no events, which costs waiting
    return id;
  }
}

LaneKey StreamLanes::lane_of(cudaStream_t stream) noexcept {
  const auto handle = reinterpret_cast<std::uintptr_t>(stream);
  if (handle < 2) return 0;
  {
    const std::lock_guard lock(mutex_);
    for (const Lane& lane : lanes_)
      if (lane.stream == stream) return lane.id;
  }
  return kForeign | cuda_.lane_of(stream, true);
}

cudaStream_t StreamLanes::stream_of(LaneKey lane) const noexcept {
  if (lane == 0) return nullptr;
  if (foreign(lane)) return cuda_.stream_of(lane & ~kForeign);
  const std::lock_guard lock(mutex_);
  for (const Lane& one : lanes_)
    if (one.id == lane) return one.stream;
  return nullptr;
}

Status StreamLanes::synchronize_all() noexcept {
  try {
    std::vector<LaneKey> lanes = {0};
    {
      const std::lock_guard lock(mutex_);
      for (const Lane& one : lanes_) lanes.push_back(one.id);
    }
    for (const LaneKey lane : lanes) {
      bool captured = false;
      if (capturing(lane, &captured).ok() && captured)
        return {Status::Code::kUnsupported, "synchronize"};
    }
  } catch (...) {
    return {Status::Code::kUnsupported, "synchronize"};
  }
  return device_.synchronize_all();
}

LaneKey StreamLanes::below(LaneKey lane) const noexcept {
  if (lane == 0) return 0;
  if (foreign(lane)) return lane & ~kForeign;
  const std::lock_guard lock(mutex_);
  for (const Lane& one : lanes_)
    if (one.id == lane) return CudaDevice::lane_of(one.stream);
  return ~kForeign;  // no lane of the device's: it answers kUnsupported
}

}  // namespace berth::torch
