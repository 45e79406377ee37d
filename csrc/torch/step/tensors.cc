#include "csrc/torch/step/tensors.h"

#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace berth::torch::step {

Form form_of_held(const c10::IValue& value) {
  if (value.isTensorList()) return Form::kTensors;
  if (value.isOptionalTensorList()) return Form::kOptionalTensors;
  if (!value.isList() && !value.isTuple() && !value.isGenericDict()) [[likely]]
    return Form::kValue;
  // Of numbers, most often.
  if (value.isList() && (value.toListRef().empty() || !value.toListRef().front().isPtrType()))
    return Form::kValue;
  bool nested = false;
  value.visit([&](const c10::IValue& one) { return nested |= one.isTensor(); });
  return nested ? Form::kNested : Form::kValue;
}

// The keys that tensors have of which none is refused below for its keys.
constexpr c10::DispatchKeySet kPlain =
    c10::DispatchKeySet(c10::DispatchKey::Dense) |
    c10::DispatchKeySet(c10::DispatchKeySet::RAW, c10::full_backend_mask) |
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

std::string_view why_refused(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  if (kPlain.isSupersetOf(impl.key_set()) && impl.has_storage() &&
      !impl.has_symbolic_sizes_strides()) [[likely]]
    return {};
  if (impl.layout() != at::kStrided || tensor.is_nested()) return "is no dense tensor";
  if (!impl.has_storage()) return "has no storage";
  if (impl.is_python_dispatch()) return "is a tensor subclass with a dispatch of its own";
  if (impl.has_symbolic_sizes_strides()) return "has symbolic sizes";
  if (tensor.is_quantized()) return "is quantized";
  if (tensor._is_zerotensor()) return "is a tensor of zeros without memory";
  if (impl.key_set().has(c10::DispatchKey::FuncTorchBatched)) return "is inside of vmap";
  // Kernels give them to their results.
  if (tensor.has_names()) return "has names of its dimensions";
  return {};
}

bool is_opaque(const at::Tensor& tensor) {
  if (!tensor.defined()) return false;
  const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  return !impl.is_python_dispatch() && !tensor.is_nested() && !impl.is_meta() &&
         (impl.layout() != at::kStrided || tensor.is_quantized());
}

Operand describe(const at::Tensor& tensor, StorageNumber storage) {
  Operand operand;
  operand.storage = storage;
  operand.offset = tensor.storage_offset();
  operand.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  operand.strides.assign(tensor.strides().begin(), tensor.strides().end());
  operand.type = tensor.dtype();
  operand.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  operand.conjugate = tensor.is_conj();
  operand.negative = tensor.is_neg();
  return operand;
}

bool matches(const at::Tensor& tensor, const Operand& operand) {
  const auto same_shape = [&] {
    return (operand.moves || tensor.storage_offset() == operand.offset) &&
           tensor.sizes() == c10::IntArrayRef(operand.sizes) &&
           tensor.strides() == c10::IntArrayRef(operand.strides);
  };
  return tensor.dtype() == operand.type &&
         (operand.varies ? tensor.sizes().size() == operand.sizes.size() : same_shape()) &&
         tensor.unsafeGetTensorImpl()->is_wrapped_number() == operand.wrapped_number &&
         // mutant: step-conjugate
         tensor.is_conj() == operand.conjugate && tensor.is_neg() == operand.negative;
}

at::Tensor make_tensor(c10::Storage storage, const Operand& operand, c10::DispatchKeySet keys) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, operand.type);
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(operand.sizes, operand.strides, operand.offset);
  if (operand.wrapped_number) impl.set_wrapped_number(true);
  if (operand.conjugate) impl._set_conj(true);
  if (operand.negative) impl._set_neg(true);
  return tensor;
}

c10::DispatchKeySet plain_keys(c10::Device device) {
  return c10::DispatchKeySet(c10::computeDispatchKey(std::nullopt, at::kStrided, device));
}

at::Tensor all_bytes(c10::Storage storage) {
  Operand all;
  all.sizes = {static_cast<std::int64_t>(storage.nbytes())};
  all.strides = {1};
  all.type = caffe2::TypeMeta::Make<std::uint8_t>();
  const c10::DispatchKeySet keys = plain_keys(storage.device());
  return make_tensor(std::move(storage), all, keys);
}

bool resembles(const Call& call, const c10::OperatorHandle& op,
               c10::ArrayRef<c10::IValue> arguments) {
  if (&call.op.schema() != &op.schema()) return false;
  std::size_t operand = 0;
  bool alike = true;
  for (std::size_t n = 0; n < arguments.size() && alike; ++n) {
    if (call.arguments[n].form == Form::kValue) continue;
    if (form_of(arguments[n]) != call.arguments[n].form) return false;
    for_each_tensor(arguments[n], call.arguments[n].form, [&](const at::Tensor& tensor) {
      if (operand == call.operands.size()) {
        alike = false;
        return;
      }
      const Operand& one = call.operands[operand++];
      if (one.opaque) {
        alike = alike && is_opaque(tensor);
        return;
      }
      alike = alike && tensor.defined() == (one.storage != kNoStorage) &&
              (!tensor.defined() || (why_refused(tensor).empty() && matches(tensor, one)));
    });
  }
  return alike;
}

namespace {

// Of modes that are set.
bool is_traced() {
  using c10::impl::TorchDispatchModeKey;
  using c10::impl::TorchDispatchModeTLS;
  for (const auto key :
       {TorchDispatchModeKey::FAKE, TorchDispatchModeKey::PROXY, TorchDispatchModeKey::FUNCTIONAL})
    if (TorchDispatchModeTLS::get_mode(key)) return true;
  return false;
}

}  // namespace

bool is_under_mode() {
  // Where modes are disabled they stay on their stack.
  return c10::impl::TorchDispatchModeTLS::any_modes_set(/*skip_infra_modes=*/true) &&
         c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Python) &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python) && !is_traced();
}

Survey survey(c10::ArrayRef<c10::IValue> arguments) {
  Survey found;
  found.under_modes = c10::impl::TorchDispatchModeTLS::any_modes_set();
  const auto see = [&](c10::Device one) {
    if (found.device.is_cpu() && !one.is_meta()) found.device = one;
  };
  const auto see_tensor = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    const c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
    const bool meta = impl.is_meta();
    found.stands_for_others |= impl.is_python_dispatch();
    found.meta |= meta;
    found.plain |= !meta && impl.has_storage();
    see(impl.device());
  };
  for (const c10::IValue& value : arguments) {
    if (value.isTensor()) [[likely]] {
      see_tensor(value.toTensor());
    } else if (value.isDevice()) {
      const c10::Device device = value.toDevice();
      (device.is_meta() ? found.meta : found.real) = true;
      see(device);
    } else {
      for_each_tensor(value, form_of(value), see_tensor);
    }
  }
  return found;
}

Passes passes(c10::ArrayRef<c10::IValue> arguments) { return passes(survey(arguments)); }

Passes passes(const Survey& arguments) {
  const auto& [under_modes, stands_for_others, plain, meta, real, device] = arguments;
  // Modes of the program's may make what is asked of them, draws among it.
  const bool traced = under_modes && is_traced();
  if (traced) return stands_for_others || !plain ? Passes::kTraced : Passes::kNot;
  if (stands_for_others && is_under_mode()) return Passes::kTraced;
  // Kernels of meta tensors look at no bytes, also not at those of others that they take.
  if (meta && !real && !stands_for_others) return Passes::kTraced;
  if (!stands_for_others) return Passes::kNot;
  // In a kernel of a fake tensor calls do not go to Python: they are about its sizes.
  return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python) ? Passes::kTraced
                                                                           : Passes::kForOthers;
}

bool is_plain_value(const c10::IValue& value) {
  if (value.isNone() || value.isBool() || value.isInt() || value.isDouble() ||
      value.isComplexDouble() || value.isString() || value.isDevice() || value.isGenerator() ||
      value.isStream())
    return true;
  if (!value.isList()) return false;
  const auto elements = value.toListRef();
  return std::all_of(elements.begin(), elements.end(), is_plain_value);
}

bool can_be_kept(c10::ArrayRef<c10::IValue> arguments) {
  return std::all_of(arguments.begin(), arguments.end(), [](const c10::IValue& value) {
    const Form form = form_of(value);
    return form != Form::kNested && (form != Form::kValue || is_plain_value(value));
  });
}

c10::Device device_of(c10::ArrayRef<c10::IValue> values) {
  c10::Device found = at::kCPU;
  const auto see = [&](c10::Device one) {
    if (found.is_cpu()) found = one;
  };
  for (const c10::IValue& value : values) {
    if (value.isDevice()) see(value.toDevice());
    for_each_tensor(value, form_of(value), [&](const at::Tensor& tensor) {
      if (tensor.defined()) see(tensor.device());
    });
  }
  return found;
}

bool same_value(const c10::IValue& a, const c10::IValue& b) {
  if (a.isInt()) return b.isInt() && a.toInt() == b.toInt();
  if (a.isNone()) return b.isNone();
  if (a.isBool()) return b.isBool() && a.toBool() == b.toBool();
  if (a.isDouble())
    return b.isDouble() &&
           std::bit_cast<std::uint64_t>(a.toDouble()) == std::bit_cast<std::uint64_t>(b.toDouble());
  if (a.isComplexDouble()) return b.isComplexDouble() && a.toComplexDouble() == b.toComplexDouble();
  if (a.isString()) return b.isString() && a.toStringRef() == b.toStringRef();
  if (a.isDevice()) return b.isDevice() && a.toDevice() == b.toDevice();
  if (a.isGenerator()) return b.isGenerator() && a.toGenerator() == b.toGenerator();
  if (a.isStream()) return b.isStream() && a.toStream() == b.toStream();
  if (!a.isList() || !b.isList()) return false;
  const auto left = a.toListRef(), right = b.toListRef();
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), same_value);
}

}  // namespace berth::torch::step
