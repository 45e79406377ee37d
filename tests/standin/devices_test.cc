#include "tests/catch.h"
#include "tests/standin/fixture.h"

using namespace berth::standin;

TEST_CASE("Each device has its own memory and streams", "[device]") {
  const Fixture fixture;
  const std::size_t before[] = {berth_standin_used(0), berth_standin_used(1)};
  REQUIRE(cudaSetDevice(1) == kSuccess);
  char* memory = device_memory(std::size_t{64} << 20);
  const StreamHandle stream = make_stream();
  PointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, memory);
  REQUIRE(attributes.device == 1);
  REQUIRE(berth_standin_used(0) == before[0]);
  REQUIRE(berth_standin_used(1) > before[1]);
  int device = -1;
  REQUIRE(cudaStreamGetDevice(stream, &device) == kSuccess);
  REQUIRE(device == 1);
  // A stream keeps its device whichever one is current.
  REQUIRE(cudaSetDevice(0) == kSuccess);
  REQUIRE(cudaMemsetAsync(memory, 1, 16, stream) == kSuccess);
  cudaDeviceSynchronize();
  REQUIRE(memory[0] == 0);
  cudaSetDevice(1);
  cudaDeviceSynchronize();
  REQUIRE(memory[0] == 1);
  REQUIRE(cudaSetDevice(2) == kInvalidDevice);
  cudaFree(memory);
  cudaStreamDestroy(stream);
}

TEST_CASE("An event is recorded on its own device and waited for on any", "[device][event]") {
  const Fixture fixture;
  const StreamHandle here = make_stream();
  const EventHandle event = make_event();
  cudaSetDevice(1);
  const StreamHandle there = make_stream();
  REQUIRE(cudaEventRecord(event, there) == kInvalidResourceHandle);
  REQUIRE(cudaEventRecord(event, here) == kSuccess);
  REQUIRE(cudaStreamWaitEvent(there, event, 0) == kSuccess);
  REQUIRE(cudaStreamSynchronize(there) == kSuccess);
  REQUIRE(cudaEventQuery(event) == kSuccess);
  cudaEventDestroy(event);
  cudaStreamDestroy(here);
  cudaStreamDestroy(there);
}

TEST_CASE("Peer access is enabled once", "[device][peer]") {
  const Fixture fixture;
  int can = 0;
  REQUIRE(cudaDeviceCanAccessPeer(&can, 0, 1) == kSuccess);
  REQUIRE(can == 1);
  REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == kSuccess);
  REQUIRE(cudaDeviceEnablePeerAccess(1, 0) == kPeerAccessAlreadyEnabled);
  REQUIRE(cudaDeviceEnablePeerAccess(0, 0) == kPeerAccessUnsupported);
  REQUIRE(cudaDeviceDisablePeerAccess(1) == kSuccess);
  REQUIRE(cudaDeviceDisablePeerAccess(1) == kPeerAccessNotEnabled);
}

TEST_CASE("The legacy default stream of one device does not wait for the other",
          "[device][legacy]") {
  const Fixture fixture;
  cudaSetDevice(1);
  const StreamHandle there = make_stream(0);
  writes(there, "", 0);
  cudaSetDevice(0);
  writes(kDefaultStream, "", 0);
  REQUIRE(cudaStreamSynchronize(kDefaultStream) == kSuccess);
  char* block = device_memory(4096);
  writes(there, block, 4096);
  REQUIRE(berth_standin_hand_out(block, 4096, kDefaultStream) == 0);
  cudaSetDevice(1);
  cudaDeviceSynchronize();
  cudaSetDevice(0);
  REQUIRE(berth_standin_hand_out(block, 4096, kDefaultStream) == 1);
  cudaFree(block);
  cudaStreamDestroy(there);
}
