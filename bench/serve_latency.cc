// What one allocate + free costs on the host device, by plan and from the pool alone, beside
// posix_memalign + free on the same requests.
//
//   build/release/bench/serve_latency                      # times
//   LD_PRELOAD=libtcmalloc_minimal.so.4 build/release/bench/serve_latency --benchmark_filter=malloc
//   valgrind --tool=callgrind --toggle-collect='*planned_steps*' build/release/bench/serve_latency
//   --instructions planned

#include "csrc/device/host_device.h"
#include "csrc/runtime/allocator.h"

#include <benchmark/benchmark.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

using namespace berth;

namespace {

// A training step: activations forward, freed in reverse on the way back, scratch beside them. One
// operation a line: a request of so many bytes, or (bytes 0) the free of an earlier request.
struct Operation {
  Bytes bytes = 0;
  std::size_t frees = 0;
};

std::vector<Operation> training_step(std::size_t layers) {
  std::vector<Operation> step;
  std::vector<std::size_t> activations;
  std::size_t requests = 0;
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const std::size_t scratch = requests++;
    step.push_back({4096 * (1 + layer % 3), 0});
    activations.push_back(requests++);
    step.push_back({4096 * (2 + layer % 5), 0});
    step.push_back({0, scratch});
  }
  for (std::size_t layer = layers; layer-- > 0;) {
    const std::size_t gradient = requests++;
    step.push_back({4096 * (2 + layer % 5) + 100, 0});
    step.push_back({0, activations[layer]});
    step.push_back({0, gradient});
  }
  return step;
}

constexpr std::size_t kLayers = 400;
constexpr std::size_t kPairs = 3 * kLayers;

template <class Allocate, class Free>
void run_step(const std::vector<Operation>& step, std::vector<void*>& blocks, Allocate&& allocate,
              Free&& free) {
  blocks.clear();
  for (const Operation& operation : step) {
    if (operation.bytes != 0) {
      blocks.push_back(allocate(operation.bytes));
    } else {
      free(blocks[operation.frees]);
    }
  }
}

// An allocator that serves the step: by plan, or in mode off from its pool.
struct Served {
  explicit Served(Mode mode = Mode::kLearn)
      : device(make_host_device(Bytes{4} << 30)), step(training_step(kLayers)) {
    Allocator::Options options;
    options.config.mode = mode;
    options.start_threads = false;
    allocator = std::make_unique<Allocator>(*device, options);
    for (int i = 0; i < 5; ++i) run();
  }
  [[gnu::noinline]] void run() {
    run_step(
        step, blocks, [this](Bytes size) { return allocator->allocate(size, 0); },
        [this](void* pointer) { allocator->free(pointer); });
    allocator->mark_step(0);
  }
  std::unique_ptr<Device> device;
  std::vector<Operation> step;
  std::vector<void*> blocks;
  std::unique_ptr<Allocator> allocator;
};

[[gnu::noinline]] void planned_steps(Served& served, int steps) {
  for (int i = 0; i < steps; ++i) served.run();
}

// Told from the function above by what it does at its end, else they would be one.
[[gnu::noinline]] void pool_steps(Served& served, int steps) {
  for (int i = 0; i < steps; ++i) served.run();
  served.allocator->process_events();
}

struct Malloc {
  std::vector<Operation> step = training_step(kLayers);
  std::vector<void*> blocks;
  [[gnu::noinline]] void run() {
    run_step(
        step, blocks,
        [](Bytes size) {
          void* pointer = nullptr;
          if (::posix_memalign(&pointer, 64, size) != 0) std::abort();
          return pointer;
        },
        [](void* pointer) { ::free(pointer); });
  }
};

[[gnu::noinline]] void malloc_steps(Malloc& memory, int steps) {
  for (int i = 0; i < steps; ++i) memory.run();
}

void planned(benchmark::State& state) {
  Served served;
  for (auto _ : state) planned_steps(served, 1);
  state.counters["ns_per_pair"] = benchmark::Counter(
      kPairs * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  const Stats stats = served.allocator->stats();
  state.counters["missed"] =
      static_cast<double>(stats.misses_size + stats.misses_busy + stats.misses_lane);
}

void pooled(benchmark::State& state) {
  Served served(Mode::kOff);
  for (auto _ : state) pool_steps(served, 1);
  state.counters["ns_per_pair"] = benchmark::Counter(
      kPairs * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void malloc_pair(benchmark::State& state) {
  Malloc memory;
  for (int i = 0; i < 5; ++i) memory.run();
  for (auto _ : state) malloc_steps(memory, 1);
  state.counters["ns_per_pair"] = benchmark::Counter(
      kPairs * 1e-9, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(planned)->Name("planned");
BENCHMARK(pooled)->Name("pool");
BENCHMARK(malloc_pair)->Name("malloc");

}  // namespace

int main(int argc, char** argv) {
  // For callgrind: 100 steps of one of them, collected between function entry and exit.
  if (argc == 3 && std::string_view(argv[1]) == "--instructions") {
    if (std::string_view(argv[2]) == "planned") {
      Served served;
      planned_steps(served, 100);
    } else if (std::string_view(argv[2]) == "pool") {
      Served served(Mode::kOff);
      pool_steps(served, 100);
    } else {
      Malloc memory;
      for (int i = 0; i < 5; ++i) memory.run();
      malloc_steps(memory, 100);
    }
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
