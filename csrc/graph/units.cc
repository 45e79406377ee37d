#include "csrc/graph/units.h"

#include "csrc/core/check.h"
#include "csrc/core/checksum.h"
#include "csrc/facts/operator_kinds.h"

#include <algorithm>
#include <unordered_set>

namespace berth::graph {
namespace {

class Finder {
 public:
  explicit Finder(const Trace& trace) : trace_(trace) {
    for (const trace::Entry& entry : trace.entries)
      if (const auto* operand = std::get_if<trace::Operand>(&entry.event))
        operators_[operand->op].has_operands = true;
  }

  Units run() && {
    for (const trace::Entry& entry : trace_.entries) {
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
    }
    for (UnitIndex u = 0; u < result_.units.size(); ++u) {
      std::vector<Touch>& touches = result_.units[u].touches;
      if (!trains_.contains(u))
        for (Touch& touch : touches) touch.aside = false;
      merge(touches);
    }
    add_device_times();
    return std::move(result_);
  }

 private:
  struct Operator {
    trace::StringId name = 0;
    std::uint64_t parent = 0;  // that called it; has_parent says whether there is one
    UnitIndex unit = kNoUnit;
    UnitIndex forward = kNoUnit;
    std::uint64_t begin_ns = 0;
    std::uint64_t device_ns = 0;
    trace::ThreadId thread = 0;
    bool has_operands = false, has_parent = false, has_device_time = false;
    bool backward = false, begun = false, open = false;
    bool within_timed = false;  // one of its unit that it lies in has a device time
  };
  struct Thread {
    std::vector<std::uint64_t> open;  // operators, outermost first
    std::vector<std::uint64_t> optimizer_ranges;
  };
  // The last operator to begin with a number made the node that has it.
  struct Cause {
    trace::ThreadId thread;
    std::int64_t sequence;
    bool operator==(const Cause&) const = default;
  };
  struct CauseHash {
    std::size_t operator()(const Cause& cause) const noexcept {
      return hash_combine(cause.thread, static_cast<std::uint64_t>(cause.sequence));
    }
  };

  Unit* unit_at(trace::ThreadId thread) {
    const std::vector<std::uint64_t>& open = threads_[thread].open;
    const UnitIndex unit = open.empty() ? kNoUnit : operators_[open.back()].unit;
    return unit == kNoUnit ? nullptr : &result_.units[unit];
  }

  // Ends what is open from `index` on.
  void close(Thread& thread, std::size_t index, const trace::Entry& entry) {
    while (thread.open.size() > index) {
      Operator& op = operators_[thread.open.back()];
      thread.open.pop_back();
      op.open = false;
      const bool outermost =
          op.unit != kNoUnit && (!op.has_parent || operators_[op.parent].unit != op.unit);
      if (!outermost) continue;
      Unit& unit = result_.units[op.unit];
      unit.last_tick = std::max(unit.last_tick, entry.tick);
      if (entry.time_ns > op.begin_ns) unit.ns = entry.time_ns - op.begin_ns;
    }
  }

  void see(const trace::Entry& entry, const trace::OperatorBegin& begin) {
    Thread& thread = threads_[entry.thread];
    Operator& op = operators_[begin.op];
    BERTH_CHECK(!op.begun, kInput, "operator {} of the trace begins twice, at last at tick {}",
                begin.op, entry.tick);
    op.begun = op.open = true;
    begun_.push_back(&op);
    op.thread = entry.thread;
    op.name = begin.name;
    op.begin_ns = entry.time_ns;
    op.backward = begin.backward;
    op.has_parent = !thread.open.empty();
    if (op.has_parent) op.parent = thread.open.back();
    Operator* const parent = op.has_parent ? &operators_[op.parent] : nullptr;
    const UnitIndex around = parent != nullptr ? parent->unit : kNoUnit;
    if (around != kNoUnit) {
      op.unit = around;
    } else if (op.has_operands && !is_node(op, parent)) {
      BERTH_CHECK(result_.units.size() < kNoUnit, kInput,
                  "the trace has {} operators, the most is {}", result_.units.size(), kNoUnit);
      op.unit = static_cast<UnitIndex>(result_.units.size());
      Unit& unit = result_.units.emplace_back();
      unit.name = begin.name;
      unit.thread = entry.thread;
      unit.first_tick = unit.last_tick = entry.tick;
      unit.backward = begin.backward;
      unit.in_optimizer = !thread.optimizer_ranges.empty();
      unit.only_allocates = facts::only_allocates(trace_.name(begin.name));
    }
    link(op, parent, begin, entry.thread);
    thread.open.push_back(begin.op);
    if (op.unit == kNoUnit) return;
    Unit& unit = result_.units[op.unit];
    if (unit.forward == kNoUnit && op.forward != op.unit) unit.forward = op.forward;
    unit.random |= begin.random;
    unit.host_sync |= facts::waits_for_contents(trace_.name(begin.name));
    unit.collective |= facts::is_collective(trace_.name(begin.name));
  }

  bool is_node(const Operator& op, const Operator* parent) const {
    const std::string_view name = trace_.name(op.name);
    if (name.starts_with(facts::kEngine)) return true;
    if (!op.backward) return false;
    if (parent == nullptr) return !facts::is_operator(name);
    if (!parent->backward) return true;
    const std::string_view around = trace_.name(parent->name);
    return around.starts_with(facts::kEngine) && around.ends_with(": " + std::string(name));
  }

  // The numbers of operators inside a backward one count other nodes: they follow their parent.
  // What the engine runs after a node (the sum to a bias's shape) follows the node.
  void link(Operator& op, Operator* parent, const trace::OperatorBegin& begin,
            trace::ThreadId thread) {
    if (!begin.backward) {
      if (begin.sequence >= 0) causes_[{thread, begin.sequence}] = op.unit;
      return;
    }
    if (parent != nullptr && parent->backward) op.forward = parent->forward;
    if (op.forward != kNoUnit || begin.sequence < 0) return;
    const auto cause = causes_.find({begin.forward_thread, begin.sequence});
    if (cause == causes_.end()) return;
    op.forward = cause->second;
    if (parent != nullptr && trace_.name(parent->name).starts_with(facts::kEngine))
      parent->forward = op.forward;
  }

  void see(const trace::Entry& entry, const trace::OperatorEnd& end) {
    const auto found = operators_.find(end.op);
    if (found == operators_.end() || !found->second.open || found->second.thread != entry.thread)
      return;
    Thread& thread = threads_[entry.thread];
    const auto open = std::find(thread.open.rbegin(), thread.open.rend(), end.op);
    close(thread, static_cast<std::size_t>(thread.open.rend() - open) - 1, entry);
  }

  void see(const trace::Entry& entry, const trace::StepMark&) {
    close(threads_[entry.thread], 0, entry);
  }

  void see(const trace::Entry&, const trace::Operand& operand) {
    const auto found = operators_.find(operand.op);
    if (operand.block == 0 || found->second.unit == kNoUnit) return;
    Unit& unit = result_.units[found->second.unit];
    BlockLife& block = result_.blocks[operand.block];
    const auto end = checked_add(operand.byte_offset, operand.bytes);
    BERTH_CHECK(end, kInput, "operator {} takes bytes {} to {} of a block", operand.op,
                operand.byte_offset, operand.byte_offset + operand.bytes);
    if (!block.born) block.bytes = std::max(block.bytes, align_up(*end, trace_.alignment));
    const std::string_view name = trace_.name(found->second.name);
    const bool new_result = operand.output && operand.access == trace::Access::kWrite;
    if (operand.bytes > 0 && facts::is_saved_by_norm(name, operand.output, operand.position))
      trains_.insert(found->second.unit);
    unit.gives |= operand.output;
    unit.gives_new |= new_result;
    if (facts::only_allocates(name)) return;

    // A result that lies in an argument's block was read or written as that.
    if (facts::only_changes_shape(name) || (operand.output && !new_result)) return;
    const bool unseen =
        !operand.output && !found->second.backward && facts::writes_unseen(name, operand.position);
    Touch& touch = unit.touches.emplace_back();
    touch.block = operand.block;
    touch.writes = operand.access != trace::Access::kRead || unseen;
    touch.covers = operand.access == trace::Access::kWrite && !operand.output &&
                   operand.byte_offset == 0 && *end == bytes_of(operand) &&
                   align_up(*end, trace_.alignment) >= block.bytes;
    touch.reads = !touch.covers;
    touch.aside = !operand.output && facts::is_statistics(name, operand.position);
    touch.offset = operand.byte_offset;
    touch.end = *end;
  }

  // One of each block, of all in the order of the run.
  static void merge(std::vector<Touch>& touches) {
    std::stable_sort(touches.begin(), touches.end(),
                     [](const Touch& a, const Touch& b) { return a.block < b.block; });
    std::size_t kept = 0;
    for (const Touch& touch : touches) {
      if (kept == 0 || touches[kept - 1].block != touch.block) {
        touches[kept++] = touch;
        continue;
      }
      Touch& one = touches[kept - 1];
      // What another operator of the unit wrote whole is not what was there before the unit.
      one.reads |= touch.reads && !one.covers;
      one.writes |= touch.writes;
      one.covers |= touch.covers;
      one.aside &= touch.aside;
      one.offset = std::min(one.offset, touch.offset);
      one.end = std::max(one.end, touch.end);
    }
    touches.resize(kept);
  }

  // Without holes between its elements; 0 where that cannot be told.
  Bytes bytes_of(const trace::Operand& operand) const {
    Bytes bytes = facts::element_bytes(operand.element_type);
    for (const std::int64_t size : trace_.shapes[operand.shape]) {
      const auto product =
          checked_multiply(bytes, static_cast<Bytes>(std::max<std::int64_t>(size, 0)));
      if (!product) return 0;
      bytes = *product;
    }
    return bytes;
  }

  void see(const trace::Entry& entry, const trace::Request& request) {
    BlockLife& block = result_.blocks[request.id];
    block.bytes = align_up(request.bytes, trace_.alignment);
    block.born = entry.tick;
    block.lane = request.lane;
    block.thread = entry.thread;
    const std::vector<std::uint64_t>& open = threads_[entry.thread].open;
    if (open.empty()) return;
    const Operator& op = operators_[open.back()];
    block.requested_in = op.unit;
    block.around = op.name;
    block.backward = op.backward;
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    result_.blocks[free.id].freed = entry.tick;
  }
  void see(const trace::Entry&, const trace::Role& role) {
    result_.blocks[role.id].role = role.role;
  }

  void see(const trace::Entry& entry, const trace::RangeBegin& range) {
    if (trace_.name(range.name).starts_with("Optimizer.step"))
      threads_[entry.thread].optimizer_ranges.push_back(range.range);
  }
  void see(const trace::Entry& entry, const trace::RangeEnd& range) {
    std::erase(threads_[entry.thread].optimizer_ranges, range.range);
  }

  void see(const trace::Entry& entry, const trace::Copy& copy) {
    Unit* const unit = unit_at(entry.thread);
    if (unit != nullptr && copy.direction == trace::CopyDirection::kDeviceToHost)
      unit->host_sync = true;
  }
  void see(const trace::Entry& entry, const trace::Synchronize&) {
    if (Unit* const unit = unit_at(entry.thread)) unit->host_sync = true;
  }
  void see(const trace::Entry&, const trace::Choice& choice) {
    const auto found = operators_.find(choice.op);
    if (found != operators_.end() && found->second.unit != kNoUnit)
      result_.units[found->second.unit].choices.push_back(choice);
  }
  void see(const trace::Entry&, const trace::DeviceTime& time) {
    const auto found = operators_.find(time.op);
    if (found == operators_.end()) return;
    found->second.has_device_time = true;
    found->second.device_ns += time.duration_ns;
  }

  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  // A unit takes what its operators take that lie in no other that has a time.
  void add_device_times() {
    std::unordered_map<UnitIndex, std::uint64_t> sums;
    for (Operator* const op : begun_) {
      if (op->unit == kNoUnit) continue;
      if (op->has_parent) {
        const Operator& parent = operators_[op->parent];
        op->within_timed =
            parent.unit == op->unit && (parent.within_timed || parent.has_device_time);
      }
      if (op->has_device_time && !op->within_timed) sums[op->unit] += op->device_ns;
    }
    for (const auto& [unit, ns] : sums) result_.units[unit].ns = ns;
  }

  const Trace& trace_;
  Units result_;
  std::unordered_map<std::uint64_t, Operator> operators_;
  std::vector<Operator*> begun_;  // in the order of the run
  std::unordered_map<trace::ThreadId, Thread> threads_;
  std::unordered_map<Cause, UnitIndex, CauseHash> causes_;
  std::unordered_set<UnitIndex> trains_;  // norms that do
};

}  // namespace

Units find_units(const Trace& trace) { return Finder(trace).run(); }

}  // namespace berth::graph
