#include "csrc/schedule/joint/passes.h"

#include "csrc/core/bytes.h"
#include "csrc/graph/schedule.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

namespace berth::schedule {
namespace {

using graph::BufferId;
using graph::Graph;
using graph::OperatorId;
using graph::Phase;
using graph::Schedule;
using graph::ScheduleStep;
using graph::StorageClass;
using graph::StorageId;

using Range = std::pair<std::size_t, std::size_t>;  // of positions: first, last + 1

constexpr BufferId kNoBuffer = ~BufferId{0};  // nor storage
constexpr std::size_t kNever = ~std::size_t{0};
// A pass has at least this part of the backward operators.
constexpr std::size_t kSmallestPass = 16;

bool is_forward(const graph::Operator& op) {
  return op.phase == Phase::kForward || op.phase == Phase::kLoss;
}

std::vector<OperatorId> order_of(const Graph& graph) {
  std::vector<OperatorId> order = graph.order;
  if (order.empty()) {
    order.resize(graph.operators.size());
    std::iota(order.begin(), order.end(), 0U);
  }
  return order;
}

template <class Visit>
void for_each_value(const graph::Operator& op, const Visit& visit) {
  for (const graph::Alternative& taken : op.alternatives) {
    for (const graph::Read& read : taken.reads) visit(read.value, false);
    for (const graph::ValueId& written : taken.writes) visit(written, true);
  }
}

// One pass as a graph of its own. Storage n of it is storages[n] of the step; the last operator
// takes what is born in the pass and used after it.
struct Pass {
  Graph graph;
  std::vector<StorageId> storages;
  std::vector<bool> lives_on;  // by storage of the pass: used after it
};

class Passes {
 public:
  Passes(const Graph& graph, std::vector<Range> ranges)
      : graph_(graph),
        order_(order_of(graph)),
        ranges_(std::move(ranges)),
        last_use_(graph.storages.size(), kNever),
        version_(graph.storages.size(), 0),
        buffer_(graph.storages.size(), kNoBuffer) {
    for (std::size_t k = 0; k < order_.size(); ++k)
      for_each_value(graph.operators[order_[k]],
                     [&](const graph::ValueId& value, bool) { last_use_[value.storage] = k; });
    for (StorageId s = 0; s < graph.storages.size(); ++s) {
      result_.buffers.push_back({.storage = s, .offsets = {}});
      if (graph.storages[s].kind == StorageClass::kStep) continue;
      buffer_[s] = s;
      if (graph.storages[s].kind == StorageClass::kInput && last_use_[s] == kNever) drop(s);
    }
  }

  std::optional<Schedule> plan(StepOptions options) {
    for (const Range& range : ranges_) {
      const Pass pass = cut(range);
      const StepResult found = plan_whole(pass.graph, options);
      if (!found.schedule) return std::nullopt;
      append(pass, *found.schedule, range);
    }
    result_.budget = options.budget;
    result_.engine = "passes";
    result_.seed = options.seed;
    return std::move(result_);
  }

 private:
  [[nodiscard]] bool exists(StorageId s) const {
    return graph_.storages[s].kind != StorageClass::kStep || version_[s] > 0;
  }

  Pass cut(const Range& range) const {
    Pass pass;
    std::vector<StorageId> number(graph_.storages.size(), kNoBuffer);
    const auto add = [&](StorageId s) {
      if (number[s] != kNoBuffer) return;
      number[s] = static_cast<StorageId>(pass.storages.size());
      const bool later = last_use_[s] != kNever && last_use_[s] >= range.second;
      const StorageClass kind = graph_.storages[s].kind;
      pass.storages.push_back(s);
      pass.lives_on.push_back(later);
      pass.graph.storages.push_back(graph_.storages[s]);
      if (exists(s) && kind != StorageClass::kResident)
        pass.graph.storages.back().kind = later ? StorageClass::kResident : StorageClass::kInput;
    };
    for (std::size_t k = range.first; k < range.second; ++k)
      for_each_value(graph_.operators[order_[k]],
                     [&](const graph::ValueId& value, bool) { add(value.storage); });
    std::vector<OperatorId> place(graph_.operators.size(), ~OperatorId{0});
    std::vector<std::uint32_t> versions(pass.storages.size(), 0);
    const auto in_pass = [&](graph::ValueId& value) {
      const std::uint32_t before = version_[value.storage];
      value = {number[value.storage], value.version - before};
      versions[value.storage] = std::max(versions[value.storage], value.version);
    };
    for (std::size_t k = range.first; k < range.second; ++k) {
      graph::Operator op = graph_.operators[order_[k]];
      place[order_[k]] = static_cast<OperatorId>(k - range.first);
      op.forward = op.forward && place[*op.forward] != ~OperatorId{0}
                       ? std::optional(place[*op.forward])
                       : std::nullopt;
      for (graph::Alternative& taken : op.alternatives) {
        for (graph::Read& read : taken.reads) in_pass(read.value);
        for (graph::ValueId& written : taken.writes) in_pass(written);
        for (auto& [from, to] : taken.in_place) in_pass(from), in_pass(to);
      }
      pass.graph.operators.push_back(std::move(op));
    }
    for (const auto& [before, after] : graph_.control)
      if (place[before] != ~OperatorId{0} && place[after] != ~OperatorId{0})
        pass.graph.control.emplace_back(place[before], place[after]);
    add_end(pass, versions);
    add_absent(pass, number, range);
    return pass;
  }

  static void add_end(Pass& pass, const std::vector<std::uint32_t>& versions) {
    graph::Operator end;
    end.name = "the end of a pass";
    end.phase = Phase::kOptimizer;
    end.traits.changes_state = true;
    end.alternatives.emplace_back();
    for (StorageId s = 0; s < pass.storages.size(); ++s)
      if (pass.lives_on[s] && pass.graph.storages[s].kind == StorageClass::kStep)
        end.alternatives.front().reads.push_back(
            {{s, versions[s]}, 0, pass.graph.storages[s].bytes});
    // All that the pass does comes before it.
    const auto number = static_cast<OperatorId>(pass.graph.operators.size());
    for (OperatorId op = 0; op < number; ++op) pass.graph.control.emplace_back(op, number);
    pass.graph.operators.push_back(std::move(end));
  }

  // What is there meanwhile for later passes alone.
  void add_absent(Pass& pass, const std::vector<StorageId>& number, const Range& range) const {
    Bytes bytes = 0;
    for (StorageId s = 0; s < graph_.storages.size(); ++s)
      if (number[s] == kNoBuffer && exists(s) &&
          (graph_.storages[s].kind == StorageClass::kResident ||
           (last_use_[s] != kNever && last_use_[s] >= range.second)))
        bytes += graph_.storages[s].bytes;
    if (bytes == 0) return;
    pass.graph.storages.push_back({.bytes = bytes, .kind = StorageClass::kResident});
    pass.storages.push_back(kNoBuffer);
    pass.lives_on.push_back(true);
  }

  void drop(BufferId buffer) {
    result_.steps.push_back(
        {.kind = ScheduleStep::Kind::kDrop, .reads = {}, .writes = {}, .buffer = buffer});
  }

  void append(const Pass& pass, const Schedule& schedule, const Range& range) {
    using Kind = ScheduleStep::Kind;
    std::vector<BufferId> buffers(schedule.buffers.size(), kNoBuffer);
    std::vector<bool> there(schedule.buffers.size(), false);
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const StorageId local = schedule.buffers[b].storage, s = pass.storages[local];
      if (s == kNoBuffer) continue;
      if (pass.graph.storages[local].kind != StorageClass::kStep) {
        buffers[b] = buffer_[s];
        there[b] = pass.graph.storages[local].kind == StorageClass::kInput;
      } else if (buffer_[s] == kNoBuffer) {
        buffers[b] = buffer_[s] = s;
      } else {
        buffers[b] = static_cast<BufferId>(result_.buffers.size());
        result_.buffers.push_back({.storage = s, .offsets = {}});
      }
    }
    const auto end = static_cast<OperatorId>(pass.graph.operators.size() - 1);
    std::vector<bool> kept(buffers.size(), false);
    for (const ScheduleStep& step : schedule.steps)
      if (step.kind == Kind::kRun && step.op == end)
        for (const BufferId read : step.reads) kept[read] = true;
    for (ScheduleStep step : schedule.steps) {
      if (step.kind == Kind::kRun) {
        if (step.op == end) continue;
        step.op = order_[range.first + step.op];
        for (BufferId& one : step.reads) one = buffers[one];
        for (BufferId& one : step.writes) there[one] = true, one = buffers[one];
      } else {
        const BufferId local = step.buffer;
        if (step.kind == Kind::kDrop && kept[local]) continue;
        there[local] = step.kind == Kind::kReload;
        step.buffer = buffers[local];
      }
      result_.steps.push_back(std::move(step));
    }
    for (std::size_t b = 0; b < buffers.size(); ++b) {
      const StorageId local = schedule.buffers[b].storage;
      if (kept[b])
        buffer_[pass.storages[local]] = buffers[b];
      else if (there[b] && pass.graph.storages[local].kind != StorageClass::kResident)
        drop(buffers[b]);
    }
    for (std::size_t k = range.first; k < range.second; ++k)
      for_each_value(graph_.operators[order_[k]], [&](const graph::ValueId& value, bool writes) {
        if (writes) version_[value.storage] = std::max(version_[value.storage], value.version);
      });
  }

  const Graph& graph_;
  const std::vector<OperatorId> order_;
  const std::vector<Range> ranges_;
  std::vector<std::size_t> last_use_;   // by storage: a position
  std::vector<std::uint32_t> version_;  // by storage: the newest so far
  std::vector<BufferId> buffer_;        // by storage: the one that holds it; kNoBuffer: none yet
  Schedule result_;
};

}  // namespace

std::vector<Range> passes_of(const Graph& graph) {
  const std::vector<OperatorId> order = order_of(graph);
  const auto backward = static_cast<std::size_t>(
      std::count_if(graph.operators.begin(), graph.operators.end(),
                    [](const graph::Operator& op) { return op.phase == Phase::kBackward; }));
  std::vector<Range> passes;
  std::size_t first = 0, in_pass = 0, seen = 0;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const graph::Operator& op = graph.operators[order[k]];
    if (op.phase == Phase::kBackward) ++in_pass, ++seen;
    const bool enough = in_pass > 0 && in_pass * kSmallestPass >= backward &&
                        (backward - seen) * kSmallestPass >= backward && seen < backward;
    if (!is_forward(op) || !enough) continue;
    passes.emplace_back(first, k);
    first = k;
    in_pass = 0;
  }
  passes.emplace_back(first, order.size());
  return passes;
}

// Planners of recomputation know one forward part. So each pass is planned by itself, with all
// that other passes need as residents. The schedules one after the other are one of the step, which
// the planner of the whole step then begins with. Half of the time is for the passes.
StepResult plan_step(const Graph& graph, const StepOptions& options) {
  if (options.engine != "auto") return plan_whole(graph, options);
  std::vector<Range> ranges = passes_of(graph);
  if (ranges.size() < 2) return plan_whole(graph, options);
  StepOptions planning = options;
  planning.addresses = false;
  planning.given.clear();
  planning.progress = {};
  planning.time_limit_seconds /= 2 * static_cast<double>(ranges.size());
  std::optional<Schedule> found = Passes(graph, std::move(ranges)).plan(planning);
  StepOptions whole = options;
  whole.time_limit_seconds /= 2;
  if (found) {
    const graph::CopyRates rates = options.rates.value_or(graph::CopyRates{});
    graph::Verdict verdict = graph::replay(graph, *found, rates);
    found->peak = verdict.peak;
    found->ns = verdict.ns;
    if (verdict.violation.empty()) whole.given.push_back(*std::move(found));
  }
  return plan_whole(graph, whole);
}

}  // namespace berth::schedule
