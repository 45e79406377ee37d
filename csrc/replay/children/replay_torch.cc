// berth-replay-torch DESCRIPTOR: replays a workload under libtorch's own CUDA allocator. `berth
// replay` starts it on the stand-in runtime; a program of its own, since `berth` links no libtorch.
#include "csrc/replay/drive.h"
#include "csrc/replay/shared_workload.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace berth::replay {
namespace {

class CudaServer {
 public:
  explicit CudaServer(std::span<const Operation> operations)
      : allocator_(c10::cuda::CUDACachingAllocator::get()) {
    std::uint32_t lanes = 1;
    for (const Operation& operation : operations) lanes = std::max(lanes, operation.lane + 1);
    for (std::uint32_t lane = 0; lane < lanes; ++lane)
      streams_.push_back(lane == 0 ? c10::cuda::getDefaultCUDAStream()
                                   : c10::cuda::getStreamFromPool());
  }

  void* allocate(const Operation& operation) {
    if (operation.lane != current_) {
      current_ = operation.lane;
      c10::cuda::setCurrentCUDAStream(streams_[current_]);
    }
    try {
      return allocator_->raw_alloc(operation.size);
    } catch (const c10::OutOfMemoryError&) {
      return nullptr;
    }
  }
  void free(void* pointer) { allocator_->raw_delete(pointer); }
  void use(void* pointer, const Operation& operation) {
    c10::DataPtr block(pointer, pointer, allocator_->raw_deleter(),
                       c10::Device(c10::DeviceType::CUDA, 0));
    allocator_->recordStream(block, streams_[operation.lane]);
    (void)block.release_context();
  }
  void step(const Operation&) {}
  void empty_cache() { allocator_->emptyCache(); }

 private:
  c10::cuda::CUDACachingAllocator::CUDAAllocator* const allocator_;
  std::vector<c10::cuda::CUDAStream> streams_;
  std::uint32_t current_ = 0;
};

// Nothing where this is a real GPU.
MemoryCallCounts count_memory_calls() {
  MemoryCallCounts counts;
  using Calls = std::uint64_t (*)(const char*);
  const auto calls = reinterpret_cast<Calls>(dlsym(RTLD_DEFAULT, "berth_standin_calls"));
  if (calls == nullptr) return counts;
  for (std::size_t i = 0; i < kMemoryCalls; ++i) {
    const auto call = static_cast<MemoryCall>(i);
    counts.add(call, calls(std::string(name_of(call)).c_str()));
  }
  return counts;
}

int run(const char* memory_fd) {
  const SharedWorkload replay(memory_fd);
  SharedHeader& header = replay.header();
  c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
  const MemoryCallCounts before = count_memory_calls();
  CudaServer server(replay.operations());
  const DriveResult driven = drive(replay.operations(), replay.pointers(), server);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
  header.loaded = 1;
  header.reserved_peak = static_cast<std::uint64_t>(stats.reserved_bytes[0].peak);
  header.retries = static_cast<std::uint64_t>(stats.num_alloc_retries);
  header.driver_calls = static_cast<std::uint64_t>(stats.num_device_alloc + stats.num_device_free);
  header.memory_calls = count_memory_calls() - before;
  header.complete = driven.complete ? 1 : 0;
  header.ns_per_operation = driven.ns_per_operation.value_or(-1);
  return 0;
}

}  // namespace
}  // namespace berth::replay

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "berth-replay-torch is started by `berth replay --allocator caching`\n");
    return 2;
  }
  try {
    return berth::replay::run(argv[1]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "berth-replay-torch: {}\n", error.what());
    return 4;
  }
}
