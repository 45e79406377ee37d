// SQLite's method on every function that the layer calls: its n-th call fails, for n = 1, 2, ..
// until a run meets no fault. After each the device is consistent and a fresh run passes.

#include "csrc/cuda/calls.h"
#include "csrc/runtime/allocator.h"
#include "tests/cuda/fixture.h"
#include "tests/support/checked_allocator.h"

#include <cstring>
#include <random>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

namespace {

#define BERTH_NAME(name) #name,
constexpr const char* kFunctions[] = {BERTH_CUDA_THREAD_CALLS(BERTH_NAME) BERTH_CUDA_RUNTIME_CALLS(
    BERTH_NAME) BERTH_CUDA_DRIVER_CALLS(BERTH_NAME)};
#undef BERTH_NAME

// What a program does with a device, up to the first call that fails; everything is given back.
// Runs while the other GPU is current, so that switching is part of it.
Status use_all(CudaDevice& device, const Stream& stream, const Stream& foreign) {
  const Bytes size = 8 * kMiB;
  struct Held {
    CudaDevice& device;
    void* base = nullptr;
    void* pinned = nullptr;
    DeviceEvent event = 0;
    ~Held() {
      device.destroy(event);
      // A free that fails once is tried again: its memory must not have changed hands meanwhile.
      for (int i = 0; i < 3; ++i) (void)device.synchronize_all();
      if (pinned != nullptr && !device.release_pinned(pinned, kMiB).ok())
        (void)device.release_pinned(pinned, kMiB);
      if (base != nullptr && !device.release(base, 8 * kMiB).ok())
        (void)device.release(base, 8 * kMiB);
    }
  } held{device};
#define BERTH_MUST(call) \
  if (const Status status = call; !status.ok()) return status
  bool answer = false;
  Bytes free = 0;
  BERTH_MUST(device.free_bytes(&free));
  BERTH_MUST(device.reserve(size, 4 * kMiB, &held.base));
  BERTH_MUST(device.commit(held.base, size / 2, Device::Residency::kOnDemand));
  BERTH_MUST(device.commit(held.base, size, Device::Residency::kOnDemand));
  BERTH_MUST(device.reserve_pinned(kMiB, &held.pinned));
  std::memset(held.pinned, 5, kMiB);
  BERTH_MUST(device.copy(held.base, held.pinned, kMiB, stream.lane(), &held.event));
  BERTH_MUST(device.wait(0, held.event));
  BERTH_MUST(device.synchronize(held.event));
  BERTH_MUST(device.query(held.event, &answer));
  CHECK(answer);
  device.destroy(std::exchange(held.event, 0));
  {
    const CudaStreamScope scope(device, foreign);
    BERTH_MUST(device.capturing(scope.lane(), &answer));
    BERTH_MUST(device.record(scope.lane(), &held.event));
  }
  BERTH_MUST(device.enable_peer(1));
  CudaSharedMemory shared;
  BERTH_MUST(device.share(static_cast<char*>(held.base) + 100, kMiB, &shared));
  BERTH_MUST(device.copy_peer(held.base, 0, held.base, 1, 100, stream, false));
  BERTH_MUST(device.copy_peer(held.base, 0, held.base, 0, 100, stream, true));
  BERTH_MUST(device.synchronize_all());
  if (device.properties().aliases) {
    // The second half of the first, the other way round; then some of it takes its place.
    const Bytes page = device.properties().page_bytes;
    const auto at = [&](Bytes i) { return static_cast<std::byte*>(held.base) + i * page; };
    BERTH_MUST(device.decommit(at(2), 2 * page));
    const void* const from[] = {at(1), at(0)};
    const auto used = [&] { return berth_standin_used(0) - device.retained_bytes(); };
    const Bytes before = used();
    const Status aliased = device.alias(at(2), from, 2);
    CHECK(used() == before);
    BERTH_MUST(aliased);
    BERTH_MUST(device.decommit(at(0), page));
    BERTH_MUST(device.decommit(at(2), page));
    BERTH_MUST(device.commit(at(0), 3 * page, Device::Residency::kOnDemand));
    CHECK(used() == before + 2 * page);
  }
  if (device.properties().maps_pages) {
    BERTH_MUST(device.decommit(held.base, size / 2));
    BERTH_MUST(device.commit(held.base, size, Device::Residency::kOnDemand));
  }
  return {};
#undef BERTH_MUST
}

int current_device() {
  int current = -1;
  cudaGetDevice(&current);
  return current;
}

}  // namespace

TEST_CASE("Whichever call of a device fails, it says so and goes on", "[cuda][faults]") {
  for (const Memory kind : kKinds) {
    const Standin standin;
    const Stream stream, foreign;
    for (const char* name : kFunctions) {
      CAPTURE(name_of(kind), name);
      for (std::uint64_t n = 1;; ++n) {
        CAPTURE(n);
        REQUIRE(n < 200);
        const auto device = make_gpu(kind);
        cudaSetDevice(1);
        const std::uint64_t before = berth_standin_calls(name);
        berth_standin_fail(name, n, cudaErrorNotPermitted, 1);
        const Status status = use_all(*device, stream, foreign);
        const bool met = berth_standin_calls(name) - before >= n;
        berth_standin_clear_faults();
        if (!status.ok()) {
          INFO(device->describe(status));
          REQUIRE(met);
          // Of the call that failed, or of the lane that could not be found.
          const bool named =
              status.call() == std::string(name) && status.number() == cudaErrorNotPermitted;
          CHECK((named || (name == std::string("cudaStreamGetId") &&
                           status.code() == Status::Code::kUnsupported)));
        }
        CHECK(current_device() == 1);
        CHECK(cudaPeekAtLastError() == cudaSuccess);
        CHECK(first_violation() == "");
        const Status again = use_all(*device, stream, foreign);
        INFO(device->describe(again));
        REQUIRE(again.ok());
        REQUIRE(device->retained_bytes() == 0);
        cudaSetDevice(0);
        if (!met) break;
      }
    }
  }
}

TEST_CASE("A device that cannot be made is one error", "[cuda][faults]") {
  const Standin standin;
  for (const char* name :
       {"cudaRuntimeGetVersion", "cudaGetDeviceCount", "cudaGetDeviceProperties",
        "cudaGetDriverEntryPointByVersion", "cuDeviceGet", "cuDeviceGetAttribute"}) {
    CAPTURE(name);
    berth_standin_fail(name, 1, cudaErrorNotPermitted, 1);
    REQUIRE_THROWS_WITH(make_gpu(Memory::kVirtual),
                        Catch::Contains(name) && Catch::Contains("cudaErrorNotPermitted"));
    berth_standin_clear_faults();
    (void)cudaGetLastError();
  }
}

TEST_CASE("Whichever call fails, an allocator on a GPU stays consistent", "[cuda][faults]") {
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const bool all_later = GENERATE(false, true);
  CAPTURE(name_of(kind), all_later);
  const Standin standin(kLazyPace);
  const Stream first, second;
  std::uint64_t faults = 0;
  for (std::uint64_t n = 1;; ++n) {
    CAPTURE(n);
    const auto device = make_gpu(kind);
    {
      Allocator::Options options;
      options.alignment = 512;
      options.start_threads = false;
      options.pool.range_bytes = kTotal;
      options.config.plan_time_limit_seconds = 0.01;
      test::CheckedAllocator allocator(*device, options);
      const auto workload = [&](unsigned seed) {
        std::mt19937 random(seed);
        std::vector<std::pair<void*, const Stream*>> live;
        int refused = 0;
        for (int i = 0; i < 60; ++i) {
          if (i % 20 == 19) allocator.mark_step(first.lane());
          if (live.size() < 4 || (live.size() < 9 && random() % 2 == 0)) {
            const Stream& stream = random() % 3 == 0 ? second : first;
            const Bytes size = (1 + random() % 16) * kMiB / 4;
            try {
              void* const block = allocator.allocate(size, stream.lane());
              CHECK(hand_out(stream, block, size));
              use(stream, block, size);
              live.emplace_back(block, &stream);
            } catch (const Error&) {
              ++refused;
            }
          } else {
            std::swap(live[random() % live.size()], live.back());
            const auto [block, stream] = live.back();
            live.pop_back();
            if (stream == &first && random() % 2 == 0) {
              // The program orders its own use of another stream's block.
              cudaEvent_t event = nullptr;
              cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
              if (cudaEventRecord(event, first) == cudaSuccess &&
                  cudaStreamWaitEvent(second, event, 0) == cudaSuccess) {
                use(second, block, 512, false);
                allocator.record_use(block, second.lane());
              }
              cudaEventDestroy(event);
            }
            CHECK(allocator.free(block) == Allocator::FreeOutcome::kDone);
          }
          REQUIRE(allocator.is_valid() == "");
        }
        for (const auto& [block, stream] : live)
          CHECK(allocator.free(block) == Allocator::FreeOutcome::kDone);
        return refused;
      };
      const std::uint64_t before = berth_standin_calls("*");
      berth_standin_fail("*", n, cudaErrorNotPermitted, all_later ? 1 << 20 : 1);
      (void)workload(1);
      const bool met = berth_standin_calls("*") - before >= n;
      berth_standin_clear_faults();
      (void)cudaGetLastError();  // of the program's own calls
      REQUIRE(first_violation() == "");
      (void)allocator.trim();
      REQUIRE(workload(2) == 0);
      REQUIRE(first_violation() == "");
      if (!met) break;
    }
    ++faults;
    cudaDeviceSynchronize();
  }
  REQUIRE(faults > 20);
}
