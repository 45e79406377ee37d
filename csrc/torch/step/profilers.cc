#include "csrc/torch/step/profilers.h"

#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>

namespace berth::torch::step {

namespace {

constexpr auto kPlace = c10::DebugInfoKind::PROFILER_STATE;

class Silent final : public MemoryListener {
 public:
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  [[nodiscard]] bool memoryProfilingEnabled() const override { return false; }
};

std::atomic<at::RecordFunctionCallback::StartCallback> own_observer{nullptr};

// Execution traces and profilers of the whole process are no state of a thread.
bool is_observed() noexcept {
  const auto called = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
  // mutant: observers-unseen
  return called && std::ranges::any_of(called->callbacks_, [](const auto& one) {
           return one.start_ != own_observer.load(std::memory_order_relaxed);
         });
}

}  // namespace

bool is_profiled() noexcept {
  if (is_observed()) return true;
  auto* const there = c10::ThreadLocalDebugInfo::get(kPlace);
  if (there == nullptr) return false;
  const auto* const profiler = dynamic_cast<::torch::profiler::impl::ProfilerStateBase*>(there);
  return profiler != nullptr && !profiler->config().disabled();
}

void note_own_observer(at::RecordFunctionCallback::StartCallback begins) noexcept {
  own_observer.store(begins, std::memory_order_relaxed);
}

MemoryListener* MemoryListener::get() noexcept {
  return dynamic_cast<MemoryListener*>(c10::ThreadLocalDebugInfo::get(kPlace));
}

MemoryGuard::MemoryGuard(const std::shared_ptr<MemoryListener>& listener) : listener_(listener) {
  c10::ThreadLocalDebugInfo::_push(kPlace, listener);
}

MemoryGuard::~MemoryGuard() { end(listener_.get()); }

void MemoryGuard::end(const MemoryListener* listener) noexcept {
  if (c10::ThreadLocalDebugInfo::get(kPlace) != listener) return;
  try {
    (void)c10::ThreadLocalDebugInfo::_pop(kPlace);
  } catch (const c10::Error&) {  // somebody else has something on top for a while
  }
}

Unprofiled::Unprofiled() : memory_(std::make_shared<Silent>()) {}

void make_way_for_profiler() noexcept {
  if (const MemoryListener* const listener = MemoryListener::get(); listener != nullptr)
    MemoryGuard::end(listener);
}

}  // namespace berth::torch::step
