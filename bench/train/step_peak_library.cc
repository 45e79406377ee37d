// StepPeak for programs in Python.
#include "bench/train/step_peak.h"

#include <memory>

namespace {
std::unique_ptr<berth::bench::StepPeak> peak;
}  // namespace

#pragma GCC visibility push(default)
extern "C" {
// Begins to see what this thread asks for.
void berth_bench_see_memory() { peak = std::make_unique<berth::bench::StepPeak>(); }
// What is there now is none of the step's.
void berth_bench_begin_step() {
  peak->begin_load();
  peak->begin_step();
}
// Bytes at most since the step began; sees no more.
long long berth_bench_step_peak() {
  const long long bytes = peak->bytes();
  peak.reset();
  return bytes;
}
}
#pragma GCC visibility pop
