#pragma once

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"
#include "tests/support/charged_device.h"
#include "tests/support/random_program.h"
#include "tests/support/simulated_device.h"

#include <berth/error.h>

#include <array>
#include <memory>
#include <optional>
#include <vector>

// Programs under a limit of what lives in them at most: berth is not to run out where live bytes,
// rounded to pages, fit.
namespace berth::test {

// As berth is set up on a GPU that maps pages, on the host, and on a GPU that maps none.
struct DeviceKind {
  const char* name;
  Bytes page_bytes, alignment, growth_bytes;
  bool asynchronous, maps_pages;
  Allocator::FreePages free_pages;
};
inline constexpr Bytes kMebibyte = Bytes{1} << 20;
inline constexpr std::array<DeviceKind, 3> kDeviceKinds = {
    DeviceKind{"mapping", 2 * kMebibyte, 512, 2 * kMebibyte, true, true,
               Allocator::FreePages::kGoWhenExhausted},
    DeviceKind{"host", 4096, 64, kMebibyte / 16, false, true,
               Allocator::FreePages::kGoWhenExhausted},
    DeviceKind{"segments", 2 * kMebibyte, 512, 2 * kMebibyte, true, false,
               Allocator::FreePages::kGoWhenExhausted}};

// The limit that a promise about live bytes allows: what lives at most, as one packed range,
// rounded up to pages, and a share of it beside.
inline Bytes limit_of(const RandomProgram& program, const DeviceKind& kind, double margin) {
  const auto bytes = static_cast<Bytes>(static_cast<double>(program.live_peak) * (1 + margin));
  return (bytes + kind.page_bytes - 1) / kind.page_bytes * kind.page_bytes;
}

struct LimitedRun {
  std::optional<std::size_t> failed_at;  // the operation that ran out of memory
  Bytes reserved_peak = 0, live_peak = 0;
  MemoryCallCounts memory_calls;  // of CUDA's, where the device is a GPU
};

// Runs the program under a limit (0: none).
inline LimitedRun run_limited(const RandomProgram& program, const DeviceKind& kind, Bytes limit,
                              Mode mode = Mode::kLearn) {
  const Bytes total = 8 * program.live_peak + (Bytes{1} << 30);
  std::unique_ptr<SimulatedDevice> simulated;
  std::unique_ptr<Device> host;
  if (kind.asynchronous) {
    simulated = std::make_unique<SimulatedDevice>(SimulatedDevice::Options{
        .total_bytes = total, .page_bytes = kind.page_bytes, .maps_pages = kind.maps_pages});
  } else {
    host = make_host_device(total);
  }
  std::optional<ChargedDevice> charged;
  if (simulated) charged.emplace(*simulated);
  Device& device = charged ? static_cast<Device&>(*charged) : *host;
  Allocator::Options options;
  options.config.mode = mode;
  options.config.plan_time_limit_seconds = 0.05;
  options.config.memory_limit = limit;
  options.alignment = kind.alignment;
  options.start_threads = false;
  options.pool.growth_bytes = kind.growth_bytes;
  if (kind.asynchronous) options.pool.resident_growth_bytes = kind.growth_bytes;
  options.free_pages = kind.free_pages;
  Allocator allocator(device, options);

  LimitedRun result;
  std::mt19937 scheduler(1);
  std::vector<void*> pointers(program.blocks, nullptr);
  auto mark = program.marks.begin();
  for (std::size_t i = 0; i < program.operations.size() && !result.failed_at; ++i) {
    if (mark != program.marks.end() && *mark == i) {
      allocator.mark_step(0);
      ++mark;
    }
    const ProgramOperation& operation = program.operations[i];
    void*& pointer = pointers[operation.block];
    if (operation.size == 0) {
      (void)allocator.free(pointer);
      pointer = nullptr;
      continue;
    }
    try {
      pointer = allocator.allocate(operation.size, operation.lane);
      if (simulated) (void)simulated->hand_out(operation.lane, pointer, operation.size);
    } catch (const OutOfMemory&) {
      result.failed_at = i;
    }
    if (program.marks.empty() && i % 500 == 499) allocator.mark_step(0);
    if (simulated && i % 16 == 0) simulated->complete_some(scheduler);
  }
  const Stats stats = allocator.stats();
  result.reserved_peak = stats.reserved_peak;
  result.live_peak = stats.live_peak;
  if (charged) result.memory_calls = charged->memory_calls();
  for (void* pointer : pointers) (void)allocator.free(pointer);
  return result;
}

}  // namespace berth::test
