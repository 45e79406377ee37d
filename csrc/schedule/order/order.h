#pragma once

#include "csrc/schedule/order/problem.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace berth::schedule {

struct OrderProgress {
  double seconds = 0;
  Bytes peak = 0;  // best so far
  Bytes bound = 0;
  std::string engine;  // that found it
};

struct OrderOptions {
  // One of order_engines(): "auto" runs them one after the other until the gap is 0.
  std::string engine = "auto";
  double time_limit_seconds = 10;  // infinity: none
  // Moves of annealing and executed sets of the exact search (nodes of the integer program's tree),
  // each; 0: as many as there is time for, in rounds. With a budget and no time limit the result
  // depends on the seed alone.
  std::uint64_t iteration_budget = 0;
  std::uint64_t seed = 1;
  const std::atomic<bool>* cancel = nullptr;  // set by any thread: the best so far is returned
  std::function<void(const OrderProgress&)> progress = {};  // from the calling thread
  Order given = {};  // an order that is there already, or empty: the result is never worse
};

struct OrderResult {
  Order order;
  Bytes peak = 0, bound = 0;  // no order's peak is below the bound
  Bytes given_peak = 0;       // of OrderOptions::given, else of the order by number
  bool proven_optimal = false;
  std::string engine;  // that found it
  double seconds = 0;
  std::uint64_t moves = 0, flows = 0, sets = 0;  // sets: by "olla" the nodes of its tree

  [[nodiscard]] double gap() const noexcept {
    return bound == 0 ? 0.0 : static_cast<double>(peak) / static_cast<double>(bound) - 1.0;
  }
};

// Finds an order whose peak is low, with a bound that says how far from the least it can be. Always
// returns a legal order, never worse than the given one and the best constructive one that the time
// was enough for. `problem` was derived. Throws Error(kUsage) for an unknown engine, a given order
// that is none, and more than kMostOrdered nodes: their ancestors are a table of 128 MiB.
inline constexpr std::size_t kMostOrdered = std::size_t{1} << 15;
[[nodiscard]] OrderResult plan_order(const OrderProblem& problem, const OrderOptions& options = {});

// "auto" first, then "given", "constructive", "descent", "anneal", "exact" and "olla", which is
// there once use_olla() was called (berth/schedule_ilp.h), for few operators.
[[nodiscard]] const std::vector<std::string>& order_engines();

}  // namespace berth::schedule
