#include "csrc/core/check.h"
#include "csrc/graph/edges.h"
#include "csrc/graph/hash.h"
#include "csrc/schedule/recomputation/from_graph.h"

#include <algorithm>
#include <map>

namespace berth::schedule {
namespace {

using graph::Alternative;
using graph::BufferId;
using graph::OperatorId;
using graph::ScheduleStep;
using graph::StorageClass;
using graph::StorageId;
using graph::ValueId;

constexpr std::size_t kNever = ~std::size_t{0};

class Writer : StageObserver {
 public:
  Writer(const graph::Graph& graph, const StageGraph& stages, const Recomputation& plan)
      : graph_(graph),
        stages_(stages),
        problem_(stages.problem),
        plan_(plan),
        model_(StageModel::make(stages.problem)),
        buffer_of_(stages.values.size(), kNoBuffer),
        last_(stages.values.size(), kNever),
        constant_(graph.storages.size(), kNoBuffer),
        last_use_(graph.storages.size(), kNever) {
    for (StageValue value = 0; value < stages.values.size(); ++value)
      number_[stages.values[value]] = value;
    model_->observe(this);
    find_last_uses();
  }

  graph::Schedule write() {
    for (StorageId s = 0; s < graph_.storages.size(); ++s)
      if (graph_.storages[s].kind == StorageClass::kResident ||
          (graph_.storages[s].kind == StorageClass::kInput && !number_.contains({s, 0})))
        constant_[s] = add_buffer(s);
    BitTable runs(1, problem_.nodes.size());
    std::size_t position = stages_.border;  // of the closing operator
    for (std::size_t t = 0; t < problem_.stages.size(); ++t) {
      events_.clear();
      closing_.reset();
      (void)model_->evaluate(
          t, plan_.alternatives[t],
          {plan_.kept.row(t), plan_.kept.row(t + 1), bytes_of(t), bytes_of(t + 1)}, runs.row(0));
      write_stage(t, position);
      if (closing_) ++position;
    }
    out_.graph_hash = graph::hash_of(graph_);
    return std::move(out_);
  }

 private:
  static constexpr BufferId kNoBuffer = ~BufferId{0};
  struct Event {
    StageNode node = 0;
    std::uint32_t alternative = 0;
    bool in_place = false;
  };

  void runs(StageNode node, const StageAlternative& alternative, bool in_place) override {
    events_.push_back({node, alternative.tag, in_place});
  }
  void closes(const StageAlternative& alternative) override { closing_ = alternative.tag; }

  [[nodiscard]] std::int64_t bytes_of(std::size_t row) const {
    std::int64_t bytes = 0;
    for_each_bit(plan_.kept.row(row), [&](std::size_t v) { bytes += problem_.values[v].bytes; });
    return bytes;
  }

  // Of the storages that are none of the plan's values.
  void find_last_uses() {
    const auto use = [&](StorageId s, std::size_t position) {
      last_use_[s] = last_use_[s] == kNever ? position : std::max(last_use_[s], position);
    };
    for (std::size_t p = 0; p < stages_.order.size(); ++p)
      for (const Alternative& taken : graph_.operators[stages_.order[p]].alternatives) {
        for (const graph::Read& read : taken.reads) use(read.value.storage, p);
        for (const ValueId& written : taken.writes) use(written.storage, p);
      }
  }

  BufferId add_buffer(StorageId storage) {
    out_.buffers.push_back({storage, {}});
    return static_cast<BufferId>(out_.buffers.size() - 1);
  }
  void drop(BufferId buffer) {
    ScheduleStep step;
    step.kind = ScheduleStep::Kind::kDrop;
    step.buffer = buffer;
    out_.steps.push_back(std::move(step));
  }
  void drop_value(StageValue value) {
    if (buffer_of_[value] == kNoBuffer) return;
    drop(buffer_of_[value]);
    buffer_of_[value] = kNoBuffer;
  }

  [[nodiscard]] BufferId& buffer(ValueId id) {
    const auto found = number_.find(id);
    return found == number_.end() ? constant_[id.storage] : buffer_of_[found->second];
  }

  // Whether the stage began with it: what is made of it beside another result is spare.
  [[nodiscard]] bool is_kept(ValueId id) const { return has(before_, number_.at(id)); }

  // Runs an operator; `over`: a value whose bytes its result takes. Returns buffers of results that
  // were there already.
  std::vector<BufferId> run(OperatorId op, std::uint32_t alternative, std::optional<ValueId> over) {
    const Alternative& taken = graph_.operators[op].alternatives[alternative];
    ScheduleStep step;
    step.op = op;
    step.alternative = alternative;
    for (const graph::Read& read : taken.reads) step.reads.push_back(buffer(read.value));
    std::vector<BufferId> spare;
    for (const ValueId& written : taken.writes) {
      BufferId& mine = buffer(written);
      if (!number_.contains(written)) {
        if (mine == kNoBuffer) mine = add_buffer(written.storage);
      } else if (written.version > 1) {
        const BufferId next =
            std::exchange(buffer({written.storage, written.version - 1}), kNoBuffer);
        if (is_kept(written)) {
          spare.push_back(next);
          step.writes.push_back(next);
          continue;
        }
        mine = next;
      } else if (is_kept(written)) {
        spare.push_back(add_buffer(written.storage));
        step.writes.push_back(spare.back());
        continue;
      } else if (over &&
                 graph_.storages[over->storage].bytes == graph_.storages[written.storage].bytes &&
                 std::count(taken.in_place.begin(), taken.in_place.end(),
                            std::pair(*over, written)) > 0) {
        mine = std::exchange(buffer(*over), kNoBuffer);
        over.reset();
      } else {
        mine = add_buffer(written.storage);
      }
      step.writes.push_back(mine);
    }
    out_.steps.push_back(std::move(step));
    return spare;
  }

  void drop_constants(OperatorId op, std::size_t position) {
    const auto end = [&](StorageId s) {
      if (last_use_[s] != position || constant_[s] == kNoBuffer ||
          graph_.storages[s].kind == StorageClass::kResident)
        return;
      drop(constant_[s]);
      constant_[s] = kNoBuffer;
    };
    for (const Alternative& taken : graph_.operators[op].alternatives) {
      for (const graph::Read& read : taken.reads) end(read.value.storage);
      for (const ValueId& written : taken.writes) end(written.storage);
    }
  }

  void write_stage(std::size_t t, std::size_t closing_position) {
    const ConstWords before = plan_.kept.row(t), after = plan_.kept.row(t + 1);
    before_ = before;
    const auto* reads_of_closing =
        closing_ ? &problem_.stages[t].alternatives[plan_.alternatives[t]].reads : nullptr;
    // Index of the last event that reads a value; that of the closing operator is beyond.
    std::fill(last_.begin(), last_.end(), kNever);
    for (std::size_t k = 0; k < events_.size(); ++k)
      for (const StageValue value : problem_.nodes[events_[k].node].reads) last_[value] = k;
    if (reads_of_closing != nullptr)
      for (const StageValue value : *reads_of_closing) last_[value] = events_.size();
    for_each_bit(before, [&](std::size_t value) {
      if (!has(after, value) && last_[value] == kNever) drop_value(static_cast<StageValue>(value));
    });
    for (std::size_t k = 0; k < events_.size(); ++k) {
      const Event& event = events_[k];
      const StageProblem::NodeOf& node = problem_.nodes[event.node];
      const OperatorId op = stages_.operators[event.node];
      std::vector<BufferId> spare;
      if (op == StageGraph::kNoOperator) {
        const StageValue value = node.makes.front();
        buffer_of_[value] = add_buffer(stages_.values[value].storage);
      } else {
        std::optional<ValueId> over;
        if (event.in_place && !node.always_in_place) over = stages_.values[*node.over];
        spare = run(op, event.alternative, over);
      }
      for (const BufferId buffer : spare) drop(buffer);
      for (const StageValue value : node.reads)
        if (last_[value] == k && !has(after, value)) drop_value(value);
      for (const StageValue value : node.makes)
        if (last_[value] == kNever && !has(after, value) && !has(before, value)) drop_value(value);
      if (op != StageGraph::kNoOperator) drop_constants(op, position_of(event.node, t));
    }
    if (!closing_) return;
    const OperatorId op = stages_.order[closing_position];
    (void)run(op, *closing_, std::nullopt);
    for (const StageValue value : *reads_of_closing)
      if (!has(after, value)) drop_value(value);
    drop_constants(op, closing_position);
  }

  // Where its operator stands in the order, if this is the first run; else nowhere.
  [[nodiscard]] std::size_t position_of(StageNode node, std::size_t t) const {
    const auto& due = problem_.stages[t].must_run;
    if (!std::binary_search(due.begin(), due.end(), node)) return kNever;
    return node - (stages_.operators.size() - stages_.border);
  }

  const graph::Graph& graph_;
  const StageGraph& stages_;
  const StageProblem& problem_;
  const Recomputation& plan_;
  std::unique_ptr<StageModel> model_;
  std::map<ValueId, StageValue> number_;
  std::vector<BufferId> buffer_of_;  // by value; while it is there
  std::vector<std::size_t> last_;
  std::vector<BufferId> constant_;  // by storage
  std::vector<std::size_t> last_use_;
  ConstWords before_;  // kept when the stage began
  std::vector<Event> events_;
  std::optional<std::uint32_t> closing_;
  graph::Schedule out_;
};

}  // namespace

graph::Schedule to_schedule(const graph::Graph& graph, const StageGraph& stages,
                            const Recomputation& plan) {
  return Writer(graph, stages, plan).write();
}

}  // namespace berth::schedule
