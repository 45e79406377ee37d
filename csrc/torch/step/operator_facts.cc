#include "csrc/torch/step/operator_facts.h"

#include "csrc/core/setup_mutex.h"
#include "csrc/facts/filling.h"
#include "csrc/torch/step/byte_access.h"
#include "csrc/torch/step/program.h"

#include <berth/step_program.h>

#include <ATen/EmptyTensor.h>
#include <ATen/core/jit_type.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace berth::torch::step {

namespace {

// Other arguments that are written without a word in the schema, as BERTH_CHECK=full has found.
struct HiddenWrite {
  std::string_view name, argument;
};
constexpr std::array kHiddenWrites = {
    HiddenWrite{"aten::_cudnn_rnn_backward", "reserve"},
    HiddenWrite{"aten::miopen_rnn_backward", "reserve"},
    HiddenWrite{"aten::mkldnn_rnn_layer_backward", "workspace"},
};

// Composite operators of which libtorch's source (ATen/native/RNN.cpp) shows that they point to
// their argument `batch_sizes` alone. What they call makes all activations of a network.
constexpr std::array<std::string_view, 4> kPointToArguments = {"aten::gru", "aten::lstm",
                                                               "aten::rnn_relu", "aten::rnn_tanh"};

// Operators whose numbers decide about shapes.
bool shaped_by_numbers(std::string_view name) {
  return name.starts_with("aten::arange") || name.starts_with("aten::range") ||
         name.starts_with("aten::upsample") || name.starts_with("aten::_upsample");
}

bool is_number(const c10::Type& type) {
  return type.kind() == c10::TypeKind::NumberType || type.kind() == c10::TypeKind::FloatType ||
         type.kind() == c10::TypeKind::ComplexType;
}

// Integers that decide about no shape, by the operator and the argument.
bool is_free_integer(std::string_view name, std::string_view argument) {
  if (name == "aten::roll") return argument == "shifts";
  if (name != "aten::randint" && name != "aten::randint_like" && name != "aten::random_")
    return false;
  return argument == "low" || argument == "high" || argument == "from" || argument == "to";
}

// The range in which a type holds each integer exactly.
struct Integers {
  std::int64_t least = 0, most = 0;
};
Integers integers_of(at::ScalarType type) {
  constexpr auto up_to = [](int bits) {
    return Integers{-(std::int64_t{1} << bits), std::int64_t{1} << bits};
  };
  switch (type) {
    case at::kLong:
      return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
    case at::kInt:
      return {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()};
    case at::kShort:
      return {std::numeric_limits<std::int16_t>::min(), std::numeric_limits<std::int16_t>::max()};
    case at::kChar:
      return {-128, 127};
    case at::kByte:
      return {0, 255};
    case at::kBool:
      return {0, 1};
    case at::kDouble:
      return up_to(53);
    case at::kFloat:
      return up_to(24);
    case at::kHalf:
      return up_to(11);
    case at::kBFloat16:
      return up_to(8);
    default:
      return {};
  }
}

// Draws that move their generator on as shapes and numbers say, whatever tensors hold.
constexpr std::array<std::string_view, 21> kDrawsByShape = {
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
    // mutant: step-free-integer
    facts.scalars[n] =
        (is_number(*type) && !shaped_by_numbers(name)) || is_free_integer(name, argument.name());
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
      if (schema.arguments()[n].name() == known.argument)
        facts.writes[n] = facts.hides_writes = true;

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
  facts.allocates = facts::makes_room(name);
  // In place: those that are named here, and draws; with a place for the result: all.
  const auto is_out = [](const c10::Argument& one) { return one.kwarg_only() && one.is_out(); };
  facts.fills = facts::fills_in_place(name, facts.random) ||
                std::any_of(schema.arguments().begin(), schema.arguments().end(), is_out);
  facts.listwise = name.starts_with("aten::_foreach_") || name.starts_with("aten::_fused_");
  facts.points_to_arguments = std::find(kPointToArguments.begin(), kPointToArguments.end(), name) !=
                              kPointToArguments.end();
  if (!writes && !facts.view) find_twins(op, facts);
  // Lists of numbers are as many and as large as in the record.
  facts.shapes_by_data =
      (op.hasTag(at::Tag::dynamic_output_shape) &&
       !(name == "aten::_ctc_loss" && op.operator_name().overload_name.empty())) ||
      name == "aten::_pack_padded_sequence";
  facts.reads_generators = name == kReadGenerators;
  facts.seeds_generators = name == kSeedGenerators;
  facts.orders_streams = name == kOrderStreams;
  facts.compares = name == kCompareStorage;
  facts.sets_aside = name == kSetAside;
  facts.as_written = name == kRunAsWritten || name == kBeginProfile;
  // Of zeros without memory: what takes them gets some, where it looks at them (tap.cc).
  facts.wraps = name == "aten::_efficientzerotensor";
  facts.gives_bytes = name == "aten::set_";
  facts.fails = facts::fails_by_contents(c10::toString(op.operator_name()));
  if (name.starts_with("aten::set_"))
    facts.refusal = "changes the bytes that a tensor has";
  else if (op.hasTag(at::Tag::inplace_view) && !name.starts_with("aten::resize_"))
    facts.view = true;  // another shape over the same bytes
  return facts;
}

// Of one that nobody knows: it may write all that it takes.
OperatorFacts find_opaque_facts(const c10::OperatorHandle& op) {
  OperatorFacts facts;
  const std::size_t arguments = op.schema().arguments().size();
  const std::string_view name = op.operator_name().name;
  facts.opaque = true;
  facts.collective = facts::is_collective(name);
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

bool is_libtorchs(const c10::OperatorHandle& op) {
  const std::string_view name = op.schema().name();
  const auto has = [&](std::string_view own) { return name.starts_with(own); };
  return has("aten::") || has("prim::") || has("profiler::");
}

// Of berth's own there are some that do nothing but show what the body does.
bool is_berths(const c10::OperatorHandle& op) { return op.schema().name().starts_with("berth::"); }

bool is_known(const c10::OperatorHandle& op) {
  const std::string& name = op.operator_name().name;
  for (const std::string_view known : {kReadBytes, kReadGenerators, kSeedGenerators, kOrderStreams,
                                       kCompareStorage, kSetAside, kRunAsWritten, kBeginProfile})
    if (name == known) return true;
  if (is_libtorchs(op)) return true;
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
  OperatorFacts& facts =
      known.facts.emplace(&op.schema(), is_known(op) ? find_facts(op) : find_opaque_facts(op))
          .first->second;
  facts.declared = !facts.opaque && !is_libtorchs(op) && !is_berths(op);
  return facts;
}

void declare_pure(std::string_view name) {
  PureOperators& pure = pure_operators();
  const std::lock_guard lock(pure.mutex);
  if (pure.names.emplace(name).second) pure.declared.fetch_add(1, std::memory_order_release);
}

bool may_refuse_numbers(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  const std::string& name = op.schema().name();
  const bool integers =
      name == "aten::random_" || name == "aten::randint" || name == "aten::randint_like";
  std::int64_t low = 0, high = 1;
  double from = 0, to = 1;
  at::ScalarType type = at::kLong;
  for (std::size_t n = 0; n < arguments.size(); ++n) {
    const std::string& argument = op.schema().arguments()[n].name();
    const c10::IValue& value = arguments[n];
    const bool is_low = argument == "low" || argument == "from" || argument == "lower";
    const bool is_high = argument == "high" || argument == "to" || argument == "upper";
    if (value.isTensor()) type = value.toTensor().scalar_type();
    if (!value.isInt() && !value.isDouble()) continue;
    if (argument == "dtype") type = static_cast<at::ScalarType>(value.toInt());
    if (integers) {
      if (is_low) low = value.toInt();
      if (is_high) high = value.toInt();
      continue;
    }
    const double number = value.toScalar().toDouble();
    if (is_low) from = number;
    if (is_high) to = number;
    const bool positive = argument == "std" || argument == "lambd" || argument == "sigma";
    if (positive && !(number > 0 && std::isfinite(number))) return true;
    if ((argument == "p" || argument == "dropout_p") && !(number >= 0 && number <= 1)) return true;
    if (name == "aten::geometric_" && argument == "p" && !(number > 0 && number < 1)) return true;
  }
  if (integers) {
    const Integers of_type = integers_of(type);
    return low >= high || low < of_type.least || high - 1 > of_type.most;
  }
  // The largest number of the type that holds the fewest.
  constexpr double kMost = 65504;
  return !(from <= to && from >= -kMost && to <= kMost);
}

std::string why_refused(const c10::OperatorHandle& op) { return facts_of(op).refusal; }

namespace {

// By schema: what schedules found out, and kernels that came since.
struct FoundOut {
  SetupMutex mutex;
  std::unordered_set<const c10::FunctionSchema*> shaped_by_data, failing, overridden;
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
  void take_overridden(std::unordered_set<const c10::FunctionSchema*> all) {
    const std::lock_guard lock(mutex);
    overridden = std::move(all);
    count.fetch_add(1, std::memory_order_release);
  }
};
FoundOut& found_out() {
  static auto* const found = new FoundOut;  // operators run in static destructors, too
  return *found;
}

}  // namespace

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

// What libtorch says before the file in which a kernel was registered.
constexpr std::string_view kRegisteredAt = "registered at ";

// The folder that libtorch's sources were compiled in; empty where that is not said.
const std::string& sources_of_libtorch() {
  static const auto* const folder = new std::string([] {
    const auto op = c10::Dispatcher::singleton().findSchema({"aten::add", "Tensor"});
    const std::string all = op ? op->dumpState() : std::string();
    const std::size_t at = all.find(kRegisteredAt);
    const std::size_t end = all.find("build/aten/src", at);
    const std::size_t first = at + kRegisteredAt.size();
    return end == all.npos ? std::string() : all.substr(first, end - first);
  }());
  return *folder;
}

bool has_kernel_of_others(const c10::OperatorHandle& op) {
  constexpr std::array<std::string_view, 5> kKeys = {
      "CPU", "CUDA", "CompositeExplicitAutograd[alias]",
      "CompositeExplicitAutogradNonFunctional[alias]", "CompositeImplicitAutograd[alias]"};
  // A line for each kernel: its key, where it was registered, and what it takes. One that was
  // replaced is inactive; of one in Python nobody knows what it takes.
  const std::string registrations = op.dumpState();
  std::string_view left = registrations;
  while (!left.empty()) {
    const std::string_view line = left.substr(0, left.find('\n'));
    left.remove_prefix(std::min(left.size(), line.size() + 1));
    for (const std::string_view key : kKeys) {
      if (!line.starts_with(key)) continue;
      const std::string_view rest = line.substr(key.size());
      // mutant: barrier-overridden
      if (rest.starts_with(" (inactive): ")) return true;
      if (!rest.starts_with(": ")) continue;
      if (rest.find(" :: (none)") != rest.npos) return true;
      const std::size_t at = rest.find(kRegisteredAt);
      // mutant: barrier-added
      if (at != rest.npos &&
          !rest.substr(at + kRegisteredAt.size()).starts_with(sources_of_libtorch()))
        return true;
    }
  }
  return false;
}

// Operators that were asked for, and whether a kernel of theirs was not libtorch's when all of them
// were looked at last.
struct Asked {
  SetupMutex mutex;
  std::unordered_map<const c10::FunctionSchema*, std::pair<c10::OperatorHandle, bool>> operators;
  std::uint64_t libraries = 0;  // that were loaded when all were looked at last
  std::atomic<bool> came{false};
};
Asked& asked() {
  static auto* const all = new Asked;  // operators run in static destructors, too
  return *all;
}

// How many libraries the process has loaded in all.
std::uint64_t libraries_loaded() {
  std::uint64_t loaded = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* count) {
        *static_cast<std::uint64_t*>(count) = info->dlpi_adds;
        return 1;
      },
      &loaded);
  return loaded;
}

// Kernels come with a library that is loaded, or from Python. Under the lock.
void look_for_kernels(Asked& all) {
  const bool came = all.came.exchange(false);
  const std::uint64_t before = std::exchange(all.libraries, libraries_loaded());
  // mutant: barrier-loaded
  if (before == all.libraries && !came) return;
  std::unordered_set<const c10::FunctionSchema*> overridden;
  for (auto& [schema, one] : all.operators)
    if ((one.second = has_kernel_of_others(one.first))) overridden.insert(schema);
  found_out().take_overridden(std::move(overridden));
}

}  // namespace

bool is_overridden(const c10::OperatorHandle& op) {
  if (!is_libtorchs(op)) return false;
  Asked& all = asked();
  const std::lock_guard lock(all.mutex);
  look_for_kernels(all);
  const auto [at, is_new] = all.operators.try_emplace(&op.schema(), op, false);
  if (is_new) at->second.second = has_kernel_of_others(op);
  return at->second.second;
}

void note_shapes_by_data(const c10::OperatorHandle& op) {
  found_out().add(found_out().shaped_by_data, op);
}
void note_fails(const c10::OperatorHandle& op) { found_out().add(found_out().failing, op); }
std::uint64_t operators_found_out() {
  {
    Asked& all = asked();
    const std::lock_guard lock(all.mutex);
    look_for_kernels(all);
  }
  return found_out().count.load(std::memory_order_acquire);
}

std::uint64_t look_at_operators_anew() {
  asked().came = true;
  return operators_found_out();
}

bool is_still_true(const Program& program) {
  return std::all_of(program.calls.begin(), program.calls.end(), [](const Call& call) {
    const bool at_call = call.barrier || call.by_body;
    const auto has_others = [](const c10::OperatorHandle& op) {
      return found_out().has(found_out().overridden, op);
    };
    const bool others = has_others(call.op) || (call.twin && has_others(call.twin->op));
    // mutant: barrier-late
    if (!at_call && others) return false;
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

}  // namespace berth::torch::step

namespace berth::torch {

void note_kernels() noexcept { step::asked().came = true; }

}  // namespace berth::torch
