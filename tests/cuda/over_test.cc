// A driver that is gone, a process that was forked, a device that is damaged.

#include "tests/cuda/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

namespace {

// Every call of a device, each with arguments that were fine before: the first that is not kGone,
// by name, or that CUDA was called.
std::string first_that_is_not_gone(CudaDevice& device, void* base, void* pinned, DeviceEvent event,
                                   LaneKey lane) {
  const std::uint64_t before = berth_standin_calls("*");
  Bytes free = 0;
  void* made = nullptr;
  bool answer = false;
  DeviceEvent done = 0;
  CudaSharedMemory shared;
  std::shared_ptr<void> opened;
  const std::pair<const char*, Status> answers[] = {
      {"free_bytes", device.free_bytes(&free)},
      {"reserve", device.reserve(2 * kMiB, 0, &made)},
      {"commit", device.commit(base, 2 * kMiB, Device::Residency::kOnDemand)},
      {"decommit", device.decommit(base, 2 * kMiB)},
      {"release", device.release(base, 2 * kMiB)},
      {"reserve_pinned", device.reserve_pinned(kMiB, &made)},
      {"release_pinned", device.release_pinned(pinned, kMiB)},
      {"copy", device.copy(base, pinned, kMiB, lane, &done)},
      {"record", device.record(lane, &done)},
      {"query", device.query(event, &answer)},
      {"wait", device.wait(lane, event)},
      {"synchronize", device.synchronize(event)},
      {"synchronize_all", device.synchronize_all()},
      {"capturing", device.capturing(lane, &answer)},
      {"enable_peer", device.enable_peer(1)},
      {"copy_peer", device.copy_peer(base, 0, base, 1, kMiB, nullptr, false)},
      {"share", device.share(base, kMiB, &shared)},
      {"open_shared", device.open_shared("x", &opened)},
  };
  device.destroy(event);
  device.forget_stream(nullptr);
  (void)device.lane_of(reinterpret_cast<cudaStream_t>(64), true);
  for (const auto& [name, status] : answers) {
    if (status.code() != Status::Code::kGone ||
        CudaDevice::error_of(status) != cudaErrorCudartUnloading)
      return name;
    if (device.describe(status).find("the driver is unloaded, or this is a forked child") ==
        std::string::npos)
      return "describe";
  }
  return berth_standin_calls("*") == before ? "" : "a call of CUDA";
}

struct Used {
  explicit Used(Memory kind) : device(make_gpu(kind)) {
    REQUIRE(device->reserve(2 * kMiB, 0, &base).ok());
    REQUIRE(device->commit(base, 2 * kMiB, Device::Residency::kOnDemand).ok());
    REQUIRE(device->reserve_pinned(kMiB, &pinned).ok());
    REQUIRE(device->record(stream.lane(), &event).ok());
  }
  std::string first() {
    return first_that_is_not_gone(*device, base, pinned, event, stream.lane());
  }
  const Stream stream;
  std::unique_ptr<CudaDevice> device;
  void* base = nullptr;
  void* pinned = nullptr;
  DeviceEvent event = 0;
};

}  // namespace

TEST_CASE("Once the driver is unloaded one call finds out and no other is made", "[cuda][over]") {
  const Standin standin;
  for (const Memory kind : kKinds) {
    CAPTURE(name_of(kind));
    {
      Used used(kind);
      standin::berth_standin_unload();
      Bytes free = 0;
      REQUIRE(used.device->free_bytes(&free).code() == Status::Code::kGone);
      REQUIRE(cuda_is_over());
      REQUIRE(used.first() == "");
      Standin::settle();  // so that the memory goes after all
    }
    REQUIRE(berth_standin_live_allocations() == 0);
  }
}

TEST_CASE("After the installer has said that it is over no call is made", "[cuda][over]") {
  const Standin standin;
  for (const Memory kind : kKinds) {
    CAPTURE(name_of(kind));
    Used used(kind);
    set_cuda_over(true);
    REQUIRE(used.first() == "");
    set_cuda_over(false);
  }
}

TEST_CASE("A device that goes after the driver makes no call", "[cuda][over]") {
  const Standin standin;
  const Stream stream;
  auto device = make_gpu(Memory::kPlain);
  DeviceEvent event = 0;
  REQUIRE(device->record(stream.lane(), &event).ok());
  device->destroy(event);
  set_cuda_over(true);
  const std::uint64_t before = berth_standin_calls("*");
  device.reset();
  REQUIRE(berth_standin_calls("*") == before);
}

TEST_CASE("A forked child makes no call and ends well", "[cuda][over][fork]") {
  const Standin standin;
  for (const Memory kind : kKinds) {
    CAPTURE(name_of(kind));
    Used used(kind);
    const pid_t child = fork();
    if (child == 0) {
      const std::string first = used.first();
      const std::uint64_t before = berth_standin_calls("*");
      used.device.reset();
      _exit(first.empty() && berth_standin_calls("*") == before ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    REQUIRE(status == 0);
    // The parent goes on.
    Bytes free = 0;
    REQUIRE(used.device->free_bytes(&free).ok());
  }
}

TEST_CASE("An error of earlier work is passed on by name and stays", "[cuda][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream stream;
  berth_standin_fail("cudaEventCreateWithFlags", 1, cudaErrorIllegalAddress, 1);
  DeviceEvent event = 0;
  const Status status = device->record(stream.lane(), &event);
  REQUIRE(status.code() == Status::Code::kSticky);
  REQUIRE(device->describe(status).find("cudaErrorIllegalAddress, 700), an error of earlier work "
                                        "on the device") != std::string::npos);
  REQUIRE(device->synchronize_all().code() == Status::Code::kSticky);
  // The program meets it, too.
  REQUIRE(cudaPeekAtLastError() == cudaErrorIllegalAddress);
  berth_standin_clear_faults();
  (void)cudaGetLastError();
  (void)cudaGetLastError();
}

TEST_CASE("A GPU that is not there is one error", "[cuda][misuse]") {
  const Standin standin;
  REQUIRE(cuda_device_count() == 2);
  for (const int index : {-1, 2})
    REQUIRE_THROWS_WITH(make_gpu(Memory::kVirtual, index),
                        "cuda:" + std::to_string(index) + " was requested, this process sees 2");
}

TEST_CASE("Without virtual memory in the driver memory is plain", "[cuda][memory]") {
  const Standin standin;
  REQUIRE(make_gpu(Memory::kVirtual)->memory() == Memory::kVirtual);
  REQUIRE(make_gpu(Memory::kPlain)->memory() == Memory::kPlain);
  REQUIRE(make_gpu(Memory::kPlain)->properties().name.find("H100") != std::string::npos);
}
