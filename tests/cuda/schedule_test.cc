// The allocator on a GPU with several streams: no block is handed out that another stream may still
// use, whatever the device's schedule.

#include "csrc/runtime/allocator.h"
#include "tests/cuda/fixture.h"
#include "tests/support/checked_allocator.h"

#include <random>
#include <set>
#include <vector>

using namespace berth;
using namespace berth::test;
using Memory = CudaOptions::Memory;

namespace {

// Steps of a program on three streams: blocks of some sizes, used on their own stream and some on
// another; most steps are alike, some are not. Every hand-out and use goes to the checker.
class Program {
 public:
  Program(Allocator& allocator, unsigned seed) : allocator_(allocator), random_(seed) {}

  void step(bool alike) {
    std::mt19937 same(99);
    std::mt19937& random = alike ? same : random_;
    std::vector<Block> live;
    for (int i = 0; i < 40; ++i) {
      const unsigned choice = random() % 8;
      if (live.size() < 4 || choice < 4) {
        live.push_back(allocate((1 + random() % 24) * kMiB / 8, random() % 3));
      } else {
        const std::size_t chosen = random() % live.size();
        std::swap(live[chosen], live.back());
        if (choice == 4) use_elsewhere(live.back(), (live.back().stream + 1 + random() % 2) % 3);
        free(live.back());
        live.pop_back();
      }
    }
    // One outlives the step.
    if (kept_.pointer != nullptr) free(kept_);
    kept_ = live.back();
    live.pop_back();
    for (const Block& block : live) free(block);
    allocator_.mark_step(streams_[0].lane());
    REQUIRE(allocator_.is_valid() == "");
    REQUIRE(first_violation() == "");
  }

  void end() {
    if (kept_.pointer != nullptr) free(kept_);
    kept_ = {};
  }

 private:
  struct Block {
    void* pointer = nullptr;
    Bytes size = 0;
    unsigned stream = 0;
  };

  Block allocate(Bytes size, unsigned stream) {
    const Block block{allocator_.allocate(size, streams_[stream].lane()), size, stream};
    REQUIRE(hand_out(streams_[stream], block.pointer, size));
    use(streams_[stream], block.pointer, size);
    return block;
  }

  void use_elsewhere(const Block& block, unsigned other) {
    cudaEvent_t event = nullptr;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, streams_[block.stream]);
    cudaStreamWaitEvent(streams_[other], event, 0);
    cudaEventDestroy(event);
    use(streams_[other], block.pointer, block.size, false);
    allocator_.record_use(block.pointer, streams_[other].lane());
  }

  void free(const Block& block) {
    REQUIRE(allocator_.free(block.pointer) == Allocator::FreeOutcome::kDone);
  }

  Allocator& allocator_;
  std::mt19937 random_;
  const Stream streams_[3];
  Block kept_;
};

Allocator::Options options() {
  Allocator::Options options;
  options.alignment = 512;
  options.start_threads = false;  // planning in mark_step(), so that a seed gives one run
  options.pool.range_bytes = 4 * kTotal;
  options.config.plan_time_limit_seconds = 0.02;
  return options;
}

}  // namespace

TEST_CASE("Blocks of several streams are handed out in an order the device keeps",
          "[cuda][streams]") {
  const Memory kind = GENERATE(Memory::kVirtual, Memory::kPlain);
  const int pace = GENERATE(kRandomPace, kLazyPace);
  const Standin standin(pace);
  for (const unsigned seed : {1U, 2U, 3U}) {
    CAPTURE(name_of(kind), pace, seed);
    berth_standin_seed(seed);
    const auto device = make_gpu(kind);
    {
      test::CheckedAllocator allocator(*device, options());
      Program program(allocator, seed);
      for (int step = 0; step < 24; ++step) program.step(step % 6 != 5);
      const Stats stats = allocator.stats();
      // The plan served, and there was something to be ordered.
      CHECK(stats.hits > 100);
      CHECK(berth_standin_calls("cudaStreamWaitEvent") > 0);
      program.end();
      (void)allocator.trim();
    }
    REQUIRE(device->retained_bytes() == 0);
    cudaDeviceSynchronize();
  }
}

TEST_CASE("A checker that finds nothing would find a missing event", "[cuda][streams]") {
  const Standin standin(kLazyPace);
  const auto device = make_gpu(Memory::kPlain);
  const Stream first, second;
  void* base = nullptr;
  REQUIRE(device->reserve(kMiB, 0, &base).ok());
  use(first, base, kMiB);
  REQUIRE_FALSE(hand_out(second, base, kMiB));
  berth_standin_forget_violations();
  REQUIRE(device->release(base, kMiB).ok());
}

TEST_CASE("Blocks of a foreign stream wait for the device and not for the stream",
          "[cuda][streams][foreign]") {
  const Standin standin(kLazyPace);
  const auto device = make_gpu(GENERATE(Memory::kVirtual, Memory::kPlain));
  {
    test::CheckedAllocator allocator(*device, options());
    const Stream own;
    void* block = allocator.allocate(96 * kMiB, own.lane());
    use(own, block, 96 * kMiB);
    {
      const Stream foreign;
      const LaneKey lane = device->lane_of(foreign, true);
      cudaEvent_t event = nullptr;
      cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
      cudaEventRecord(event, own);
      cudaStreamWaitEvent(foreign, event, 0);
      cudaEventDestroy(event);
      use(foreign, block, kMiB, false);
      allocator.record_use(block, lane);
    }  // destroyed with its work queued
    REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
    REQUIRE(allocator.is_valid() == "");
    // There is no other memory: it comes after a wait for the whole device.
    block = allocator.allocate(96 * kMiB, own.lane());
    REQUIRE(hand_out(own, block, 96 * kMiB));
    REQUIRE(allocator.free(block) == Allocator::FreeOutcome::kDone);
  }
}
