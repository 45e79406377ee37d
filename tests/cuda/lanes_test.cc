// Streams as lanes, events, captures, and the thread's current device.

#include "csrc/standin/options.h"
#include "tests/cuda/fixture.h"

#include <cuda.h>

#include <string>
#include <thread>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

TEST_CASE("PyTorch's streams are lanes by their handles", "[cuda][lanes]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream first, second;
  const std::uint64_t before = berth_standin_calls("*");
  REQUIRE(first.lane() != second.lane());
  REQUIRE(first.lane() == reinterpret_cast<LaneKey>(first.handle));
  REQUIRE(device->lane_of(first, false) == first.lane());
  REQUIRE(device->stream_of(first.lane()) == first.handle);
  REQUIRE(berth_standin_calls("*") == before);
}

TEST_CASE("The two handles of the legacy default stream are one lane", "[cuda][lanes]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  REQUIRE(CudaDevice::lane_of(nullptr) == 0);
  REQUIRE(CudaDevice::lane_of(cudaStreamLegacy) == 0);
  REQUIRE(device->lane_of(cudaStreamLegacy, true) == 0);
  REQUIRE(device->stream_of(0) == nullptr);
}

TEST_CASE("The per-thread default stream is a lane a thread", "[cuda][lanes]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const LaneKey here = CudaDevice::lane_of(cudaStreamPerThread);
  REQUIRE(here == CudaDevice::lane_of(cudaStreamPerThread));
  REQUIRE(device->stream_of(here) == cudaStreamPerThread);
  std::vector<LaneKey> there;
  for (int i = 0; i < 2; ++i)
    std::thread([&] { there.push_back(CudaDevice::lane_of(cudaStreamPerThread)); }).join();
  // The second thread comes after the first one's end, whose work may go on.
  REQUIRE(there[0] != here);
  REQUIRE(there[1] != here);
  REQUIRE(there[0] != there[1]);
  // Its handle is this thread's stream here: the wrong one would be recorded.
  DeviceEvent event = 0;
  const std::uint64_t before = berth_standin_calls("*");
  REQUIRE(device->record(there[0], &event).code() == Status::Code::kUnsupported);
  REQUIRE(berth_standin_calls("*") == before);
  REQUIRE(device->record(here, &event).ok());
  device->destroy(event);
}

TEST_CASE("A foreign stream is left alone but by who holds it", "[cuda][lanes][foreign]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream own, foreign;
  const LaneKey lane = device->lane_of(foreign, true);
  REQUIRE(lane % 2 == 1);
  REQUIRE(device->lane_of(foreign, true) == lane);
  REQUIRE(device->stream_of(lane) == foreign.handle);
  DeviceEvent event = 0;
  DeviceEvent own_event = 0;
  bool capturing = false;
  REQUIRE(device->record(own.lane(), &own_event).ok());
  const std::uint64_t before = berth_standin_calls("*");
  const Status refused = device->record(lane, &event);
  REQUIRE(refused.code() == Status::Code::kUnsupported);
  REQUIRE(event == 0);
  REQUIRE(device->wait(lane, own_event).code() == Status::Code::kUnsupported);
  REQUIRE(device->capturing(lane, &capturing).code() == Status::Code::kUnsupported);
  REQUIRE(berth_standin_calls("*") == before);
  REQUIRE(device->describe(refused).find("a stream that is not PyTorch's") == 0);
  {
    const CudaStreamScope scope(*device, foreign);
    REQUIRE(scope.lane() == lane);
    REQUIRE(device->record(lane, &event).ok());
    REQUIRE(device->wait(lane, own_event).ok());
    REQUIRE(device->capturing(lane, &capturing).ok());
    const Stream another;
    const CudaStreamScope inner(*device, another);
    REQUIRE_FALSE(device->wait(lane, own_event).ok());  // the innermost counts
    std::thread([&] { REQUIRE_FALSE(device->wait(inner.lane(), own_event).ok()); }).join();
  }
  REQUIRE_FALSE(device->wait(lane, own_event).ok());
  device->destroy(event);
  device->destroy(own_event);
}

TEST_CASE("A handle that comes back is another lane", "[cuda][lanes][foreign]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  LaneKey lanes[2] = {};
  for (LaneKey& lane : lanes) {
    const Stream stream;
    lane = device->lane_of(stream, true);
    device->forget_stream(stream);
    REQUIRE(device->stream_of(lane) == nullptr);
  }
  REQUIRE(lanes[0] != lanes[1]);
}

TEST_CASE("A foreign stream that the driver does not know shares no lane",
          "[cuda][lanes][foreign][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream stream;
  berth_standin_fail("cudaStreamGetId", 1, cudaErrorInvalidResourceHandle, 2);
  const LaneKey first = device->lane_of(stream, true);
  const LaneKey second = device->lane_of(stream, true);
  REQUIRE(first != second);
  REQUIRE(first % 2 == 1);
  REQUIRE(first >> 63 == 0);
  REQUIRE(device->stream_of(first) == nullptr);
  DeviceEvent event = 0;
  REQUIRE_FALSE(device->record(first, &event).ok());
}

TEST_CASE("An event is complete when the work before it is", "[cuda][events]") {
  const Standin standin(kLazyPace);
  const auto device = make_gpu(Memory::kPlain);
  const Stream stream;
  void* base = nullptr;
  REQUIRE(device->reserve(kMiB, 0, &base).ok());
  cudaMemsetAsync(base, 1, kMiB, stream);
  DeviceEvent event = 0;
  REQUIRE(device->record(stream.lane(), &event).ok());
  bool complete = true;
  REQUIRE(device->query(event, &complete).ok());
  REQUIRE_FALSE(complete);
  REQUIRE(cudaPeekAtLastError() == cudaSuccess);
  REQUIRE(device->synchronize(event).ok());
  REQUIRE(device->query(event, &complete).ok());
  REQUIRE(complete);
  device->destroy(event);
  REQUIRE(device->release(base, kMiB).ok());
}

TEST_CASE("Events are used again", "[cuda][events]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream stream;
  const std::uint64_t before = berth_standin_calls("cudaEventCreateWithFlags");
  for (int i = 0; i < 10; ++i) {
    DeviceEvent events[2] = {};
    for (DeviceEvent& event : events) REQUIRE(device->record(stream.lane(), &event).ok());
    REQUIRE(events[0] != events[1]);
    for (const DeviceEvent event : events) device->destroy(event);
  }
  REQUIRE(berth_standin_calls("cudaEventCreateWithFlags") == before + 2);
}

TEST_CASE("An event that no stream of the device takes does not come back", "[cuda][events]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  const Stream stream;
  DeviceEvent first = 0;
  REQUIRE(device->record(stream.lane(), &first).ok());
  device->destroy(first);
  // As one that was made while another context was the thread's.
  const std::uint64_t made = berth_standin_calls("cudaEventCreateWithFlags");
  const std::uint64_t gone = berth_standin_calls("cudaEventDestroy");
  berth_standin_fail("cudaEventRecordWithFlags", 1, cudaErrorInvalidResourceHandle, 1);
  DeviceEvent second = 0;
  REQUIRE(device->record(stream.lane(), &second).ok());
  CHECK(berth_standin_calls("cudaEventCreateWithFlags") == made + 1);
  CHECK(berth_standin_calls("cudaEventDestroy") == gone + 1);
  device->destroy(second);
  // Of a stream that takes none the error is told, and one is left to come back.
  berth_standin_fail("cudaEventRecordWithFlags", 1, cudaErrorInvalidResourceHandle, 2);
  CHECK(device->record(stream.lane(), &first).number() == cudaErrorInvalidResourceHandle);
  CHECK(first == 0);
  REQUIRE(device->record(stream.lane(), &first).ok());
  CHECK(berth_standin_calls("cudaEventCreateWithFlags") == made + 2);
  device->destroy(first);
}

TEST_CASE("Memory is had on a thread without a context", "[cuda][devices]") {
  const Standin standin;
  berth_standin_refuse(standin::kWithoutContext);
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::vector<std::string> failures;
  std::thread([&] {
    const auto must = [&](const Status& status) {
      if (!status.ok()) failures.push_back(device->describe(status));
    };
    CUdeviceptr past_us = 0;
    if (cuMemAddressReserve(&past_us, page, 0, 0, 0) == CUDA_SUCCESS)
      failures.push_back("the stand-in refuses nothing");
    void* base = nullptr;
    CudaSharedMemory shared;
    must(device->reserve(4 * page, 0, &base));
    must(device->commit(base, page, Device::Residency::kOnDemand));
    const void* const from[] = {base};
    must(device->alias(static_cast<std::byte*>(base) + 2 * page, from, 1));
    must(device->share(base, page, &shared));
    must(device->enable_peer(1));
    must(device->decommit(base, page));
    must(device->release(base, 4 * page));
    void* segment = nullptr;
    must(device->allocate_segment(page, &segment));
    must(device->free_segment(segment, page));
  }).join();
  CHECK(failures == std::vector<std::string>{});
}

TEST_CASE("A lane waits for an event of another GPU", "[cuda][events]") {
  const Standin standin(kLazyPace);
  const auto first = make_gpu(Memory::kPlain, 0);
  const auto second = make_gpu(Memory::kPlain, 1);
  const Stream here(0), there(1);
  void* base = nullptr;
  REQUIRE(second->reserve(kMiB, 0, &base).ok());
  use(there, base, kMiB);
  DeviceEvent event = 0;
  // The first GPU is current: the event belongs to the second all the same, else the driver
  // refuses to record it there.
  REQUIRE(second->record(there.lane(), &event).ok());
  REQUIRE(first->wait(here.lane(), event).ok());
  REQUIRE(hand_out(here, base, kMiB));
  second->destroy(event);
  REQUIRE(second->synchronize_all().ok());
  REQUIRE(second->release(base, kMiB).ok());
}

TEST_CASE("The current device stays the caller's", "[cuda][devices]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual, 1);
  const Stream foreign(1);
  void* base = nullptr;
  void* pinned = nullptr;
  DeviceEvent event = 0;
  Bytes free = 0;
  for (const int mine : {0, 1}) {
    cudaSetDevice(mine);
    REQUIRE(device->reserve(4 * kMiB, 0, &base).ok());
    REQUIRE(device->commit(base, 4 * kMiB, Device::Residency::kResident).ok());
    REQUIRE(berth_standin_used(1) == 4 * kMiB);
    REQUIRE(berth_standin_used(0) == 0);
    REQUIRE(device->record(0, &event).ok());
    REQUIRE(device->record(CudaDevice::lane_of(cudaStreamPerThread), &event).ok());
    REQUIRE(device->free_bytes(&free).ok());
    REQUIRE(device->reserve_pinned(kMiB, &pinned).ok());
    REQUIRE(device->release_pinned(pinned, kMiB).ok());
    REQUIRE(device->synchronize_all().ok());
    REQUIRE(device->release(base, 4 * kMiB).ok());
    int current = -1;
    cudaGetDevice(&current);
    REQUIRE(current == mine);
  }
  cudaSetDevice(0);
}

TEST_CASE("Memory and queries beside an open capture do not void it", "[cuda][capture]") {
  const Standin standin(kLazyPace);
  for (const Memory kind : kKinds) {
    CAPTURE(name_of(kind));
    const auto device = make_gpu(kind);
    // Drivers may refuse calls of virtual memory as they do those of plain memory.
    berth_standin_refuse(standin::kBesideCapture);
    const Stream captured, other;
    DeviceEvent event = 0;
    REQUIRE(device->record(other.lane(), &event).ok());
    REQUIRE(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal) == cudaSuccess);
    bool capturing = false;
    REQUIRE(device->capturing(captured.lane(), &capturing).ok());
    REQUIRE(capturing);
    REQUIRE(device->capturing(other.lane(), &capturing).ok());
    REQUIRE_FALSE(capturing);

    void* base = nullptr;
    REQUIRE(device->reserve(4 * kMiB, 0, &base).ok());
    REQUIRE(device->commit(base, 2 * kMiB, Device::Residency::kOnDemand).ok());
    CudaSharedMemory shared;
    REQUIRE(device->share(base, 2 * kMiB, &shared).ok());
    if (kind == Memory::kVirtual) {
      const void* const from[] = {base};
      REQUIRE(device->alias(static_cast<std::byte*>(base) + 2 * kMiB, from, 1).ok());
      REQUIRE(device->decommit(base, 2 * kMiB).ok());
    }
    void* segment = nullptr;
    REQUIRE(device->allocate_segment(2 * kMiB, &segment).ok());
    REQUIRE(device->free_segment(segment, 2 * kMiB).ok());
    void* pinned = nullptr;
    REQUIRE(device->reserve_pinned(kMiB, &pinned).ok());
    bool complete = false;
    REQUIRE(device->query(event, &complete).ok());
    REQUIRE(device->synchronize(event).ok());
    REQUIRE(device->release_pinned(pinned, kMiB).ok());
    REQUIRE(device->release(base, 4 * kMiB).ok());

    // The thread is as strict as it was: what is done past us voids the capture still.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess);
    REQUIRE(mode == cudaStreamCaptureModeGlobal);
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(captured, &graph) == cudaSuccess);
    cudaGraphDestroy(graph);
    device->destroy(event);
  }
}
