#include "csrc/graph/graph.h"

#include "csrc/core/check.h"
#include "csrc/graph/edges.h"

#include <algorithm>
#include <map>

namespace berth::graph {
namespace {

// The first operator that no order can run; nothing where there is none.
std::optional<OperatorId> on_cycle(std::size_t operators,
                                   const std::vector<std::pair<OperatorId, OperatorId>>& order) {
  std::vector<std::size_t> missing(operators, 0), first(operators + 1, 0);
  for (const auto& [earlier, later] : order) {
    ++missing[later];
    ++first[earlier + 1];
  }
  for (std::size_t k = 0; k < operators; ++k) first[k + 1] += first[k];
  std::vector<OperatorId> ready;
  for (OperatorId op = 0; op < operators; ++op)
    if (missing[op] == 0) ready.push_back(op);
  for (std::size_t done = 0; done < ready.size(); ++done)
    for (std::size_t k = first[ready[done]]; k < first[ready[done] + 1]; ++k)
      if (--missing[order[k].second] == 0) ready.push_back(order[k].second);
  if (ready.size() == operators) return std::nullopt;
  for (OperatorId op = 0; op < operators; ++op)
    if (missing[op] != 0) return op;
  return std::nullopt;
}

class Check {
 public:
  explicit Check(const Graph& graph) : graph_(graph) {}

  void run() const {
    BERTH_CHECK(graph_.operators.size() <= Graph::kMaxOperators, kInput,
                "a graph of {} operators, the most is {}", graph_.operators.size(),
                Graph::kMaxOperators);
    BERTH_CHECK(graph_.storages.size() <= Graph::kMaxStorages, kInput,
                "a graph of {} storages, the most is {}", graph_.storages.size(),
                Graph::kMaxStorages);
    Bytes sum = 0;
    for (StorageId s = 0; s < graph_.storages.size(); ++s)
      add(sum, graph_.storages[s].bytes, "storage", s);
    for (OperatorId op = 0; op < graph_.operators.size(); ++op) check(op, sum);
    for (const auto& [earlier, later] : graph_.control) {
      const OperatorId most = std::max(earlier, later);
      BERTH_CHECK(most < graph_.operators.size(), kInput,
                  "a control edge names operator {}, there are {}", most, graph_.operators.size());
    }
    check_order();
    const Edges edges = edges_of(graph_);
    check_versions(edges);
    const auto stuck = on_cycle(graph_.operators.size(), edges.order);
    BERTH_CHECK(!stuck, kInput, "operator {} ({}) lies on a cycle, or behind one", *stuck,
                graph_.operators[*stuck].name);
  }

 private:
  static void add(Bytes& sum, Bytes bytes, const char* what, std::size_t number) {
    BERTH_CHECK(bytes <= kMaxBytes && sum <= kMaxBytes - bytes, kInput,
                "with the {} bytes of {} {} all sizes together are above {}", bytes, what, number,
                kMaxBytes);
    sum += bytes;
  }

  void check_value(OperatorId op, ValueId value) const {
    BERTH_CHECK(value.storage < graph_.storages.size(), kInput,
                "operator {} ({}) names storage {}, there are {}", op, graph_.operators[op].name,
                value.storage, graph_.storages.size());
  }

  void check(OperatorId number, Bytes& sum) const {
    const Operator& op = graph_.operators[number];
    BERTH_CHECK(!op.alternatives.empty() && op.alternatives.size() <= Graph::kMaxAlternatives,
                kInput, "operator {} ({}) has {} alternatives, 1 to {} are legal", number, op.name,
                op.alternatives.size(), Graph::kMaxAlternatives);
    BERTH_CHECK(!op.forward || *op.forward < graph_.operators.size(), kInput,
                "operator {} ({}) takes the gradient of operator {}, there are {}", number, op.name,
                *op.forward, graph_.operators.size());
    for (const Alternative& one : op.alternatives) {
      add(sum, one.workspace, "operator", number);
      for (const Read& read : one.reads) {
        check_value(number, read.value);
        const Bytes size = graph_.storages[read.value.storage].bytes;
        BERTH_CHECK(read.offset <= size && read.bytes <= size - read.offset, kInput,
                    "operator {} ({}) reads bytes {} to {} of storage {}, which has {}", number,
                    op.name, read.offset, read.offset + read.bytes, read.value.storage, size);
      }
      for (const auto& [from, to] : one.in_place) {
        check_value(number, from);
        check_value(number, to);
      }
      std::map<StorageId, std::uint32_t> versions;
      for (const ValueId& written : one.writes) {
        check_value(number, written);
        BERTH_CHECK(versions.emplace(written.storage, written.version).second, kInput,
                    "operator {} ({}) makes two versions of storage {}", number, op.name,
                    written.storage);
        BERTH_CHECK(
            written.version > 0, kInput,
            "operator {} ({}) makes version 0 of storage {}: that was there before the step",
            number, op.name, written.storage);
      }
      for (const Read& read : one.reads) {
        const auto made = versions.find(read.value.storage);
        BERTH_CHECK(made == versions.end() || made->second != read.value.version, kInput,
                    "operator {} ({}) reads version {} of storage {}, which it makes", number,
                    op.name, read.value.version, read.value.storage);
      }
    }
  }

  void check_order() const {
    if (graph_.order.empty()) return;
    std::vector<bool> there(graph_.operators.size(), false);
    for (const OperatorId op : graph_.order) {
      BERTH_CHECK(op < there.size() && !there[op], kInput,
                  "the recorded order names operator {} twice, or there is none", op);
      there[op] = true;
    }
    BERTH_CHECK(graph_.order.size() == there.size(), kInput,
                "the recorded order has {} operators of {}", graph_.order.size(), there.size());
  }

  // Versions count up by one.
  static void check_versions(const Edges& edges) {
    std::optional<ValueId> before;
    for (const auto& [value, made] : edges.values) {
      const bool first = !before || before->storage != value.storage;
      BERTH_CHECK(first ? value.version <= 1 : value.version == before->version + 1, kInput,
                  "storage {} has version {} and none before it", value.storage, value.version);
      before = value;
    }
  }

  const Graph& graph_;
};

}  // namespace

std::string violation(const Graph& graph) {
  try {
    Check(graph).run();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

}  // namespace berth::graph
