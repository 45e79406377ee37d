#include "csrc/torch/step/profilers.h"

#include <c10/util/ThreadLocalDebugInfo.h>

namespace berth::torch::step {

namespace {

constexpr auto kPlace = c10::DebugInfoKind::PROFILER_STATE;

class Silent final : public MemoryListener {
 public:
  void reportMemoryUsage(void*, std::int64_t, std::size_t, std::size_t, c10::Device) override {}
  [[nodiscard]] bool memoryProfilingEnabled() const override { return false; }
};

}  // namespace

bool is_profiled() noexcept {
  auto* const there = c10::ThreadLocalDebugInfo::get(kPlace);
  if (there == nullptr) return false;
  const auto* const profiler = dynamic_cast<::torch::profiler::impl::ProfilerStateBase*>(there);
  return profiler != nullptr && !profiler->config().disabled();
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
  if (const auto* const listener =
          dynamic_cast<MemoryListener*>(c10::ThreadLocalDebugInfo::get(kPlace));
      listener != nullptr)
    MemoryGuard::end(listener);
}

}  // namespace berth::torch::step
