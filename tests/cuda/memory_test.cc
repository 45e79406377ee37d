// Memory of both kinds: growing, giving back, running out, peers.

#include "tests/cuda/fixture.h"

#include <cuda.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;
constexpr auto kOnDemand = Device::Residency::kOnDemand;

namespace {

std::byte* reserved(Device& device, Bytes size) {
  void* base = nullptr;
  REQUIRE(device.reserve(size, 0, &base).ok());
  return static_cast<std::byte*>(base);
}

}  // namespace

TEST_CASE("A range grows page by page and holds what is committed, no more", "[cuda][memory]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  REQUIRE(page == 2 * kMiB);
  std::byte* const base = reserved(*device, 4096 * page);  // far more than the GPU has
  REQUIRE(berth_standin_used(0) == 0);
  REQUIRE(device->commit(base, 3 * page, kOnDemand).ok());
  REQUIRE(berth_standin_used(0) == 3 * page);
  REQUIRE(device->commit(base + 2 * page, 2 * page, kOnDemand).ok());
  REQUIRE(berth_standin_used(0) == 4 * page);
  // A hole in the middle, filled again.
  REQUIRE(device->decommit(base + page, 2 * page).ok());
  REQUIRE(berth_standin_used(0) == 2 * page);
  REQUIRE(device->commit(base, 4 * page, kOnDemand).ok());
  REQUIRE(cudaMemset(base, 1, 4 * page) == cudaSuccess);
  REQUIRE(cudaMemset(base, 1, 4 * page + 1) != cudaSuccess);
  (void)cudaGetLastError();
  cudaDeviceSynchronize();
  REQUIRE(device->release(base, 4096 * page).ok());
  REQUIRE(berth_standin_used(0) == 0);
}

TEST_CASE("Access to neighbouring pages is set in one call", "[cuda][memory]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 16 * page);
  std::uint64_t before = berth_standin_calls("cuMemSetAccess");
  REQUIRE(device->commit(base + 4 * page, 2 * page, kOnDemand).ok());
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 1);
  before = berth_standin_calls("cuMemSetAccess");
  REQUIRE(device->commit(base, 16 * page, kOnDemand).ok());  // on both sides of the two
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 2);
  before = berth_standin_calls("*");
  REQUIRE(device->commit(base, 16 * page, kOnDemand).ok());
  REQUIRE(berth_standin_calls("*") == before);
  REQUIRE(device->release(base, 16 * page).ok());
}

TEST_CASE("Larger pages cost fewer driver calls", "[cuda][memory]") {
  const Standin standin;
  const auto device = make_cuda_device({.page_bytes = 5 * kMiB});
  REQUIRE(device->properties().page_bytes == 8 * kMiB);
  std::byte* const base = reserved(*device, 32 * kMiB);
  const std::uint64_t before = berth_standin_calls("cuMemMap");
  REQUIRE(device->commit(base, 32 * kMiB, kOnDemand).ok());
  REQUIRE(berth_standin_calls("cuMemMap") == before + 4);
  REQUIRE(device->release(base, 32 * kMiB).ok());
}

TEST_CASE("A commit that runs out in the middle is undone", "[cuda][memory][oom]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 2 * kTotal);
  REQUIRE(device->commit(base + 4 * page, 2 * page, kOnDemand).ok());
  const Status status = device->commit(base, kTotal + page, kOnDemand);
  REQUIRE(status.code() == Status::Code::kOutOfMemory);
  REQUIRE(device->describe(status) ==
          "cuMemCreate failed on cuda:0: out of memory (cudaErrorMemoryAllocation, 2)");
  REQUIRE(berth_standin_used(0) == 2 * page);
  // What was there before is there still.
  REQUIRE(cudaMemset(base + 4 * page, 1, 2 * page) == cudaSuccess);
  cudaDeviceSynchronize();
  REQUIRE(device->retained_bytes() == 0);
  REQUIRE(device->commit(base, kTotal, kOnDemand).ok());
  REQUIRE(device->release(base, 2 * kTotal).ok());
}

TEST_CASE("A page that the driver does not take back is retained and used again",
          "[cuda][memory][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 4 * page);
  REQUIRE(device->commit(base, 4 * page, kOnDemand).ok());

  // The first call is for all pages, the next ones are for each.
  SECTION("One of several: the others are given back") {
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 2);
    REQUIRE(device->decommit(base, 4 * page).ok());
    REQUIRE(device->retained_bytes() == page);
    REQUIRE(berth_standin_used(0) == page);
    const std::uint64_t before = berth_standin_calls("cuMemCreate");
    REQUIRE(device->commit(base, 4 * page, kOnDemand).ok());
    REQUIRE(berth_standin_calls("cuMemCreate") == before + 3);
    REQUIRE(device->retained_bytes() == 0);
    REQUIRE(cudaMemset(base, 1, 4 * page) == cudaSuccess);
    cudaDeviceSynchronize();
  }
  SECTION("All: nothing changed, and that is said") {
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 5);
    REQUIRE(device->decommit(base, 4 * page).code() == Status::Code::kFailed);
    REQUIRE(device->retained_bytes() == 0);
    REQUIRE(berth_standin_used(0) == 4 * page);
  }
  SECTION("At a release: the range is gone for its owner") {
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 2);
    REQUIRE(device->release(base, 4 * page).ok());
    REQUIRE(device->retained_bytes() == page);
    REQUIRE_FALSE(device->commit(base, page, kOnDemand).ok());
    REQUIRE_FALSE(device->release(base, 4 * page).ok());
  }
}

TEST_CASE("An alias costs a call a page and one for access", "[cuda][memory][alias]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 4 * page);
  std::byte* const alias = reserved(*device, 4 * page);
  REQUIRE(device->commit(base, 4 * page, kOnDemand).ok());
  const void* const from[] = {base + 3 * page, base, base + page};
  const std::uint64_t before = device->driver_calls();
  REQUIRE(device->alias(alias + page, from, 3).ok());
  REQUIRE(berth_standin_used(0) == 4 * page);
  REQUIRE(device->driver_calls() - before == 3 + 1);
  // At neighbouring addresses now, as one block.
  cudaMemset(base + page, 1, page);
  cudaMemset(base + 3 * page, 3, page);
  cudaMemset(base, 7, page);
  cudaDeviceSynchronize();
  std::vector<std::byte> bytes(3 * page);
  REQUIRE(cudaMemcpy(bytes.data(), alias + page, bytes.size(), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  REQUIRE(bytes[0] == std::byte{3});
  REQUIRE(bytes[page] == std::byte{7});
  REQUIRE(bytes.back() == std::byte{1});
  REQUIRE(device->release(base, 4 * page).ok());
  REQUIRE(berth_standin_used(0) == 3 * page);
  REQUIRE(device->release(alias, 4 * page).ok());
  REQUIRE(berth_standin_used(0) == 0);
}

TEST_CASE("What an alias retains is never used for something else",
          "[cuda][memory][alias][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* base = reserved(*device, 2 * page);
  std::byte* alias = reserved(*device, 2 * page);
  REQUIRE(device->commit(base, 2 * page, kOnDemand).ok());
  cudaMemset(base, 1, 2 * page);
  cudaDeviceSynchronize();
  const void* const from[] = {base, base + page};
  SECTION("The driver keeps a mapping of an alias that failed") {
    berth_standin_fail("cuMemMap", 2, cudaErrorInvalidValue, 1);
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 1);
    REQUIRE_FALSE(device->alias(alias, from, 2).ok());
    REQUIRE(device->retained_bytes() == page);
  }
  SECTION("The driver keeps a mapping of the first address") {
    REQUIRE(device->alias(alias, from, 2).ok());
    // Both at once, and the first by itself.
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 2);
    REQUIRE(device->decommit(base, 2 * page).ok());
    REQUIRE(device->retained_bytes() == page);
    std::swap(base, alias);
  }
  REQUIRE(berth_standin_used(0) == 2 * page);
  REQUIRE(device->commit(alias, 2 * page, kOnDemand).ok());
  REQUIRE(device->retained_bytes() == 0);
  REQUIRE(berth_standin_used(0) == 4 * page);
  cudaMemset(alias, 2, 2 * page);
  std::vector<std::byte> bytes(2 * page);
  cudaMemcpy(bytes.data(), base, bytes.size(), cudaMemcpyDeviceToHost);
  REQUIRE(bytes == std::vector<std::byte>(2 * page, std::byte{1}));
}

TEST_CASE("Memory goes back with the last of its addresses", "[cuda][memory][alias][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 2 * page);
  std::byte* const alias = reserved(*device, 2 * page);
  REQUIRE(device->commit(base, 2 * page, kOnDemand).ok());
  const void* const from[] = {base, base + page};
  REQUIRE(device->alias(alias, from, 2).ok());
  const std::uint64_t releases = berth_standin_calls("cuMemRelease");
  REQUIRE(device->decommit(base, 2 * page).ok());
  REQUIRE(berth_standin_calls("cuMemRelease") == releases);
  REQUIRE(berth_standin_used(0) == 2 * page);
  // The driver keeps one of the two: the next commit has it.
  berth_standin_fail("cuMemRelease", 2, cudaErrorInvalidValue, 1);
  REQUIRE(device->decommit(alias, 2 * page).ok());
  REQUIRE(berth_standin_calls("cuMemRelease") == releases + 2);
  REQUIRE(device->retained_bytes() == page);
  REQUIRE(berth_standin_used(0) == page);
  const std::uint64_t creates = berth_standin_calls("cuMemCreate");
  REQUIRE(device->commit(alias, 2 * page, kOnDemand).ok());
  REQUIRE(berth_standin_calls("cuMemCreate") == creates + 1);
  REQUIRE(device->retained_bytes() == 0);
  REQUIRE(berth_standin_used(0) == 2 * page);
}

TEST_CASE("Neighbours are unmapped in one call", "[cuda][memory][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 8 * page);
  const bool refuses = GENERATE(false, true);
  REQUIRE(device->commit(base, 3 * page, kOnDemand).ok());
  REQUIRE(device->commit(base + 5 * page, 3 * page, kOnDemand).ok());
  const std::uint64_t before = berth_standin_calls("cuMemUnmap");
  // A driver that takes single mappings only.
  if (refuses) berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 2);
  REQUIRE(device->decommit(base, 8 * page).ok());
  REQUIRE(berth_standin_calls("cuMemUnmap") - before == (refuses ? 2 + 6 : 2));
  REQUIRE(device->retained_bytes() == 0);
  REQUIRE(berth_standin_used(0) == 0);
}

TEST_CASE("A failed alias may be made again", "[cuda][memory][alias][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 3 * page);
  std::byte* const alias = reserved(*device, 3 * page);
  REQUIRE(device->commit(base, 3 * page, kOnDemand).ok());
  const void* const from[] = {base, base + page, base + 2 * page};
  for (const char* call : {"cuMemMap", "cuMemSetAccess"}) {
    for (const std::uint64_t n : {1, 2, 3}) {
      CAPTURE(call, n);
      berth_standin_fail(call, n, cudaErrorInvalidValue, 1);
      const Status status = device->alias(alias, from, 3);
      berth_standin_clear_faults();
      if (status.ok()) {
        REQUIRE(std::string(call) == "cuMemSetAccess");
        REQUIRE(n > 1);  // it is called once
      } else {
        REQUIRE(status.call() == std::string(call));
        REQUIRE_FALSE(device->alias(base, from, 1).ok());  // the sources are as they were
        REQUIRE(device->alias(alias, from, 3).ok());
      }
      REQUIRE(device->decommit(alias, 3 * page).ok());
      REQUIRE(device->retained_bytes() == 0);
      REQUIRE(berth_standin_used(0) == 3 * page);
    }
  }
}

TEST_CASE("Memory that comes at one time is one handle, up to a size", "[cuda][memory][handles]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 64 * page);
  const auto at = [&](Bytes number) { return base + number * page; };
  const auto handle_of = [&](Bytes number) {
    const ByteRange handle = device->handle_at(at(number));
    return std::pair{(handle.first - reinterpret_cast<Bytes>(base)) / page, handle.size() / page};
  };
  using Pages = std::pair<Bytes, Bytes>;
  const std::uint64_t before = device->driver_calls();
  REQUIRE(device->commit(at(4), 8 * page, kOnDemand, kMaxBytes).ok());
  CHECK(device->driver_calls() - before == 3);  // create, map, set access
  CHECK(handle_of(7) == Pages{4, 8});
  // Both sides of it, the one in three parts.
  REQUIRE(device->commit(base, 20 * page, kOnDemand, 3 * page + 1).ok());
  CHECK(handle_of(0) == Pages{0, 3});
  CHECK(handle_of(3) == Pages{3, 1});
  CHECK(handle_of(12) == Pages{12, 3});
  CHECK(handle_of(19) == Pages{18, 2});
  CHECK(berth_standin_used(0) == 20 * page);
  REQUIRE(cudaMemset(base, 1, 20 * page) == cudaSuccess);
  REQUIRE(cudaDeviceSynchronize() == cudaSuccess);

  // Whole ones only.
  CHECK(device->whole_handles({reinterpret_cast<Bytes>(at(1)), reinterpret_cast<Bytes>(at(14))}) ==
        ByteRange{reinterpret_cast<Bytes>(at(3)), reinterpret_cast<Bytes>(at(12))});
  const std::uint64_t refused = device->driver_calls();
  CHECK(device->decommit(at(5), page).code() == Status::Code::kFailed);
  CHECK(device->decommit(at(4), 9 * page).code() == Status::Code::kFailed);
  const void* const from[] = {at(0), at(1), at(2), at(3)};
  CHECK(device->alias(at(40), from, 2).code() == Status::Code::kFailed);
  CHECK(device->alias(at(40), from + 1, 3).code() == Status::Code::kFailed);
  CHECK(device->driver_calls() == refused);
  REQUIRE(device->alias(at(40), from, 4).ok());
  CHECK(device->driver_calls() - refused == 2 + 1);  // two maps
  CHECK(handle_of(41) == Pages{40, 3});
  REQUIRE(device->decommit(base, 12 * page).ok());
  CHECK(berth_standin_used(0) == 12 * page);  // 8, and those that have another address
  REQUIRE(device->release(base, 64 * page).ok());
  CHECK(berth_standin_used(0) == 0);
}

TEST_CASE("A handle that the driver keeps is used again as it is, or goes first",
          "[cuda][memory][handles][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 16 * page);
  REQUIRE(device->commit(base, 8 * page, kOnDemand, 4 * page).ok());
  berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 2);
  REQUIRE(device->decommit(base, 8 * page).ok());
  REQUIRE(device->retained_bytes() == 4 * page);
  const std::uint64_t before = berth_standin_calls("cuMemCreate");
  SECTION("All of its addresses") {
    REQUIRE(device->commit(base, 8 * page, kOnDemand, kMaxBytes).ok());
    CHECK(berth_standin_calls("cuMemCreate") == before + 1);
    CHECK(berth_standin_used(0) == 8 * page);
  }
  SECTION("Some of them") {
    REQUIRE(device->commit(base + 2 * page, 4 * page, kOnDemand, kMaxBytes).ok());
    CHECK(berth_standin_used(0) == 4 * page);
  }
  SECTION("Some of them, and the driver keeps it still") {
    berth_standin_fail("cuMemUnmap", 1, cudaErrorInvalidValue, 1);
    CHECK_FALSE(device->commit(base + 2 * page, 4 * page, kOnDemand, kMaxBytes).ok());
    CHECK(device->retained_bytes() == 4 * page);
    REQUIRE(device->commit(base + 2 * page, 4 * page, kOnDemand, kMaxBytes).ok());
  }
  CHECK(device->retained_bytes() == 0);
  REQUIRE(device->release(base, 16 * page).ok());
  CHECK(berth_standin_used(0) == 0);
}

TEST_CASE("Whichever call fails while handles come, nothing of them is left",
          "[cuda][memory][handles][faults]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 16 * page);
  REQUIRE(device->commit(base + 4 * page, 4 * page, kOnDemand, kMaxBytes).ok());
  for (const char* call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    for (std::uint64_t n = 1;; ++n) {
      CAPTURE(call, n);
      berth_standin_fail(call, n, cudaErrorMemoryAllocation, 1);
      const bool ok = device->commit(base, 16 * page, kOnDemand, 3 * page).ok();
      berth_standin_clear_faults();
      if (ok) {
        REQUIRE(device->decommit(base, 4 * page).ok());
        REQUIRE(device->decommit(base + 8 * page, 8 * page).ok());
        CHECK(n > 1);
        break;
      }
      REQUIRE(berth_standin_used(0) == 4 * page);
      REQUIRE(device->retained_bytes() == 0);
    }
  }
  REQUIRE(device->release(base, 16 * page).ok());
}

TEST_CASE("A plain reservation brings its memory and gives it back whole", "[cuda][memory]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kPlain);
  REQUIRE_FALSE(device->properties().maps_pages);
  std::byte* const base = reserved(*device, 10 * kMiB);
  REQUIRE(berth_standin_used(0) == 10 * kMiB);
  REQUIRE(device->commit(base + kMiB, kMiB, kOnDemand).ok());
  void* none = base;
  const Status refused = device->reserve(kTotal, 0, &none);
  REQUIRE(refused.code() == Status::Code::kOutOfMemory);
  REQUIRE(none == nullptr);
  REQUIRE(device->describe(refused) ==
          "cudaMalloc failed on cuda:0: out of memory (cudaErrorMemoryAllocation, 2)");
  REQUIRE(cudaPeekAtLastError() == cudaSuccess);
  REQUIRE(device->release(base, 10 * kMiB).ok());
  REQUIRE(berth_standin_used(0) == 0);
}

TEST_CASE("Virtual memory is tried, not believed", "[cuda][memory][tried]") {
  const Standin standin;
  using standin::berth_standin_set_driver;
  const auto check = [](CudaDevice& device) {
    std::byte* const base = reserved(device, 4 * kMiB);
    REQUIRE(device.commit(base, 4 * kMiB, kOnDemand).ok());
    REQUIRE(cudaMemset(base, 1, 4 * kMiB) == cudaSuccess);
    cudaDeviceSynchronize();
    REQUIRE(device.release(base, 4 * kMiB).ok());
    REQUIRE(berth_standin_used(0) == 0);
  };
  struct Case {
    int driver;
    Memory memory;
    std::string text;
  };
  const Case one = GENERATE(
      Case{0, Memory::kVirtual, "virtual, in pages of 2.0 MiB, with file descriptors and RDMA"},
      Case{1, Memory::kVirtual,
           "virtual, in pages of 2.0 MiB, with file descriptors, without RDMA; in vain: with file "
           "descriptors and RDMA: cuMemSetAccess failed: unknown error (cudaErrorUnknown, 999)"},
      Case{2, Memory::kVirtual,
           "virtual, in pages of 2.0 MiB, without file descriptors and RDMA; in vain: with file "
           "descriptors and RDMA: cuMemCreate failed: operation not supported "
           "(cudaErrorNotSupported, 801); with file descriptors, without RDMA: cuMemCreate failed: "
           "operation not supported (cudaErrorNotSupported, 801)"},
      Case{3, Memory::kPlain, "plain, its virtual memory does not work: "});
  CAPTURE(one.driver);
  berth_standin_set_driver(one.driver);
  {
    const auto device = make_cuda_device({});
    CHECK(berth_standin_used(0) == 0);  // nothing of the try is left
    CHECK(device->memory() == one.memory);
    if (one.memory == Memory::kVirtual)
      CHECK(device->properties().memory == one.text);
    else
      CHECK(device->properties().memory.starts_with(one.text));
    check(*device);
  }
  if (one.memory == Memory::kPlain)
    CHECK_THROWS_WITH(make_gpu(Memory::kVirtual), Catch::Contains("virtual memory was requested") &&
                                                      Catch::Contains("BERTH_MEMORY=plain"));
  const auto plain = make_gpu(Memory::kPlain);
  CHECK(plain->properties().memory == "plain, as requested");
  check(*plain);
  berth_standin_set_driver(0);
}

TEST_CASE("A driver that is too old for the runtime is refused by name", "[cuda][driver]") {
  const Standin standin;
  berth_standin_fail("cudaGetDeviceCount", 1, cudaErrorInsufficientDriver, 1);
  try {
    (void)make_gpu(Memory::kVirtual);
    FAIL("a device was made");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kSystem);
    CHECK(std::string(error.what())
              .find("the driver here is of CUDA 13.0, and this process's "
                    "runtime of CUDA 13, which needs a newer one: "
                    "cudaGetDeviceCount failed on cuda:0: ") == 0);
  }
}

TEST_CASE("Whichever call of the try fails, the device works", "[cuda][memory][tried][faults]") {
  const Standin standin;
  for (const char* const call :
       {"cuMemGetAllocationGranularity", "cuMemAddressReserve", "cuMemCreate", "cuMemMap",
        "cuMemSetAccess", "cuMemExportToShareableHandle", "cuMemUnmap", "cuMemRelease",
        "cuMemAddressFree"}) {
    for (const int error : {999, 801, 2}) {
      CAPTURE(call, error);
      berth_standin_fail(call, 1, error, 1);
      const auto device = make_cuda_device({});
      berth_standin_clear_faults();
      CHECK(device->memory() == Memory::kVirtual);  // by the next form, or though it says nothing
      std::byte* const base = reserved(*device, 4 * kMiB);
      REQUIRE(device->commit(base, 4 * kMiB, kOnDemand).ok());
      REQUIRE(device->release(base, 4 * kMiB).ok());
    }
  }
}

TEST_CASE("What is still held goes with the device", "[cuda][memory]") {
  const Standin standin;
  for (const Memory kind : kKinds) {
    const auto device = make_gpu(kind);
    std::byte* const base = reserved(*device, 8 * kMiB);
    REQUIRE(device->commit(base, 8 * kMiB, kOnDemand).ok());
    void* pinned = nullptr;
    REQUIRE(device->reserve_pinned(kMiB, &pinned).ok());
  }
  REQUIRE(berth_standin_live_allocations() == 0);
  REQUIRE(berth_standin_used(0) == 0);
}

TEST_CASE("A peer reaches memory that was there and memory that comes later", "[cuda][peers]") {
  const Standin standin;
  const auto device = make_gpu(Memory::kVirtual);
  const Bytes page = device->properties().page_bytes;
  std::byte* const base = reserved(*device, 8 * page);
  REQUIRE(device->commit(base, page, kOnDemand).ok());
  REQUIRE(device->commit(base + 2 * page, page, kOnDemand).ok());
  std::uint64_t before = berth_standin_calls("cuMemSetAccess");
  REQUIRE(device->enable_peer(1).ok());
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 2);
  REQUIRE(device->enable_peer(1).ok());  // enabled already is success
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 2);
  REQUIRE(cudaPeekAtLastError() == cudaSuccess);
  before = berth_standin_calls("cuMemSetAccess");
  REQUIRE(device->commit(base + page, page, kOnDemand).ok());
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 1);
  const void* const from[] = {base};
  REQUIRE(device->alias(base + 4 * page, from, 1).ok());
  REQUIRE(berth_standin_calls("cuMemSetAccess") == before + 2);
  int current = -1;
  cudaGetDevice(&current);
  REQUIRE(current == 0);
  REQUIRE_FALSE(device->enable_peer(0).ok());
  REQUIRE_FALSE(device->enable_peer(7).ok());
  // A kernel on memory that its device has no access to is a violation.
  {
    const Stream there(1);
    use(there, base, 3 * page, false);
    use(there, base + 4 * page, page, false);
    cudaStreamSynchronize(there);
  }
  REQUIRE(device->release(base, 8 * page).ok());
}

TEST_CASE("Memory of two GPUs is copied with access and without", "[cuda][peers]") {
  const Standin standin;
  for (const Memory kind : kKinds) {
    const auto first = make_gpu(kind, 0);
    const auto second = make_gpu(kind, 1);
    const Stream stream(0);
    std::byte* const from = reserved(*first, 2 * kMiB);
    std::byte* const to = reserved(*second, 2 * kMiB);
    REQUIRE(first->commit(from, 2 * kMiB, kOnDemand).ok());
    REQUIRE(second->commit(to, 2 * kMiB, kOnDemand).ok());
    for (const bool mapped : {false, true}) {
      const std::uint64_t before = berth_standin_calls("cudaMemcpyPeerAsync");
      if (mapped) REQUIRE(second->enable_peer(0).ok());
      cudaMemsetAsync(from, mapped ? 2 : 1, 2 * kMiB, stream);
      REQUIRE(first->copy_peer(to, 1, from, 0, 2 * kMiB, stream, mapped).ok());
      REQUIRE(berth_standin_calls("cudaMemcpyPeerAsync") == before + (mapped ? 0 : 1));
      cudaStreamSynchronize(stream);
      std::vector<std::byte> bytes(2 * kMiB);
      cudaMemcpy(bytes.data(), to, bytes.size(), cudaMemcpyDeviceToHost);
      REQUIRE(bytes[0] == std::byte(mapped ? 2 : 1));
      REQUIRE(bytes.back() == bytes[0]);
    }
    REQUIRE(first->release(from, 2 * kMiB).ok());
    REQUIRE(second->release(to, 2 * kMiB).ok());
  }
}
