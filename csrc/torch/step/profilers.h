#pragma once

#include <ATen/record_function.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <memory>

namespace berth::torch::step {

// Whether one of libtorch's profilers sees this thread's operators. A MemoryListener is none.
[[nodiscard]] bool is_profiled() noexcept;
// The observer of operators that begins so is berth's own, and no profiler. One in the process.
void note_own_observer(at::RecordFunctionCallback::StartCallback begins) noexcept;

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
  // A tensor's block goes to the host, which is not reported.
  virtual void left(const void* /*block*/) noexcept {}
  // That of this thread; null where there is none.
  [[nodiscard]] static MemoryListener* get() noexcept;
};

// Has a listener hear of this thread's memory, until it goes or a profiler is to begin.
class MemoryGuard {
 public:
  explicit MemoryGuard(const std::shared_ptr<MemoryListener>& listener);
  ~MemoryGuard();
  MemoryGuard(const MemoryGuard&) = delete;
  MemoryGuard& operator=(const MemoryGuard&) = delete;
  // The same before it goes.
  static void end(const MemoryListener* listener) noexcept;

 private:
  std::shared_ptr<MemoryListener> listener_;
};

// Keeps from this thread's profilers what happens while it stands.
class Unprofiled {
 public:
  Unprofiled();

 private:
  at::DisableRecordFunctionGuard names_;
  MemoryGuard memory_;
};

// A profiler is about to begin on this thread, which takes no second one: a MemoryListener ends.
void make_way_for_profiler() noexcept;

}  // namespace berth::torch::step
