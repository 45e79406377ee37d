#include "csrc/torch/cuda/stream_lanes.h"

#include <mutex>
#include <new>
#include <utility>

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

// --- Streams of other GPUs ----------------------------------------------------------------------

namespace {

constexpr int kIndexShift = 48;  // of a GPU's number in a lane: ids of PyTorch's streams are short

}  // namespace

LaneKey StreamLanes::lane_of_user(const c10::cuda::CUDAStream& stream) {
  const int index = stream.device_index();
  if (index == cuda_.index()) return lane_of(stream);
  const LaneKey lane = other_gpu(index).lane_of(stream);
  // Somebody else's stream gives no event here either: a synchronisation of its GPU proves its end.
  if (foreign(lane)) return lane;
  return kElsewhere | LaneKey{static_cast<unsigned>(index)} << kIndexShift | lane;
}

StreamLanes& StreamLanes::other_gpu(int index) {
  const auto find = [&]() -> StreamLanes* {
    for (const Other& other : others_)
      if (other.index == index) return other.lanes.get();
    return nullptr;
  };
  {
    const std::lock_guard lock(mutex_);
    if (StreamLanes* const known = find()) return *known;
  }
  Other made{index, make_cuda_device({.index = index, .memory = MemoryKind::kPlain}), nullptr};
  made.lanes = std::make_unique<StreamLanes>(*made.device);
  const std::lock_guard lock(mutex_);
  if (StreamLanes* const known = find()) return *known;
  return *others_.emplace_back(std::move(made)).lanes;
}

StreamLanes* StreamLanes::elsewhere(LaneKey* lane) const noexcept {
  if (foreign(*lane) || (*lane & kElsewhere) == 0) return nullptr;
  const auto index = static_cast<int>((*lane & ~kElsewhere) >> kIndexShift);
  *lane &= (LaneKey{1} << kIndexShift) - 1;
  const std::lock_guard lock(mutex_);
  for (const Other& other : others_)
    if (other.index == index) return other.lanes.get();
  return nullptr;
}

Status StreamLanes::record(LaneKey lane, DeviceEvent* event) noexcept {
  StreamLanes* const other = elsewhere(&lane);
  if (other == nullptr) return LaneNamingDevice::record(lane, event);
  const Status status = other->record(lane, event);
  if (!status.ok() || *event == 0) return status;
  try {
    const std::lock_guard lock(mutex_);
    events_elsewhere_.emplace(*event, other);
    event_count_elsewhere_.store(events_elsewhere_.size(), std::memory_order_release);
    return status;
  } catch (const std::bad_alloc&) {
    other->destroy(std::exchange(*event, 0));
    return {Status::Code::kOutOfMemory, "malloc", cudaErrorMemoryAllocation};
  }
}

Status StreamLanes::wait(LaneKey lane, DeviceEvent event) noexcept {
  StreamLanes* const other = elsewhere(&lane);
  return other == nullptr ? LaneNamingDevice::wait(lane, event) : other->wait(lane, event);
}

Status StreamLanes::capturing(LaneKey lane, bool* capturing) noexcept {
  StreamLanes* const other = elsewhere(&lane);
  return other == nullptr ? LaneNamingDevice::capturing(lane, capturing)
                          : other->capturing(lane, capturing);
}

void StreamLanes::destroy(DeviceEvent event) noexcept {
  if (event_count_elsewhere_.load(std::memory_order_acquire) != 0) [[unlikely]] {
    StreamLanes* other = nullptr;
    {
      const std::lock_guard lock(mutex_);
      if (const auto it = events_elsewhere_.find(event); it != events_elsewhere_.end()) {
        other = it->second;
        events_elsewhere_.erase(it);
        event_count_elsewhere_.store(events_elsewhere_.size(), std::memory_order_release);
      }
    }
    if (other != nullptr) return other->destroy(event);
  }
  LaneNamingDevice::destroy(event);
}

cudaStream_t StreamLanes::stream_of(LaneKey lane) const noexcept {
  if (lane == 0) return nullptr;
  if (foreign(lane)) return cuda_.stream_of(lane & ~kForeign);
  const std::lock_guard lock(mutex_);
  for (const Lane& one : lanes_)
    if (one.id == lane) return one.stream;
  return nullptr;
}

void StreamLanes::before_fork() noexcept {
  mutex_.lock();
  for (const Other& other : others_) other.lanes->before_fork();
}

void StreamLanes::after_fork() noexcept {
  for (const Other& other : others_) other.lanes->after_fork();
  mutex_.unlock();
}

Status StreamLanes::synchronize_all() noexcept {
  std::vector<StreamLanes*> others;
  try {
    std::vector<LaneKey> lanes = {0};
    {
      const std::lock_guard lock(mutex_);
      for (const Lane& one : lanes_) lanes.push_back(one.id);
      for (const Other& one : others_) others.push_back(one.lanes.get());
    }
    for (const LaneKey lane : lanes) {
      bool captured = false;
      if (capturing(lane, &captured).ok() && captured)
        return {Status::Code::kUnsupported, "synchronize"};
    }
  } catch (...) {
    return {Status::Code::kUnsupported, "synchronize"};
  }
  for (StreamLanes* const other : others)
    if (const Status status = other->synchronize_all(); !status.ok()) return status;
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
