#include "csrc/schedule/offload/from_graph.h"

#include "csrc/core/check.h"
#include "csrc/graph/edges.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <string_view>

namespace berth::schedule::offload {
namespace {

OperatorKind kind_of(std::string_view name) {
  std::string text(name.substr(0, name.find_first_of("(,")));
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const auto holds_any = [&text](auto... words) {
    return ((text.find(words) != std::string::npos) || ...);
  };
  if (holds_any("conv")) return OperatorKind::kConvolution;
  if (holds_any("pool")) return OperatorKind::kPooling;
  if (holds_any("relu", "gelu", "silu", "sigmoid", "tanh")) return OperatorKind::kActivation;
  return OperatorKind::kOther;
}

class Conversion {
 public:
  Conversion(const graph::Graph& graph, const std::vector<std::uint32_t>& choice)
      : graph_(graph), choice_(choice), edges_(graph::edges_of(graph, choice)) {}

  Problem run(std::vector<graph::OperatorId> order) {
    if (order.empty()) order = graph_.order;
    if (order.empty()) {
      order.resize(graph_.operators.size());
      std::iota(order.begin(), order.end(), graph::OperatorId{0});
    }
    find_places(order);
    problem_.operators.resize(order.size());
    problem_.border = static_cast<Index>(order.size());
    for (Index k = 0; k < order.size(); ++k) {
      const graph::Operator& op = graph_.operators[order[k]];
      problem_.operators[k].ns = chosen(order[k]).ns;
      problem_.operators[k].workspace = chosen(order[k]).workspace;
      problem_.operators[k].kind = kind_of(op.name);
      if (op.phase == graph::Phase::kBackward || op.phase == graph::Phase::kOptimizer)
        problem_.border = std::min(problem_.border, k);
    }
    add_values();
    problem_.derive();
    mark_recomputable(order);
    return std::move(problem_);
  }

 private:
  [[nodiscard]] const graph::Alternative& chosen(graph::OperatorId op) const {
    return graph_.operators[op].alternatives[choice_.empty() ? 0 : choice_[op]];
  }

  void find_places(const std::vector<graph::OperatorId>& order) {
    place_.assign(graph_.operators.size(), kNobody);
    for (Index k = 0; k < order.size(); ++k) {
      BERTH_CHECK(order[k] < place_.size() && place_[order[k]] == kNobody, kInput,
                  "the order names operator {} twice, or there is none", order[k]);
      place_[order[k]] = k;
    }
    BERTH_CHECK(order.size() == place_.size(), kInput, "the order has {} operators of {}",
                order.size(), place_.size());
    for (const auto& [earlier, later] : edges_.order)
      BERTH_CHECK(place_[earlier] < place_[later], kInput,
                  "operator {} comes before operator {} in the order", later, earlier);
  }

  // Values come by storage, then version.
  void add_values() {
    for (const auto& [id, made] : edges_.values) {
      const graph::Storage& storage = graph_.storages[id.storage];
      const bool first = id.version == (storage.kind == graph::StorageClass::kStep ? 1U : 0U);
      if (storage.kind == graph::StorageClass::kResident) {
        if (first) problem_.constant += storage.bytes;
        continue;
      }
      if (first) {
        problem_.values.emplace_back();
        problem_.values.back().bytes = storage.bytes;
        if (made.maker) problem_.values.back().maker = place_[*made.maker];
      }
      Problem::ValueOf& value = problem_.values.back();
      for (const graph::OperatorId reader : made.readers) value.readers.push_back(place_[reader]);
      if (first || !made.maker) continue;
      value.written = place_[*made.maker];
      value.readers.push_back(value.written);
      // What is written on both sides of the border has no copy that stays good.
      if (value.written >= problem_.border) value.movable = false;
    }
  }

  // Where the version that follows `id` is made; kNobody: nowhere.
  [[nodiscard]] Index overwritten_at(graph::ValueId id) const {
    const auto next = edges_.values.find({id.storage, id.version + 1});
    return next == edges_.values.end() ? kNobody : place_[*next->second.maker];
  }

  void mark_recomputable(const std::vector<graph::OperatorId>& order) {
    std::vector<Index> wanted_until(order.size(), 0);
    for (Index k = static_cast<Index>(order.size()); k-- > 0;) {
      const graph::Operator& op = graph_.operators[order[k]];
      Index until = 0;
      for (const Value v : problem_.operators[k].makes)
        for (const Index reader : problem_.values[v].readers) {
          until = std::max(until, reader);
          if (problem_.operators[reader].recomputable)
            until = std::max(until, wanted_until[reader]);
        }
      wanted_until[k] = until;
      const graph::Alternative& one = chosen(order[k]);
      problem_.operators[k].recomputable =
          k < problem_.border && !op.traits.only_once() && !one.writes.empty() &&
          std::all_of(one.writes.begin(), one.writes.end(),
                      [&](const graph::ValueId& id) {
                        return graph_.storages[id.storage].kind == graph::StorageClass::kStep &&
                               id.version == 1 && overwritten_at(id) == kNobody;
                      }) &&
          std::all_of(one.reads.begin(), one.reads.end(), [&](const graph::Read& read) {
            const Index at = overwritten_at(read.value);
            return at == kNobody || at > until;
          });
    }
  }

  const graph::Graph& graph_;
  const std::vector<std::uint32_t>& choice_;
  const graph::Edges edges_;
  std::vector<Index> place_;
  Problem problem_;
};

}  // namespace

Problem from_graph(const graph::Graph& graph, const std::vector<graph::OperatorId>& order,
                   const std::vector<std::uint32_t>& choice) {
  return Conversion(graph, choice).run(order);
}

std::vector<graph::StorageId> storages_of_values(const graph::Graph& graph,
                                                 const std::vector<std::uint32_t>& choice) {
  std::vector<graph::StorageId> storages;
  for (const auto& [id, made] : graph::edges_of(graph, choice).values)
    if (graph.storages[id.storage].kind != graph::StorageClass::kResident &&
        (storages.empty() || storages.back() != id.storage))
      storages.push_back(id.storage);
  return storages;
}

}  // namespace berth::schedule::offload
