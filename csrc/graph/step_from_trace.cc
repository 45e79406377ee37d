#include "csrc/graph/step_from_trace.h"

#include "csrc/core/check.h"
#include "csrc/facts/filling.h"
#include "csrc/facts/operator_kinds.h"
#include "csrc/graph/step_graph.h"

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>

namespace berth::graph {
namespace {

using trace::BlockId;
using trace::Tick;

// Rooms of at most so many bytes are the body's, as step programs have it.
constexpr Bytes kSmallRoom = 4096;

struct Use {
  std::uint32_t storage = kNoNumber;  // by first occurrence in the step
  Bytes offset = 0, bytes = 0;
  bool writes = false, fills = false;
  bool integers = false;
  std::uint16_t position = 0;
  bool operator==(const Use&) const = default;
};

struct Call {
  OperatorIndex op = 0;
  trace::StringId name = 0;
  bool backward = false, random = false;
  std::vector<Use> arguments, results;
  std::uint64_t ns = 0;
  Bytes workspace = 0;

  [[nodiscard]] bool same(const Call& other) const {
    return name == other.name && backward == other.backward && arguments == other.arguments &&
           results == other.results;
  }
};

struct Storage {
  BlockId block = 0;
  std::uint32_t maker = kNoNumber;  // the call; kNoNumber: from outside
};

// One step as it was called.
struct Record {
  Tick first = 0, last = 0;
  std::vector<Call> calls;
  std::vector<Storage> storages;
  bool whole = true;  // nothing of it is memory of others

  [[nodiscard]] bool same(const Record& other) const {
    return std::equal(calls.begin(), calls.end(), other.calls.begin(), other.calls.end(),
                      [](const Call& a, const Call& b) { return a.same(b); });
  }
};

// Reads the steps of a run, one after the other.
class Reader {
 public:
  Reader(const Trace& trace, const TracedRun& run) : trace_(trace), run_(run) {}

  // The last two steps that follow each other and are the same.
  [[nodiscard]] std::optional<std::pair<Record, Record>> last_two() {
    std::optional<std::pair<Record, Record>> found;
    std::optional<Record> before;
    const trace::Entry* begin = nullptr;
    for (const trace::Entry& entry : trace_.entries) {
      const auto* const opens = std::get_if<trace::RangeBegin>(&entry.event);
      const auto* const closes = std::get_if<trace::RangeEnd>(&entry.event);
      if (begin == nullptr && opens != nullptr && trace_.name(opens->name) == kStepRange) {
        begin = &entry;
      } else if (begin != nullptr && closes != nullptr &&
                 closes->range == std::get<trace::RangeBegin>(begin->event).range) {
        Record record = read(begin->tick, entry.tick, begin->thread);
        begin = nullptr;
        if (!record.calls.empty() && record.whole && before && before->same(record))
          found.emplace(*before, record);
        before = std::move(record);
      }
    }
    if (!found) return found;
    set_workspaces(found->first);
    set_workspaces(found->second);
    return found;
  }

 private:
  Record read(Tick first, Tick last, trace::ThreadId thread) {
    Record record{.first = first, .last = last, .calls = {}, .storages = {}};
    const std::vector<TracedOperator>& operators = run_.operators();
    for (; op_ < operators.size() && operators[op_].first_tick < last; ++op_) {
      const TracedOperator& op = operators[op_];
      const bool called = op.parent != kNoOperator && operators[op.parent].first_tick > first;
      if (op.first_tick < first || called || (op.thread != thread && !op.backward)) continue;
      record.calls.push_back({.op = op_,
                              .name = op.name,
                              .backward = op.backward,
                              .random = op.random,
                              .arguments = {},
                              .results = {},
                              .ns = op.last_tick < last ? op.ns : 0});
    }
    std::unordered_map<BlockId, std::uint32_t> numbers;
    const std::vector<OfOperator<trace::Operand>>& operands = run_.operands();
    for (; operand_ < operands.size() && operands[operand_].tick < last; ++operand_) {
      const auto call =
          std::ranges::lower_bound(record.calls, operands[operand_].op, {}, &Call::op);
      if (operands[operand_].tick > first && call != record.calls.end() &&
          call->op == operands[operand_].op)
        add(record, *call, numbers, *operands[operand_].entry);
    }
    return record;
  }

  static void add(Record& record, Call& call, std::unordered_map<BlockId, std::uint32_t>& numbers,
                  const trace::Operand& operand) {
    const auto next = static_cast<std::uint32_t>(record.storages.size());
    std::uint32_t storage = next;
    if (operand.block == 0) {
      // What has no bytes has no block: a result is another each time.
      record.whole = record.whole && operand.bytes == 0;
      if (!operand.output) return;
    } else {
      storage = numbers.try_emplace(operand.block, next).first->second;
    }
    const auto number = static_cast<std::uint32_t>(&call - record.calls.data());
    if (storage == next)
      record.storages.push_back({operand.block, operand.output ? number : kNoNumber});
    (operand.output ? call.results : call.arguments)
        .push_back({.storage = storage,
                    .offset = operand.byte_offset,
                    .bytes = operand.bytes,
                    .writes = operand.access != trace::Access::kRead,
                    .fills = operand.access == trace::Access::kWrite,
                    .integers = operand.element_type >= 0 &&
                                (operand.element_type < 5 || operand.element_type == 11),
                    .position = operand.position});
  }

  void set_workspaces(Record& record) const {
    std::vector<std::vector<const TracedBlock*>> requested(record.calls.size());
    for (const TracedBlock& block : run_.blocks()) {
      OperatorIndex op = block.op;
      const auto is_call = [&](const Call& call) { return call.op == op; };
      while (op != kNoOperator && op >= record.calls.front().op) {
        const auto call = std::ranges::lower_bound(record.calls, op, {}, &Call::op);
        if (call != record.calls.end() && is_call(*call)) {
          requested[static_cast<std::size_t>(call - record.calls.begin())].push_back(&block);
          break;
        }
        op = run_.operators()[op].parent;
      }
    }
    for (std::size_t n = 0; n < record.calls.size(); ++n) {
      const Tick end = run_.operators()[record.calls[n].op].last_tick;
      if (end < record.last) record.calls[n].workspace = workspace_of(requested[n], end);
    }
  }

  const Trace& trace_;
  const TracedRun& run_;
  OperatorIndex op_ = 0;
  std::size_t operand_ = 0;  // the next of the run
};

// What a step program knows of its calls, as far as a trace says it.
class StepBuilder {
 public:
  StepBuilder(const Trace& trace, const TracedRun& run, std::pair<Record, Record>& records)
      : trace_(trace), run_(run), record_(records.first), again_(records.second) {}

  TracedGraph run() && {
    find_what_the_body_fills();
    find_storages();
    for (std::uint32_t n = 0; n < record_.calls.size(); ++n) calls_.push_back(as_step_call(n));
    result_.graph = graph_of(storages_, calls_, StepForm::kProgram);
    result_.recorded_peak = std::max(run_.peak_between(record_.first, record_.last),
                                     run_.peak_between(again_.first, again_.last));
    result_.steps = 2;
    const std::string wrong = violation(result_.graph);
    BERTH_CHECK(wrong.empty(), kInput, "the trace's step is no graph: {}", wrong);
    return std::move(result_);
  }

 private:
  std::string_view name(const Call& call) const { return trace_.name(call.name); }
  bool empty(std::uint32_t storage) const { return record_.storages[storage].block == 0; }
  const TracedBlock& block(std::uint32_t storage) const {
    return run_.block(record_.storages[storage].block);
  }
  Bytes bytes(std::uint32_t storage) const { return empty(storage) ? 0 : block(storage).bytes; }
  bool outlives(std::uint32_t storage) const {
    if (empty(storage)) return false;
    return block(storage).end >= record_.last ||
           run_.block(again_.storages[storage].block).end >= again_.last;
  }

  // Room that is read before an operator has filled it the body has filled.
  void find_what_the_body_fills() {
    std::vector<const Call*> first_use(record_.storages.size(), nullptr);
    for (const Call& call : record_.calls)
      for (const Use& one : call.arguments)
        if (first_use[one.storage] == nullptr) first_use[one.storage] = &call;
    for (const Call& call : record_.calls) {
      if (!facts::makes_room(name(call)) || call.results.empty()) continue;
      const std::uint32_t storage = call.results.front().storage;
      const Call* const user = first_use[storage];
      const bool filled =
          user != nullptr &&
          std::any_of(user->arguments.begin(), user->arguments.end(), [&](const Use& one) {
            return one.storage == storage && one.writes &&
                   (one.fills || facts::fills_in_place(name(*user), user->random));
          });
      if (bytes(storage) <= kSmallRoom || !filled) record_.storages[storage].maker = kNoNumber;
    }
  }

  void find_storages() {
    for (std::uint32_t n = 0; n < record_.storages.size(); ++n) {
      const bool made = record_.storages[n].maker != kNoNumber;
      const bool same = record_.storages[n].block == again_.storages[n].block;
      const bool resident = outlives(n) || (!empty(n) && same && block(n).end >= again_.last);
      storages_.push_back({.bytes = bytes(n),
                           .kind = made       ? StorageClass::kStep
                                   : resident ? StorageClass::kResident
                                              : StorageClass::kInput,
                           .same = same,
                           .maker = record_.storages[n].maker,
                           .outlives = outlives(n),
                           .outliving_bytes = empty(n) ? 0 : block(n).requested});
      result_.blocks.push_back(record_.storages[n].block);
    }
  }

  // State that no result depends on: running statistics of a norm that trains, which has saved
  // those of the batch.
  static bool is_aside(std::string_view name, const Call& call, const Use& one) {
    if (!facts::is_statistics(name, one.position)) return false;
    const auto saved = [&](const std::vector<Use>& uses, bool output) {
      return std::any_of(uses.begin(), uses.end(), [&](const Use& other) {
        return other.bytes > 0 && facts::is_saved_by_norm(name, output, other.position);
      });
    };
    return saved(call.arguments, false) || saved(call.results, true);
  }

  // As step programs see it: of a trace of a device all operands count as its own.
  bool may_fail_in(const Call& call) const {
    const auto is_there = [](const Use& use) { return use.storage != kNoNumber; };
    const auto is_integer = [&](const Use& use) { return !is_there(use) || use.integers; };
    const bool on_host = trace_.program.device_name == "cpu" &&
                         std::any_of(call.arguments.begin(), call.arguments.end(), is_there);
    return !facts::waits_for_contents(name(call)) &&
           facts::may_fail(facts::fails_by_contents(name(call)), on_host,
                           std::all_of(call.arguments.begin(), call.arguments.end(), is_integer));
  }

  StepCall as_step_call(std::uint32_t n) const {
    const Call& call = record_.calls[n];
    StepCall step{.name = std::string(name(call)),
                  .backward = call.backward,
                  .random = call.random,
                  .host_read = facts::waits_for_contents(name(call)),
                  .checked = may_fail_in(call),
                  .ns = std::min(call.ns, again_.calls[n].ns),
                  .workspace = std::max(call.workspace, again_.calls[n].workspace),
                  .operands = {},
                  .results = {}};
    for (const Use& use : call.arguments)
      step.operands.push_back({.storage = use.storage,
                               .offset = use.offset,
                               .bytes = use.bytes,
                               .writes = use.writes,
                               .aside = is_aside(step.name, call, use)});
    for (const Use& use : call.results) step.results.push_back(use.storage);
    return step;
  }

  const Trace& trace_;
  const TracedRun& run_;
  Record& record_;
  const Record& again_;
  std::vector<StepStorage> storages_;
  std::vector<StepCall> calls_;
  TracedGraph result_;
};

}  // namespace

std::optional<TracedGraph> step_from_trace(const Trace& trace, const TracedRun& run) {
  auto records = Reader(trace, run).last_two();
  if (!records) return std::nullopt;
  return StepBuilder(trace, run, *records).run();
}

}  // namespace berth::graph
