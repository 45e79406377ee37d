#include "csrc/schedule/order/problem.h"

#include "csrc/core/check.h"

#include <algorithm>
#include <functional>
#include <queue>

namespace berth::schedule {
namespace {

void sort_unique(std::vector<Node>& nodes) {
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
}

}  // namespace

void OrderProblem::derive() {
  const auto check_node = [this](Node node, const auto& whose) {
    BERTH_CHECK(node < nodes.size(), kInput, "{} names node {}, there are {}", whose(), node,
                nodes.size());
  };
  for (NodeOf& node : nodes) {
    node.makes.clear();
    node.reads.clear();
    node.before.clear();
    node.after.clear();
    node.made = node.workspace;
  }
  Bytes sum = constant;
  const auto add = [&sum](Bytes bytes, const auto& whose) {
    BERTH_CHECK(bytes <= kMaxBytes && sum <= kMaxBytes - bytes, kInput,
                "with the {} bytes of {} all sizes together are above {}", bytes, whose(),
                kMaxBytes);
    sum += bytes;
  };
  for (std::size_t n = 0; n < nodes.size(); ++n)
    add(nodes[n].workspace, [&] { return fmt::format("node {}", n); });
  for (Value v = 0; v < values.size(); ++v) {
    ValueOf& value = values[v];
    const auto whose = [v] { return fmt::format("value {}", v); };
    add(value.bytes, whose);
    sort_unique(value.readers);
    if (value.maker != kNoNode) {
      check_node(value.maker, whose);
      nodes[value.maker].makes.push_back(v);
      nodes[value.maker].made += value.bytes;
    }
    for (const Node reader : value.readers) {
      check_node(reader, whose);
      nodes[reader].reads.push_back(v);
      if (value.maker == kNoNode) continue;
      BERTH_CHECK(reader != value.maker, kInput, "node {} reads value {}, which it makes", reader,
                  v);
      nodes[value.maker].after.push_back(reader);
      nodes[reader].before.push_back(value.maker);
    }
  }
  for (const auto& [earlier, later] : control) {
    const auto whose = [] { return std::string("a control edge"); };
    check_node(earlier, whose);
    check_node(later, whose);
    nodes[earlier].after.push_back(later);
    nodes[later].before.push_back(earlier);
  }
  for (NodeOf& node : nodes) {
    sort_unique(node.before);
    sort_unique(node.after);
  }
  const std::vector<Node> order = first_order();
  if (order.size() == nodes.size()) return;
  std::vector<bool> placed(nodes.size(), false);
  for (const Node node : order) placed[node] = true;
  const auto stuck = std::find(placed.begin(), placed.end(), false) - placed.begin();
  throw Error(ErrorKind::kInput,
              fmt::format("node {} lies on a cycle, or behind one: no order is possible", stuck));
}

std::vector<Node> OrderProblem::first_order() const {
  std::vector<std::size_t> missing(nodes.size());
  std::priority_queue<Node, std::vector<Node>, std::greater<>> ready;
  for (Node n = 0; n < nodes.size(); ++n) {
    missing[n] = nodes[n].before.size();
    if (missing[n] == 0) ready.push(n);
  }
  std::vector<Node> order;
  order.reserve(nodes.size());
  while (!ready.empty()) {
    const Node node = ready.top();
    ready.pop();
    order.push_back(node);
    for (const Node next : nodes[node].after)
      if (--missing[next] == 0) ready.push(next);
  }
  return order;
}

std::string OrderProblem::violation(std::span<const Node> order) const {
  if (order.size() != nodes.size())
    return fmt::format("the order has {} nodes, the graph {}", order.size(), nodes.size());
  std::vector<bool> done(nodes.size(), false);
  for (const Node node : order) {
    if (node >= nodes.size()) return fmt::format("there is no node {}", node);
    if (done[node]) return fmt::format("node {} is there twice", node);
    for (const Node before : nodes[node].before)
      if (!done[before]) return fmt::format("node {} comes before node {}", node, before);
    done[node] = true;
  }
  return {};
}

OrderProblem order_problem(const StepOperators& operators) {
  OrderProblem problem;
  problem.nodes.resize(operators.workspaces.size());
  for (Node n = 0; n < problem.nodes.size(); ++n)
    problem.nodes[n].workspace = operators.workspaces[n];
  problem.values = operators.values;
  problem.control = operators.control;
  problem.constant = operators.resident;
  problem.derive();
  return problem;
}

std::vector<Bytes> live_bytes(const OrderProblem& problem, std::span<const Node> order) {
  std::vector<std::size_t> readers_left(problem.values.size());
  Bytes live = problem.constant;
  for (Value v = 0; v < problem.values.size(); ++v) {
    const OrderProblem::ValueOf& value = problem.values[v];
    readers_left[v] = value.readers.size();
    if (value.maker == kNoNode && !value.readers.empty()) live += value.bytes;
  }
  std::vector<Bytes> profile;
  profile.reserve(order.size());
  for (const Node n : order) {
    const OrderProblem::NodeOf& node = problem.nodes[n];
    profile.push_back(live + node.made);
    for (const Value v : node.makes)
      if (readers_left[v] != 0) live += problem.values[v].bytes;
    for (const Value v : node.reads)
      if (--readers_left[v] == 0) live -= problem.values[v].bytes;
  }
  return profile;
}

Bytes peak_of(const OrderProblem& problem, std::span<const Node> order) {
  const std::vector<Bytes> profile = live_bytes(problem, order);
  return profile.empty() ? problem.constant : *std::max_element(profile.begin(), profile.end());
}

}  // namespace berth::schedule
