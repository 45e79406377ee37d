#include "csrc/torch/step/profilers.h"

#include <c10/util/ThreadLocalDebugInfo.h>

namespace berth::torch::step {

bool is_profiled() noexcept {
  auto* const there = c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE);
  if (there == nullptr) return false;
  const auto* const profiler = dynamic_cast<::torch::profiler::impl::ProfilerStateBase*>(there);
  return profiler != nullptr && !profiler->config().disabled();
}

}  // namespace berth::torch::step
