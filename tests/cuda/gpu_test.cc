// The device on a real driver: what the stand-in cannot show. Nothing of CUDA's is linked; without
// a GPU the program ends with 77.
//
// On the stand-in, under its launcher, the cases run too, which shows that they are right.
#include "csrc/cuda/cuda_device.h"
#include "tests/catch.h"
#include "tests/support/device_contract.h"
#include "tests/support/run_program.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;
using Residency = Device::Residency;

namespace {

constexpr Bytes kMiB = Bytes{1} << 20;
constexpr int kNoGpu = 77;
constexpr const char* kHandleName = "TEST_SHARED_HANDLE";

// A function of the runtime or the driver, found as the layer finds them.
template <typename Pointer>
Pointer find(const char* name, const char* library) {
  void* found = dlsym(RTLD_DEFAULT, name);
  if (found == nullptr) {
    void* const loaded = dlopen(library, RTLD_NOW);
    if (loaded != nullptr) found = dlsym(loaded, name);
  }
  if (found == nullptr) throw std::runtime_error(fmt::format("{} has no {}", library, name));
  return reinterpret_cast<Pointer>(found);
}
#define CUDART(name) find<decltype(&::name)>(#name, "libcudart.so.13")
#define CUDRV(name) find<decltype(&::name)>(#name, "libcuda.so.1")

// Before anything else: without a GPU nothing here can be said.
[[maybe_unused]] const bool has_gpu = [] {
  try {
    if (cuda_device_count() > 0) return true;
    std::fprintf(stderr, "there is no GPU here\n");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "there is no GPU here: %s\n", error.what());
  }
  std::_Exit(kNoGpu);
}();

struct Stream {
  Stream() { REQUIRE(CUDART(cudaStreamCreateWithFlags)(&handle, cudaStreamNonBlocking) == 0); }
  ~Stream() { CUDART(cudaStreamDestroy)(handle); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  [[nodiscard]] LaneKey lane() const { return CudaDevice::lane_of(handle); }
  cudaStream_t handle = nullptr;
};

std::unique_ptr<CudaDevice> make(Memory kind) {
  auto device = make_cuda_device({.memory = kind});
  REQUIRE(CUDART(cudaSetDevice)(0) == 0);
  REQUIRE(CUDART(cudaDeviceSynchronize)() == 0);  // the context is there before memory is counted
  return device;
}

void fill(void* base, int value, Bytes size) {
  REQUIRE(CUDART(cudaMemset)(base, value, size) == 0);
  REQUIRE(CUDART(cudaDeviceSynchronize)() == 0);
}

int byte_at(const void* where) {
  unsigned char byte = 0;
  REQUIRE(CUDART(cudaMemcpy)(&byte, where, 1, cudaMemcpyDeviceToHost) == 0);
  return byte;
}

double microseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

std::string to_hex(const std::string& bytes) {
  std::string hex;
  for (const char byte : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

}  // namespace

TEST_CASE("Virtual memory of this GPU keeps the contract of devices", "[gpu][contract]") {
  const Stream first, second;
  const auto device = make(Memory::kVirtual);
  REQUIRE(device->memory() == Memory::kVirtual);
  check_device_contract(*device, first.lane(), second.lane());
}

TEST_CASE("Plain memory of this GPU keeps the contract of devices", "[gpu][contract]") {
  const Stream first, second;
  const auto device = make(Memory::kPlain);
  check_device_contract(*device, first.lane(), second.lane());
}

TEST_CASE("Memory is mapped while a stream is captured, and the graph runs", "[gpu][capture]") {
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const auto device = make(kind);
  const Stream stream;
  constexpr Bytes size = 8 * kMiB;
  void* before = nullptr;
  REQUIRE(device->reserve(size, 0, &before).ok());
  REQUIRE(device->commit(before, size, Residency::kOnDemand).ok());
  REQUIRE(CUDART(cudaStreamBeginCapture)(stream.handle, cudaStreamCaptureModeGlobal) == 0);
  REQUIRE(CUDART(cudaMemsetAsync)(before, 1, size, stream.handle) == 0);
  void* inside = nullptr;
  const Status reserved = device->reserve(size, 0, &inside);
  const Status committed =
      reserved.ok() ? device->commit(inside, size, Residency::kOnDemand) : reserved;
  if (committed.ok()) CUDART(cudaMemsetAsync)(inside, 2, size, stream.handle);
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = CUDART(cudaStreamEndCapture)(stream.handle, &graph);
  INFO(device->describe(committed));
  REQUIRE(committed.ok());
  REQUIRE(ended == cudaSuccess);
  cudaGraphExec_t program = nullptr;
  REQUIRE(CUDART(cudaGraphInstantiate)(&program, graph, 0) == 0);
  REQUIRE(CUDART(cudaGraphLaunch)(program, stream.handle) == 0);
  REQUIRE(CUDART(cudaStreamSynchronize)(stream.handle) == 0);
  REQUIRE(byte_at(static_cast<std::byte*>(before) + size - 1) == 1);
  REQUIRE(byte_at(static_cast<std::byte*>(inside) + size - 1) == 2);
  REQUIRE(CUDART(cudaGraphExecDestroy)(program) == 0);
  REQUIRE(CUDART(cudaGraphDestroy)(graph) == 0);
  REQUIRE(device->release(before, size).ok());
  REQUIRE(device->release(inside, size).ok());
}

TEST_CASE("A call leaves a thread without a context as it was", "[gpu][context]") {
  const auto device = make(Memory::kVirtual);
  const Bytes size = 4 * device->properties().page_bytes;
  CUcontext before = nullptr;
  CUcontext after = nullptr;
  bool fine = false;
  std::thread([&] {
    CUDRV(cuCtxGetCurrent)(&before);
    void* base = nullptr;
    fine = device->reserve(size, 0, &base).ok() &&
           device->commit(base, size, Residency::kOnDemand).ok() &&
           device->release(base, size).ok();
    CUDRV(cuCtxGetCurrent)(&after);
  }).join();
  REQUIRE(fine);
  REQUIRE(after == before);
}

TEST_CASE("A range holds thousands of mappings", "[gpu][mappings]") {
  const auto device = make(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  const Bytes all = free_of(*device);
  const Bytes size = align_down(std::min(all / 2, 16384 * kMiB), 2 * page);
  void* reserved = nullptr;
  REQUIRE(device->reserve(size, 0, &reserved).ok());
  auto* const base = static_cast<std::byte*>(reserved);
  auto start = std::chrono::steady_clock::now();
  REQUIRE(device->commit(base, size, Residency::kOnDemand).ok());
  const double mapping = microseconds_since(start);
  REQUIRE(all - free_of(*device) >= size);
  fill(base, 3, page);
  fill(base + size - page, 4, page);
  REQUIRE(byte_at(base) == 3);
  REQUIRE(byte_at(base + size - 1) == 4);
  start = std::chrono::steady_clock::now();
  for (Bytes offset = page; offset < size; offset += 2 * page)
    REQUIRE(device->decommit(base + offset, page).ok());
  const double holes = microseconds_since(start);
  REQUIRE(byte_at(base) == 3);
  start = std::chrono::steady_clock::now();
  REQUIRE(device->commit(base, size, Residency::kOnDemand).ok());
  const double refilling = microseconds_since(start);
  REQUIRE(byte_at(base) == 3);
  REQUIRE(device->release(base, size).ok());
  REQUIRE(device->retained_bytes() == 0);
  const double pages = static_cast<double>(size / page);
  std::printf(
      "figure: %.0f pages of %llu KiB: commit %.2f us a page, decommit every other one %.2f us, "
      "refill %.2f us\n",
      pages, static_cast<unsigned long long>(page / 1024), mapping / pages, holes / (pages / 2),
      refilling / (pages / 2));
}

TEST_CASE("What was written at one address is read at another in the order of the stream",
          "[gpu][alias]") {
  const auto device = make(Memory::kVirtual);
  const Stream first, second;
  const Bytes page = device->properties().page_bytes;
  constexpr std::size_t kPages = 64;
  constexpr int kRounds = 50;
  void *reserved = nullptr, *stitched = nullptr, *pinned = nullptr;
  REQUIRE(device->reserve(kPages * page, 0, &reserved).ok());
  REQUIRE(device->commit(reserved, kPages * page, Residency::kOnDemand).ok());
  REQUIRE(device->reserve(kPages * page, 0, &stitched).ok());
  REQUIRE(device->reserve_pinned(kRounds * kPages, &pinned).ok());
  auto* const base = static_cast<std::byte*>(reserved);
  auto* const alias = static_cast<std::byte*>(stitched);
  auto* const read = static_cast<unsigned char*>(pinned);
  std::vector<const void*> from(kPages);
  for (std::size_t i = 0; i < kPages; ++i) from[i] = base + (kPages - 1 - i) * page;
  const Bytes before = free_of(*device);
  REQUIRE(device->alias(alias, from.data(), kPages).ok());
  REQUIRE(before - free_of(*device) < 16 * kMiB);  // tables of pages, no memory
  // Nothing waits between the rounds; every other one writes at the alias, and on another stream.
  cudaEvent_t event = nullptr;
  REQUIRE(CUDART(cudaEventCreateWithFlags)(&event, cudaEventDisableTiming) == 0);
  const auto value = [](int round, std::size_t i) {
    return static_cast<int>((7 * static_cast<std::size_t>(round) + 3 * i + 1) % 251);
  };
  for (int round = 0; round < kRounds; ++round) {
    const bool swapped = round % 2 != 0;
    const cudaStream_t writer = swapped ? second.handle : first.handle;
    const cudaStream_t reader = swapped ? first.handle : second.handle;
    for (std::size_t i = 0; i < kPages; ++i) {
      std::byte* const at = swapped ? alias + (kPages - 1 - i) * page : base + i * page;
      REQUIRE(CUDART(cudaMemsetAsync)(at, value(round, i), page, writer) == 0);
    }
    REQUIRE(CUDART(cudaEventRecord)(event, writer) == 0);
    REQUIRE(CUDART(cudaStreamWaitEvent)(reader, event, 0) == 0);
    for (std::size_t i = 0; i < kPages; ++i) {
      const std::byte* const at = swapped ? base + i * page : alias + (kPages - 1 - i) * page;
      REQUIRE(CUDART(cudaMemcpyAsync)(read + static_cast<std::size_t>(round) * kPages + i,
                                      at + page - 1 - i, 1, cudaMemcpyDeviceToHost, reader) == 0);
    }
    REQUIRE(CUDART(cudaEventRecord)(event, reader) == 0);
    REQUIRE(CUDART(cudaStreamWaitEvent)(writer, event, 0) == 0);
  }
  REQUIRE(CUDART(cudaDeviceSynchronize)() == 0);
  int wrong = 0;
  for (int round = 0; round < kRounds; ++round)
    for (std::size_t i = 0; i < kPages; ++i)
      wrong += read[static_cast<std::size_t>(round) * kPages + i] != value(round, i) ? 1 : 0;
  REQUIRE(wrong == 0);
  // The memory stays with the address that is left, and what comes at the other is new.
  REQUIRE(device->decommit(base, kPages * page).ok());
  REQUIRE(device->commit(base, kPages * page, Residency::kOnDemand).ok());
  fill(base, 255, kPages * page);
  for (std::size_t i = 0; i < kPages; ++i)
    REQUIRE(byte_at(alias + (kPages - 1 - i) * page) == value(kRounds - 1, i));
  REQUIRE(CUDART(cudaEventDestroy)(event) == 0);
  REQUIRE(device->release(base, kPages * page).ok());
  REQUIRE(device->release(alias, kPages * page).ok());
  REQUIRE(device->release_pinned(pinned, kRounds * kPages).ok());
  REQUIRE(device->retained_bytes() == 0);
}

TEST_CASE("Another process reads and writes what was shared", "[gpu][ipc]") {
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // it takes descriptors from this one
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const auto device = make(kind);
  void* reserved = nullptr;
  REQUIRE(device->reserve(8 * kMiB, 0, &reserved).ok());
  REQUIRE(device->commit(reserved, 8 * kMiB, Residency::kOnDemand).ok());
  auto* const base = static_cast<std::byte*>(reserved);
  fill(base, 0, 8 * kMiB);
  fill(base + 3 * kMiB, 1, 2 * kMiB);
  CudaSharedMemory shared;
  const Status status = device->share(base + 3 * kMiB, 2 * kMiB, &shared);
  INFO(device->describe(status));
  REQUIRE(status.ok());
  std::string self(4096, '\0');
  self.resize(static_cast<std::size_t>(readlink("/proc/self/exe", self.data(), self.size())));
  const ProgramResult result =
      run_program({self, "[.child]"},
                  {{kHandleName, fmt::format("{}:{}", shared.offset, to_hex(shared.handle))}});
  INFO(result.out << result.err);
  REQUIRE(result.exit_code == 0);
  REQUIRE(byte_at(base + 3 * kMiB - 1) == 0);
  REQUIRE(byte_at(base + 3 * kMiB) == 2);
  REQUIRE(byte_at(base + 5 * kMiB - 1) == 2);
  REQUIRE(byte_at(base + 5 * kMiB) == 0);
  REQUIRE(device->release(reserved, 8 * kMiB).ok());
}

// The other process of the case above.
TEST_CASE("What was shared is opened", "[.child]") {
  const char* const given = std::getenv(kHandleName);
  REQUIRE(given != nullptr);
  const std::string text = given;
  const std::size_t colon = text.find(':');
  const auto device = make(Memory::kVirtual);
  std::shared_ptr<void> opened;
  const Status status = device->open_shared(from_hex(text.substr(colon + 1)), &opened);
  INFO(device->describe(status));
  REQUIRE(status.ok());
  auto* const block = static_cast<std::byte*>(opened.get()) + std::stoull(text);
  REQUIRE(byte_at(block) == 1);
  REQUIRE(byte_at(block + 2 * kMiB - 1) == 1);
  fill(block, 2, 2 * kMiB);
}
