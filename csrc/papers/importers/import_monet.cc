// Graphs of MONeT's schedule zoo, as ours.
#include "csrc/core/check.h"
#include "csrc/graph/json.h"
#include "csrc/papers/importers/importers.h"
#include "csrc/papers/importers/monet_table.h"

#include <algorithm>
#include <cmath>

namespace berth::graph {
namespace {

using Kind = MonetNode::Kind;

// In the unit of the published objective, 10 microseconds, each operator rounded up.
std::uint64_t ns_of(double ms) {
  return static_cast<std::uint64_t>(std::ceil(std::round(ms * 100 * 1e7) / 1e7)) * 10'000;
}

class MonetImporter {
 public:
  explicit MonetImporter(const MonetTable& table) : table_(table), values_(table.nodes.size()) {}

  Graph run() {
    if (const Bytes weights = table_.nodes[0].fixed_bytes; weights != 0)
      (void)add_storage(weights, StorageClass::kResident, trace::RoleKind::kParameter);
    for (std::size_t k = 0; k < table_.nodes.size(); ++k)
      if (table_.nodes[k].kind != Kind::kPart) add_operator(k);
    if (!gradients_.empty()) add_update();
    return std::move(graph_);
  }

 private:
  StorageId add_storage(Bytes bytes, StorageClass kind, trace::RoleKind role) {
    graph_.storages.push_back({bytes, kind, role});
    return static_cast<StorageId>(graph_.storages.size() - 1);
  }
  [[nodiscard]] Read read_of(ValueId value) const {
    return {value, 0, graph_.storages[value.storage].bytes};
  }

  void add_operator(std::size_t k) {
    const MonetNode& node = table_.nodes[k];
    Operator op;
    op.name = node.op;
    op.phase = node.kind == Kind::kBackward ? Phase::kBackward
               : node.kind == Kind::kLoss   ? Phase::kLoss
                                            : Phase::kForward;
    std::vector<ValueId> writes;
    if (node.out_bytes != 0) {
      values_[k] = {add_storage(node.out_bytes, StorageClass::kStep,
                                node.kind == Kind::kBackward ? trace::RoleKind::kGradient
                                                             : trace::RoleKind::kActivation),
                    1};
      writes.push_back(*values_[k]);
    }
    // What is more in the number of weights and their gradients is made here, and stays.
    const Bytes before = table_.nodes[k == 0 ? 0 : k - 1].fixed_bytes;
    if (node.fixed_bytes > before) {
      gradients_.push_back(
          {add_storage(node.fixed_bytes - before, StorageClass::kStep, trace::RoleKind::kGradient),
           1});
      writes.push_back(gradients_.back());
    }
    // Other alternatives of the forward part differ in what they make for the backward part.
    const std::size_t count = node.algorithms                ? node.alternatives.size()
                              : node.kind == Kind::kBackward ? node.reads.size()
                                                             : 1;
    for (std::size_t number = 0; number < count; ++number) {
      const std::size_t reads = node.algorithms ? 0 : number;
      if (node.alternatives[number].ms < 0 || reads_part(node.reads[reads])) continue;
      op.alternatives.push_back(alternative(k, number, reads, writes));
    }
    BERTH_CHECK(!op.alternatives.empty(), kInput, "node {} cannot be run", k);
    graph_.operators.push_back(std::move(op));
  }

  [[nodiscard]] bool reads_part(const std::vector<std::size_t>& reads) const {
    return std::any_of(reads.begin(), reads.end(),
                       [&](std::size_t k) { return table_.nodes[k].kind == Kind::kPart; });
  }

  Alternative alternative(std::size_t k, std::size_t number, std::size_t reads,
                          const std::vector<ValueId>& writes) const {
    const MonetNode& node = table_.nodes[k];
    const MonetAlternative& alternative = node.alternatives[number];
    Alternative one;
    one.writes = writes;
    if (node.algorithms || node.reads.size() > 1)
      one.algorithm = fmt::format("{} {}", node.algorithms ? "algorithm" : "alternative", number);
    std::vector<std::size_t> nodes = node.reads[reads];
    std::sort(nodes.begin(), nodes.end());
    nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
    for (const std::size_t read : nodes)
      if (values_[read]) one.reads.push_back(read_of(*values_[read]));
    double ms = alternative.ms, workspace = alternative.workspace_mib;
    const std::optional<std::size_t> over = takes_over(k, nodes, workspace);
    if (over) {
      one.in_place.emplace_back(*values_[*over], *values_[k]);
      // The pair is an offer, so the slower of both forms counts.
      if (number < node.in_place.size()) {
        ms = std::max(ms, node.in_place[number].ms);
        workspace = std::max(workspace, node.in_place[number].workspace_mib + mib(*over));
      }
      if (workspace < 0) workspace += mib(*over);
    }
    one.ns = ns_of(ms);
    one.workspace = static_cast<Bytes>(std::ceil(std::max(workspace, 0.0) * 1024)) * 1024;
    return one;
  }

  [[nodiscard]] double mib(std::size_t k) const {
    return static_cast<double>(table_.nodes[k].out_bytes) / (1 << 20);
  }

  // The read whose bytes the result may have: the one that the file names; where a workspace is
  // negative, a gradient of the result's size, which nobody else reads later.
  [[nodiscard]] std::optional<std::size_t> takes_over(std::size_t k,
                                                      const std::vector<std::size_t>& reads,
                                                      double workspace) const {
    const MonetNode& node = table_.nodes[k];
    if (!values_[k]) return std::nullopt;
    if (node.over) return values_[*node.over] ? node.over : std::nullopt;
    if (node.kind != Kind::kBackward || workspace >= 0) return std::nullopt;
    const auto found = std::find_if(reads.rbegin(), reads.rend(), [&](std::size_t read) {
      return read >= table_.loss && table_.nodes[read].out_bytes == node.out_bytes;
    });
    return found == reads.rend() ? std::nullopt : std::optional(*found);
  }

  // All gradients of weights are there at the end.
  void add_update() {
    Alternative one;
    for (const ValueId gradient : gradients_) one.reads.push_back(read_of(gradient));
    graph_.operators.push_back({.name = "update",
                                .phase = Phase::kOptimizer,
                                .traits = {.changes_state = true},
                                .forward = {},
                                .alternatives = {std::move(one)}});
  }

  const MonetTable& table_;
  std::vector<std::optional<ValueId>> values_;  // by node; none where it makes none
  std::vector<ValueId> gradients_;              // of weights
  Graph graph_;
};

}  // namespace

Graph import_monet(const Json& root) {
  const Json& tables = member(root, "cost_variants", "the file");
  BERTH_CHECK(tables.is_array() && !tables.empty(), kInput, "it has no table of costs");
  return MonetImporter(read_monet_table(root, tables[0])).run();
}

}  // namespace berth::graph
