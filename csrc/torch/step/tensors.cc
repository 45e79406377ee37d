#include "csrc/torch/step/tensors.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/facts/operator_kinds.h"
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/program.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/jit_type.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <functional>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>

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
  if (tensor.is_conj() || tensor.is_neg()) return "is conjugate or negated by a flag";
  if (tensor._is_zerotensor()) return "is a tensor of zeros without memory";
  if (impl.key_set().has(c10::DispatchKey::FuncTorchBatched)) return "is inside of vmap";
  return {};
}

Operand describe(const at::Tensor& tensor, StorageNumber storage) {
  Operand operand;
  operand.storage = storage;
  operand.offset = tensor.storage_offset();
  operand.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  operand.strides.assign(tensor.strides().begin(), tensor.strides().end());
  operand.type = tensor.dtype();
  operand.wrapped_number = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  return operand;
}

bool matches(const at::Tensor& tensor, const Operand& operand) {
  return (operand.moves || tensor.storage_offset() == operand.offset) &&
         tensor.dtype() == operand.type && tensor.sizes() == c10::IntArrayRef(operand.sizes) &&
         tensor.strides() == c10::IntArrayRef(operand.strides) &&
         tensor.unsafeGetTensorImpl()->is_wrapped_number() == operand.wrapped_number;
}

at::Tensor make_tensor(c10::Storage storage, const Operand& operand, c10::DispatchKeySet keys) {
  at::Tensor tensor =
      at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, operand.type);
  c10::TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  impl.set_sizes_and_strides(operand.sizes, operand.strides, operand.offset);
  if (operand.wrapped_number) impl.set_wrapped_number(true);
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

namespace {

// Other arguments that are written without a word in the schema, as BERTH_CHECK=full has found.
struct HiddenWrite {
  std::string_view name, argument;
};
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::mkldnn_rnn_layer_backward", "workspace"},
};

// Operators whose numbers decide about shapes.
bool shaped_by_numbers(std::string_view name) {
  return name.starts_with("aten::arange") || name.starts_with("aten::range") ||
         name.starts_with("aten::upsample") || name.starts_with("aten::_upsample");
}

bool is_number(const c10::Type& type) {
  return type.kind() == c10::TypeKind::NumberType || type.kind() == c10::TypeKind::FloatType ||
         type.kind() == c10::TypeKind::ComplexType;
}

// Draws that move their generator on as shapes say, whatever the arguments hold.
constexpr std::array<std::string_view, 22> kDrawsByShape = {
    "aten::_scaled_dot_product_cudnn_attention",
    "aten::_scaled_dot_product_efficient_attention",
    "aten::_scaled_dot_product_flash_attention",
    "aten::bernoulli_",
    "aten::cauchy_",
    "aten::exponential_",
    "aten::geometric_",
    "aten::log_normal_",
    "aten::native_dropout",
    "aten::normal_",
    "aten::rand",
    "aten::rand_like",
    "aten::randint",
    "aten::randint_like",
    "aten::randn",
    "aten::randn_like",
    "aten::random",
    "aten::random_",
    "aten::randperm",
    "aten::rrelu_with_noise",
    "aten::uniform",
    "aten::uniform_"};

// Operators that have the tag of draws and leave their generator as it is: attention on the CPU,
// whose kernel knows no dropout, and backward parts, which take the seed that the forward part
// gave.
constexpr std::array<std::string_view, 3> kDrawsNothing = {
    "aten::_scaled_dot_product_cudnn_attention_backward",
    "aten::_scaled_dot_product_efficient_attention_backward",
    "aten::_scaled_dot_product_flash_attention_for_cpu"};

bool same_arguments(const c10::FunctionSchema& schema, const c10::FunctionSchema& other) {
  const auto& arguments = schema.arguments();
  return other.arguments().size() >= arguments.size() &&
         std::equal(arguments.begin(), arguments.end(), other.arguments().begin(),
                    [](const c10::Argument& a, const c10::Argument& b) {
                      return a.name() == b.name() && *a.type() == *b.type();
                    });
}

// Its form in place multiplies the number by the tensor, for which kernels of 16 bits do not round
// the number.
constexpr std::string_view kWithoutTwins = "aten::mul.Scalar";

// The operator of that name, where it has kernels of its own.
std::optional<c10::OperatorHandle> find_twin(std::string name, std::string overload) {
  const auto found =
      c10::Dispatcher::singleton().findSchema({std::move(name), std::move(overload)});
  return found && !found->hasTag(at::Tag::generated) ? found : std::nullopt;
}

void find_twins(const c10::OperatorHandle& op, OperatorFacts& facts) {
  const c10::FunctionSchema& schema = op.schema();
  const auto is_tensor = [](const c10::Argument& one) {
    return one.type()->kind() == c10::TypeKind::TensorType;
  };
  if (!op.hasTag(at::Tag::pointwise) || facts.random ||
      c10::toString(op.operator_name()) == kWithoutTwins || schema.arguments().empty() ||
      !is_tensor(schema.arguments().front()) || schema.returns().size() != 1 ||
      !is_tensor(schema.returns().front()))
    return;
  const auto& [name, overload] = op.operator_name();
  if (auto twin = find_twin(name + '_', overload);
      twin && same_arguments(schema, twin->schema()) &&
      twin->schema().arguments().size() == schema.arguments().size())
    facts.in_place = std::move(twin);
  for (const std::string& form : {std::string("out"), overload + "_out", std::string("grad_input"),
                                  std::string("out_mode")}) {
    auto twin = find_twin(name, form);
    if (!twin || !same_arguments(schema, twin->schema()) ||
        twin->schema().arguments().size() != schema.arguments().size() + 1 ||
        !twin->schema().arguments().back().is_out())
      continue;
    facts.out = std::move(twin);
    return;
  }
}

OperatorFacts find_facts(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = op.operator_name().name;
  const std::size_t arguments = schema.arguments().size();
  facts.writes.resize(arguments);
  facts.scalars.resize(arguments);
  facts.aside.resize(arguments);
  bool writes = false;
  for (std::size_t n = 0; n < arguments; ++n) {
    const c10::Argument& argument = schema.arguments()[n];
    const c10::AliasInfo* const alias = argument.alias_info();
    facts.writes[n] = alias != nullptr && alias->isWrite();
    writes |= facts.writes[n];
    const c10::Type* type = argument.type().get();
    if (const auto* optional = type->castRaw<c10::OptionalType>())
      type = optional->getElementType().get();
    if (const auto* list = type->castRaw<c10::ListType>()) type = list->getElementType().get();
    facts.scalars[n] = is_number(*type) && !shaped_by_numbers(name);
  }
  for (const facts::RunningStatistics& known : facts::kWithStatistics) {
    // Overloads may have none.
    if (name != known.name || arguments <= facts::kRunningVariance ||
        schema.arguments()[facts::kRunningMean].name() != "running_mean")
      continue;
    for (const std::size_t argument : {facts::kRunningMean, facts::kRunningVariance}) {
      facts.aside[argument] = true;
      facts.writes[argument] = facts.writes[argument] || known.writes;
    }
    facts.training = known.training;
  }

  for (const HiddenWrite& known : kHiddenWrites)
    for (std::size_t n = 0; name == known.name && n < arguments; ++n)
      // mutant: step-hidden-rnn
      if (schema.arguments()[n].name() == known.argument) facts.writes[n] = true;

  facts.view = is_view_by_schema(op);
  facts.random = op.hasTag(at::Tag::nondeterministic_seeded) &&
                 std::find(kDrawsNothing.begin(), kDrawsNothing.end(), name) == kDrawsNothing.end();
  facts.draws_by_shape =
      std::find(kDrawsByShape.begin(), kDrawsByShape.end(), name) != kDrawsByShape.end() &&
      op.operator_name().overload_name != "Tensor";
  facts.shows_bytes = name == kReadBytes;
  facts.records_stream = name == "aten::record_stream";
  facts.host_read =
      facts.shows_bytes || facts.records_stream || op.hasTag(at::Tag::data_dependent_output);
  facts.allocates = name == "aten::empty" || name == "aten::empty_strided" ||
                    name == "aten::empty_like" || name == "aten::new_empty" ||
                    name == "aten::new_empty_strided";
  // In place: those that are named here, and draws; with a place for the result: all.
  const auto is_out = [](const c10::Argument& one) { return one.kwarg_only() && one.is_out(); };
  facts.fills = name == "aten::copy_" || name == "aten::fill_" || name == "aten::zero_" ||
                (facts.random && name.ends_with('_')) ||
                std::any_of(schema.arguments().begin(), schema.arguments().end(), is_out);
  facts.listwise = name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_");
  if (!writes && !facts.view) find_twins(op, facts);
  // Lists of numbers are as many and as large as in the record.
  facts.shapes_by_data =
      (op.hasTag(at::Tag::dynamic_output_shape) &&
       !(name == "aten::_ctc_loss" && op.operator_name().overload_name.empty())) ||
      name == "aten::_pack_padded_sequence";
  facts.reads_generators = name == kReadGenerators;
  facts.orders_streams = name == kOrderStreams;
  facts.compares = name == kCompareStorage;
  facts.sets_aside = name == kSetAside;
  facts.as_written = name == kRunAsWritten;
  facts.gives_bytes = name == "aten::set_";
  facts.fails = facts::fails_by_contents(c10::toString(op.operator_name()));
  if (name.starts_with("aten::set_") || name.starts_with("aten::resize_"))
    facts.refusal = "changes the bytes that a tensor has";
  else if (op.hasTag(at::Tag::inplace_view))
    facts.view = true;  // another shape over the same bytes
  return facts;
}

// Of one that nobody knows: it may write all that it takes.
OperatorFacts find_opaque_facts(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const std::size_t arguments = op.schema().arguments().size();
  const std::string_view name = op.operator_name().name;
  facts.opaque = true;
  facts.collective = name.starts_with("c10d::") || name.starts_with("_c10d_functional::");
  facts.wraps = name == "_c10d_functional::_wrap_tensor_autograd";
  facts.host_read = true;
  facts.shows_bytes = name == kShareBytes || name == kGivePointer;
  facts.resizes = name == kResizeStorage;
  facts.writes.resize(arguments, true);
  facts.scalars.resize(arguments);
  facts.aside.resize(arguments);
  return facts;
}

// Operators of torchvision that are pure, each with a test: their results' shapes are those of
// their arguments. The others are not here since data decide (nms), or they read files.
constexpr std::array<std::string_view, 10> kPure = {
    "torchvision::roi_align",     "torchvision::_roi_align_backward",
    "torchvision::roi_pool",      "torchvision::_roi_pool_backward",
    "torchvision::ps_roi_align",  "torchvision::_ps_roi_align_backward",
    "torchvision::ps_roi_pool",   "torchvision::_ps_roi_pool_backward",
    "torchvision::deform_conv2d", "torchvision::_deform_conv2d_backward",
};

// Names of operators that users have declared pure.
struct PureOperators {
  SetupMutex mutex;
  std::set<std::string, std::less<>> names;
  std::atomic<std::uint64_t> declared{0};  // so often
};
PureOperators& pure_operators() {
  static auto* const operators = new PureOperators;  // operators run in static destructors, too
  return *operators;
}

bool is_known(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  for (const std::string_view known :
       {kReadBytes, kReadGenerators, kOrderStreams, kCompareStorage, kSetAside, kRunAsWritten})
    if (name == known) return true;
  for (const std::string_view own : {"aten::", "prim::", "profiler::"})
    if (name.starts_with(own)) return true;
  if (std::find(kPure.begin(), kPure.end(), name) != kPure.end()) return true;
  PureOperators& pure = pure_operators();
  const std::lock_guard lock(pure.mutex);
  return pure.names.contains(name) || pure.names.contains(c10::toString(op.operator_name()));
}

}  // namespace

bool is_view_by_schema(const c10::OperatorHandle& op) {
  const auto writes = [](const c10::Argument& one) {
    return one.alias_info() != nullptr && one.alias_info()->isWrite();
  };
  const auto& arguments = op.schema().arguments();
  const auto& returns = op.schema().returns();
  return !returns.empty() && std::none_of(arguments.begin(), arguments.end(), writes) &&
         std::all_of(returns.begin(), returns.end(), [&](const c10::Argument& one) {
           return one.alias_info() != nullptr && !writes(one);
         });
}

const OperatorFacts& facts_of(const c10::OperatorHandle& op) {
  // An operator's schema stays where it is as long as it is registered.
  struct Known {
    std::uint64_t declared = 0;
    std::unordered_map<const c10::FunctionSchema*, OperatorFacts> facts;
  };
  thread_local Known known;
  if (const std::uint64_t declared = pure_operators().declared.load(std::memory_order_acquire);
      known.declared != declared) [[unlikely]] {
    known.declared = declared;
    std::erase_if(known.facts, [](const auto& one) { return one.second.opaque; });
  }
  const auto found = known.facts.find(&op.schema());
  if (found != known.facts.end()) [[likely]]
    return found->second;
  // mutant: barrier-opaque
  return known.facts.emplace(&op.schema(), is_known(op) ? find_facts(op) : find_opaque_facts(op))
      .first->second;
}

void declare_pure(std::string_view name) {
  PureOperators& pure = pure_operators();
  const std::lock_guard lock(pure.mutex);
  if (pure.names.emplace(name).second) pure.declared.fetch_add(1, std::memory_order_release);
}

std::string why_refused(const c10::OperatorHandle& op) { return facts_of(op).refusal; }

namespace {

// By schema: what schedules found out.
struct FoundOut {
  SetupMutex mutex;
  std::unordered_set<const c10::FunctionSchema*> shaped_by_data, failing;
  std::atomic<std::uint64_t> count{0};

  bool has(const std::unordered_set<const c10::FunctionSchema*>& of,
           const c10::OperatorHandle& op) {
    if (count.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard lock(mutex);
    return of.contains(&op.schema());
  }
  void add(std::unordered_set<const c10::FunctionSchema*>& to, const c10::OperatorHandle& op) {
    const std::lock_guard lock(mutex);
    if (to.insert(&op.schema()).second) count.fetch_add(1, std::memory_order_release);
  }
};
FoundOut& found_out() {
  static auto* const found = new FoundOut;  // operators run in static destructors, too
  return *found;
}

}  // namespace

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
      alike = alike && tensor.defined() == (one.storage != kNoStorage) &&
              (!tensor.defined() || (why_refused(tensor).empty() && matches(tensor, one)));
    });
  }
  return alike;
}

bool may_fail(const Call& call, bool on_host) {
  if (found_out().has(found_out().failing, call.op)) return true;
  const facts::Fails fails = facts_of(call.op).fails;
  bool integers = true;
  for (const Operand& one : call.operands) {
    if (one.storage == kNoStorage) continue;
    integers &= c10::isIntegralType(c10::typeMetaToScalarType(one.type), true);
  }
  return facts::may_fail(fails, on_host, integers);
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
  if (meta && !plain && !real && !stands_for_others) return Passes::kTraced;
  if (!stands_for_others) return Passes::kNot;
  // In a kernel of a fake tensor calls do not go to Python: they are about its sizes.
  return c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Python) ? Passes::kTraced
                                                                           : Passes::kForOthers;
}

void note_shapes_by_data(const c10::OperatorHandle& op) {
  found_out().add(found_out().shaped_by_data, op);
}
void note_fails(const c10::OperatorHandle& op) { found_out().add(found_out().failing, op); }
std::uint64_t operators_found_out() { return found_out().count.load(std::memory_order_acquire); }

bool is_still_true(const Program& program) {
  return std::all_of(program.calls.begin(), program.calls.end(), [](const Call& call) {
    const bool at_call = call.barrier || call.by_body;
    return (at_call || !found_out().has(found_out().shaped_by_data, call.op)) &&
           (at_call || call.checked || call.host_read ||
            !found_out().has(found_out().failing, call.op));
  });
}

bool is_barrier(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const OperatorFacts& facts = facts_of(op);
  // A mode of Python's sees what kernels do.
  if (facts.opaque || c10::impl::TorchDispatchModeTLS::any_modes_set() ||
      found_out().has(found_out().shaped_by_data, op))
    return true;
  if (!facts.shapes_by_data) return false;
  const std::string& name = op.operator_name().name;
  bool fixed = false;
  if (name == "aten::index") {
    fixed = true;  // but for masks
    for_each_tensor(arguments[1], form_of(arguments[1]), [&](const at::Tensor& index) {
      fixed = fixed && (!index.defined() ||
                        (index.scalar_type() != at::kBool && index.scalar_type() != at::kByte));
    });
  } else if (name == "aten::repeat_interleave") {
    fixed = !arguments.back().isNone();  // how many there will be
  }
  return !fixed;
}

bool makes_view(const OperatorFacts& facts, c10::ArrayRef<c10::IValue> arguments) {
  if (!facts.gives_bytes || !arguments.front().isTensor() || is_under_mode()) return false;
  const at::Tensor& tensor = arguments.front().toTensor();
  if (!tensor.defined() || !tensor.has_storage() || tensor.layout() != at::kStrided) return false;
  if (arguments.size() < 5) return true;
  // A storage that is too small would grow.
  const c10::IValue& source = arguments[1];
  const c10::Storage storage = source.isTensor() ? source.toTensor().storage() : source.toStorage();
  if (!arguments[2].isInt() || !arguments[3].isIntList() || !arguments[4].isIntList()) return false;
  const auto offset = static_cast<std::size_t>(arguments[2].toInt());
  const std::vector<std::int64_t> sizes = arguments[3].toIntVector();
  const std::vector<std::int64_t> strides = arguments[4].toIntVector();
  const std::size_t item = tensor.itemsize();
  const std::size_t bytes = strides.size() == sizes.size()
                                ? at::detail::computeStorageNbytes(sizes, strides, item, offset)
                                : at::detail::computeStorageNbytesContiguous(sizes, item, offset);
  return bytes <= storage.nbytes();
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
