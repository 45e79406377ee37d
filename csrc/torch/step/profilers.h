#pragma once

#include <torch/csrc/profiler/orchestration/observer.h>

namespace berth::torch::step {

// Whether one of libtorch's profilers sees this thread's operators. A MemoryListener is none.
[[nodiscard]] bool is_profiled() noexcept;

// Hears of a thread's memory in the place of a profiler. libtorch takes what is there for a
// profiler whatever its type, so this is one that is off.
class MemoryListener : public ::torch::profiler::impl::ProfilerStateBase {
 public:
  MemoryListener()
      : ProfilerStateBase(::torch::profiler::impl::ProfilerConfig(
            ::torch::profiler::impl::ProfilerState::Disabled)) {}
  ::torch::profiler::impl::ActiveProfilerType profilerType() final {
    return ::torch::profiler::impl::ActiveProfilerType::NONE;
  }
  void reportOutOfMemory(std::int64_t, std::size_t, std::size_t, c10::Device) override {}
};

}  // namespace berth::torch::step
