#pragma once

#include "csrc/schedule/order/problem.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

// The door to OLLA's integer program, which is a library of its own (csrc/papers/oracle): who
// links that calls use_olla(), and nobody else carries the solver.
namespace berth::schedule {

struct OllaSettings {
  std::uint64_t seed = 0;
  std::uint64_t nodes = 0;  // of the search tree, 0: no limit
  double seconds = 0;       // that are left
  Order start;              // an order that is known: it is the first solution
};

struct OllaEvents {
  std::function<void(Order)> found;       // a legal order, perhaps better than the last
  std::function<bool(Bytes bound)> stop;  // asked often: no order's peak is lower; stop?
};

struct OllaResult {
  Bytes bound = 0;          // no order's peak is lower
  std::uint64_t nodes = 0;  // visited
};

// Its bound is its own: what the other engines prove is not told to it, so that it can judge them.
struct OllaEngine {
  // More are refused: columns and rows grow with operators times values.
  static constexpr std::size_t kMaxNodes = 60, kMaxValues = 1000;

  // Why it cannot be asked here: what is missing and how to get it. Nothing where it can.
  const std::optional<std::string>& (*unavailable)();
  // `problem` was derived. Throws Error(kUsage) where it is unavailable, and for more than
  // kMaxNodes operators or kMaxValues values that differ in maker or readers.
  OllaResult (*solve)(const OrderProblem& problem, const OllaSettings& settings,
                      const OllaEvents& events);
};

// From now on the engine `olla` is this, which stays for ever. Any thread, any number of times.
void set_olla_engine(const OllaEngine& engine) noexcept;

// The one that was set, else one whose unavailable() says how to get it.
[[nodiscard]] const OllaEngine& olla_engine() noexcept;

}  // namespace berth::schedule
