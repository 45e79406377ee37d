#include "csrc/standin/nccl/reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace berth::standin {
namespace {

// Of ncclDataType_t.
enum Type : int {
  kInt8,
  kUint8,
  kInt32,
  kUint32,
  kInt64,
  kUint64,
  kHalf,
  kFloat,
  kDouble,
  kBfloat16,
  kFloat8E4M3,
  kFloat8E5M2,
};

// The two floating-point types of 16 bits, by the bits of a float.
struct Half {
  std::uint16_t bits;

  operator double() const {
    const int exponent = bits >> 10 & 31;
    const int fraction = bits & 1023;
    double value = 0;
    if (exponent == 31) {
      value = fraction != 0 ? std::nan("") : HUGE_VAL;
    } else {
      value =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(fraction + 1024, exponent - 25);
    }
    return (bits & 0x8000) != 0 ? -value : value;
  }
  static Half of(double value) {
    const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    if (std::isnan(value)) return {0x7e00};
    if (size >= 65520) return {static_cast<std::uint16_t>(sign | 0x7c00)};
    // In steps of the last bit; std::nearbyint rounds to even.
    const int exponent = size < 0x1p-14 ? -14 : std::ilogb(size);
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 10 - exponent)));
    return {static_cast<std::uint16_t>(sign + ((exponent + 14) << 10) + steps)};
  }
};

struct Bfloat16 {
  std::uint16_t bits;

  operator double() const {
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
  }
  static Bfloat16 of(double value) {
    const auto wide = std::bit_cast<std::uint32_t>(static_cast<float>(value));
    if (std::isnan(value)) return {0x7fc0};
    return {static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
};

template <class Element>
constexpr bool kHasFraction = !std::is_integral_v<Element>;

// Calls `use` with an element of the type.
template <class Use>
void with_type(int type, Use use) {
  switch (type) {
    case kInt8:
      return use(std::int8_t{});
    case kUint8:
      return use(std::uint8_t{});
    case kInt32:
      return use(std::int32_t{});
    case kUint32:
      return use(std::uint32_t{});
    case kInt64:
      return use(std::int64_t{});
    case kUint64:
      return use(std::uint64_t{});
    case kHalf:
      return use(Half{});
    case kFloat:
      return use(float{});
    case kDouble:
      return use(double{});
    case kBfloat16:
      return use(Bfloat16{});
    default:
      return;
  }
}

template <class Element>
Element load(const std::byte* elements, std::size_t i) {
  Element element;
  std::memcpy(&element, elements + i * sizeof element, sizeof element);
  return element;
}

template <class Element, class Wide>
void store(std::byte* elements, std::size_t i, Wide value) {
  Element element;
  if constexpr (std::is_class_v<Element>) {
    element = Element::of(value);
  } else {
    element = static_cast<Element>(value);
  }
  std::memcpy(elements + i * sizeof element, &element, sizeof element);
}

// Whole numbers are kept as 64 bits with the sign of their type; sums and products wrap.
std::int64_t wrapped(std::uint64_t number) { return static_cast<std::int64_t>(number); }

template <class Wide>
Wide combined(Reduction reduction, Wide a, Wide b) {
  using Number = std::conditional_t<std::is_same_v<Wide, std::int64_t>, std::uint64_t, Wide>;
  const auto x = static_cast<Number>(a);
  const auto y = static_cast<Number>(b);
  switch (reduction) {
    case Reduction::kProduct:
      return static_cast<Wide>(x * y);
    case Reduction::kMax:
      return std::max(a, b);
    case Reduction::kMin:
      return std::min(a, b);
    case Reduction::kSum:
    case Reduction::kAverage:
      break;
  }
  return static_cast<Wide>(x + y);
}

}  // namespace

std::size_t element_bytes(int type) {
  constexpr std::size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < static_cast<int>(std::size(kBytes)) ? kBytes[type] : 0;
}

void Reducer::add(const std::byte* elements, std::size_t count) {
  const bool first = ranks_++ == 0;
  if (type_ == kFloat8E4M3 || type_ == kFloat8E5M2) {
    if (first) bytes_.assign(elements, elements + count);
    return;
  }
  with_type(type_, [&](auto example) {
    using Element = decltype(example);
    const auto add_to = [&](auto& sums) {
      using Wide = typename std::remove_reference_t<decltype(sums)>::value_type;
      if (first) sums.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<Wide>(load<Element>(elements, i));
        sums[i] = first ? value : combined(reduction_, sums[i], value);
      }
    };
    if constexpr (kHasFraction<Element>) {
      add_to(fractions_);
    } else if (std::is_same_v<Element, std::uint64_t> &&
               (reduction_ == Reduction::kMax || reduction_ == Reduction::kMin)) {
      // Shifted so that the order of signed numbers is theirs.
      constexpr std::uint64_t kShift = std::uint64_t{1} << 63;
      if (first) integers_.resize(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto value = wrapped(load<std::uint64_t>(elements, i) ^ kShift);
        integers_[i] = first ? value : combined(reduction_, integers_[i], value);
      }
    } else {
      add_to(integers_);
    }
  });
}

void Reducer::finish(std::byte* result) {
  std::copy(bytes_.begin(), bytes_.end(), result);
  with_type(type_, [&](auto example) {
    using Element = decltype(example);
    const int divisor = reduction_ == Reduction::kAverage ? std::max(ranks_, 1) : 1;
    if constexpr (kHasFraction<Element>) {
      for (std::size_t i = 0; i < fractions_.size(); ++i)
        store<Element>(result, i, fractions_[i] / divisor);
    } else {
      const bool shifted = std::is_same_v<Element, std::uint64_t> &&
                           (reduction_ == Reduction::kMax || reduction_ == Reduction::kMin);
      for (std::size_t i = 0; i < integers_.size(); ++i) {
        auto value = static_cast<std::uint64_t>(integers_[i]);
        if (shifted) value ^= std::uint64_t{1} << 63;
        if constexpr (std::is_same_v<Element, std::uint64_t>) {
          store<Element>(result, i, value / static_cast<std::uint64_t>(divisor));
        } else {
          store<Element>(result, i, wrapped(value) / divisor);
        }
      }
    }
  });
  ranks_ = 0;
  fractions_.clear();
  integers_.clear();
  bytes_.clear();
}

void multiply(int type, std::byte* elements, std::size_t count, const std::byte* factor) {
  with_type(type, [&](auto example) {
    using Element = decltype(example);
    using Wide = std::conditional_t<kHasFraction<Element>, double, std::int64_t>;
    const auto by = static_cast<Wide>(load<Element>(factor, 0));
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<Wide>(load<Element>(elements, i));
      store<Element>(elements, i, combined(Reduction::kProduct, value, by));
    }
  });
}

}  // namespace berth::standin
