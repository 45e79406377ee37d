#include "csrc/graph/step_from_trace.h"

#include "csrc/core/check.h"
#include "csrc/facts/operator_kinds.h"
#include "csrc/graph/step_graph.h"

#include <algorithm>
#include <limits>
#include <numeric>
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
  Bytes peak = 0;     // most that was alive
  bool whole = true;  // nothing of it is memory of others

  [[nodiscard]] bool same(const Record& other) const {
    return std::equal(calls.begin(), calls.end(), other.calls.begin(), other.calls.end(),
                      [](const Call& a, const Call& b) { return a.same(b); });
  }
};

struct Block {
  Bytes bytes = 0;  // rounded; of one made before the recording, what operands reach
  Bytes asked = 0;
  bool requested = false;
  Tick freed = std::numeric_limits<Tick>::max();
};

// Goes through the trace once, and keeps the last two steps that follow each other and are the
// same.
class Reader {
 public:
  explicit Reader(const Trace& trace) : trace_(trace) {}

  void run() {
    for (const trace::Entry& entry : trace_.entries)
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
  }
  [[nodiscard]] bool found() const noexcept { return found_.has_value(); }
  [[nodiscard]] std::pair<Record, Record>& records() { return *found_; }
  [[nodiscard]] const Block& block(BlockId id) { return blocks_[id]; }

 private:
  struct Open {
    std::uint64_t op = 0;
    std::uint32_t call = kNoNumber;  // kNoNumber: none of the step's
    std::uint32_t depth = 0;         // operators inside that are open
    std::uint64_t begin_ns = 0;
    std::unordered_map<BlockId, Bytes> inner;
    Bytes held = 0, most = 0;
  };

  void see(const trace::Entry& entry, const trace::RangeBegin& range) {
    if (trace_.name(range.name) != kStepRange || inside_) return;
    inside_ = true;
    range_ = range.range;
    thread_ = entry.thread;
    record_ = {};
    record_.first = entry.tick;
    record_.peak = live_;
    numbers_.clear();
    open_.clear();
  }
  void see(const trace::Entry& entry, const trace::RangeEnd& range) {
    if (!inside_ || range.range != range_) return;
    inside_ = false;
    record_.last = entry.tick;
    if (!record_.calls.empty() && record_.whole && before_ && before_->same(record_))
      found_.emplace(*before_, record_);
    before_ = std::move(record_);
  }

  void see(const trace::Entry& entry, const trace::OperatorBegin& begin) {
    if (!inside_) return;
    Open& open = open_[entry.thread];
    if (open.op != 0) {
      ++open.depth;
      return;
    }
    open = {.op = begin.op, .begin_ns = entry.time_ns, .inner = {}};
    if (entry.thread != thread_ && !begin.backward) return;
    open.call = static_cast<std::uint32_t>(record_.calls.size());
    record_.calls.push_back({.name = begin.name,
                             .backward = begin.backward,
                             .random = begin.random,
                             .arguments = {},
                             .results = {}});
  }
  void see(const trace::Entry& entry, const trace::OperatorEnd& end) {
    const auto found = open_.find(entry.thread);
    if (!inside_ || found == open_.end()) return;
    Open& open = found->second;
    if (open.op != end.op) {
      if (open.depth > 0) --open.depth;
      return;
    }
    if (open.call != kNoNumber) {
      Call& call = record_.calls[open.call];
      if (entry.time_ns > open.begin_ns) call.ns = entry.time_ns - open.begin_ns;
      call.workspace = open.most - std::min(open.most, open.held);
    }
    open = {};
  }
  void see(const trace::Entry& entry, const trace::Operand& operand) {
    const auto end = checked_add(operand.byte_offset, operand.bytes);
    BERTH_CHECK(end, kInput, "operator {} takes bytes {} to {} of a block", operand.op,
                operand.byte_offset, operand.byte_offset + operand.bytes);
    Block& block = blocks_[operand.block];
    if (!block.requested) block.bytes = std::max(block.bytes, align_up(*end, trace_.alignment));
    const auto found = open_.find(entry.thread);
    if (!inside_ || found == open_.end() || found->second.op != operand.op ||
        found->second.call == kNoNumber)
      return;
    const std::uint32_t number = found->second.call;
    const auto next = static_cast<std::uint32_t>(record_.storages.size());
    std::uint32_t storage = next;
    if (operand.block == 0) {
      // What has no bytes has no block: a result is another each time.
      record_.whole = record_.whole && operand.bytes == 0;
      if (!operand.output) return;
    } else {
      storage = numbers_.try_emplace(operand.block, next).first->second;
    }
    if (storage == next)
      record_.storages.push_back({operand.block, operand.output ? number : kNoNumber});
    Call& call = record_.calls[number];
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

  void see(const trace::Entry& entry, const trace::Request& request) {
    Block& block = blocks_[request.id];
    block.bytes = align_up(request.bytes, trace_.alignment);
    block.asked = request.bytes;
    block.requested = true;
    live_ += block.bytes;
    record_.peak = std::max(record_.peak, live_);
    const auto found = open_.find(entry.thread);
    if (!inside_ || found == open_.end() || found->second.op == 0) return;
    Open& open = found->second;
    open.inner[request.id] = block.bytes;
    open.held += block.bytes;
    open.most = std::max(open.most, open.held);
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    Block& block = blocks_[free.id];
    block.freed = entry.tick;
    if (block.requested) live_ -= block.bytes;
    const auto found = open_.find(entry.thread);
    if (!inside_ || found == open_.end()) return;
    const auto inner = found->second.inner.find(free.id);
    if (inner == found->second.inner.end()) return;
    found->second.held -= inner->second;
    found->second.inner.erase(inner);
  }

  template <class Other>
  void see(const trace::Entry&, const Other&) {}

  const Trace& trace_;
  std::unordered_map<BlockId, Block> blocks_;
  Bytes live_ = 0;
  bool inside_ = false;
  std::uint64_t range_ = 0;
  trace::ThreadId thread_ = 0;
  Record record_;
  std::unordered_map<BlockId, std::uint32_t> numbers_;
  std::unordered_map<trace::ThreadId, Open> open_;  // outermost
  std::optional<Record> before_;
  std::optional<std::pair<Record, Record>> found_;
};

// What a step program knows of its calls, as far as a trace says it.
class StepBuilder {
 public:
  StepBuilder(const Trace& trace, Reader& reader)
      : trace_(trace),
        reader_(reader),
        record_(reader.records().first),
        again_(reader.records().second) {}

  TracedGraph run() && {
    find_what_the_body_fills();
    find_storages();
    for (std::uint32_t n = 0; n < record_.calls.size(); ++n) calls_.push_back(as_step_call(n));
    std::vector<StorageId> rooms(storages_.size());
    std::iota(rooms.begin(), rooms.end(), 0);
    StepGraph graph(storages_, calls_, std::move(rooms));
    for (std::uint32_t n = 0; n < record_.calls.size(); ++n) graph.add(n);
    result_.graph = std::move(graph).finish();
    result_.recorded_peak = std::max(record_.peak, again_.peak);
    result_.steps = 2;
    const std::string wrong = violation(result_.graph);
    BERTH_CHECK(wrong.empty(), kInput, "the trace's step is no graph: {}", wrong);
    return std::move(result_);
  }

 private:
  std::string_view name(const Call& call) const { return trace_.name(call.name); }
  bool empty(std::uint32_t storage) const { return record_.storages[storage].block == 0; }
  const Block& block(std::uint32_t storage) {
    return reader_.block(record_.storages[storage].block);
  }
  Bytes bytes(std::uint32_t storage) { return empty(storage) ? 0 : block(storage).bytes; }
  bool outlives(std::uint32_t storage) {
    if (empty(storage)) return false;
    return block(storage).freed >= record_.last ||
           reader_.block(again_.storages[storage].block).freed >= again_.last;
  }

  // Room that is read before an operator has filled it the body has filled.
  void find_what_the_body_fills() {
    std::vector<const Call*> first_use(record_.storages.size(), nullptr);
    for (const Call& call : record_.calls)
      for (const Use& one : call.arguments)
        if (first_use[one.storage] == nullptr) first_use[one.storage] = &call;
    for (const Call& call : record_.calls) {
      if (!only_allocates(name(call)) || call.results.empty()) continue;
      const std::uint32_t storage = call.results.front().storage;
      const Call* const user = first_use[storage];
      const bool filled =
          user != nullptr &&
          std::any_of(user->arguments.begin(), user->arguments.end(), [&](const Use& one) {
            return one.storage == storage && one.writes &&
                   (one.fills || fills(name(*user), user->random));
          });
      if (bytes(storage) <= kSmallRoom || !filled) record_.storages[storage].maker = kNoNumber;
    }
  }
  static bool only_allocates(std::string_view name) {
    return facts::only_allocates(name) && !name.starts_with("aten::resize");
  }
  static bool fills(std::string_view name, bool random) {
    const std::string_view base = name.substr(0, name.find('.'));
    return base == "aten::copy_" || base == "aten::fill_" || base == "aten::zero_" ||
           (random && base.ends_with('_'));
  }

  void find_storages() {
    for (std::uint32_t n = 0; n < record_.storages.size(); ++n) {
      const bool made = record_.storages[n].maker != kNoNumber;
      const bool same = record_.storages[n].block == again_.storages[n].block;
      const bool resident = outlives(n) || (!empty(n) && same && block(n).freed >= again_.last);
      storages_.push_back({.bytes = bytes(n),
                           .kind = made       ? StorageClass::kStep
                                   : resident ? StorageClass::kResident
                                              : StorageClass::kInput,
                           .same = same,
                           .maker = record_.storages[n].maker,
                           .outlives = outlives(n),
                           .outliving_bytes = empty(n) ? 0 : block(n).asked});
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
  Reader& reader_;
  Record& record_;
  const Record& again_;
  std::vector<StepStorage> storages_;
  std::vector<StepCall> calls_;
  TracedGraph result_;
};

}  // namespace

std::optional<TracedGraph> step_from_trace(const Trace& trace) {
  Reader reader(trace);
  reader.run();
  if (!reader.found()) return std::nullopt;
  return StepBuilder(trace, reader).run();
}

}  // namespace berth::graph
