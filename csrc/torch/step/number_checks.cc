#include "csrc/torch/step/number_checks.h"

#include "csrc/torch/step/tensors.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

namespace berth::torch::step {

namespace {

// By name, without what says that they work in place or on lists: these take every number that the
// types hold. What draws refuse is seen by may_refuse_numbers().
constexpr std::array<std::string_view, 62> kTakeAll = {"__and__",
                                                       "__or__",
                                                       "__xor__",
                                                       "add",
                                                       "addbmm",
                                                       "addcdiv",
                                                       "addcmul",
                                                       "addmm",
                                                       "addmv",
                                                       "addr",
                                                       "atan2",
                                                       "baddbmm",
                                                       "bernoulli",
                                                       "bitwise_and",
                                                       "bitwise_or",
                                                       "bitwise_xor",
                                                       "cauchy",
                                                       "clamp",
                                                       "clamp_max",
                                                       "clamp_min",
                                                       "clip",
                                                       "constant_pad_nd",
                                                       "copysign",
                                                       "div",
                                                       "eq",
                                                       "fill",
                                                       "float_power",
                                                       "fmax",
                                                       "fmin",
                                                       "fmod",
                                                       "full",
                                                       "full_like",
                                                       "ge",
                                                       "gt",
                                                       "index_add",
                                                       "index_fill",
                                                       "le",
                                                       "leaky_relu",
                                                       "lerp",
                                                       "linspace",
                                                       "log_normal",
                                                       "logspace",
                                                       "lt",
                                                       "masked_fill",
                                                       "mul",
                                                       "nan_to_num",
                                                       "ne",
                                                       "new_full",
                                                       "normal",
                                                       "pow",
                                                       "randint",
                                                       "randint_like",
                                                       "random",
                                                       "remainder",
                                                       "rsub",
                                                       "scatter",
                                                       "sub",
                                                       "threshold",
                                                       "threshold_backward",
                                                       "uniform",
                                                       "where",
                                                       "xlogy"};
static_assert(std::is_sorted(kTakeAll.begin(), kTakeAll.end()));

// Of these, those that refuse zero or what is negative where a tensor holds integers.
constexpr std::array<std::string_view, 5> kNotOfIntegers = {"div", "float_power", "fmod", "pow",
                                                            "remainder"};

std::string_view base_of(std::string_view name) {
  const auto drop = [&](std::string_view start) {
    if (name.starts_with(start)) name.remove_prefix(start.size());
  };
  drop("aten::");
  drop("_foreach_");
  if (name.ends_with('_') && !name.ends_with("__")) name.remove_suffix(1);
  return name;
}

bool fits_integers(double number, at::ScalarType type) {
  const auto within = [&](auto least, auto most) {
    return number >= static_cast<double>(least) && number <= static_cast<double>(most);
  };
  switch (type) {
    case at::kByte:
      return within(0, 255);
    case at::kChar:
      return within(-128, 127);
    case at::kShort:
      return within(-32768, 32767);
    case at::kInt:
      return within(std::numeric_limits<std::int32_t>::min(),
                    std::numeric_limits<std::int32_t>::max());
    case at::kLong:  // the largest double below 2^63
      return number >= -0x1p63 && number < 0x1p63;
    default:  // unsigned ones, quantized ones and others that few programs have
      return within(0, 127);
  }
}

bool fits(double number, at::ScalarType type) {
  if (type == at::kBool) return true;
  if (at::isIntegralType(type, false)) return fits_integers(number, type);
  if (!std::isfinite(number)) return at::isFloatingType(type) || at::isComplexType(type);
  switch (c10::toRealValueType(type)) {
    case at::kDouble:
      return true;
    case at::kFloat:
    case at::kBFloat16:
      // What is rounded up to more than the largest one is not far below it.
      return std::abs(number) <= 0x1.fep127;
    case at::kHalf:
      return std::abs(number) <= 65504;
    default:  // eight bits
      return std::abs(number) <= 57344 && type == at::kFloat8_e5m2 ? true : std::abs(number) <= 240;
  }
}

// Kinds of numbers that an operator may tell apart.
enum class NumberKind : std::uint8_t { kNone, kZero, kPositive, kNegative, kInfinite };

NumberKind number_kind(double number) {
  if (std::isnan(number)) return NumberKind::kNone;
  if (std::isinf(number)) return NumberKind::kInfinite;
  return number == 0  ? NumberKind::kZero
         : number > 0 ? NumberKind::kPositive
                      : NumberKind::kNegative;
}

}  // namespace

bool may_refuse_number(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments,
                       std::size_t n, const c10::IValue& recorded) {
  bool integers = false;
  std::vector<at::ScalarType> types;
  const auto note = [&](at::ScalarType type) {
    integers |= at::isIntegralType(type, true);
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  for (std::size_t one = 0; one < arguments.size(); ++one) {
    for_each_tensor(arguments[one], form_of(arguments[one]), [&](const at::Tensor& tensor) {
      if (tensor.defined()) note(tensor.scalar_type());
    });
    if (op.schema().arguments()[one].name() == "dtype" && arguments[one].isInt())
      note(static_cast<at::ScalarType>(arguments[one].toInt()));
  }
  const std::string_view name = base_of(op.schema().name());
  if (name == "roll") return false;  // elements go round as often as it takes
  const bool takes_all = op.schema().name().starts_with("aten::_fused_") ||
                         (std::binary_search(kTakeAll.begin(), kTakeAll.end(), name) &&
                          !(integers && std::find(kNotOfIntegers.begin(), kNotOfIntegers.end(),
                                                  name) != kNotOfIntegers.end()));
  const auto may_refuse = [&](const c10::IValue& now, const c10::IValue& then) {
    if (now.isBool()) return false;
    // Of a complex number no kernel that is known asks more than of a real one.
    const c10::complex<double> number = now.toScalar().toComplexDouble();
    const c10::complex<double> before = then.toScalar().toComplexDouble();
    const auto part = [&](double one, double other) {
      return (!takes_all && number_kind(one) != number_kind(other)) ||
             std::any_of(types.begin(), types.end(),
                         [&](at::ScalarType type) { return !fits(one, type); });
    };
    return part(number.real(), before.real()) ||
           (number.imag() != before.imag() && part(number.imag(), before.imag()));
  };
  const c10::IValue& now = arguments[n];
  if (now.isScalar()) return may_refuse(now, recorded);
  if (!now.isList() || !recorded.isList()) return true;
  const auto numbers = now.toListRef(), before = recorded.toListRef();
  for (std::size_t one = 0; one < numbers.size(); ++one)
    if (!numbers[one].isScalar() || may_refuse(numbers[one], before[one])) return true;
  return false;
}

bool same_kinds_of_numbers(const Call& a, const Call& b) {
  const auto same = [](const c10::IValue& one, const c10::IValue& other) {
    if (!one.isScalar() || !other.isScalar() || one.isBool()) return true;
    const c10::complex<double> now = one.toScalar().toComplexDouble();
    const c10::complex<double> before = other.toScalar().toComplexDouble();
    return number_kind(now.real()) == number_kind(before.real()) &&
           number_kind(now.imag()) == number_kind(before.imag());
  };
  for (std::size_t n = 0; n < a.arguments.size(); ++n) {
    const Argument &one = a.arguments[n], &other = b.arguments[n];
    if (!one.scalar || one.any) continue;
    if (!one.value.isList() || !other.value.isList()) {
      if (!same(one.value, other.value)) return false;
      continue;
    }
    const auto numbers = one.value.toListRef(), others = other.value.toListRef();
    if (!std::equal(numbers.begin(), numbers.end(), others.begin(), others.end(), same))
      return false;
  }
  return true;
}

}  // namespace berth::torch::step
