#include "csrc/standin/options.h"
#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <unistd.h>

#include <thread>

using namespace berth::standin;

namespace {

constexpr std::size_t kPage = std::size_t{2} << 20;

AllocationProperties on_device(int shareable = 0) {
  AllocationProperties properties{};
  properties.type = 1;
  properties.requested_handle_types = shareable;
  properties.location = {1, 0};
  return properties;
}

// A reserved range of four pages.
struct Range {
  std::uintptr_t address = 0;
  Range() { cuMemAddressReserve(&address, 4 * kPage, 0, 0, 0); }
  ~Range() { cuMemAddressFree(address, 4 * kPage); }
  Range(const Range&) = delete;
  Range& operator=(const Range&) = delete;
  [[nodiscard]] int* at(std::size_t page) const {
    return reinterpret_cast<int*>(address + page * kPage);
  }
};

const AccessDescription kReadWrite{{1, 0}, 3};

}  // namespace

TEST_CASE("Two mappings of one piece of memory show the same bytes", "[driver]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  std::uint64_t handle = 0;
  REQUIRE(cuMemCreate(&handle, kPage, &properties, 0) == kSuccess);
  for (const std::size_t page : {0, 2}) {
    REQUIRE(cuMemMap(range.address + page * kPage, kPage, 0, handle, 0) == kSuccess);
    REQUIRE(cuMemSetAccess(range.address + page * kPage, kPage, &kReadWrite, 1) == kSuccess);
  }
  REQUIRE(cudaMemset(range.at(0), 1, 4) == kSuccess);
  cudaDeviceSynchronize();
  REQUIRE(*range.at(2) == 0x01010101);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  for (const std::size_t page : {0, 2})
    REQUIRE(cuMemUnmap(range.address + page * kPage, kPage) == kSuccess);
}

TEST_CASE("A kernel on another device needs access to the memory", "[driver][peers]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  std::uint64_t handle = 0;
  REQUIRE(cuMemCreate(&handle, kPage, &properties, 0) == kSuccess);
  REQUIRE(cuMemMap(range.address, kPage, 0, handle, 0) == kSuccess);
  REQUIRE(cuMemSetAccess(range.address, kPage, &kReadWrite, 1) == kSuccess);
  const BerthStandinAccess access{range.at(0), kPage, 0};
  StreamHandle here = nullptr, there = nullptr;
  cudaStreamCreateWithFlags(&here, kStreamNonBlocking);
  cudaSetDevice(1);
  cudaStreamCreateWithFlags(&there, kStreamNonBlocking);
  cudaSetDevice(0);
  berth_standin_launch(here, "reader", &access, 1);
  REQUIRE(berth_standin_violations() == 0);
  berth_standin_launch(there, "reader", &access, 1);
  REQUIRE(berth_standin_violations() == 1);
  berth_standin_forget_violations();
  // Device 0 is not named, and keeps what it has.
  const AccessDescription second{{1, 1}, 3};
  REQUIRE(cuMemSetAccess(range.address, kPage, &second, 1) == kSuccess);
  for (StreamHandle stream : {here, there}) berth_standin_launch(stream, "reader", &access, 1);
  REQUIRE(berth_standin_violations() == 0);
  cudaDeviceSynchronize();
  cudaStreamSynchronize(there);
  cudaStreamDestroy(here);
  cudaStreamDestroy(there);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  REQUIRE(cuMemUnmap(range.address, kPage) == kSuccess);
}

TEST_CASE("Memory is mapped from its beginning", "[driver]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  std::uint64_t handle = 0;
  REQUIRE(cuMemCreate(&handle, 2 * kPage, &properties, 0) == kSuccess);
  REQUIRE(cuMemMap(range.address, kPage, kPage, handle, 0) == kInvalidValue);
  REQUIRE(cuMemMap(range.address, 2 * kPage, 0, handle, 0) == kSuccess);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  REQUIRE(cuMemUnmap(range.address, 2 * kPage) == kSuccess);
}

TEST_CASE("Calls of virtual memory are refused as drivers may refuse them", "[driver][refuse]") {
  const Fixture fixture;
  std::uintptr_t address = 0;
  int status = kSuccess;
  berth_standin_refuse(kWithoutContext);
  std::thread([&] { status = cuMemAddressReserve(&address, kPage, 0, 0, 0); }).join();
  CHECK(status == kDeviceUninitialized);
  std::thread([&] {
    cudaFree(nullptr);
    status = cuMemAddressReserve(&address, kPage, 0, 0, 0);
  }).join();
  CHECK(status == kSuccess);
  CHECK(cuMemAddressFree(address, kPage) == kSuccess);

  berth_standin_refuse(kBesideCapture);
  StreamHandle stream = nullptr;
  cudaStreamCreateWithFlags(&stream, kStreamNonBlocking);
  REQUIRE(cudaStreamBeginCapture(stream, kCaptureGlobal) == kSuccess);
  std::thread([&] { status = cuMemAddressReserve(&address, kPage, 0, 0, 0); }).join();
  CHECK(status == kStreamCaptureUnsupported);
  Opaque graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == kStreamCaptureInvalidated);
  berth_standin_refuse(0);
  (void)cudaGetLastError();
  cudaStreamDestroy(stream);
}

TEST_CASE("Physical memory counts until its last handle and its last mapping are gone",
          "[driver]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  const std::size_t before = berth_standin_used(0);
  std::uint64_t handle = 0;
  cuMemCreate(&handle, kPage, &properties, 0);
  REQUIRE(berth_standin_used(0) == before + kPage);
  cuMemMap(range.address, kPage, 0, handle, 0);
  std::uint64_t again = 0;
  REQUIRE(cuMemRetainAllocationHandle(&again, range.at(0)) == kSuccess);
  REQUIRE(again == handle);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  REQUIRE(cuMemRelease(again) == kSuccess);
  REQUIRE(cuMemRelease(handle) == kInvalidValue);
  REQUIRE(berth_standin_used(0) == before + kPage);
  REQUIRE(cuMemUnmap(range.address, kPage) == kSuccess);
  REQUIRE(berth_standin_used(0) == before);
}

TEST_CASE("Memory with two addresses counts once and keeps its bytes at the one that is left",
          "[driver]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  const std::size_t before = berth_standin_used(0);
  std::uint64_t handle = 0, again = 0;
  cuMemCreate(&handle, kPage, &properties, 0);
  cuMemMap(range.address, kPage, 0, handle, 0);
  cuMemSetAccess(range.address, kPage, &kReadWrite, 1);
  cudaMemset(range.at(0), 1, 4);
  cudaDeviceSynchronize();
  REQUIRE(cuMemRetainAllocationHandle(&again, range.at(0)) == kSuccess);
  REQUIRE(cuMemMap(range.address + kPage, kPage, 0, again, 0) == kSuccess);
  REQUIRE(cuMemSetAccess(range.address + kPage, kPage, &kReadWrite, 1) == kSuccess);
  REQUIRE(berth_standin_used(0) == before + kPage);
  REQUIRE(cuMemUnmap(range.address, kPage) == kSuccess);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  REQUIRE(berth_standin_used(0) == before + kPage);
  REQUIRE(*range.at(1) == 0x01010101);
  REQUIRE(cuMemRetainAllocationHandle(&handle, range.at(0)) == kInvalidValue);
  REQUIRE(cuMemUnmap(range.address + kPage, kPage) == kSuccess);
  REQUIRE(berth_standin_used(0) == before + kPage);  // the handle has it
  REQUIRE(cuMemRelease(again) == kSuccess);
  REQUIRE(berth_standin_used(0) == before);
}

TEST_CASE("Neighbouring mappings are one memory for copies and go together", "[driver]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  std::uint64_t handles[2] = {};
  for (std::size_t i = 0; i < 2; ++i) {
    cuMemCreate(&handles[i], kPage, &properties, 0);
    cuMemMap(range.address + i * kPage, kPage, 0, handles[i], 0);
  }
  REQUIRE(cuMemSetAccess(range.address, 2 * kPage, &kReadWrite, 1) == kSuccess);
  REQUIRE(cudaMemset(range.at(0), 2, 2 * kPage) == kSuccess);
  REQUIRE(cudaMemset(range.at(0), 2, 2 * kPage + 1) == kInvalidValue);
  cudaDeviceSynchronize();
  REQUIRE(range.at(2)[-1] == 0x02020202);
  REQUIRE(cuMemAddressFree(range.address, 4 * kPage) == kInvalidValue);  // still mapped
  REQUIRE(cuMemUnmap(range.address, 2 * kPage) == kSuccess);
  for (const std::uint64_t handle : handles) REQUIRE(cuMemRelease(handle) == kSuccess);
}

TEST_CASE("Unmapping waits for no work of the device", "[driver][order]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  const StreamHandle stream = make_stream();
  const EventHandle event = make_event();
  std::uint64_t handle = 0;
  cuMemCreate(&handle, kPage, &properties, 0);
  cuMemMap(range.address, kPage, 0, handle, 0);
  cuMemSetAccess(range.address, kPage, &kReadWrite, 1);
  cudaMemsetAsync(range.at(0), 1, 4, stream);
  cudaStreamSynchronize(stream);
  writes(stream, nullptr, 0);
  cudaEventRecord(event, stream);
  REQUIRE(cuMemUnmap(range.address, kPage) == kSuccess);
  REQUIRE(cudaEventQuery(event) == kNotReady);
  REQUIRE(cuMemRelease(handle) == kSuccess);
  REQUIRE(berth_standin_violations() == 0);
  cudaDeviceSynchronize();
  cudaEventDestroy(event);
  cudaStreamDestroy(stream);
}

TEST_CASE("Virtual memory in wrong places and sizes is refused", "[driver][misuse]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties properties = on_device();
  std::uint64_t handle = 0;
  REQUIRE(cuMemCreate(&handle, kPage + 1, &properties, 0) == kInvalidValue);
  REQUIRE(cuMemCreate(&handle, std::size_t{1} << 40, &properties, 0) == kMemoryAllocation);
  REQUIRE(cuMemCreate(&handle, kPage, &properties, 0) == kSuccess);
  REQUIRE(cuMemMap(range.address + 512, kPage, 0, handle, 0) == kInvalidValue);
  REQUIRE(cuMemMap(range.address + 4 * kPage, kPage, 0, handle, 0) == kInvalidValue);
  REQUIRE(cuMemMap(range.address, 2 * kPage, 0, handle, 0) == kInvalidValue);
  REQUIRE(cuMemMap(range.address, kPage, 0, handle + 99, 0) == kInvalidValue);
  REQUIRE(cuMemMap(range.address, kPage, 0, handle, 0) == kSuccess);
  REQUIRE(cuMemMap(range.address, kPage, 0, handle, 0) == kInvalidValue);
  REQUIRE(cuMemSetAccess(range.address + kPage, kPage, &kReadWrite, 1) == kInvalidValue);
  REQUIRE(cuMemUnmap(range.address + kPage, kPage) == kInvalidValue);
  REQUIRE(cuMemUnmap(range.address, kPage) == kSuccess);
  REQUIRE(cuMemRelease(handle) == kSuccess);
}

TEST_CASE("Exported memory is imported by its file descriptor", "[driver][ipc]") {
  const Fixture fixture;
  const Range range;
  const AllocationProperties shareable = on_device(1), private_memory = on_device(0);
  std::uint64_t handle = 0, unshared = 0, imported = 0;
  cuMemCreate(&handle, kPage, &shareable, 0);
  cuMemCreate(&unshared, kPage, &private_memory, 0);
  int file = -1;
  REQUIRE(cuMemExportToShareableHandle(&file, unshared, 1, 0) == kNotSupported);
  REQUIRE(cuMemExportToShareableHandle(&file, handle, 1, 0) == kSuccess);
  REQUIRE(cuMemImportFromShareableHandle(
              &imported, reinterpret_cast<void*>(static_cast<std::intptr_t>(file)), 1) == kSuccess);
  cuMemMap(range.address, kPage, 0, handle, 0);
  cuMemMap(range.address + kPage, kPage, 0, imported, 0);
  cuMemSetAccess(range.address, 2 * kPage, &kReadWrite, 1);
  cudaMemset(range.at(0), 3, 4);
  cudaDeviceSynchronize();
  REQUIRE(*range.at(1) == 0x03030303);
  close(file);
  cuMemUnmap(range.address, 2 * kPage);
  for (const std::uint64_t each : {handle, unshared, imported})
    REQUIRE(cuMemRelease(each) == kSuccess);
}

TEST_CASE("Driver functions are found by name", "[driver]") {
  const Fixture fixture;
  void* function = nullptr;
  int result = -1;
  REQUIRE(cudaGetDriverEntryPointByVersion("cuMemCreate", &function, 12000, 0, &result) ==
          kSuccess);
  REQUIRE(result == 0);
  REQUIRE(function == reinterpret_cast<void*>(cuMemCreate));
  REQUIRE(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12000, 0, &result) ==
          kSuccess);
  REQUIRE(result == 1);
  REQUIRE(function == nullptr);
}

TEST_CASE("A pushed context makes its device current until it is popped", "[driver]") {
  const Fixture fixture;
  Opaque second = nullptr;
  REQUIRE(cuDevicePrimaryCtxRetain(&second, 1) == kSuccess);
  int device = -1;
  REQUIRE(cuCtxPushCurrent_v2(second) == kSuccess);
  REQUIRE(cudaGetDevice(&device) == kSuccess);
  REQUIRE(device == 1);
  Opaque popped = nullptr;
  REQUIRE(cuCtxPopCurrent_v2(&popped) == kSuccess);
  REQUIRE(popped == second);
  REQUIRE(cudaGetDevice(&device) == kSuccess);
  REQUIRE(device == 0);
  REQUIRE(cuCtxPopCurrent_v2(&popped) != kSuccess);
  REQUIRE(cuCtxPushCurrent_v2(&device) != kSuccess);
}
