#pragma once

#include "csrc/trace/recorder.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

namespace berth::torch {

// What is the same for every call of one operator.
struct OperatorTraits {
  trace::StringId name = 0;  // in the recorder's trace: with the overload, "aten::add.Tensor"
  bool random = false;
  bool changes_state = false;
  std::vector<trace::Access> arguments;  // by position
};

// The traits of the operator; kept per thread and for the last few traces, so a known one costs one
// look-up. The reference holds until the thread's next call.
[[nodiscard]] const OperatorTraits& traits_of(const c10::OperatorHandle& op, Recorder& recorder);

}  // namespace berth::torch
