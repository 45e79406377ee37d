#include "csrc/torch/step/varying_steps.h"

#include "csrc/torch/step/data_shapes.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace berth::torch::step {

namespace {

constexpr std::size_t kMost = 8;  // of each kind

void push(std::deque<StepRecord>& to, StepRecord record) {
  if (to.size() == kMost) to.pop_front();
  to.push_back(std::move(record));
}

}  // namespace

void VaryingSteps::note_equal(const StepRecord& record) {
  // The loss that a body reads at its end decides about no call.
  const auto last = record.calls.empty() ? record.calls.end() : record.calls.end() - 1;
  if (std::any_of(record.calls.begin(), last, [](const Call& one) { return one.host_read; }))
    push(equal_, record);
}

void VaryingSteps::add(StepRecord& record) {
  record.varying = ++last_;
  push(varying_, record);
}

std::optional<StepRecord> VaryingSteps::join(const StepRecord& record,
                                             const std::function<void(const StepRecord&)>& forget) {
  for (StepRecord& one : varying_) {
    if (!let_shapes_vary(one, record)) continue;
    forget(one);
    return one;
  }
  // mutant: data-shapes-equal
  for (auto one = equal_.begin(); one != equal_.end(); ++one) {
    if (one->calls.size() != record.calls.size()) continue;
    StepRecord joined = *one;
    if (!let_shapes_vary(joined, record)) continue;
    forget(*one);
    equal_.erase(one);
    add(joined);
    return joined;
  }
  return std::nullopt;
}

}  // namespace berth::torch::step
