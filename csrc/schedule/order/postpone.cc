#include "csrc/schedule/order/postpone.h"

#include "csrc/facts/rounding.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace berth::schedule {

namespace {

// A tensor of at most so many bytes counts as a number: no allocator rounds one up to more.
constexpr Bytes kNumber = facts::kCudaUnit;

bool changes_residents_alone(const OrderProblem& problem, const OrderProblem::NodeOf& node) {
  return node.makes.empty() && node.workspace <= kNumber &&
         std::all_of(node.reads.begin(), node.reads.end(), [&](Value value) {
           return problem.values[value].maker == kNoNode && problem.values[value].bytes <= kNumber;
         });
}

}  // namespace

Order postpone_changes(const OrderProblem& problem, std::span<const Node> order) {
  std::vector<std::size_t> position(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) position[order[p]] = p;
  std::vector<bool> waits(order.size(), false);
  Order late;
  late.reserve(order.size());
  std::vector<Node> due;
  // Those that wait and must run before the node, in the order that they had.
  const auto run_before = [&](Node node) {
    due.assign(1, node);
    for (std::size_t k = 0; k < due.size(); ++k)
      for (const Node earlier : problem.nodes[due[k]].before)
        if (waits[earlier]) {
          waits[earlier] = false;
          due.push_back(earlier);
        }
    std::sort(due.begin() + 1, due.end(),
              [&](Node a, Node b) { return position[a] < position[b]; });
    late.insert(late.end(), due.begin() + 1, due.end());
  };
  for (const Node node : order) {
    if (changes_residents_alone(problem, problem.nodes[node])) {
      waits[node] = true;
    } else {
      run_before(node);
      late.push_back(node);
    }
  }
  std::copy_if(order.begin(), order.end(), std::back_inserter(late),
               [&](Node node) { return waits[node]; });
  return late;
}

}  // namespace berth::schedule
