#pragma once

#include "csrc/trace/recorder.h"

#include <ATen/record_function.h>

#include <vector>

namespace berth::torch {

// What is the same for every call of one operator.
struct OperatorTraits {
  trace::StringId name = 0;  // in the recorder's trace
  bool random = false;
  bool changes_state = false;
  bool backward = false;                 // an autograd node, or the engine around one
  bool accumulates_gradient = false;     // the node that stores a leaf's gradient
  std::vector<trace::Access> arguments;  // by position; past the end, or without a schema: read

  [[nodiscard]] trace::Access argument(std::size_t position) const noexcept {
    return position < arguments.size() ? arguments[position] : trace::Access::kRead;
  }
};

// The traits of the operator or autograd node that `function` runs; kept per thread and for the last
// few traces, so a known one costs one look-up by its name. The reference holds until the thread's
// next call.
[[nodiscard]] const OperatorTraits& traits_of(const at::RecordFunction& function,
                                              Recorder& recorder);

}  // namespace berth::torch
