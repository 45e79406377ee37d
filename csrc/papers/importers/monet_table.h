#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/json.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace berth::graph {

// One way to run an operator, as MONeT's authors measured it. A negative time: it cannot be had. A
// negative workspace: what it takes over is more than what it needs.
struct MonetAlternative {
  double ms = 0;
  double workspace_mib = 0;
};

struct MonetNode {
  // kPart: a further result of `parent` that only some backward alternatives read, a mask of bits
  // or the indices of a pooling.
  enum class Kind : std::uint8_t { kForward, kPart, kLoss, kBackward };
  Kind kind = Kind::kForward;
  std::string op;
  Bytes out_bytes = 0;
  Bytes fixed_bytes = 0;  // weights, and gradients of weights so far
  Bytes local_bytes = 0;  // what must be alive beside it
  // What each alternative reads, at least one; all are nodes before this one.
  std::vector<std::vector<std::size_t>> reads;
  // One an alternative; where `algorithms`, one an algorithm of the only one. Where it is run
  // again, and in place of `over`: empty where the file says nothing of it.
  std::vector<MonetAlternative> alternatives, again, in_place;
  bool algorithms = false;
  std::optional<std::size_t> over, parent;
};

// A table of costs out of a file of MONeT's schedule zoo.
struct MonetTable {
  static constexpr std::size_t kMostNodes = 16'384;
  std::size_t loss = 0;  // nodes up to here are forward, the others backward, in their order
  std::vector<MonetNode> nodes;
};

// `table` is one of the file's cost_variants. Throws Error(kInput) that names the node.
[[nodiscard]] MonetTable read_monet_table(const Json& file, const Json& table);

}  // namespace berth::graph
