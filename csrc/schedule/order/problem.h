#pragma once

#include "csrc/core/bytes.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace berth::schedule {

using Node = std::uint32_t;
using Value = std::uint32_t;
inline constexpr Node kNoNode = std::numeric_limits<Node>::max();

// In which order to run the operators of a step so that the most bytes alive at one time are few.
// Plain data; derive() makes what follows from it.
//
// A value is alive from its maker's run to its last reader's, both included; without readers while
// its maker runs; without a maker from the beginning. A node's workspace is alive while it runs.
struct OrderProblem {
  struct ValueOf {
    Bytes bytes = 0;
    Node maker = kNoNode;
    std::vector<Node> readers;  // each once
  };
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

  // Fills in what is derived. Throws Error(kInput) that names the node or value for an index that is
  // out of range, a sum of sizes beyond kMaxBytes, and a cycle.
  void derive();
  // A topological order, by least number first (Kahn 1962). After derive().
  [[nodiscard]] std::vector<Node> first_order() const;
  // Why `order` is none of this problem; empty where it is. After derive().
  [[nodiscard]] std::string violation(std::span<const Node> order) const;
};

using Order = std::vector<Node>;

// Bytes alive while each step of an order runs, constant included. O(nodes + reads).
[[nodiscard]] std::vector<Bytes> live_bytes(const OrderProblem& problem,
                                            std::span<const Node> order);
// The most of them; the constant where there is no node.
[[nodiscard]] Bytes peak_of(const OrderProblem& problem, std::span<const Node> order);

}  // namespace berth::schedule
