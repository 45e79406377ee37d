// What recording one tick costs: Recorder::append() of requests and frees, on one thread and on
// two.
//
//   build/release/bench/record_latency

#include "csrc/trace/recorder.h"

#include <benchmark/benchmark.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

using namespace berth;

namespace {

std::unique_ptr<Recorder> recorder;
std::string file;

void open(const benchmark::State&) {
  file = (std::filesystem::temp_directory_path() /
          ("berth-record-" + std::to_string(::getpid()) + ".trace"))
             .string();
  recorder = Recorder::open(file, {}, 64);
}

void close(const benchmark::State&) {
  recorder->close();
  recorder.reset();
  std::filesystem::remove(file);
}

// As a step does: bursts of 1,000 entries, then the program computes and the recorder's thread
// writes them out.
void append(benchmark::State& state) {
  const trace::LaneId lane = recorder->lane(static_cast<std::uint64_t>(state.thread_index()));
  trace::BlockId id = static_cast<trace::BlockId>(state.thread_index()) << 40;
  for (auto _ : state) {
    for (int i = 0; i < 500; ++i) {
      recorder->append(trace::Request{++id, 4096, lane, 0});
      recorder->append(trace::Free{id});
    }
    state.PauseTiming();
    ::usleep(1000);
    state.ResumeTiming();
  }
  state.counters["ns_per_tick"] =
      benchmark::Counter(1e-6, benchmark::Counter::kIsIterationInvariantRate |
                                   benchmark::Counter::kInvert | benchmark::Counter::kAvgThreads);
}

BENCHMARK(append)
    ->Setup(open)
    ->Teardown(close)
    ->Threads(1)
    ->Threads(2)
    ->Iterations(2000)
    ->Repetitions(5);

}  // namespace

BENCHMARK_MAIN();
