#include "tests/catch.h"
#include "tests/standin/fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

using namespace berth::standin;

namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::size_t free_bytes() {
  std::size_t free = 0, total = 0;
  cudaMemGetInfo(&free, &total);
  return free;
}

}  // namespace

TEST_CASE("The first device is the one of the table that was asked for", "[device]") {
  const Fixture fixture;
  DeviceProperties properties{};
  REQUIRE(cudaGetDeviceProperties(&properties, 0) == kSuccess);
  REQUIRE(std::string(properties.name) == "NVIDIA H100 80GB HBM3");
  REQUIRE(properties.major == 9);
  REQUIRE(properties.multiprocessor_count == 132);
  REQUIRE(properties.warp_size == 32);
  int count = 0, value = 0;
  REQUIRE(cudaGetDeviceCount(&count) == kSuccess);
  REQUIRE(count == 2);
  REQUIRE(cudaDeviceGetAttribute(&value, 97, 0) == kSuccess);
  REQUIRE(static_cast<std::size_t>(value) == properties.shared_memory_per_block_optin);
  REQUIRE(cudaSetDevice(2) == kInvalidDevice);
  REQUIRE(cudaGetLastError() == kInvalidDevice);
  REQUIRE(cudaGetLastError() == kSuccess);
}

TEST_CASE("Memory of the device counts against its total and costs the host nothing", "[memory]") {
  const Fixture fixture;
  const std::size_t before = free_bytes();
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 40'000 * kMiB) == kSuccess);
  REQUIRE(free_bytes() == before - 40'000 * kMiB);
  void* more = &memory;
  REQUIRE(cudaMalloc(&more, 45'000 * kMiB) == kMemoryAllocation);
  REQUIRE(more == nullptr);
  REQUIRE(cudaGetLastError() == kMemoryAllocation);
  REQUIRE(cudaFree(memory) == kSuccess);
  REQUIRE(free_bytes() == before);
}

TEST_CASE("Managed memory is reached from the host and counts as the device's", "[memory]") {
  const Fixture fixture;
  const std::size_t before = free_bytes();
  void* memory = nullptr;
  REQUIRE(cudaMallocManaged(&memory, 4 * kMiB, 1) == kSuccess);
  REQUIRE(free_bytes() == before - 4 * kMiB);
  static_cast<char*>(memory)[4 * kMiB - 1] = 7;
  char copy = 0;
  REQUIRE(cudaMemcpy(&copy, static_cast<char*>(memory) + 4 * kMiB - 1, 1, 4) == kSuccess);
  REQUIRE(copy == 7);
  REQUIRE(cudaFree(memory) == kSuccess);
  REQUIRE(free_bytes() == before);
  REQUIRE(cudaMallocManaged(&memory, 4 * kMiB, 3) == kInvalidValue);
  REQUIRE(cudaMallocManaged(&memory, 0, 1) == kInvalidValue);
}

TEST_CASE("More managed memory than the device has counts as far as it fits", "[memory]") {
  const Fixture fixture;
  std::size_t free = 0, total = 0;
  REQUIRE(cudaMemGetInfo(&free, &total) == kSuccess);
  void* memory = nullptr;
  REQUIRE(cudaMallocManaged(&memory, 2 * total, 1) == kSuccess);
  REQUIRE(cudaMemGetInfo(&free, &total) == kSuccess);
  CHECK(free == 0);
  PointerAttributes attributes{};
  REQUIRE(cudaPointerGetAttributes(&attributes, memory) == kSuccess);
  CHECK(attributes.type == kMemoryManaged);
  CHECK(attributes.host_pointer == memory);
  CHECK(attributes.device_pointer == memory);
  const Location host{2, 0}, second{1, 1};
  REQUIRE(cudaMemPrefetchAsync(memory, 4 * kMiB, host, 0, nullptr) == kSuccess);
  CHECK(berth_standin_used(0) < total);
  REQUIRE(cudaMemPrefetchAsync(memory, 4 * kMiB, second, 0, nullptr) == kSuccess);
  CHECK(berth_standin_used(1) == total);
  CHECK(cudaMemAdvise(memory, 4 * kMiB, 1, second) == kSuccess);
  CHECK(cudaMemAdvise(memory, 4 * kMiB, 7, second) == kInvalidValue);
  static_cast<char*>(memory)[2 * total - 1] = 1;  // no access from the host fails
  REQUIRE(cudaFree(memory) == kSuccess);
  CHECK(berth_standin_used(1) < total);
  void* plain = nullptr;
  REQUIRE(cudaMalloc(&plain, kMiB) == kSuccess);
  CHECK(cudaMemPrefetchAsync(plain, kMiB, host, 0, nullptr) == kInvalidValue);
  CHECK(cudaMemAdvise(plain, kMiB, 1, host) == kInvalidValue);
  REQUIRE(cudaFree(plain) == kSuccess);
}

TEST_CASE("What another process takes is not to be had", "[memory]") {
  const Fixture fixture;
  const std::size_t before = free_bytes();
  berth_standin_take_elsewhere(0, before - 10 * kMiB);
  REQUIRE(free_bytes() == 10 * kMiB);
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 12 * kMiB) == kMemoryAllocation);
  berth_standin_take_elsewhere(0, 0);
  REQUIRE(free_bytes() == before);
}

TEST_CASE("Only what cudaMalloc returned can be freed and only once", "[memory][misuse]") {
  const Fixture fixture;
  char* memory = device_memory(kMiB);
  int local = 0;
  REQUIRE(cudaFree(nullptr) == kSuccess);
  REQUIRE(cudaFree(&local) == kInvalidValue);
  REQUIRE(cudaFree(memory + 512) == kInvalidValue);
  REQUIRE(cudaFreeHost(memory) == kInvalidValue);
  REQUIRE(cudaFree(memory) == kSuccess);
  REQUIRE(cudaFree(memory) == kInvalidValue);
}

TEST_CASE("The kind of a pointer is known", "[memory]") {
  const Fixture fixture;
  char* device = device_memory(kMiB);
  char* pinned = pinned_memory(4096);
  std::vector<char> registered(8192);
  int local = 0;
  REQUIRE(cudaHostRegister(registered.data(), registered.size(), 0) == kSuccess);
  REQUIRE(cudaHostRegister(registered.data() + 10, 10, 0) == kHostMemoryAlreadyRegistered);
  PointerAttributes attributes{};
  cudaPointerGetAttributes(&attributes, device + 100);
  REQUIRE(attributes.type == kMemoryDevice);
  cudaPointerGetAttributes(&attributes, pinned + 4095);
  REQUIRE(attributes.type == kMemoryHost);
  cudaPointerGetAttributes(&attributes, registered.data());
  REQUIRE(attributes.type == kMemoryHost);
  cudaPointerGetAttributes(&attributes, &local);
  REQUIRE(attributes.type == kMemoryUnregistered);
  REQUIRE(cudaHostUnregister(registered.data()) == kSuccess);
  REQUIRE(cudaHostUnregister(registered.data()) == kHostMemoryNotRegistered);
  cudaFree(device);
  cudaFreeHost(pinned);
}

TEST_CASE("Copies move bytes when their turn comes in the stream", "[copy]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  auto* device = device_memory<int>(4096);
  auto* pinned = pinned_memory<int>(4096);
  std::fill_n(pinned, 1024, 7);
  REQUIRE(cudaMemcpyAsync(device, pinned, 4096, kHostToDevice, stream) == kSuccess);
  REQUIRE(device[0] == 0);  // queued
  REQUIRE(cudaMemsetAsync(device, 0xff, 4, stream) == kSuccess);
  REQUIRE(cudaStreamSynchronize(stream) == kSuccess);
  REQUIRE(device[0] == -1);
  REQUIRE(device[1023] == 7);
  cudaFree(device);
  cudaFreeHost(pinned);
  cudaStreamDestroy(stream);
}

TEST_CASE("Pageable memory is read before a copy returns and written before it returns", "[copy]") {
  const Fixture fixture;
  const StreamHandle stream = make_stream();
  auto* device = device_memory<int>(16);
  std::vector<int> values = {1, 2, 3, 4}, results(4);
  REQUIRE(cudaMemcpyAsync(device, values.data(), 16, kHostToDevice, stream) == kSuccess);
  values.assign(4, 0);
  REQUIRE(cudaMemcpyAsync(results.data(), device, 16, kByAddress, stream) == kSuccess);
  REQUIRE(results == std::vector<int>{1, 2, 3, 4});
  cudaFree(device);
  cudaStreamDestroy(stream);
}

TEST_CASE("A copy beyond the end of an allocation is refused", "[copy][misuse]") {
  const Fixture fixture;
  char* device = device_memory(512);
  std::vector<char> host(1024);
  REQUIRE(cudaMemcpy(device, host.data(), 1024, kHostToDevice) == kInvalidValue);
  REQUIRE(cudaMemcpy(device + 500, host.data(), 13, kHostToDevice) == kInvalidValue);
  REQUIRE(cudaMemcpy(host.data(), host.data() + 1, 1, kHostToDevice) == kInvalidValue);
  REQUIRE(cudaMemset(host.data(), 0, 1) == kInvalidValue);
  REQUIRE(cudaMemcpy(device, host.data(), 512, kHostToDevice) == kSuccess);
  cudaFree(device);
}

TEST_CASE("Rows of a two-dimensional copy keep their distance", "[copy]") {
  const Fixture fixture;
  char* device = device_memory(64);
  const std::string rows = "abcdefgh";
  REQUIRE(cudaMemset(device, '.', 64) == kSuccess);
  REQUIRE(cudaMemcpy2DAsync(device, 8, rows.data(), 4, 4, 2, kHostToDevice, kDefaultStream) ==
          kSuccess);
  cudaDeviceSynchronize();
  REQUIRE(std::string(device, 16) == "abcd....efgh....");
  cudaFree(device);
}

TEST_CASE("A block of a pool serves its own stream at once and others after its free has run",
          "[pool]") {
  const Fixture fixture;
  const StreamHandle first = make_stream(), second = make_stream();
  Opaque pool = nullptr;
  cudaDeviceGetDefaultMemPool(&pool, 0);
  std::uint64_t keep = UINT64_MAX;
  REQUIRE(cudaMemPoolSetAttribute(pool, 4, &keep) == kSuccess);
  void *a = nullptr, *b = nullptr, *c = nullptr;
  REQUIRE(cudaMallocAsync(&a, 4 * kMiB, first) == kSuccess);
  REQUIRE(cudaFreeAsync(a, first) == kSuccess);
  REQUIRE(cudaMallocAsync(&b, 4 * kMiB, second) == kSuccess);
  REQUIRE(b != a);  // the free has not run
  REQUIRE(cudaMallocAsync(&c, 4 * kMiB, first) == kSuccess);
  REQUIRE(c == a);
  cudaFreeAsync(c, first);
  cudaStreamSynchronize(first);
  REQUIRE(cudaMallocAsync(&c, 4 * kMiB, second) == kSuccess);
  REQUIRE(c == a);
  std::uint64_t used = 0, reserved = 0;
  cudaMemPoolGetAttribute(pool, 5, &reserved);
  cudaMemPoolGetAttribute(pool, 7, &used);
  REQUIRE(reserved == 8 * kMiB);
  REQUIRE(used == 8 * kMiB);
  cudaFreeAsync(b, second);
  cudaFreeAsync(c, second);
  cudaDeviceSynchronize();
  REQUIRE(cudaMemPoolTrimTo(pool, 0) == kSuccess);
  cudaMemPoolGetAttribute(pool, 5, &reserved);
  REQUIRE(reserved == 0);
  keep = 0;
  cudaMemPoolSetAttribute(pool, 4, &keep);
  cudaStreamDestroy(first);
  cudaStreamDestroy(second);
}

TEST_CASE("A child that was forked gets an error from every call", "[process]") {
  const Fixture fixture(kEagerPace);
  char* memory = device_memory(4096);
  const pid_t child = fork();
  if (child == 0) {
    void* more = nullptr;
    const bool refused =
        cudaFree(memory) == kInitializationError && cudaMalloc(&more, 1) == kInitializationError;
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(cudaFree(memory) == kSuccess);
}

// CTest gives each case a process of its own, so the fork below comes before the first call.
TEST_CASE("A handle of memory opens it in another process of the machine", "[ipc]") {
  if (berth_standin_calls("*") != 0) {
    WARN(
        "left out: earlier cases of this process have used the runtime, and a forked child cannot");
    return;
  }
  int to_child[2], to_parent[2];
  REQUIRE(pipe(to_child) == 0);
  REQUIRE(pipe(to_parent) == 0);
  const pid_t child = fork();
  if (child == 0) {
    IpcHandle handle{};
    void* opened = nullptr;
    const bool fine = read(to_child[0], &handle, sizeof handle) == sizeof handle &&
                      cudaIpcOpenMemHandle(&opened, handle, 1) == kSuccess &&
                      static_cast<char*>(opened)[5] == 'x';
    if (fine) static_cast<char*>(opened)[6] = 'y';
    const bool closed = fine && cudaIpcCloseMemHandle(opened) == kSuccess;
    _exit(closed && write(to_parent[1], "d", 1) == 1 ? 0 : 1);
  }
  char* memory = device_memory(kMiB);
  REQUIRE(cudaMemset(memory, 'x', 6) == kSuccess);
  cudaDeviceSynchronize();
  IpcHandle handle{};
  REQUIRE(cudaIpcGetMemHandle(&handle, memory) == kSuccess);
  void* own = nullptr;
  REQUIRE(cudaIpcOpenMemHandle(&own, handle, 1) == kDeviceUninitialized);
  REQUIRE(write(to_child[1], &handle, sizeof handle) == sizeof handle);
  int status = 0;
  waitpid(child, &status, 0);
  REQUIRE(WEXITSTATUS(status) == 0);
  REQUIRE(memory[6] == 'y');
  REQUIRE(cudaFree(memory) == kSuccess);
}
