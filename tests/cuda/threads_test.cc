// One device, many threads.

#include "tests/cuda/fixture.h"

#include <atomic>
#include <random>
#include <thread>
#include <vector>

using namespace berth;
using namespace berth::test;

TEST_CASE("Threads use one device at once", "[cuda][threads]") {
  const Standin standin(kRandomPace);
  for (const auto kind : kKinds) {
    CAPTURE(name_of(kind));
    const auto device = make_gpu(kind);
    const Stream streams[4];
    std::atomic<int> failures{0};
    std::vector<std::thread> threads;
    for (unsigned number = 0; number < 4; ++number) {
      threads.emplace_back([&, number] {
        const auto must = [&](const Status& status) { failures += status.ok() ? 0 : 1; };
        std::mt19937 random(number);
        const Stream& stream = streams[number];
        for (int round = 0; round < 20; ++round) {
          cudaSetDevice(static_cast<int>(random() % 2));
          const LaneKey lane =
              round % 2 == 0 ? stream.lane() : CudaDevice::lane_of(cudaStreamPerThread);
          const Bytes size = (1 + random() % 3) * 2 * kMiB;
          void* base = nullptr;
          void* pinned = nullptr;
          DeviceEvent event = 0;
          DeviceEvent copied = 0;
          bool complete = false;
          must(device->reserve(size, 0, &base));
          must(device->commit(base, size, Device::Residency::kOnDemand));
          must(device->reserve_pinned(4096, &pinned));
          must(device->copy(base, pinned, 4096, lane, &copied));
          {
            const CudaStreamScope scope(*device, streams[(number + 1) % 4]);
            must(device->wait(scope.lane(), copied));
            must(device->record(scope.lane(), &event));
          }
          must(device->query(event, &complete));
          must(device->synchronize(event));
          must(device->synchronize(copied));
          device->destroy(event);
          device->destroy(copied);
          CudaSharedMemory shared;
          must(device->share(base, size, &shared));
          if (number == 0 && round == 10) must(device->enable_peer(1));
          must(device->release_pinned(pinned, 4096));
          must(device->release(base, size));
        }
        cudaSetDevice(0);
      });
    }
    for (std::thread& thread : threads) thread.join();
    REQUIRE(failures == 0);
    REQUIRE(device->retained_bytes() == 0);
    REQUIRE(berth_standin_used(0) == 0);
  }
}
