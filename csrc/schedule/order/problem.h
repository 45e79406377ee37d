#pragma once

#include <berth/bytes.h>
#include <berth/schedule.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace berth::schedule {

using Node = std::uint32_t;
using Value = std::uint32_t;
inline constexpr Node kNoNode = kNoMaker;

// StepOperators as the engines want them: operators are nodes. Plain data; derive() makes what
// follows from it.
struct OrderProblem {
  using ValueOf = OrderValue;  // each reader once, after derive()
  struct NodeOf {
    Bytes workspace = 0;
    // Derived.
    std::vector<Value> makes, reads;
    std::vector<Node> before, after;  // nodes that must run earlier and later, each once, ascending
    Bytes made = 0;                   // workspace and values that it makes
  };

  std::vector<NodeOf> nodes;
  std::vector<ValueOf> values;
  std::vector<std::pair<Node, Node>> control;  // (earlier, later), without bytes
  Bytes constant = 0;                          // alive all the time: residents

  // Fills in what is derived. Throws Error(kInput) that names the node or value for an index that
  // is out of range, a sum of sizes beyond kMaxBytes, and a cycle.
  void derive();
  // A topological order, by least number first (Kahn 1962). After derive().
  [[nodiscard]] std::vector<Node> first_order() const;
  // Why `order` is none of this problem; empty where it is. After derive().
  [[nodiscard]] std::string violation(std::span<const Node> order) const;
};

// Derived. Throws as derive() does. O(edges).
[[nodiscard]] OrderProblem order_problem(const StepOperators& operators);

using Order = std::vector<Node>;

// Bytes alive while each step of an order runs, constant included. O(nodes + reads).
[[nodiscard]] std::vector<Bytes> live_bytes(const OrderProblem& problem,
                                            std::span<const Node> order);
// The most of them; the constant where there is no node.
[[nodiscard]] Bytes peak_of(const OrderProblem& problem, std::span<const Node> order);

}  // namespace berth::schedule
