#include "csrc/capi/cuda_device_of_process.h"

#include "csrc/cuda/cuda_device.h"

namespace berth::capi {
namespace {

class CudaStreams final : public StreamNumbers {
 public:
  // `below` is the GPU, or a layer over it.
  CudaStreams(Device& below, CudaDevice& device, bool foreign)
      : StreamNumbers(below), cuda_(device), foreign_(foreign) {}

 protected:
  LaneKey key_of(std::uint64_t stream) noexcept override {
    // A thread's default stream comes as its lane; handles are pointers.
    if (stream % 4 != 0) return stream;
    return cuda_.lane_of(reinterpret_cast<cudaStream_t>(stream), foreign_);
  }
  // A foreign key is the stream's own; a handle may be another stream's by now.
  LaneKey key_when_gone(LaneKey key) const noexcept override {
    return foreign_ ? key : CudaDevice::kGoneLane;
  }

 private:
  CudaDevice& cuda_;
  const bool foreign_;
};

class Cuda final : public DeviceOfProcess {
 public:
  Cuda(const Settings& settings, int index)
      : foreign_(settings.streams_may_end),
        device_(make_cuda_device({.index = index, .memory = settings.config.memory})),
        noting_(noting(*device_, index)),
        streams_(noting_, *device_, foreign_),
        allocator_(streams_, options(settings, *device_, index)) {}
  Allocator& allocator() noexcept override { return allocator_; }
  Device& device() noexcept override { return *device_; }
  LaneKey lane_of(void* stream) override { return streams_.number_of(handle_of(stream)); }
  void forget(void* stream) override {
    const auto held = hold(stream);
    streams_.forget(handle_of(stream));
    device_->forget_stream(static_cast<cudaStream_t>(stream));
  }
  std::unique_ptr<Hold> hold(void* stream) override {
    if (!foreign_) return nullptr;
    return std::make_unique<Held>(*device_, static_cast<cudaStream_t>(stream));
  }

 private:
  // Two handles are the legacy default stream, and one is another stream in each thread.
  static std::uint64_t handle_of(void* stream) noexcept {
    const auto handle = reinterpret_cast<std::uint64_t>(stream);
    // mutant: s8-capi, s9-capi
    return handle <= 2 ? CudaDevice::lane_of(static_cast<cudaStream_t>(stream)) : handle;
  }

  class Held final : public Hold {
   public:
    Held(CudaDevice& device, cudaStream_t stream) : scope_(device, stream) {}

   private:
    CudaStreamScope scope_;
  };

  const bool foreign_;
  std::unique_ptr<CudaDevice> device_;
  NotingDevice noting_;
  CudaStreams streams_;
  Allocator allocator_;
};

}  // namespace

std::unique_ptr<DeviceOfProcess> make_cuda_device_of_process(const Settings& settings, int index) {
  return std::make_unique<Cuda>(settings, index);
}

void end_cuda() noexcept { set_cuda_over(true); }

}  // namespace berth::capi
