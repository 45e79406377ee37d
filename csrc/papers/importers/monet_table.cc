#include "csrc/papers/importers/monet_table.h"

#include "csrc/core/check.h"

#include <array>
#include <cmath>

namespace berth::graph {
namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 50;
constexpr std::size_t kMostAlternatives = 64;

double number(const Json& value, const std::string& whose) {
  BERTH_CHECK(value.is_number() && std::abs(value.get<double>()) < 1e12, kInput, "{} is no number",
              whose);
  return value.get<double>();
}

std::vector<MonetAlternative> alternatives(const Json& node, const char* ms, const char* workspaces,
                                           const std::string& whose) {
  const Json& times = member(node, ms, whose);
  const Json& sizes = member(node, workspaces, whose);
  BERTH_CHECK(times.is_array() && sizes.is_array() && times.size() == sizes.size() &&
                  !times.empty() && times.size() <= kMostAlternatives,
              kInput, "{} has {} times and {} workspaces", whose, times.size(), sizes.size());
  std::vector<MonetAlternative> found;
  for (std::size_t k = 0; k < times.size(); ++k)
    found.push_back({number(times[k], whose), number(sizes[k], whose)});
  return found;
}

MonetNode::Kind kind_of(const Json& node, const std::string& whose) {
  constexpr std::array<const char*, 4> kNames = {"fwd", "int", "loss", "bwd"};
  const Json& kind = member(node, "kind", whose);
  for (std::size_t k = 0; k < kNames.size(); ++k)
    if (kind == kNames[k]) return static_cast<MonetNode::Kind>(k);
  throw Error(ErrorKind::kInput, fmt::format("{} is of kind {}", whose, kind.dump().substr(0, 40)));
}

MonetNode read_node(const Json& node, std::size_t k) {
  const std::string whose = fmt::format("node {}", k);
  const auto before = [&](const Json& value) {
    const std::uint64_t found = whole(value, MonetTable::kMostNodes, whose);
    BERTH_CHECK(found < k, kInput, "{} names node {}, which is not before it", whose, found);
    return static_cast<std::size_t>(found);
  };
  MonetNode one;
  one.kind = kind_of(node, whose);
  const Json& op = member(node, "op", whose);
  BERTH_CHECK(op.is_string(), kInput, "the name of {} is no text", whose);
  one.op = op.get<std::string>();
  one.out_bytes = whole(member(node, "out_bytes", whose), kMostBytes, whose);
  one.fixed_bytes = whole(member(node, "fixed_bytes", whose), kMostBytes, whose);
  one.local_bytes = whole(member(node, "local_bytes", whose), kMostBytes, whose);
  const Json& lists = member(node, "deps", whose);
  BERTH_CHECK(lists.is_array() && !lists.empty() && lists.size() <= kMostAlternatives, kInput,
              "{} has no list of what it reads", whose);
  for (const Json& list : lists) {
    BERTH_CHECK(list.is_array(), kInput, "{} has no list of what it reads", whose);
    std::vector<std::size_t>& reads = one.reads.emplace_back();
    for (const Json& read : list) reads.push_back(before(read));
  }
  one.alternatives = alternatives(node, "ms", "ws_mb", whose);
  one.algorithms = node.contains("conv");
  BERTH_CHECK(one.algorithms || one.alternatives.size() >= one.reads.size(), kInput,
              "{} has {} alternatives and {} lists of what they read", whose,
              one.alternatives.size(), one.reads.size());
  if (node.contains("re_ms")) one.again = alternatives(node, "re_ms", "re_ws_mb", whose);
  if (node.contains("inplace_over")) {
    one.over = before(node["inplace_over"]);
    one.in_place = alternatives(node, "ip_ms", "ip_ws_mb", whose);
  }
  if (node.contains("parent")) one.parent = before(node["parent"]);
  BERTH_CHECK((one.kind == MonetNode::Kind::kPart) == one.parent.has_value(), kInput,
              "{} has a parent and is no part of it, or the other way round", whose);
  return one;
}

}  // namespace

MonetTable read_monet_table(const Json& file, const Json& table) {
  MonetTable found;
  found.loss = whole(member(file, "loss_id", "the file"), MonetTable::kMostNodes, "loss_id");
  BERTH_CHECK(table.is_array() && table.size() <= MonetTable::kMostNodes &&
                  found.loss + 1 < table.size() && found.loss > 0,
              kInput, "a table of {} nodes with the loss at {}", table.size(), found.loss);
  for (const Json& node : table) {
    found.nodes.push_back(read_node(node, found.nodes.size()));
    const bool backward = found.nodes.back().kind == MonetNode::Kind::kBackward;
    BERTH_CHECK(backward == (found.nodes.size() - 1 > found.loss), kInput,
                "node {} is on the wrong side of the loss, node {}", found.nodes.size() - 1,
                found.loss);
  }
  return found;
}

}  // namespace berth::graph
