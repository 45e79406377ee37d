#pragma once

#include "csrc/torch/step/record.h"

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

// What is asked of tensors and of the arguments of calls.
namespace berth::torch::step {

// The form of `value`, going by what it holds. Of one with memory of its own that is no tensor.
[[nodiscard]] Form form_of_held(const c10::IValue& value);
// The same of any.
[[nodiscard]] inline Form form_of(const c10::IValue& value) {
  if (value.isTensor()) return Form::kTensor;
  return value.isPtrType() ? form_of_held(value) : Form::kValue;
}

// The last `count` values of `stack`: a call's arguments, or its results.
[[nodiscard]] inline c10::ArrayRef<c10::IValue> last_of(const c10::Stack& stack,
                                                        std::size_t count) {
  return c10::ArrayRef<c10::IValue>(stack.data() + (stack.size() - count), count);
}

// Calls visit(const at::Tensor&) for each tensor of `value`, undefined ones among them, which stand
// for gaps.
template <typename Visit>
void for_each_tensor(const c10::IValue& value, Form form, const Visit& visit) {
  const at::Tensor none;
  if (form == Form::kTensor) {
    visit(value.isTensor() ? value.toTensor() : none);
  } else if (form == Form::kNested) {
    value.visit([&](const c10::IValue& one) {
      if (one.isTensor()) visit(one.toTensor());
      return false;
    });
  } else if (form != Form::kValue) {
    for (const c10::IValue& element : value.toListRef())
      visit(element.isTensor() ? element.toTensor() : none);
  }
}

// Why no step program may have this tensor: not plain memory, or contents that its shape does not
// tell; empty where it may.
[[nodiscard]] std::string_view why_refused(const at::Tensor& tensor);

// Whether it is one of those that barriers may have all the same: sparse or quantized.
[[nodiscard]] bool is_opaque(const at::Tensor& tensor);

// The operand that `tensor` is, apart from its storage's number. Requires: defined, not refused.
[[nodiscard]] Operand describe(const at::Tensor& tensor, StorageNumber storage);
// Whether `tensor` is that operand, apart from its storage, and from its offset where it moves.
[[nodiscard]] bool matches(const at::Tensor& tensor, const Operand& operand);

// Calls visit(c10::Device) for each device of a call's arguments but the CPU, maybe more than once.
template <typename Visit>
void for_each_device(c10::ArrayRef<c10::IValue> values, const Visit& visit) {
  const auto see = [&](c10::Device one) {
    if (!one.is_cpu() && !one.is_meta()) visit(one);
  };
  for (const c10::IValue& value : values) {
    if (value.isDevice()) see(value.toDevice());
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined()) see(tensor.device());
    });
  }
}

// How often its bytes were written, as autograd counts it; 0 where autograd does not.
[[nodiscard]] inline std::uint32_t version_of(const at::Tensor& tensor) {
  const c10::VariableVersion& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

// A tensor that is that part of `storage`.
[[nodiscard]] at::Tensor make_tensor(c10::Storage storage, const Operand& operand,
                                     c10::DispatchKeySet keys);
// The keys of a plain tensor on a device.
[[nodiscard]] c10::DispatchKeySet plain_keys(c10::Device device);
// A plain tensor of all bytes of `storage`.
[[nodiscard]] at::Tensor all_bytes(c10::Storage storage);

// Whether it is a call of that operator with tensors of the same shapes and types: cheap, and not
// all.
[[nodiscard]] bool resembles(const Call& call, const c10::OperatorHandle& op,
                             c10::ArrayRef<c10::IValue> arguments);
// Whether the call goes to a dispatch mode of the program's in Python, which may do anything. Those
// by which libtorch traces are none.
[[nodiscard]] bool is_under_mode();
// Whether the call is none of the step's.
enum class Passes : std::uint8_t {
  kNot,
  kTraced,    // by torch.compile, or one is without memory (meta): nothing real is done
  kForOthers  // its tensors stand for others (DTensor): the calls on those are the step's
};
[[nodiscard]] Passes passes(c10::ArrayRef<c10::IValue> arguments);

// What passes() and CurrentStreams look at in a call, by one walk over its arguments.
struct Survey {
  bool under_modes = false;         // a dispatch mode in Python is set
  bool stands_for_others = false;   // a tensor does
  bool plain = false;               // a tensor has memory
  bool meta = false, real = false;  // a tensor or a device is meta; a device is not
  c10::Device device = c10::kCPU;   // the first one but the CPU and meta, if any
};
[[nodiscard]] Survey survey(c10::ArrayRef<c10::IValue> arguments);
[[nodiscard]] Passes passes(const Survey& arguments);

// Where a kernel that takes these values works: the first device among them that is not the CPU.
[[nodiscard]] c10::Device device_of(c10::ArrayRef<c10::IValue> values);

// Whether two values that are no tensors are the same, to the bit.
[[nodiscard]] bool same_value(const c10::IValue& a, const c10::IValue& b);
// Whether the value is one that a record can keep: a number, text, type, device, generator, or
// lists of those.
[[nodiscard]] bool is_plain_value(const c10::IValue& value);
// Whether a record can keep all that a call takes: its tensors are not in lists of lists.
[[nodiscard]] bool can_be_kept(c10::ArrayRef<c10::IValue> arguments);

}  // namespace berth::torch::step
