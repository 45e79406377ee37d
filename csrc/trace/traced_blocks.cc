#include "csrc/trace/traced_blocks.h"

#include "csrc/facts/operator_kinds.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <unordered_map>
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
class BlockWalk {
 public:
  BlockWalk(const Trace& trace, Bytes unit, TracedBlocks& found)
      : trace_(trace), unit_(unit), found_(found) {
    for (const trace::Entry& entry : trace.entries)
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
    found_.threads_ = threads_.size();
  }

 private:
  // What is open on one thread.
  class ThreadState {
   public:
    void begin(const trace::RangeBegin& range) { ranges_.push_back(range); }
    void end(const trace::RangeEnd& range) {
      const auto it = std::find_if(ranges_.rbegin(), ranges_.rend(),
                                   [&](const auto& open) { return open.range == range.range; });
      if (it != ranges_.rend()) ranges_.erase(std::next(it).base());
    }
    void begin(const trace::OperatorBegin& op, trace::StringId maker) {
      operators_.push_back({op, maker});
    }
    void end(const trace::OperatorEnd& op) {
      const auto it = std::find_if(operators_.rbegin(), operators_.rend(),
                                   [&](const auto& open) { return open.begin.op == op.op; });
      if (it != operators_.rend()) operators_.erase(std::next(it).base());
    }

    [[nodiscard]] trace::StringId module() const {
      for (auto range = ranges_.rbegin(); range != ranges_.rend(); ++range)
        if (range->kind == trace::RangeKind::kModule) return range->name;
      for (auto op = operators_.rbegin(); op != operators_.rend(); ++op)
        if (op->maker != 0) return op->maker;
      return 0;
    }

    [[nodiscard]] Origin origin(const Trace& trace) const {
      Origin origin{.module = module()};
      for (const trace::RangeBegin& range : ranges_) {  // the innermost of each kind stays
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
      for (const auto& [op, maker] : operators_) {
        backward |= op.backward;
        if (origin.op == 0 || !facts::only_allocates(trace.name(op.name))) origin.op = op.name;
      }
      if (origin.phase == Origin::Phase::kUnknown && !operators_.empty())
        origin.phase = backward ? Origin::Phase::kBackward : Origin::Phase::kForward;
      return origin;
    }

   private:
    std::vector<trace::RangeBegin> ranges_;
    struct OpenOperator {
      trace::OperatorBegin begin;
      trace::StringId maker = 0;  // the module whose forward made the backward node
    };
    std::vector<OpenOperator> operators_;
  };

  void see(const trace::Entry& entry, const trace::Request& request) {
    const Bytes bytes = align_up(request.bytes, unit_);
    index_[request.id] = found_.blocks_.size();
    found_.blocks_.push_back({.id = request.id,
                              .requested = request.bytes,
                              .bytes = bytes,
                              .lane = request.lane,
                              .born = entry.tick,
                              .origin = threads_[entry.thread].origin(trace_)});
    live_ += bytes;
    if (live_ > found_.peak_) {
      found_.peak_ = live_;
      found_.peak_tick_ = entry.tick;
      found_.peak_step_ = found_.marks_;
    }
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    ++found_.frees_;
    TracedBlock* const block = find(free.id);
    if (block == nullptr || block->freed != TracedBlock::kNever) return;
    block->freed = entry.tick;
    live_ -= block->bytes;
  }
  void see(const trace::Entry& entry, const trace::Operand& operand) {
    TracedBlock* const block = find(operand.block);
    if (block != nullptr && block->origin.module == 0)
      block->origin.module = threads_[entry.thread].module();
  }
  void see(const trace::Entry&, const trace::Role& role) {
    if (TracedBlock* const block = find(role.id)) block->role = role.role;
  }
  void see(const trace::Entry&, const trace::StepMark&) { ++found_.marks_; }
  void see(const trace::Entry& entry, const trace::RangeBegin& e) {
    threads_[entry.thread].begin(e);
  }
  void see(const trace::Entry& entry, const trace::RangeEnd& e) { threads_[entry.thread].end(e); }
  void see(const trace::Entry& entry, const trace::OperatorBegin& e) {
    ThreadState& thread = threads_[entry.thread];
    trace::StringId maker = 0;
    if (e.sequence >= 0) {
      if (e.backward) {
        const auto made = makers_.find({e.forward_thread, e.sequence});
        if (made != makers_.end()) maker = made->second;
      } else {
        makers_[{entry.thread, e.sequence}] = thread.module();
      }
    }
    thread.begin(e, maker);
  }
  void see(const trace::Entry& entry, const trace::OperatorEnd& e) {
    threads_[entry.thread].end(e);
  }
  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  // Null for a block from before the recording.
  TracedBlock* find(trace::BlockId id) {
    const auto it = index_.find(id);
    return it == index_.end() ? nullptr : &found_.blocks_[it->second];
  }

  const Trace& trace_;
  const Bytes unit_;
  TracedBlocks& found_;
  std::unordered_map<trace::ThreadId, ThreadState> threads_;
  std::unordered_map<trace::BlockId, std::size_t> index_;
  // The module of a forward operator, by its thread and autograd's number.
  std::map<std::pair<trace::ThreadId, std::int64_t>, trace::StringId> makers_;
  Bytes live_ = 0;
};

TracedBlocks::TracedBlocks(const Trace& trace, Bytes unit) {
  BlockWalk(trace, unit != 0 ? unit : trace.alignment, *this);
}

}  // namespace berth
