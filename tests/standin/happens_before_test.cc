#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <fmt/format.h>

using namespace berth::standin;

TEST_CASE("A block may be handed out on the stream that used it last", "[checker]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  char* block = device_memory(4096);
  writes(stream, block, 4096);
  REQUIRE(berth_standin_hand_out(block, 4096, stream) == 1);
  cudaFree(block);
  cudaStreamDestroy(stream);
}

TEST_CASE("A block handed out on another stream without an event is a violation", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  char* block = device_memory(4096);
  SECTION("after a write") { writes(first, block, 4096); }
  SECTION("after a read") { reads(first, block, 4096); }
  SECTION("after a use of its last byte") { reads(first, block + 4095, 1); }
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 0);
  REQUIRE(berth_standin_violations() == 1);
  unsigned long long id = 0;
  cudaStreamGetId(first, &id);
  // Both histories are told: who used the bytes, and what the new owner had done.
  REQUIRE_THAT(violation(0), Catch::Contains("and that of stream " + std::to_string(id)) &&
                                 Catch::Contains("handed out on"));
  cudaFree(block);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_CASE("An event orders the uses of a block before its next owner", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream(), third = make_stream();
  const EventHandle event = make_event();
  char* block = device_memory(4096);
  writes(first, block, 4096);
  cudaEventRecord(event, first);
  cudaStreamWaitEvent(second, event, 0);
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 1);
  REQUIRE(berth_standin_hand_out(block, 4096, third) == 0);
  // From there the order is handed on.
  cudaEventRecord(event, second);
  cudaStreamWaitEvent(third, event, 0);
  REQUIRE(berth_standin_hand_out(block, 4096, third) == 1);
  cudaFree(block);
  cudaEventDestroy(event);
  for (const StreamHandle stream : {first, second, third}) cudaStreamDestroy(stream);
}

TEST_CASE("Synchronising the device covers the work of streams that are destroyed", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  char* block = device_memory(4096);
  writes(first, block, 4096);
  cudaStreamDestroy(first);
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 0);
  berth_standin_forget_violations();
  cudaDeviceSynchronize();
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 1);
  cudaFree(block);
  cudaStreamDestroy(second);
}

TEST_CASE("An event recorded before the last use orders nothing", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  const EventHandle event = make_event();
  char* block = device_memory(4096);
  cudaEventRecord(event, first);
  writes(first, block, 4096);
  cudaStreamWaitEvent(second, event, 0);
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 0);
  cudaFree(block);
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_CASE("What the host saw to be over happens before all that follows", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  const EventHandle event = make_event();
  char* block = device_memory(4096);
  writes(first, block, 4096);
  cudaEventRecord(event, first);
  SECTION("a synchronised stream") { cudaStreamSynchronize(first); }
  SECTION("a synchronised event") { cudaEventSynchronize(event); }
  SECTION("a synchronised device") { cudaDeviceSynchronize(); }
  SECTION("an event found ready") {
    REQUIRE(cudaEventQuery(event) == kNotReady);
    REQUIRE(berth_standin_hand_out(block, 4096, second) == 0);
    while (berth_standin_run(1) == 1) {
    }
    // That it ran is not enough: nobody knows of it yet.
    REQUIRE(berth_standin_hand_out(block, 4096, second) == 0);
    REQUIRE(cudaEventQuery(event) == kSuccess);
  }
  REQUIRE(berth_standin_hand_out(block, 4096, second) == 1);
  cudaFree(block);
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_CASE("The legacy default stream orders blocking streams and no others", "[checker][legacy]") {
  const Fixture fixture;
  const StreamHandle blocking = make_stream(0), other = make_stream(kStreamNonBlocking);
  char* block = device_memory(4096);
  writes(kDefaultStream, block, 4096);
  writes(blocking, "", 0);
  REQUIRE(berth_standin_hand_out(block, 4096, blocking) == 1);
  writes(other, "", 0);
  REQUIRE(berth_standin_hand_out(block, 4096, other) == 0);
  cudaFree(block);
  cudaStreamDestroy(blocking);
  cudaStreamDestroy(other);
}

TEST_CASE("Two unordered accesses are a race unless both read", "[checker]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  char* block = device_memory(4096);
  reads(first, block, 4096);
  reads(second, block, 4096);
  REQUIRE(berth_standin_violations() == 0);
  SECTION("a kernel") { writes(second, block + 100, 1); }
  SECTION("a memset") { cudaMemsetAsync(block, 0, 4096, second); }
  SECTION("a copy") { cudaMemcpyAsync(block, block + 2048, 16, kDeviceToDevice, second); }
  REQUIRE(berth_standin_violations() == 1);
  REQUIRE_THAT(violation(0), Catch::Contains("race") && Catch::Contains("nothing orders the two"));
  cudaDeviceSynchronize();
  cudaFree(block);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

namespace {

// One page of memory at two addresses.
struct TwoAddresses {
  static constexpr std::size_t kSize = std::size_t{2} << 20;
  std::uintptr_t addresses[2] = {};
  std::uint64_t handle = 0;

  TwoAddresses() {
    AllocationProperties properties{};
    properties.type = 1;
    properties.location = {1, 0};
    const AccessDescription access{{1, 0}, 3};
    REQUIRE(cuMemCreate(&handle, kSize, &properties, 0) == kSuccess);
    for (std::uintptr_t& address : addresses) {
      REQUIRE(cuMemAddressReserve(&address, kSize, 0, 0, 0) == kSuccess);
      REQUIRE(cuMemMap(address, kSize, 0, handle, 0) == kSuccess);
      REQUIRE(cuMemSetAccess(address, kSize, &access, 1) == kSuccess);
    }
  }
  ~TwoAddresses() {
    cuMemRelease(handle);
    for (const std::uintptr_t address : addresses) {
      cuMemUnmap(address, kSize);
      cuMemAddressFree(address, kSize);
    }
  }
  TwoAddresses(const TwoAddresses&) = delete;
  TwoAddresses& operator=(const TwoAddresses&) = delete;
  [[nodiscard]] char* at(int which) const { return reinterpret_cast<char*>(addresses[which]); }
};

}  // namespace

TEST_CASE("Unordered accesses through two addresses of one memory are a race",
          "[checker][driver]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  const EventHandle event = make_event();
  {
    const TwoAddresses memory;
    writes(first, memory.at(0) + 100, 8);
    SECTION("nothing orders them") {
      reads(second, memory.at(1) + 104, 1);
      REQUIRE(berth_standin_violations() == 1);
      // Named by the address that the later one used.
      REQUIRE_THAT(violation(0), Catch::Contains(fmt::format("reads [{:#x}, +1 bytes)",
                                                             memory.addresses[1] + 104)));
    }
    SECTION("a block there is handed out") {
      REQUIRE(berth_standin_hand_out(memory.at(1), 4096, second) == 0);
    }
    SECTION("an event orders them") {
      cudaEventRecord(event, first);
      cudaStreamWaitEvent(second, event, 0);
      reads(second, memory.at(1) + 104, 1);
      REQUIRE(berth_standin_hand_out(memory.at(1), 4096, second) == 1);
      REQUIRE(berth_standin_violations() == 0);
    }
    SECTION("other bytes") {
      writes(second, memory.at(1) + 108, 8);
      REQUIRE(berth_standin_violations() == 0);
    }
    cudaDeviceSynchronize();
  }
  cudaEventDestroy(event);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_CASE("Unmapping one of two addresses asks for the uses of this one", "[checker][driver]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  {
    const TwoAddresses memory;
    writes(stream, memory.at(0), 4096);
    SECTION("that is in use, though another address has the memory") {
      REQUIRE(cuMemUnmap(memory.addresses[0], TwoAddresses::kSize) == kSuccess);
      REQUIRE(berth_standin_violations() == 1);
    }
    SECTION("that nothing uses, though the memory is in use at the other") {
      REQUIRE(cuMemUnmap(memory.addresses[1], TwoAddresses::kSize) == kSuccess);
      REQUIRE(berth_standin_violations() == 0);
      cudaDeviceSynchronize();
    }
  }
  cudaStreamDestroy(stream);
}

TEST_CASE("Unmapping memory that may still be in use is a violation", "[checker][driver]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  constexpr std::size_t kSize = std::size_t{2} << 20;
  std::uintptr_t address = 0;
  std::uint64_t handle = 0;
  const AllocationProperties properties{.type = 1,
                                        .requested_handle_types = 0,
                                        .location = {1, 0},
                                        .win32 = nullptr,
                                        .compression = 0,
                                        .gpu_direct_rdma = 0,
                                        .usage = 0,
                                        .reserved = {}};
  const AccessDescription access{{1, 0}, 3};
  REQUIRE(cuMemAddressReserve(&address, kSize, 0, 0, 0) == kSuccess);
  REQUIRE(cuMemCreate(&handle, kSize, &properties, 0) == kSuccess);
  REQUIRE(cuMemMap(address, kSize, 0, handle, 0) == kSuccess);
  REQUIRE(cuMemSetAccess(address, kSize, &access, 1) == kSuccess);
  cudaMemsetAsync(reinterpret_cast<void*>(address), 1, 4096, stream);
  bool violated = true;
  SECTION("at once") {}
  SECTION("after a synchronise") {
    cudaStreamSynchronize(stream);
    violated = false;
  }
  REQUIRE(cuMemUnmap(address, kSize) == kSuccess);
  REQUIRE(berth_standin_violations() == (violated ? 1 : 0));
  cuMemRelease(handle);
  cuMemAddressFree(address, kSize);
  cudaStreamDestroy(stream);
}
