#include "csrc/graph/units.h"

#include "csrc/core/check.h"
#include "csrc/facts/operator_kinds.h"

#include <algorithm>
#include <unordered_set>

namespace berth::graph {
namespace {

class Finder {
 public:
  Finder(const Trace& trace, const TracedRun& run)
      : trace_(trace), run_(run), has_operands_(run.operators().size()) {
    for (const auto& [operand, op, tick] : run.operands()) has_operands_[op] = true;
  }

  Units run() && {
    for (OperatorIndex op = 0; op < run_.operators().size(); ++op) add(op);
    for (const auto& [operand, op, tick] : run_.operands())
      if (operand->block != 0 && unit_of(op) != kNoUnit) add(*operand, op);
    for (const auto& [alternative, op, tick] : run_.alternatives())
      if (unit_of(op) != kNoUnit) result_.units[unit_of(op)].alternatives.push_back(*alternative);
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
  [[nodiscard]] UnitIndex unit_of(OperatorIndex op) const {
    return op == kNoOperator ? kNoUnit : result_.unit_of[op];
  }

  void add(OperatorIndex index) {
    const TracedOperator& op = run_.operators()[index];
    const std::string_view name = trace_.name(op.name);
    BERTH_CHECK(seen_.insert(op.id).second, kInput,
                "operator {} of the trace begins twice, at last at tick {}", op.id, op.first_tick);
    UnitIndex unit = unit_of(op.parent);
    if (unit == kNoUnit && has_operands_[index] && !is_node(op)) {
      unit = static_cast<UnitIndex>(result_.units.size());
      result_.units.push_back({op, false, facts::only_allocates(name)});
    }
    result_.unit_of.push_back(unit);
    if (unit == kNoUnit) return;
    Unit& made = result_.units[unit];
    const UnitIndex forward = unit_of(op.forward);
    if (made.forward_unit == kNoUnit && forward != unit) made.forward_unit = forward;
    made.random |= op.random;
    made.host_sync |= op.host_sync || facts::waits_for_contents(name);
    made.collective |= facts::is_collective(name);
  }

  bool is_node(const TracedOperator& op) const {
    const std::string_view name = trace_.name(op.name);
    if (name.starts_with(facts::kEngine)) return true;
    if (!op.backward) return false;
    if (op.parent == kNoOperator) return !facts::is_operator(name);
    const TracedOperator& parent = run_.operators()[op.parent];
    if (!parent.backward) return true;
    const std::string_view around = trace_.name(parent.name);
    return around.starts_with(facts::kEngine) && around.ends_with(": " + std::string(name));
  }

  void add(const trace::Operand& operand, OperatorIndex op) {
    const UnitIndex index = unit_of(op);
    Unit& unit = result_.units[index];
    const std::string_view name = trace_.name(run_.operators()[op].name);
    const bool new_result = operand.output && operand.access == trace::Access::kWrite;
    if (operand.bytes > 0 && facts::is_saved_by_norm(name, operand.output, operand.position))
      trains_.insert(index);
    unit.gives |= operand.output;
    unit.gives_new |= new_result;
    if (facts::only_allocates(name)) return;

    // A result that lies in an argument's block was read or written as that.
    if (facts::only_changes_shape(name) || (operand.output && !new_result)) return;
    const bool unseen = !operand.output && !run_.operators()[op].backward &&
                        facts::writes_unseen(name, operand.position);
    const Bytes end = operand.byte_offset + operand.bytes;
    Touch& touch = unit.touches.emplace_back();
    touch.block = operand.block;
    touch.writes = operand.access != trace::Access::kRead || unseen;
    touch.covers = operand.access == trace::Access::kWrite && !operand.output &&
                   operand.byte_offset == 0 && end == bytes_of(operand) &&
                   align_up(end, trace_.alignment) >= run_.block(operand.block).bytes;
    touch.reads = !touch.covers;
    touch.aside = !operand.output && facts::is_statistics(name, operand.position);
    touch.offset = operand.byte_offset;
    touch.end = end;
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

  // A unit takes what its operators take that lie in no other that has a time.
  void add_device_times() {
    std::unordered_map<UnitIndex, std::uint64_t> sums;
    std::vector<bool> timed(run_.operators().size());  // or lies in one that is
    for (OperatorIndex op = 0; op < timed.size(); ++op) {
      const TracedOperator& one = run_.operators()[op];
      const UnitIndex unit = unit_of(op);
      const bool within = unit != kNoUnit && unit == unit_of(one.parent) && timed[one.parent];
      timed[op] = within || one.device_ns;
      if (unit != kNoUnit && one.device_ns && !within) sums[unit] += *one.device_ns;
    }
    for (const auto& [unit, ns] : sums) result_.units[unit].ns = ns;
  }

  const Trace& trace_;
  const TracedRun& run_;
  Units result_;
  std::vector<bool> has_operands_;  // by operator
  std::unordered_set<std::uint64_t> seen_;
  std::unordered_set<UnitIndex> trains_;  // norms that do
};

}  // namespace

Units find_units(const Trace& trace, const TracedRun& run) { return Finder(trace, run).run(); }

}  // namespace berth::graph
