#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <thread>

using namespace berth::standin;

namespace {

int status_of(StreamHandle stream) {
  int status = -1;
  cudaStreamIsCapturing(stream, &status);
  return status;
}

std::size_t node_count(Opaque graph) {
  std::size_t count = 0;
  cudaGraphGetNodes(graph, nullptr, &count);
  return count;
}

}  // namespace

TEST_CASE("Captured work runs when its graph is launched and as often", "[capture]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  auto* pinned = pinned_memory<int>(64);
  auto* device = device_memory<int>(64);
  REQUIRE(cudaStreamBeginCapture(stream, kCaptureGlobal) == kSuccess);
  REQUIRE(status_of(stream) == kCaptureActive);
  REQUIRE(cudaMemsetAsync(device, 1, 4, stream) == kSuccess);
  REQUIRE(cudaMemcpyAsync(pinned, device, 4, kDeviceToHost, stream) == kSuccess);
  Opaque graph = nullptr, executable = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == kSuccess);
  REQUIRE(status_of(stream) == kCaptureNone);
  REQUIRE(node_count(graph) == 2);
  REQUIRE(cudaGraphInstantiateWithFlags(&executable, graph, 0) == kSuccess);
  REQUIRE(cudaGraphDestroy(graph) == kSuccess);
  cudaDeviceSynchronize();
  REQUIRE(pinned[0] == 0);
  for (int i = 0; i < 2; ++i) {
    pinned[0] = 0;
    REQUIRE(cudaGraphLaunch(executable, stream) == kSuccess);
    cudaStreamSynchronize(stream);
    REQUIRE(pinned[0] == 0x01010101);
  }
  REQUIRE(cudaGraphExecDestroy(executable) == kSuccess);
  REQUIRE(cudaGraphLaunch(executable, stream) == kInvalidValue);
  cudaFree(device);
  cudaFreeHost(pinned);
  cudaStreamDestroy(stream);
}

TEST_CASE("A stream joins a capture by waiting for its event and must come back", "[capture]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream(), side = make_stream();
  const EventHandle fork = make_event(), join = make_event();
  REQUIRE(cudaStreamBeginCapture(stream, kCaptureGlobal) == kSuccess);
  writes(stream, "", 0);
  cudaEventRecord(fork, stream);
  REQUIRE(cudaStreamWaitEvent(side, fork, 0) == kSuccess);
  REQUIRE(status_of(side) == kCaptureActive);
  writes(side, "", 0);
  cudaEventRecord(join, side);
  int expected = kStreamCaptureUnjoined;
  SECTION("and comes back") {
    REQUIRE(cudaStreamWaitEvent(stream, join, 0) == kSuccess);
    expected = kSuccess;
  }
  SECTION("and does not") {}
  Opaque graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == expected);
  REQUIRE((graph != nullptr) == (expected == kSuccess));
  REQUIRE(status_of(side) == kCaptureNone);
  if (graph != nullptr) cudaGraphDestroy(graph);
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(side);
}

TEST_CASE("Capture tells the node that comes last and what it depends on", "[capture]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  cudaStreamBeginCapture(stream, kCaptureGlobal);
  writes(stream, "", 0);
  writes(stream, "", 0);
  int status = 0;
  unsigned long long id = 0;
  Opaque graph = nullptr;
  const Opaque* nodes = nullptr;
  std::size_t count = 0;
  REQUIRE(cudaStreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, nullptr, &count) ==
          kSuccess);
  REQUIRE(status == kCaptureActive);
  REQUIRE(id != 0);
  REQUIRE(count == 1);
  Opaque all[2] = {};
  std::size_t all_count = 2;
  REQUIRE(cudaGraphGetNodes(graph, all, &all_count) == kSuccess);
  REQUIRE(nodes[0] == all[1]);
  Opaque before = nullptr;
  std::size_t before_count = 1;
  REQUIRE(cudaGraphNodeGetDependencies(all[1], &before, nullptr, &before_count) == kSuccess);
  REQUIRE(before == all[0]);
  cudaStreamEndCapture(stream, &graph);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("What a capture must not meet voids it", "[capture][misuse]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream(), other = make_stream();
  const EventHandle event = make_event();
  cudaEventRecord(event, other);
  REQUIRE(cudaStreamBeginCapture(stream, kCaptureGlobal) == kSuccess);
  writes(stream, "", 0);
  void* memory = nullptr;
  SECTION("memory from the driver") {
    REQUIRE(cudaMalloc(&memory, 1) == kStreamCaptureUnsupported);
  }
  SECTION("a query of an event") { REQUIRE(cudaEventQuery(event) == kStreamCaptureUnsupported); }
  SECTION("a wait for work outside") {
    REQUIRE(cudaStreamWaitEvent(stream, event, 0) == kStreamCaptureIsolation);
  }
  SECTION("a synchronise of the stream") {
    REQUIRE(cudaStreamSynchronize(stream) == kStreamCaptureUnsupported);
  }
  SECTION("a synchronise of the device") {
    REQUIRE(cudaDeviceSynchronize() == kStreamCaptureUnsupported);
  }
  REQUIRE(status_of(stream) == kCaptureInvalidated);
  Opaque graph = &memory;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == kStreamCaptureInvalidated);
  REQUIRE(graph == nullptr);
  REQUIRE(status_of(stream) == kCaptureNone);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
}

TEST_CASE("The mode of a capture says whom it forbids to call the driver", "[capture]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  void* memory = nullptr;
  Opaque graph = nullptr;
  SECTION("a relaxed one nobody") {
    cudaStreamBeginCapture(stream, kCaptureRelaxed);
    REQUIRE(cudaMalloc(&memory, 1) == kSuccess);
  }
  SECTION("one of a thread no other thread") {
    cudaStreamBeginCapture(stream, kCaptureThreadLocal);
    std::thread([&] {
      int mode = kCaptureThreadLocal;
      cudaThreadExchangeStreamCaptureMode(&mode);
      REQUIRE(cudaMalloc(&memory, 1) == kSuccess);
    }).join();
  }
  SECTION("a thread that relaxed its mode for a while") {
    cudaStreamBeginCapture(stream, kCaptureGlobal);
    int mode = kCaptureRelaxed;
    REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == kSuccess);
    REQUIRE(cudaMalloc(&memory, 1) == kSuccess);
    REQUIRE(cudaThreadExchangeStreamCaptureMode(&mode) == kSuccess);
    REQUIRE(mode == kCaptureRelaxed);
  }
  REQUIRE(cudaStreamEndCapture(stream, &graph) == kSuccess);
  cudaGraphDestroy(graph);
  cudaFree(memory);
  cudaStreamDestroy(stream);
}

TEST_CASE("An event recorded in a capture cannot be asked for", "[capture][misuse]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream(), other = make_stream();
  const EventHandle event = make_event();
  cudaStreamBeginCapture(stream, kCaptureRelaxed);
  cudaEventRecord(event, stream);
  REQUIRE(cudaEventQuery(event) == kCapturedEvent);
  Opaque graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == kSuccess);
  REQUIRE(cudaEventSynchronize(event) == kCapturedEvent);
  REQUIRE(cudaStreamWaitEvent(other, event, 0) == kCapturedEvent);
  // Recorded anew outside, it is an event like any other.
  REQUIRE(cudaEventRecord(event, other) == kSuccess);
  REQUIRE(cudaEventSynchronize(event) == kSuccess);
  cudaGraphDestroy(graph);
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
}

TEST_CASE("The legacy default stream cannot be captured", "[capture][misuse]") {
  const Fixture fixture;
  REQUIRE(cudaStreamBeginCapture(kDefaultStream, kCaptureGlobal) == kStreamCaptureUnsupported);
}

TEST_CASE("What a launched graph touches is checked like any other work", "[capture][checker]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream(), other = make_stream();
  char* block = device_memory(4096);
  cudaStreamBeginCapture(stream, kCaptureGlobal);
  writes(stream, block, 4096);
  Opaque graph = nullptr, executable = nullptr;
  cudaStreamEndCapture(stream, &graph);
  cudaGraphInstantiateWithFlags(&executable, graph, 0);
  REQUIRE(berth_standin_hand_out(block, 4096, other) == 1);  // not launched yet
  cudaGraphLaunch(executable, stream);
  REQUIRE(berth_standin_hand_out(block, 4096, other) == 0);
  cudaStreamSynchronize(stream);
  REQUIRE(berth_standin_hand_out(block, 4096, other) == 1);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaFree(block);
  cudaStreamDestroy(stream);
  cudaStreamDestroy(other);
}
