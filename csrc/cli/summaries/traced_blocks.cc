#include "csrc/cli/summaries/traced_blocks.h"

#include "csrc/trace/operator_names.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <variant>

namespace berth::cli {
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
class TraceWalk {
 public:
  TraceWalk(const Trace& trace, TracedBlocks& found) : trace_(trace), found_(found) {
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
    void begin(const trace::OperatorBegin& op) { operators_.push_back(op); }
    void end(const trace::OperatorEnd& op) {
      const auto it = std::find_if(operators_.rbegin(), operators_.rend(),
                                   [&](const auto& open) { return open.op == op.op; });
      if (it != operators_.rend()) operators_.erase(std::next(it).base());
    }

    [[nodiscard]] Origin origin(const Trace& trace) const {
      Origin origin;
      for (const trace::RangeBegin& range : ranges_) {  // the innermost of each kind stays
        switch (range.kind) {
          case trace::RangeKind::kModule:
            origin.module = range.name;
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
      for (const trace::OperatorBegin& op : operators_) {
        backward |= op.backward;
        if (origin.op == 0 || !trace::only_allocates(trace.name(op.name))) origin.op = op.name;
      }
      if (origin.phase == Origin::Phase::kUnknown && !operators_.empty())
        origin.phase = backward ? Origin::Phase::kBackward : Origin::Phase::kForward;
      return origin;
    }

   private:
    std::vector<trace::RangeBegin> ranges_;
    std::vector<trace::OperatorBegin> operators_;
  };

  void see(const trace::Entry& entry, const trace::Request& request) {
    const Bytes bytes = align_up(request.bytes, trace_.alignment);
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
    const auto it = index_.find(free.id);
    if (it == index_.end()) return;  // from before the recording
    TracedBlock& block = found_.blocks_[it->second];
    if (block.freed != TracedBlock::kNever) return;
    block.freed = entry.tick;
    live_ -= block.bytes;
  }
  void see(const trace::Entry&, const trace::Role& role) {
    const auto it = index_.find(role.id);
    if (it != index_.end()) found_.blocks_[it->second].role = role.role;
  }
  void see(const trace::Entry&, const trace::StepMark&) { ++found_.marks_; }
  void see(const trace::Entry& entry, const trace::RangeBegin& e) {
    threads_[entry.thread].begin(e);
  }
  void see(const trace::Entry& entry, const trace::RangeEnd& e) { threads_[entry.thread].end(e); }
  void see(const trace::Entry& entry, const trace::OperatorBegin& e) {
    threads_[entry.thread].begin(e);
  }
  void see(const trace::Entry& entry, const trace::OperatorEnd& e) {
    threads_[entry.thread].end(e);
  }
  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  const Trace& trace_;
  TracedBlocks& found_;
  std::unordered_map<trace::ThreadId, ThreadState> threads_;
  std::unordered_map<trace::BlockId, std::size_t> index_;
  Bytes live_ = 0;
};

TracedBlocks::TracedBlocks(const Trace& trace) { TraceWalk(trace, *this); }

}  // namespace berth::cli
