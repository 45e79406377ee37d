#include "csrc/trace/traced_run.h"

#include "csrc/facts/operator_kinds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <variant>

namespace berth {

std::string phase_name(const Trace& trace, const Origin& origin) {
  switch (origin.phase) {
    case Origin::Phase::kNamed:
      return std::string(trace.name(origin.phase_name));
    case Origin::Phase::kForward:
      return "forward";
    case Origin::Phase::kBackward:
      return "backward";
    case Origin::Phase::kUnknown:
      break;
  }
  return "";
}

// The one pass.
class RunWalk {
 public:
  RunWalk(const Trace& trace, Bytes unit, TracedRun& found)
      : trace_(trace), unit_(unit), found_(found) {
    for (const trace::Entry& entry : trace.entries)
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
    found_.threads_ = threads_.size();
  }

 private:
  // What is open on one thread, outermost first.
  struct Thread {
    std::vector<trace::RangeBegin> ranges;
    std::vector<OperatorIndex> operators;
  };

  [[nodiscard]] trace::StringId module(const Thread& thread) const {
    for (auto range = thread.ranges.rbegin(); range != thread.ranges.rend(); ++range)
      if (range->kind == trace::RangeKind::kModule) return range->name;
    for (auto op = thread.operators.rbegin(); op != thread.operators.rend(); ++op) {
      const OperatorIndex forward = found_.operators_[*op].forward;
      if (forward != kNoOperator && found_.operators_[forward].module != 0)
        return found_.operators_[forward].module;
    }
    return 0;
  }

  [[nodiscard]] Origin origin(const Thread& thread) const {
    Origin origin{.module = module(thread)};
    for (const trace::RangeBegin& range : thread.ranges) {  // the innermost of each kind stays
      switch (range.kind) {
        case trace::RangeKind::kModule:
          break;
        case trace::RangeKind::kPhase:
          origin.phase_name = range.name;
          origin.phase = Origin::Phase::kNamed;
          break;
        case trace::RangeKind::kUser:
          origin.scope = range.name;
          break;
      }
    }
    bool backward = false;
    for (const OperatorIndex index : thread.operators) {
      const TracedOperator& op = found_.operators_[index];
      backward |= op.backward;
      if (origin.op == 0 || !facts::only_allocates(trace_.name(op.name))) origin.op = op.name;
    }
    if (origin.phase == Origin::Phase::kUnknown && !thread.operators.empty())
      origin.phase = backward ? Origin::Phase::kBackward : Origin::Phase::kForward;
    return origin;
  }

  // --- Blocks ------------------------------------------------------------------------------------

  void see(const trace::Entry& entry, const trace::Request& request) {
    const Bytes bytes = align_up(request.bytes, unit_);
    const Thread& thread = threads_[entry.thread];
    live_ += bytes;
    found_.index_[request.id] = found_.blocks_.size();
    found_.before_.erase(request.id);
    found_.blocks_.push_back(
        {.id = request.id,
         .requested = request.bytes,
         .bytes = bytes,
         .lane = request.lane,
         .birth = entry.tick,
         .live = live_,
         .op = thread.operators.empty() ? kNoOperator : thread.operators.back(),
         .origin = origin(thread)});
    if (live_ > found_.peak_) {
      found_.peak_ = live_;
      found_.peak_tick_ = entry.tick;
      found_.peak_step_ = found_.marks_;
    }
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    ++found_.frees_;
    TracedBlock& block = block_of(free.id);
    if (block.end != TracedBlock::kNever) return;
    block.end = entry.tick;
    live_ -= block.before ? 0 : block.bytes;
  }
  void see(const trace::Entry&, const trace::Role& role) { block_of(role.id).role = role.role; }

  TracedBlock& block_of(trace::BlockId id) {
    const auto it = found_.index_.find(id);
    if (it != found_.index_.end()) return found_.blocks_[it->second];
    return found_.before_.try_emplace(id, TracedBlock{.id = id, .before = true, .origin = {}})
        .first->second;
  }

  // --- Ranges ------------------------------------------------------------------------------------

  void see(const trace::Entry& entry, const trace::RangeBegin& range) {
    threads_[entry.thread].ranges.push_back(range);
  }
  void see(const trace::Entry& entry, const trace::RangeEnd& range) {
    std::vector<trace::RangeBegin>& ranges = threads_[entry.thread].ranges;
    const auto it = std::find_if(ranges.rbegin(), ranges.rend(),
                                 [&](const auto& open) { return open.range == range.range; });
    if (it != ranges.rend()) ranges.erase(std::next(it).base());
  }
  void see(const trace::Entry& entry, const trace::StepMark&) {
    ++found_.marks_;
    const auto thread = threads_.find(entry.thread);
    if (thread != threads_.end()) close(thread->second, 0, entry);
  }

  // --- Operators ---------------------------------------------------------------------------------

  void see(const trace::Entry& entry, const trace::OperatorBegin& begin) {
    Thread& thread = threads_[entry.thread];
    const auto is_optimizer = [&](const trace::RangeBegin& range) {
      return trace_.name(range.name).starts_with("Optimizer.step");
    };
    TracedOperator op{
        .id = begin.op,
        .name = begin.name,
        .thread = entry.thread,
        .first_tick = entry.tick,
        .last_tick = entry.tick,
        .begin_ns = entry.time_ns,
        .device_ns = {},
        .module = begin.backward ? 0 : module(thread),
        .backward = begin.backward,
        .random = begin.random,
        .in_optimizer = std::any_of(thread.ranges.begin(), thread.ranges.end(), is_optimizer)};
    if (!thread.operators.empty()) op.parent = thread.operators.back();
    link(op, begin);
    const auto index = static_cast<OperatorIndex>(found_.operators_.size());
    number_[begin.op] = index;
    thread.operators.push_back(index);
    found_.operators_.push_back(op);
  }

  // What the engine runs after a node (the sum to a bias's shape) follows the node.
  void link(TracedOperator& op, const trace::OperatorBegin& begin) {
    if (!begin.backward) {
      if (begin.sequence >= 0)
        makers_[{op.thread, begin.sequence}] = static_cast<OperatorIndex>(found_.operators_.size());
      return;
    }
    TracedOperator* const parent =
        op.parent == kNoOperator ? nullptr : &found_.operators_[op.parent];
    if (parent != nullptr && parent->backward) op.forward = parent->forward;
    if (op.forward != kNoOperator || begin.sequence < 0) return;
    const auto maker = makers_.find({begin.forward_thread, begin.sequence});
    if (maker == makers_.end()) return;
    op.forward = maker->second;
    if (parent != nullptr && trace_.name(parent->name).starts_with(facts::kEngine))
      parent->forward = op.forward;
  }

  void see(const trace::Entry& entry, const trace::OperatorEnd& end) {
    Thread& thread = threads_[entry.thread];
    const auto number = number_.find(end.op);
    if (number == number_.end()) return;
    const auto open = std::find(thread.operators.rbegin(), thread.operators.rend(), number->second);
    if (open != thread.operators.rend())
      close(thread, static_cast<std::size_t>(thread.operators.rend() - open) - 1, entry);
  }

  // Ends what is open from `index` on.
  void close(Thread& thread, std::size_t index, const trace::Entry& entry) {
    for (; thread.operators.size() > index; thread.operators.pop_back()) {
      TracedOperator& op = found_.operators_[thread.operators.back()];
      op.last_tick = entry.tick;
      if (entry.time_ns > op.begin_ns) op.ns = entry.time_ns - op.begin_ns;
    }
  }

  void see(const trace::Entry& entry, const trace::Operand& operand) {
    keep(found_.operands_, entry, operand);
    if (operand.block == 0) return;
    TracedBlock& block = block_of(operand.block);
    if (block.before) {
      const auto end = checked_add(operand.byte_offset, operand.bytes);
      if (end) block.bytes = std::max(block.bytes, align_up(*end, unit_));
    } else if (block.origin.module == 0) {
      block.origin.module = module(threads_[entry.thread]);
    }
  }
  void see(const trace::Entry& entry, const trace::Alternative& alternative) {
    keep(found_.alternatives_, entry, alternative);
  }
  template <class Entry>
  void keep(std::vector<OfOperator<Entry>>& all, const trace::Entry& at, const Entry& entry) const {
    const auto number = number_.find(entry.op);
    if (number != number_.end()) all.push_back({&entry, number->second, at.tick});
  }

  void see(const trace::Entry&, const trace::DeviceTime& time) {
    const auto number = number_.find(time.op);
    if (number == number_.end()) return;
    std::optional<std::uint64_t>& ns = found_.operators_[number->second].device_ns;
    ns = ns.value_or(0) + time.duration_ns;
  }
  void see(const trace::Entry& entry, const trace::Copy& copy) {
    if (copy.direction == trace::CopyDirection::kDeviceToHost) synchronize(entry.thread);
  }
  void see(const trace::Entry& entry, const trace::Synchronize&) { synchronize(entry.thread); }
  void synchronize(trace::ThreadId number) {
    const auto thread = threads_.find(number);
    if (thread != threads_.end() && !thread->second.operators.empty())
      found_.operators_[thread->second.operators.back()].host_sync = true;
  }

  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  const Trace& trace_;
  const Bytes unit_;
  TracedRun& found_;
  std::unordered_map<trace::ThreadId, Thread> threads_;
  std::unordered_map<std::uint64_t, OperatorIndex> number_;
  // The last forward operator to begin with a number of autograd made the node that has it.
  std::map<std::pair<trace::ThreadId, std::int64_t>, OperatorIndex> makers_;
  Bytes live_ = 0;
};

TracedRun::TracedRun(const Trace& trace, Bytes unit) {
  RunWalk(trace, unit != 0 ? unit : trace.alignment, *this);
}

const TracedBlock& TracedRun::block(trace::BlockId id) const {
  const auto it = index_.find(id);
  return it == index_.end() ? before_.at(id) : blocks_[it->second];
}

Bytes TracedRun::peak_between(trace::Tick first, trace::Tick last) const noexcept {
  Bytes there = 0, peak = 0;
  for (const TracedBlock& block : blocks_) {
    if (block.lives_at(first)) there += block.bytes;
    if (block.birth > first && block.birth <= last) peak = std::max(peak, block.live);
  }
  return std::max(there, peak);
}

Bytes workspace_of(const std::vector<const TracedBlock*>& requested, trace::Tick end) {
  std::vector<std::pair<trace::Tick, const TracedBlock*>> changes;
  Bytes live = 0, most = 0;
  for (const TracedBlock* const block : requested) {
    changes.emplace_back(block->birth, block);
    if (block->end <= end) changes.emplace_back(block->end, block);
  }
  std::sort(changes.begin(), changes.end());
  for (const auto& [tick, block] : changes) {
    live = tick == block->end ? live - block->bytes : live + block->bytes;
    most = std::max(most, live);
  }
  return most - live;
}

}  // namespace berth
