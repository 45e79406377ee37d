#pragma once

#include "csrc/core/bytes.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

// What to copy to the host and back, and what to recompute, so that a step fits a budget.
namespace berth::schedule::offload {

using Index = std::uint32_t;  // of an operator, in the order in which they run
using Value = std::uint32_t;
inline constexpr Index kNobody = std::numeric_limits<Index>::max();

// What the published rules ask about an operator.
enum class OperatorKind : std::uint8_t { kOther, kConvolution, kPooling, kActivation };

// A step in a fixed order: a forward part, then the rest. Plain data; derive() makes what follows
// from it. Times are nanoseconds, sizes bytes.
//
// A value is on the device from its maker's start (without a maker: from the beginning) to the end
// of its last use. One that is used on both sides of the border can leave the device between its
// last use before it and its first use after it.
struct Problem {
  struct OperatorOf {
    std::uint64_t ns = 0;
    Bytes workspace = 0;
    OperatorKind kind = OperatorKind::kOther;
    bool recomputable = false;  // it can run once more, after any operator that could want that
    // Derived.
    std::vector<Value> makes, reads;
  };
  struct ValueOf {
    Bytes bytes = 0;
    Index maker = kNobody;
    Index written =
        kNobody;  // the last that writes it in place, a reader, too; kNobody: only its maker
    std::vector<Index> readers;
    bool movable = true;  // it may leave the device
  };
  static constexpr std::uint64_t kMaxNs = std::uint64_t{1} << 60;  // all operators together
  static constexpr std::size_t kMostOperators = std::size_t{1} << 20;
  static constexpr std::size_t kMostValues = std::size_t{1} << 22;

  std::vector<OperatorOf> operators;
  std::vector<ValueOf> values;
  Index border = 0;    // the first operator of the backward part
  Bytes constant = 0;  // on the device all the time: residents

  // Fills in what is derived; readers get sorted. Throws Error(kInput) that names the operator or
  // value for an index out of range, a use before the maker, and sums beyond the limits.
  void derive();
};

// Between device and host, one engine each way. Bytes per second.
struct Machine {
  struct Rate {
    std::uint64_t alone = 12'000'000'000;
    std::uint64_t loaded = 12'000'000'000;  // while the other engine copies
  };
  Rate out, in;
  Bytes budget = 0;  // everything on the device, residents included; 0: none
  // Copies to the host begin when the last reader before the border has ended, not with its start:
  // the steps of a schedule say no more.
  bool out_behind_reader = false;
};
inline constexpr std::uint64_t kMostRate = 1'000'000'000'000'000;  // bytes per second

// Throws Error(kUsage) for a rate that is 0 or above kMostRate, or faster loaded than alone.
void check(const Machine& machine);

// ns to copy `bytes` at `rate`, rounded up. Below 2^62 for legal sizes and rates from 1 GB/s.
[[nodiscard]] std::uint64_t copy_ns(Bytes bytes, std::uint64_t rate) noexcept;

}  // namespace berth::schedule::offload
