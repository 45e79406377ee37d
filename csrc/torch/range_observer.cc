#include "csrc/torch/range_observer.h"

#include "csrc/torch/installation.h"
#include "csrc/torch/range_numbers.h"

#include <ATen/record_function.h>

#include <string_view>

namespace berth::torch {

namespace {

struct Range : at::ObserverContext {
  std::uint64_t number = 0;
  bool optimizer_step = false;
};

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  Installation& installation = *Installation::get();
  if (installation.forked()) return nullptr;
  const std::string_view name = function.name();
  // PyTorch's name for one call of an optimizer's step(), whichever optimizer it is.
  const bool optimizer_step = name.starts_with("Optimizer.step#");
  Recorder* recorder = installation.allocator().recorder();
  if (recorder == nullptr && !optimizer_step) return nullptr;
  auto range = std::make_unique<Range>();
  range->optimizer_step = optimizer_step;
  if (recorder != nullptr)
    range->number = begin_range(
        *recorder, name, optimizer_step ? trace::RangeKind::kPhase : trace::RangeKind::kUser);
  return range;
}

void end(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto& range = static_cast<const Range&>(*context);
  Installation& installation = *Installation::get();
  if (range.number != 0)
    if (Recorder* recorder = installation.allocator().recorder())
      recorder->append(trace::RangeEnd{.range = range.number});
  if (range.optimizer_step) installation.mark_step_by_optimizer();
}

}  // namespace

void observe_ranges() {
  at::addGlobalCallback(
      at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::USER_SCOPE}));
}

}  // namespace berth::torch
