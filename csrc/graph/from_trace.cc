#include "csrc/graph/from_trace.h"

#include "csrc/core/check.h"
#include "csrc/graph/step_from_trace.h"
#include "csrc/graph/step_graph.h"
#include "csrc/graph/tried_alternatives.h"
#include "csrc/graph/units.h"
#include "csrc/trace/step.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

namespace berth::graph {
namespace {

using Moment = TracedGraph::Moment;
using trace::BlockId;
using trace::Tick;

constexpr std::uint64_t kMostNs = std::uint64_t{1} << 62;
constexpr std::uint32_t kMostSteps = 64;  // whose times are compared
constexpr OperatorId kNone = std::numeric_limits<OperatorId>::max();
constexpr StorageId kNoStorage = std::numeric_limits<StorageId>::max();

class TraceGraphBuilder {
 public:
  TraceGraphBuilder(const Trace& trace, const TracedRun& run, const Step& step)
      : trace_(trace), run_(run), found_(find_units(trace, run)) {
    first_tick_ = step.first_tick;
    last_tick_ = step.last_tick;
    for (const StepLane& lane : step.lanes) keys_.insert(lane.key);
    const auto at = [this](Tick tick) {
      return std::partition_point(found_.units.begin(), found_.units.end(),
                                  [tick](const Unit& unit) { return unit.first_tick < tick; }) -
             found_.units.begin();
    };
    begin_ = static_cast<UnitIndex>(at(first_tick_));
    end_ = static_cast<UnitIndex>(at(last_tick_));
    for (const Unit& unit : found_.units) tried_.add(unit);
  }

  TracedGraph run() && {
    list_blocks();
    choose_units();
    find_makers();
    make_operators();
    make_storages();
    replay();
    find_operands();
    make_graph();
    finish_lifetimes();
    set_times();
    set_roles();
    const std::string wrong = violation(graph());
    BERTH_CHECK(wrong.empty(), kInput, "the trace's step is no graph: {}", wrong);
    return std::move(result_);
  }

 private:
  // What is known of a block beside its life in the run.
  struct Block {
    BlockId id = 0;
    const TracedBlock* life = nullptr;
    UnitIndex requested_by = kNoUnit;
    UnitIndex maker = kNoUnit;  // of one that is born in the step
    bool asked = false;         // nobody filled it but who asked for it
    StorageId storage = kNoStorage;
    OperatorId requested_in = kNone;
    Moment birth = 0, end = 0;  // at the request and the free
    OperatorId first_use = kNone, last_use = kNone;
  };
  // What an operator stands for: a unit, or a block that was filled outside of all.
  struct Source {
    Tick first = 0, last = 0;
    UnitIndex unit = kNoUnit;
    Block* block = nullptr;
  };

  Graph& graph() { return result_.graph; }
  bool in_step(UnitIndex unit) const { return unit >= begin_ && unit < end_; }
  bool keeps(UnitIndex unit) const { return in_step(unit) && kept_[unit - begin_]; }
  bool born_inside(const Block& block) const {
    return !block.life->before && block.life->birth >= first_tick_;
  }
  bool in_lane(const Block& block) const {
    return block.life->before || keys_.contains(trace_.lanes[block.life->lane].key);
  }
  UnitIndex unit_of(OperatorIndex op) const {
    return op == kNoOperator ? kNoUnit : found_.unit_of[op];
  }
  Block* find(BlockId id) {
    const auto found = index_.find(id);
    return found == index_.end() ? nullptr : &blocks_[found->second];
  }

  // All that are alive at some time of the step, in the order of their births.
  void list_blocks() {
    const auto list = [&](const TracedBlock& life) {
      if (life.bytes != 0 && life.birth < last_tick_ && life.end >= first_tick_)
        blocks_.push_back({.id = life.id, .life = &life, .requested_by = unit_of(life.op)});
    };
    for (const auto& [id, life] : run_.before()) list(life);
    for (const TracedBlock& life : run_.blocks()) list(life);
    std::sort(blocks_.begin(), blocks_.end(), [](const Block& a, const Block& b) {
      return std::tuple(a.life->birth, a.id) < std::tuple(b.life->birth, b.id);
    });
    for (std::size_t b = 0; b < blocks_.size(); ++b) index_[blocks_[b].id] = b;
  }

  // Drops what makes views, what makes room, and what has nothing to do with the step's lanes.
  void choose_units() {
    std::vector<bool> asks(end_ - begin_, false), ours(end_ - begin_, false);
    for (const Block& block : blocks_) {
      const UnitIndex unit = block.requested_by;
      if (!born_inside(block) || !in_step(unit)) continue;
      asks[unit - begin_] = true;
      if (in_lane(block)) ours[unit - begin_] = true;
    }
    kept_.assign(end_ - begin_, false);
    for (UnitIndex u = begin_; u < end_; ++u) {
      const Unit& unit = found_.units[u];
      bool writes = false, mine = ours[u - begin_];
      for (const Touch& touch : unit.touches) {
        writes |= touch.writes;
        const Block* const block = find(touch.block);
        mine |= block != nullptr && in_lane(*block);
      }
      const bool only_views = unit.gives && !unit.gives_new && !writes && !asks[u - begin_];
      kept_[u - begin_] =
          mine && !unit.only_allocates && (!only_views || unit.host_sync || unit.collective);
    }
  }

  // A block's maker is the unit that it was requested in, but of room that is made for others the
  // first that writes it. Where one reads it before, who asked for it has filled it.
  void find_makers() {
    for (Block& block : blocks_)
      if (born_inside(block) && keeps(block.requested_by)) block.maker = block.requested_by;
    for (UnitIndex u = begin_; u < end_; ++u) {
      if (!keeps(u)) continue;
      for (const Touch& touch : found_.units[u].touches) {
        Block* const block = find(touch.block);
        if (block == nullptr) continue;
        used_.insert(block->id);
        if (!born_inside(*block) || block->maker != kNoUnit || block->asked) continue;
        if (touch.writes)
          block->maker = u;
        else
          block->asked = true;
      }
    }
    for (Block& block : blocks_) {
      if (!born_inside(block) || block.maker != kNoUnit) continue;
      if (!in_lane(block) && !used_.contains(block.id)) continue;
      block.asked = true;
      const UnitIndex asker = block.requested_by;
      if (!in_step(asker) || !found_.units[asker].only_allocates) continue;
      kept_[asker - begin_] = true;
      block.maker = asker;
    }
  }

  void make_operators() {
    for (UnitIndex u = begin_; u < end_; ++u)
      if (keeps(u)) sources_.push_back({found_.units[u].first_tick, found_.units[u].last_tick, u});
    for (Block& block : blocks_)
      if (block.asked && block.maker == kNoUnit)
        sources_.push_back({block.life->birth, block.life->birth, kNoUnit, &block});
    std::sort(sources_.begin(), sources_.end(),
              [](const Source& a, const Source& b) { return a.first < b.first; });
    BERTH_CHECK(sources_.size() <= Graph::kMaxOperators, kInput,
                "the trace's step has {} operators, the most is {}", sources_.size(),
                Graph::kMaxOperators);
    operator_of_.assign(end_ - begin_, kNone);
    for (OperatorId op = 0; op < sources_.size(); ++op) {
      const Source& source = sources_[op];
      StepCall& call = calls_.emplace_back();
      if (source.unit == kNoUnit) {
        const OperatorIndex around = source.block->life->op;
        const bool outside = around == kNoOperator;
        call.name = outside ? "outside of operators" : trace_.name(run_.operators()[around].name);
        call.backward = !outside && run_.operators()[around].backward;
        source.block->requested_in = op;
        continue;
      }
      const Unit& unit = found_.units[source.unit];
      operator_of_[source.unit - begin_] = op;
      call.name = trace_.name(unit.name);
      call.backward = unit.backward;
      call.in_optimizer = unit.in_optimizer;
      call.random = unit.random;
      call.host_read = unit.host_sync;
      call.collective = unit.collective;
      if (!in_step(unit.forward_unit)) continue;
      const OperatorId forward = operator_of_[unit.forward_unit - begin_];
      if (forward != kNone) call.forward = forward;
    }
  }

  void make_storages() {
    for (Block& block : blocks_) {
      const TracedBlock& life = *block.life;
      if (born_inside(block) && keeps(block.requested_by))
        block.requested_in = operator_of_[block.requested_by - begin_];
      const bool inner =
          block.requested_in != kNone && life.end <= sources_[block.requested_in].last;
      counted_.push_back(in_lane(block) || used_.contains(block.id));
      if (!counted_.back() || inner) continue;
      block.storage = static_cast<StorageId>(storages_.size());
      const bool resident = !born_inside(block) && life.end >= last_tick_;
      storages_.push_back({.bytes = life.bytes,
                           .kind = resident             ? StorageClass::kResident
                                   : born_inside(block) ? StorageClass::kStep
                                                        : StorageClass::kInput,
                           .same = resident,
                           .role = life.role});
      result_.blocks.push_back(block.id);
    }
    result_.lifetimes.resize(storages_.size());
  }

  // --- What is alive when ------------------------------------------------------------------------

  // Where ticks stand among the operators, in the order of the run.
  Moment moment_at(Tick tick) {
    while (begun_ < sources_.size() && sources_[begun_].first <= tick) ++begun_;
    const bool runs = begun_ != 0 && sources_[begun_ - 1].last >= tick;
    return static_cast<Moment>(2 * begun_ - (runs ? 1 : 0));
  }

  // Follows the step's requests and frees: moments of births and ends, the time of most bytes of
  // each moment, workspaces.
  void replay() {
    Bytes live = 0;
    for (std::size_t b = 0; b < blocks_.size(); ++b)
      if (counted_[b] && !born_inside(blocks_[b])) add(live, blocks_[b].life->bytes);
    result_.recorded_peak = live;
    fullest_.assign(2 * sources_.size() + 1, first_tick_);
    std::vector<Bytes> most(fullest_.size(), 0);
    std::size_t entered = 0;
    const auto enter = [&](Moment moment) {
      for (; entered <= moment; ++entered) {
        const std::size_t op = entered / 2;
        most[entered] = live;
        if (entered != 0)
          fullest_[entered] = entered % 2 == 1 ? sources_[op].first : sources_[op - 1].last;
      }
    };
    std::vector<std::pair<Tick, std::size_t>> changes;  // births and frees within the step
    std::vector<std::vector<const TracedBlock*>> requested(sources_.size());
    for (std::size_t b = 0; b < blocks_.size(); ++b) {
      const Block& block = blocks_[b];
      if (!counted_[b]) continue;
      if (born_inside(block)) changes.emplace_back(block.life->birth, b);
      if (block.life->end < last_tick_) changes.emplace_back(block.life->end, b);
      if (block.requested_in != kNone) requested[block.requested_in].push_back(block.life);
    }
    std::sort(changes.begin(), changes.end());
    for (const auto& [tick, b] : changes) {
      Block& block = blocks_[b];
      const Moment moment = moment_at(tick);
      enter(moment);
      if (tick == block.life->end) {
        live -= block.life->bytes;
        block.end = moment;
        continue;
      }
      block.birth = moment;
      add(live, block.life->bytes);
      result_.recorded_peak = std::max(result_.recorded_peak, live);
      if (live > most[moment]) {
        most[moment] = live;
        fullest_[moment] = tick;
      }
    }
    enter(static_cast<Moment>(fullest_.size() - 1));
    for (OperatorId op = 0; op < sources_.size(); ++op)
      calls_[op].workspace = workspace_of(requested[op], sources_[op].last);
  }

  static void add(Bytes& sum, Bytes bytes) {
    const auto both = checked_add(sum, bytes);
    BERTH_CHECK(both, kInput, "the trace has {} and {} bytes alive at one time, the most is {}",
                sum, bytes, kMaxBytes);
    sum = *both;
  }

  // --- What operators read and write -------------------------------------------------------------

  void find_operands() {
    std::vector<std::vector<Block*>> makes(sources_.size());
    std::set<BlockId> operands;  // of any operator
    for (Block& block : blocks_) {
      if (block.storage == kNoStorage || !born_inside(block)) continue;
      const OperatorId maker =
          block.maker == kNoUnit ? block.requested_in : operator_of_[block.maker - begin_];
      makes[maker].push_back(&block);
    }
    for (OperatorId op = 0; op < sources_.size(); ++op) {
      std::vector<CallOperand>& taken = calls_[op].operands;
      for (Block* block : makes[op]) {
        taken.push_back({.storage = block->storage, .writes = true, .reads = false});
        use(*block, op);
      }
      if (sources_[op].unit == kNoUnit) continue;
      for (const Touch& touch : found_.units[sources_[op].unit].touches) {
        Block* const block = find(touch.block);
        if (block == nullptr || block->storage == kNoStorage) continue;
        operands.insert(block->id);
        const bool made_here = born_inside(*block) && block->first_use == op;
        if (made_here) continue;
        taken.push_back(operand_of(*block, touch));
        use(*block, op);
      }
    }
    // What no operator takes is needed until it is freed, for all that is known.
    for (Block& block : blocks_) {
      if (block.storage == kNoStorage || !born_inside(block) || operands.contains(block.id) ||
          block.life->end >= last_tick_)
        continue;
      const OperatorId reader = last_begun_before(block.life->end);
      if (reader == kNone || reader <= block.last_use) continue;
      calls_[reader].operands.push_back({.storage = block.storage, .bytes = block.life->bytes});
      use(block, reader);
    }
  }

  static CallOperand operand_of(const Block& block, const Touch& touch) {
    // The rest of what is written in part comes from before.
    const bool whole = touch.writes && !touch.covers;
    const Bytes size = block.life->bytes;
    const Bytes begin = whole ? 0 : std::min(touch.offset, size);
    const Bytes end = whole ? size : std::min(touch.end, size);
    return {.storage = block.storage,
            .offset = begin,
            .bytes = end - begin,
            .writes = touch.writes,
            .reads = touch.reads,
            .aside = touch.aside};
  }

  void make_graph() {
    result_.graph = graph_of(storages_, calls_, StepForm::kRecording);
    result_.graph.order.resize(calls_.size());
    std::iota(result_.graph.order.begin(), result_.graph.order.end(), 0);
  }

  static void use(Block& block, OperatorId op) {
    if (block.first_use == kNone) block.first_use = op;
    block.last_use = op;
  }

  OperatorId last_begun_before(Tick tick) const {
    const auto after = std::partition_point(sources_.begin(), sources_.end(),
                                            [tick](const Source& s) { return s.first < tick; });
    return after == sources_.begin() ? kNone
                                     : static_cast<OperatorId>(after - sources_.begin() - 1);
  }

  void finish_lifetimes() {
    const auto moments = static_cast<Moment>(fullest_.size());
    for (const Block& block : blocks_) {
      if (block.storage == kNoStorage) continue;
      const TracedBlock& life = *block.life;
      TracedGraph::Lifetime& lifetime = result_.lifetimes[block.storage];
      if (!born_inside(block))
        lifetime.birth = 0;
      else if (block.requested_in != kNone)
        lifetime.birth = 2 * block.requested_in + 1;
      else
        lifetime.birth = block.birth + (life.birth <= fullest_[block.birth] ? 0 : 1);
      lifetime.end =
          life.end >= last_tick_ ? moments : block.end + (life.end > fullest_[block.end] ? 1 : 0);
      if (block.first_use != kNone) {
        lifetime.birth = std::min(lifetime.birth, 2 * block.first_use + 1);
        lifetime.end = std::max(lifetime.end, 2 * block.last_use + 2);
      }
      lifetime.end = std::max(lifetime.birth, lifetime.end);
      if (graph().storages[block.storage].kind == StorageClass::kResident) continue;
      const Tick until = std::min(life.end, last_tick_);
      const Tick since = block.last_use == kNone ? first_tick_ : sources_[block.last_use].last;
      if (until <= since) continue;
      const auto held = checked_multiply(life.bytes, until - since);
      result_.held = checked_add(result_.held, held.value_or(kMaxBytes)).value_or(kMaxBytes);
    }
  }

  // --- What else is known of them ----------------------------------------------------------------

  // Each is the median of the steps before that ran the same units, the lower of two.
  void set_times() {
    const UnitIndex count = end_ - begin_;
    std::vector<UnitIndex> starts = {begin_};
    const auto equal = [this](UnitIndex a, UnitIndex b) {
      const Unit &one = found_.units[a], &two = found_.units[b];
      return one.name == two.name && one.touches.size() == two.touches.size();
    };
    while (count != 0 && starts.size() < kMostSteps && starts.back() >= count) {
      const UnitIndex start = starts.back() - count;
      UnitIndex k = 0;
      while (k < count && equal(start + k, begin_ + k)) ++k;
      if (k < count) break;
      starts.push_back(start);
    }
    result_.steps = static_cast<std::uint32_t>(starts.size());
    std::vector<std::uint64_t> times(starts.size());
    for (OperatorId op = 0; op < sources_.size(); ++op) {
      const UnitIndex unit = sources_[op].unit;
      if (unit == kNoUnit) continue;
      for (std::size_t step = 0; step < starts.size(); ++step)
        times[step] = found_.units[starts[step] + (unit - begin_)].ns;
      const auto middle = times.begin() + static_cast<std::ptrdiff_t>((times.size() - 1) / 2);
      std::nth_element(times.begin(), middle, times.end());
      Operator& made = graph().operators[op];
      made.alternatives[0].ns = std::min(*middle, kMostNs);
      made.alternatives =
          tried_.alternatives(found_.units[unit], made.alternatives[0], trace_.alignment);
    }
  }

  // What was there before the step, and is nothing that the recording told.
  void set_roles() {
    std::vector<bool> updated(graph().storages.size(), false);
    for (const Operator& op : graph().operators)
      if (op.phase == Phase::kOptimizer)
        for (const ValueId& written : op.alternatives[0].writes) updated[written.storage] = true;
    for (StorageId s = 0; s < graph().storages.size(); ++s) {
      Storage& storage = graph().storages[s];
      if (storage.kind == StorageClass::kStep || storage.role != trace::RoleKind::kUnknown)
        continue;
      storage.role = updated[s] ? trace::RoleKind::kOptimizer : trace::RoleKind::kInput;
    }
  }

  const Trace& trace_;
  const TracedRun& run_;
  Units found_;
  TriedAlternatives tried_;
  Tick first_tick_ = 0, last_tick_ = 0;
  UnitIndex begin_ = 0, end_ = 0;  // the step's units
  std::set<std::uint64_t> keys_;   // of the step's lanes
  std::vector<bool> kept_;         // of the step's units
  std::vector<OperatorId> operator_of_;
  std::vector<Block> blocks_;
  std::vector<bool> counted_;  // of blocks
  std::unordered_map<BlockId, std::size_t> index_;
  std::set<BlockId> used_;       // operands of units that are kept
  std::vector<Source> sources_;  // by operator
  std::vector<StepCall> calls_;  // by operator
  std::vector<StepStorage> storages_;
  std::size_t begun_ = 0;
  std::vector<Tick> fullest_;  // of each moment: when most was alive
  TracedGraph result_;
};

}  // namespace

TracedGraph graph_from_trace(const Trace& trace) {
  const TracedRun run(trace);
  BERTH_CHECK(!run.operands().empty(), kInput,
              "the trace has requests but no operators: `berth record --operators` records them");
  for (const auto& [operand, op, tick] : run.operands())
    BERTH_CHECK(checked_add(operand->byte_offset, operand->bytes), kInput,
                "operator {} takes bytes {} to {} of a block", operand->op, operand->byte_offset,
                operand->byte_offset + operand->bytes);
  if (auto written = step_from_trace(trace, run)) return *std::move(written);
  std::string why_not;
  StepOptions options;
  options.max_unroll = 1;  // what is kept for the step after it is alive at the end
  const auto step = extract_step(trace, options, &why_not);
  BERTH_CHECK(step, kInput, "no step can be cut out of the trace: {}", why_not);
  return TraceGraphBuilder(trace, run, *step).run();
}

Bytes peak_as_recorded(const TracedGraph& traced) {
  const std::size_t moments = 2 * traced.graph.operators.size() + 1;
  std::vector<Bytes> born(moments + 1, 0), gone(moments + 1, 0);
  for (StorageId s = 0; s < traced.graph.storages.size(); ++s) {
    born[traced.lifetimes[s].birth] += traced.graph.storages[s].bytes;
    gone[traced.lifetimes[s].end] += traced.graph.storages[s].bytes;
  }
  Bytes live = 0, peak = 0;
  for (std::size_t moment = 0; moment < moments; ++moment) {
    live = live + born[moment] - gone[moment];
    const bool runs = moment % 2 == 1;
    const Bytes workspace =
        runs ? traced.graph.operators[traced.graph.order[moment / 2]].alternatives[0].workspace : 0;
    peak = std::max(peak, live + workspace);
  }
  return peak;
}

}  // namespace berth::graph
