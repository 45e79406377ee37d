#include "csrc/graph/phases.h"

#include <algorithm>
#include <limits>

namespace berth::graph {
namespace {

using trace::RoleKind;

constexpr OperatorId kNoOperator = std::numeric_limits<OperatorId>::max();

class Phases {
 public:
  explicit Phases(Graph& graph)
      : graph_(graph),
        derived_(graph.storages.size(), false),
        decided_(graph.operators.size(), true) {}

  void run(const std::vector<PhaseHint>& hints) {
    bool backward = false;
    for (OperatorId op = 0; op < graph_.operators.size(); ++op) {
      Operator& made = graph_.operators[op];
      if (hints[op].backward) {
        made.phase = Phase::kBackward;
        if (!backward && made.forward) set_loss(*made.forward, op);
        backward = true;
        continue;
      }
      decide(op, hints[op].in_optimizer);
      if (made.phase != Phase::kOptimizer && decided_[op]) backward = false;
    }
    follow_readers();
  }

 private:
  void decide(OperatorId op, bool optimizes) {
    const Alternative& one = graph_.operators[op].alternatives[0];
    bool known = false;
    const auto take = [&](StorageId s, bool written) {
      const Storage& storage = graph_.storages[s];
      // A leaf that is made in the step is no weight that is updated.
      const bool updates = written && storage.kind != StorageClass::kStep;
      optimizes |= derived_[s] || storage.role == RoleKind::kGradient ||
                   storage.role == RoleKind::kOptimizer ||
                   (updates && storage.role == RoleKind::kParameter);
      known |= storage.role != RoleKind::kUnknown;
    };
    for (const Read& read : one.reads) take(read.value.storage, false);
    for (const ValueId& written : one.writes) take(written.storage, true);
    decided_[op] = optimizes || known;
    if (!optimizes) return;
    graph_.operators[op].phase = Phase::kOptimizer;
    for (const ValueId& written : one.writes)
      if (graph_.storages[written.storage].kind == StorageClass::kStep)
        derived_[written.storage] = true;
  }

  void set_loss(OperatorId loss, OperatorId end) {
    for (OperatorId op = loss; op < end; ++op) {
      Phase& phase = graph_.operators[op].phase;
      if (phase == Phase::kForward) phase = Phase::kLoss;
    }
  }

  void follow_readers() {
    std::vector<OperatorId> reader(graph_.storages.size(), kNoOperator);
    for (auto op = static_cast<OperatorId>(graph_.operators.size()); op-- > 0;) {
      Operator& made = graph_.operators[op];
      OperatorId first = kNoOperator;
      for (const ValueId& written : made.alternatives[0].writes)
        first = std::min(first, reader[written.storage]);
      if (first == kNoOperator && op != 0) first = op - 1;
      if (!decided_[op] && made.phase == Phase::kForward && first != kNoOperator &&
          graph_.operators[first].phase == Phase::kOptimizer)
        made.phase = Phase::kOptimizer;
      for (const Read& read : made.alternatives[0].reads) reader[read.value.storage] = op;
    }
  }

  Graph& graph_;
  std::vector<bool> derived_;  // storages that the optimizer made for itself
  std::vector<bool> decided_;  // operators
};

}  // namespace

void find_phases(Graph& graph, const std::vector<PhaseHint>& hints) { Phases(graph).run(hints); }

}  // namespace berth::graph
