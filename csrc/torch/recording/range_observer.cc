#include "csrc/torch/recording/range_observer.h"

#include "csrc/torch/shared/backend.h"
#include "csrc/torch/shared/range_numbers.h"

#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <string_view>

namespace berth::torch {

namespace {

struct ObservedRange : at::ObserverContext {
  std::array<std::uint64_t, kMaxBackends> numbers{};  // in each backend's trace; 0: not in it
  bool optimizer_step = false;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  // PyTorch's name for one call of an optimizer's step(), whichever optimizer it is.
  const bool optimizer_step = name.starts_with("Optimizer.step#");
  std::unique_ptr<ObservedRange> range;
  if (optimizer_step) range = std::make_unique<ObservedRange>();
  for (int n = 0; n < kMaxBackends; ++n) {
    Backend* const one = backend(n);
    Recorder* const recorder = one == nullptr ? nullptr : one->recorder();
    if (recorder == nullptr) continue;
    if (range == nullptr) range = std::make_unique<ObservedRange>();
    range->numbers[static_cast<std::size_t>(n)] = begin_range(
        *recorder, name, optimizer_step ? trace::RangeKind::kPhase : trace::RangeKind::kUser);
  }
  if (range != nullptr) range->optimizer_step = optimizer_step;
  return range;
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto& range = static_cast<const ObservedRange&>(*context);
  for (int n = 0; n < kMaxBackends; ++n) {
    const std::uint64_t number = range.numbers[static_cast<std::size_t>(n)];
    if (number == 0) continue;
    if (Recorder* const recorder = backend(n)->recorder())
      recorder->append(trace::RangeEnd{.range = number});
  }
  if (range.optimizer_step) mark_step_by_optimizer();
}

}  // namespace

void observe_ranges() {
  static std::atomic_flag done;
  if (done.test_and_set()) return;
  at::addGlobalCallback(
      at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace berth::torch
