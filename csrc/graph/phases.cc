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

  void run(const std::vector<StepCall>& calls) {
    bool backward = false;
    for (OperatorId op = 0; op < graph_.operators.size(); ++op) {
      Operator& made = graph_.operators[op];
      if (calls[op].backward) {
        made.phase = Phase::kBackward;
        if (!backward && made.forward) set_loss(*made.forward, op);
        backward = true;
        continue;
      }
      decide(op, calls[op].in_optimizer);
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

void find_phases_by_role(Graph& graph, const std::vector<StepCall>& calls) {
  Phases(graph).run(calls);
}

std::vector<Phase> phases_by_use(const std::vector<StepCall>& calls, std::size_t storages) {
  const auto last = std::find_if(calls.rbegin(), calls.rend(),
                                 [](const StepCall& call) { return call.backward; });
  const auto end = static_cast<std::size_t>(calls.rend() - last);
  std::vector<bool> written(storages), read(storages);
  std::vector<Phase> phases;
  bool late_host_read = false, late_draw = false;
  for (std::size_t n = 0; n < calls.size(); ++n) {
    const StepCall& call = calls[n];
    bool late = call.backward;
    if (!late && n >= end && end > 0) {
      late = late_host_read || (call.random && late_draw);
      for (const CallOperand& one : call.operands)
        late = late || (one.storage != kNoNumber &&
                        (written[one.storage] || (one.writes && read[one.storage])));
    }
    phases.push_back(call.backward ? Phase::kBackward : late ? Phase::kOptimizer : Phase::kForward);
    if (!late) continue;
    late_host_read |= call.host_read;
    late_draw |= call.random;
    for (const CallOperand& one : call.operands) {
      if (one.storage == kNoNumber) continue;
      read[one.storage] = true;
      if (one.writes) written[one.storage] = true;
    }
    for (const std::uint32_t storage : call.results)
      if (storage != kNoNumber) written[storage] = true;
  }
  return phases;
}

}  // namespace berth::graph
