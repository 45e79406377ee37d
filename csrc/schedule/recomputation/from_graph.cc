#include "csrc/schedule/recomputation/from_graph.h"

#include "csrc/core/check.h"
#include "csrc/graph/edges.h"
#include "csrc/schedule/order/from_graph.h"

#include <algorithm>
#include <map>

namespace berth::schedule {
namespace {

using graph::Alternative;
using graph::OperatorId;
using graph::StorageClass;
using graph::StorageId;
using graph::ValueId;

constexpr std::size_t kNever = ~std::size_t{0};

class Builder {
 public:
  Builder(const graph::Graph& graph, StageGraph& out)
      : graph_(graph),
        out_(out),
        edges_(graph::edges_of(graph)),
        position_(graph.operators.size()),
        first_(graph.storages.size(), kNever),
        last_(graph.storages.size(), 0),
        constant_(graph.storages.size(), true) {
    for (std::size_t p = 0; p < out.order.size(); ++p) position_[out.order[p]] = p;
  }

  void build(Bytes budget, std::size_t least_border) {
    StageProblem& problem = out_.problem;
    problem.rules = StageRules::kExact;
    problem.budget = static_cast<std::int64_t>(
        std::min<Bytes>(budget, static_cast<Bytes>(StageProblem::kMostBytes - 1)));
    find_border();
    out_.border = std::max(out_.border, std::min(least_border, out_.order.size()));
    find_lives();
    find_stages();
    for (StorageId s = 0; s < graph_.storages.size(); ++s)
      if (graph_.storages[s].kind == StorageClass::kInput && !constant_[s]) add_input(s);
    for (std::size_t p = 0; p < out_.border; ++p) add_node(p);
    add_stages();
    const std::string wrong = problem.violation();
    BERTH_CHECK(wrong.empty(), kInput, "recomputation cannot be planned for the step: {}", wrong);
  }

 private:
  // Where most of what is before is forward and most of what is behind is not: some operators of
  // the backward part, as published graphs flag them, need nothing and may run first.
  void find_border() {
    std::ptrdiff_t balance = 0, most = 0;
    out_.border = out_.order.size();
    for (std::size_t p = out_.order.size(); p-- > 0;) {
      const graph::Phase phase = graph_.operators[out_.order[p]].phase;
      const bool backward = phase == graph::Phase::kBackward || phase == graph::Phase::kOptimizer;
      balance += backward ? 1 : -1;
      if (balance <= most) continue;
      most = balance;
      out_.border = p;
    }
  }

  // From when to when each storage is used, and which are none of the plan's business: residents,
  // those that begin in the backward part, and those that are written in both parts.
  void find_lives() {
    const auto use = [&](StorageId s, OperatorId op) {
      first_[s] = std::min(first_[s], position_[op]);
      last_[s] = std::max(last_[s], position_[op]);
    };
    std::vector<bool> written_late(graph_.storages.size(), false);
    for (const auto& [value, made] : edges_.values) {
      const StorageId s = value.storage;
      if (made.maker) {
        use(s, *made.maker);
        if (position_[*made.maker] >= out_.border) written_late[s] = true;
      } else if (graph_.storages[s].kind == StorageClass::kInput) {
        first_[s] = 0;
      }
      for (const OperatorId reader : made.readers) use(s, reader);
    }
    for (StorageId s = 0; s < graph_.storages.size(); ++s) {
      const StorageClass kind = graph_.storages[s].kind;
      const bool written = edges_.values.contains({s, 1});
      constant_[s] = kind == StorageClass::kResident || first_[s] == kNever ||
                     first_[s] >= out_.border || written_late[s] ||
                     (kind == StorageClass::kInput && written);
    }
  }

  void find_stages() {
    const std::size_t count = out_.order.size();
    out_.stage.resize(count);
    for (std::size_t p = out_.border; p < count; ++p)
      out_.stage[p] = static_cast<std::uint32_t>(p - out_.border + 1);
    if (out_.border < count) return;
    // Between which positions no stage begins.
    std::vector<std::ptrdiff_t> joined(count + 1, 0);
    for (const auto& [value, made] : edges_.values) {
      const auto next = edges_.values.find({value.storage, value.version + 1});
      if (constant_[value.storage] || !made.maker || next == edges_.values.end() ||
          !next->second.maker)
        continue;
      ++joined[position_[*made.maker] + 1];
      --joined[position_[*next->second.maker] + 1];
    }
    std::ptrdiff_t over = 0;
    for (std::size_t p = 1; p < count; ++p) {
      over += joined[p];
      out_.stage[p] = out_.stage[p - 1] + (over == 0 ? 1 : 0);
    }
  }

  StageValue add_value(ValueId id, StageNode maker) {
    const auto value = static_cast<StageValue>(out_.values.size());
    out_.values.push_back(id);
    number_[id] = value;
    // Bytes that the next version takes over cannot be kept.
    const bool keepable = !edges_.values.contains({id.storage, id.version + 1});
    out_.problem.values.push_back(
        {static_cast<std::int64_t>(graph_.storages[id.storage].bytes), maker, keepable});
    return value;
  }

  void add_input(StorageId s) {
    const auto node = static_cast<StageNode>(out_.operators.size());
    out_.operators.push_back(StageGraph::kNoOperator);
    StageProblem::NodeOf one;
    one.makes = {add_value({s, 0}, node)};
    one.first = {{0, 0, 0}};
    one.only_once = true;
    out_.problem.nodes.push_back(std::move(one));
  }

  // The last stage in which the value is what it is now.
  [[nodiscard]] std::uint32_t lasts_until(ValueId id) const {
    const auto next = edges_.values.find({id.storage, id.version + 1});
    if (next != edges_.values.end() && next->second.maker)
      return out_.stage[position_[*next->second.maker]];
    if (graph_.storages[id.storage].kind == StorageClass::kResident)
      return std::numeric_limits<std::uint32_t>::max();
    return out_.stage[last_[id.storage]];
  }

  void add_node(std::size_t position) {
    const OperatorId op = out_.order[position];
    const graph::Operator& from = graph_.operators[op];
    const Alternative& recorded = from.alternatives.front();
    const auto node = static_cast<StageNode>(out_.operators.size());
    out_.operators.push_back(op);
    StageProblem::NodeOf one;
    one.only_once = from.traits.only_once();
    for (const graph::Read& read : recorded.reads) {
      if (constant_[read.value.storage])
        one.last_stage = std::min(one.last_stage, lasts_until(read.value));
      else
        one.reads.push_back(number_.at(read.value));
    }
    std::sort(one.reads.begin(), one.reads.end());
    one.reads.erase(std::unique(one.reads.begin(), one.reads.end()), one.reads.end());
    for (const ValueId& written : recorded.writes) {
      if (constant_[written.storage]) {
        one.only_once = true;  // it would be written twice
        continue;
      }
      const StageValue value = add_value(written, node);
      one.makes.push_back(value);
      if (written.version == 1) continue;
      // The next version is written over the one before, whether that is read or not.
      const StageValue before = number_.at({written.storage, written.version - 1});
      if (!std::binary_search(one.reads.begin(), one.reads.end(), before))
        one.reads.insert(std::lower_bound(one.reads.begin(), one.reads.end(), before), before);
      if (one.over) continue;  // of several, one is counted once
      one.over = before;
      one.always_in_place = true;
    }
    for (std::size_t a = 0; a < from.alternatives.size(); ++a) {
      const Alternative& alternative = from.alternatives[a];
      if (alternative.reads != recorded.reads || alternative.writes != recorded.writes) continue;
      const StageAlternative counted{static_cast<std::int64_t>(alternative.ns),
                                     static_cast<std::int64_t>(alternative.workspace),
                                     static_cast<std::uint32_t>(a)};
      one.first.push_back(counted);
      if (one.always_in_place) continue;
      for (const auto& [input, result] : alternative.in_place) {
        const auto over = number_.find(input);
        // The bytes of an input are the caller's.
        if (over == number_.end() || !number_.contains(result) ||
            graph_.storages[input.storage].kind != StorageClass::kStep ||
            graph_.storages[input.storage].bytes != graph_.storages[result.storage].bytes ||
            (one.over && *one.over != over->second))
          continue;
        one.over = over->second;
        one.in_place.push_back(in_place(counted, *one.over));
        break;
      }
    }
    if (one.always_in_place) {
      for (const StageAlternative& alternative : one.first)
        one.in_place.push_back(in_place(alternative, *one.over));
      one.first.clear();
    }
    out_.problem.nodes.push_back(std::move(one));
  }

  // What it takes over is not asked for.
  [[nodiscard]] StageAlternative in_place(StageAlternative alternative, StageValue over) const {
    alternative.workspace -= out_.problem.values[over].bytes;
    return alternative;
  }

  void add_stages() {
    std::int64_t residents = 0;
    for (const graph::Storage& storage : graph_.storages)
      if (storage.kind == StorageClass::kResident)
        residents += static_cast<std::int64_t>(storage.bytes);
    // Bytes of constants that begin at, and end after, each position.
    std::vector<std::int64_t> born(out_.order.size() + 1, 0), gone(out_.order.size() + 1, 0);
    for (StorageId s = 0; s < graph_.storages.size(); ++s) {
      if (!constant_[s] || first_[s] == kNever ||
          graph_.storages[s].kind == StorageClass::kResident)
        continue;
      born[first_[s]] += static_cast<std::int64_t>(graph_.storages[s].bytes);
      gone[last_[s]] += static_cast<std::int64_t>(graph_.storages[s].bytes);
    }
    const auto inputs = static_cast<StageNode>(out_.operators.size() - out_.border);
    std::int64_t live = residents;
    out_.problem.stages.resize(out_.stage.empty() ? 1 : out_.stage.back() + 1);
    StageProblem::StageOf& forward = out_.problem.stages[0];
    for (StageNode node = 0; node < inputs; ++node) forward.must_run.push_back(node);
    for (std::size_t p = 0; p < out_.order.size(); ++p) {
      StageProblem::StageOf& stage = out_.problem.stages[out_.stage[p]];
      if (p >= out_.border) stage.fixed = live;
      live += born[p];
      if (p < out_.border) {
        // Of stage 0 the most: these are few, and only what is written in both parts.
        stage.fixed = std::max(stage.fixed, live);
        stage.must_run.push_back(static_cast<StageNode>(inputs + p));
      } else {
        stage.closing = live;
        add_alternatives(out_.order[p], stage);
      }
      live -= gone[p];
    }
  }

  void add_alternatives(OperatorId op, StageProblem::StageOf& stage) const {
    const Alternative& recorded = graph_.operators[op].alternatives.front();
    std::map<std::vector<StageValue>, std::size_t> known;
    for (std::size_t a = 0; a < graph_.operators[op].alternatives.size(); ++a) {
      const Alternative& alternative = graph_.operators[op].alternatives[a];
      if (alternative.writes != recorded.writes) continue;
      std::vector<StageValue> reads;
      bool constants_equal = true;
      for (const graph::Read& read : alternative.reads) {
        if (constant_[read.value.storage])
          constants_equal &= std::count(recorded.reads.begin(), recorded.reads.end(), read) > 0;
        else
          reads.push_back(number_.at(read.value));
      }
      if (!constants_equal) continue;
      std::sort(reads.begin(), reads.end());
      reads.erase(std::unique(reads.begin(), reads.end()), reads.end());
      const auto [there, added] = known.try_emplace(reads, stage.alternatives.size());
      if (added) stage.alternatives.push_back({reads, {}});
      stage.alternatives[there->second].all.push_back(
          {static_cast<std::int64_t>(alternative.ns),
           static_cast<std::int64_t>(alternative.workspace), static_cast<std::uint32_t>(a)});
    }
  }

  const graph::Graph& graph_;
  StageGraph& out_;
  const graph::Edges edges_;
  std::vector<std::size_t> position_, first_, last_;
  std::vector<bool> constant_;
  std::map<ValueId, StageValue> number_;
};

}  // namespace

StageGraph stage_graph(const graph::Graph& graph, std::vector<OperatorId> order, Bytes budget,
                       std::size_t least_border) {
  StageGraph out;
  const OrderProblem problem = order_problem(graph);
  if (order.empty()) {
    if (!graph.order.empty())
      order = graph.order;
    else
      order = problem.first_order();
  }
  const std::string wrong = problem.violation(order);
  BERTH_CHECK(wrong.empty(), kInput, "the order is none of this graph: {}", wrong);
  out.order = std::move(order);
  Builder(graph, out).build(budget, least_border);
  return out;
}

}  // namespace berth::schedule
