#include "tests/support/operator_graph.h"

#include "csrc/core/checksum.h"
#include "csrc/facts/operator_kinds.h"

#include <algorithm>

namespace berth::test {

class OperatorGraphBuilder {
 public:
  using OperatorIndex = OperatorGraph::OperatorIndex;
  using Operator = OperatorGraph::Operator;
  using Block = OperatorGraph::Block;

  OperatorGraphBuilder(const Trace& trace, OperatorGraph& graph) : trace_(trace), graph_(graph) {
    for (const trace::Entry& entry : trace.entries) {
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
    }
    for (Block& block : graph_.blocks_) finish(block);
  }

 private:
  // What a forward operator is known by to the backward ones that it caused. Several may share it:
  // the number is that of the next node of the thread, and the last one to begin makes the node.
  struct Cause {
    trace::ThreadId thread;
    std::int64_t sequence;
    bool operator==(const Cause&) const = default;
  };
  struct CauseHash {
    std::size_t operator()(const Cause& c) const noexcept {
      return hash_combine(c.thread, static_cast<std::uint64_t>(c.sequence));
    }
  };

  Block& block_of(trace::BlockId id) {
    const auto next = static_cast<OperatorGraph::BlockIndex>(graph_.blocks_.size());
    const auto [it, unknown] = graph_.block_index_.emplace(id, next);
    if (unknown) graph_.blocks_.emplace_back().id = id;
    return graph_.blocks_[it->second];
  }

  std::optional<OperatorIndex> innermost(trace::ThreadId thread) {
    const auto& stack = open_[thread];
    return stack.empty() ? std::nullopt : std::optional(stack.back());
  }

  void see(const trace::Entry& entry, const trace::Request& request) {
    Block& block = block_of(request.id);
    block.bytes = request.bytes;
    block.born = entry.tick;
    block.requested_in = innermost(entry.thread);
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    block_of(free.id).freed = entry.tick;
  }
  void see(const trace::Entry&, const trace::Role& role) { block_of(role.id).role = role.role; }

  void see(const trace::Entry& entry, const trace::OperatorBegin& begin) {
    const auto index = static_cast<OperatorIndex>(graph_.operators_.size());
    graph_.operator_index_.emplace(begin.op, index);
    Operator& op = graph_.operators_.emplace_back();
    op.begin = begin;
    op.thread = entry.thread;
    op.first_tick = op.last_tick = entry.tick;
    op.begin_ns = op.end_ns = entry.time_ns;
    op.parent = innermost(entry.thread);
    if (begin.backward) {
      link_backward(op, index);
    } else if (begin.sequence >= 0) {
      causes_[{entry.thread, begin.sequence}] = index;
    }
    open_[entry.thread].push_back(index);
  }

  // The numbers of operators inside a backward one count other nodes: they follow their parent.
  void link_backward(Operator& op, OperatorIndex index) {
    const Operator* parent = op.parent ? &graph_.operators_[*op.parent] : nullptr;
    if (parent != nullptr && parent->begin.backward) {
      op.forward = parent->forward;
      if (op.forward) return;
    }
    const auto it = causes_.find({op.begin.forward_thread, op.begin.sequence});
    if (it == causes_.end()) return;
    op.forward = it->second;
    graph_.operators_[it->second].backward.push_back(index);
  }

  void see(const trace::Entry& entry, const trace::OperatorEnd& end) {
    const auto it = graph_.operator_index_.find(end.op);
    if (it == graph_.operator_index_.end()) return;
    graph_.operators_[it->second].last_tick = entry.tick;
    graph_.operators_[it->second].end_ns = entry.time_ns;
    auto& stack = open_[entry.thread];
    const auto open = std::find(stack.rbegin(), stack.rend(), it->second);
    if (open != stack.rend()) stack.erase(std::next(open).base());
  }

  void see(const trace::Entry&, const trace::Operand& operand) {
    const auto it = graph_.operator_index_.find(operand.op);
    if (it == graph_.operator_index_.end()) return;
    const OperatorIndex index = it->second;
    Operator& op = graph_.operators_[index];
    (operand.output ? op.results : op.arguments).push_back(operand);
    if (operand.block == 0) return;
    Block& block = block_of(operand.block);
    const bool allocates = facts::only_allocates(trace_.name(op.begin.name));
    const bool writes = operand.access != trace::Access::kRead && !allocates;
    // Results of inner operators come before those of outer ones. What was there before the
    // recording has no maker.
    const bool makes = writes && !block.made_by && (block.born || operand.output);
    if (makes) block.made_by = index;
    if (operand.output) return;
    // What fills a new block in place sees nothing of it.
    if (operand.access != trace::Access::kWrite && !allocates && !makes)
      block.read_by.push_back(index);
    if (writes && block.made_by != index) block.changed_by.push_back(index);
    block.last_used_by = index;
  }

  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  static void finish(Block& block) {
    const auto tidy = [](std::vector<OperatorIndex>& list) {
      std::sort(list.begin(), list.end());
      list.erase(std::unique(list.begin(), list.end()), list.end());
    };
    tidy(block.read_by);
    tidy(block.changed_by);
    // Room that nobody was seen to fill was made by who asked for it.
    if (!block.made_by) block.made_by = block.requested_in;
    if (!block.last_used_by) block.last_used_by = block.made_by;
  }

  const Trace& trace_;
  OperatorGraph& graph_;
  std::unordered_map<trace::ThreadId, std::vector<OperatorIndex>> open_;
  std::unordered_map<Cause, OperatorIndex, CauseHash> causes_;
};

OperatorGraph::OperatorGraph(const Trace& trace) { OperatorGraphBuilder(trace, *this); }

const OperatorGraph::Operator* OperatorGraph::find_operator(std::uint64_t op) const noexcept {
  const auto it = operator_index_.find(op);
  return it == operator_index_.end() ? nullptr : &operators_[it->second];
}

const OperatorGraph::Block* OperatorGraph::find_block(trace::BlockId id) const noexcept {
  const auto it = block_index_.find(id);
  return it == block_index_.end() ? nullptr : &blocks_[it->second];
}

}  // namespace berth::test
