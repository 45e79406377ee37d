#include "csrc/cli/trace_summary.h"

#include "csrc/trace/operator_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace berth::cli {
namespace {

using trace::StringId;

constexpr trace::Tick kNever = std::numeric_limits<trace::Tick>::max();
constexpr std::size_t kLargest = 10;

enum class Phase : std::uint8_t { kUnknown, kNamed, kForward, kBackward };

// Who was running on a thread when it asked.
struct Origin {
  StringId module = 0, op = 0, phase_name = 0, scope = 0;
  Phase phase = Phase::kUnknown;
};

struct TracedBlock {
  trace::BlockId id = 0;
  Bytes requested = 0, bytes = 0;
  trace::Tick born = 0, freed = kNever;
  Origin origin;
};

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
          origin.phase = Phase::kNamed;
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
    if (origin.phase == Phase::kUnknown && !operators_.empty())
      origin.phase = backward ? Phase::kBackward : Phase::kForward;
    return origin;
  }

 private:
  std::vector<trace::RangeBegin> ranges_;
  std::vector<trace::OperatorBegin> operators_;
};

std::string phase_name(const Trace& trace, const Origin& origin) {
  switch (origin.phase) {
    case Phase::kNamed:
      return std::string(trace.name(origin.phase_name));
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUnknown:
      break;
  }
  return "";
}

// One pass over the entries: every block with its origin, the peak and its tick.
class Walk {
 public:
  Walk(const Trace& trace, TraceSummary& summary) : trace_(trace), summary_(summary) {
    for (const trace::Entry& entry : trace.entries) {
      std::visit([&](const auto& event) { see(entry, event); }, entry.event);
    }
    summary_.threads = threads_.size();
  }

  [[nodiscard]] const std::vector<TracedBlock>& blocks() const noexcept { return blocks_; }

 private:
  void see(const trace::Entry& entry, const trace::Request& request) {
    ++summary_.requests;
    const Bytes bytes = align_up(request.bytes, trace_.alignment);
    index_[request.id] = blocks_.size();
    blocks_.push_back({.id = request.id,
                       .requested = request.bytes,
                       .bytes = bytes,
                       .born = entry.tick,
                       .origin = threads_[entry.thread].origin(trace_)});
    live_ += bytes;
    if (live_ > summary_.peak) {
      summary_.peak = live_;
      summary_.peak_tick = entry.tick;
      summary_.peak_step = summary_.marks;
    }
  }
  void see(const trace::Entry& entry, const trace::Free& free) {
    ++summary_.frees;
    const auto it = index_.find(free.id);
    if (it == index_.end()) return;  // from before the recording
    TracedBlock& block = blocks_[it->second];
    if (block.freed != kNever) return;
    block.freed = entry.tick;
    live_ -= block.bytes;
  }
  void see(const trace::Entry&, const trace::StepMark&) { ++summary_.marks; }
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
  TraceSummary& summary_;
  std::unordered_map<trace::ThreadId, ThreadState> threads_;
  std::unordered_map<trace::BlockId, std::size_t> index_;
  std::vector<TracedBlock> blocks_;
  Bytes live_ = 0;
};

// Sums by name, largest first. Empty where nothing has a name.
class Sums {
 public:
  void add(const std::string& name, Bytes bytes) {
    Holder& holder = by_name_[name];
    holder.bytes += bytes;
    ++holder.blocks;
  }
  [[nodiscard]] std::vector<Holder> take() const {
    std::vector<Holder> holders;
    if (by_name_.empty() || (by_name_.size() == 1 && by_name_.begin()->first.empty()))
      return holders;
    for (const auto& [name, holder] : by_name_)
      holders.push_back({name, holder.bytes, holder.blocks});
    std::stable_sort(holders.begin(), holders.end(),
                     [](const Holder& a, const Holder& b) { return a.bytes > b.bytes; });
    return holders;
  }

 private:
  std::map<std::string, Holder> by_name_;
};

Json to_json(const std::vector<Holder>& holders) {
  Json list = Json::array();
  for (const Holder& holder : holders) {
    list.push_back({{"name", holder.name.empty() ? Json(nullptr) : Json(holder.name)},
                    {"bytes", holder.bytes},
                    {"blocks", holder.blocks}});
  }
  return list;
}

std::string holders_text(const char* what, const std::vector<Holder>& holders, Bytes total) {
  Table table(
      {{fmt::format("by {}", what), Table::Align::kLeft}, {"bytes"}, {"share"}, {"blocks"}});
  std::size_t shown = 0;
  Holder others;
  for (const Holder& holder : holders) {
    if (shown++ >= kLargest) {
      others.bytes += holder.bytes;
      others.blocks += holder.blocks;
      continue;
    }
    table.add({holder.name.empty() ? "(unknown)" : holder.name, format_bytes(holder.bytes),
               format_percent(static_cast<double>(holder.bytes) / static_cast<double>(total)),
               format_count(holder.blocks)});
  }
  if (others.blocks > 0) {
    table.add({fmt::format("({} more)", holders.size() - kLargest), format_bytes(others.bytes),
               format_percent(static_cast<double>(others.bytes) / static_cast<double>(total)),
               format_count(others.blocks)});
  }
  return "\n" + table.to_string();
}

}  // namespace

TraceSummary summarize(const Trace& trace) {
  TraceSummary summary;
  summary.entries = trace.entries.size();
  summary.lanes = trace.lanes.size();
  summary.cut_bytes = trace.cut_bytes;
  summary.alignment = trace.alignment;
  summary.program = trace.program;
  const Walk walk(trace, summary);
  summary.step = extract_step(trace, {}, &summary.why_no_step);
  if (summary.step) summary.coverage.emplace(trace, *summary.step);

  std::unordered_set<trace::BlockId> residents;
  if (summary.step) {
    for (const Resident& resident : summary.step->residents) residents.insert(resident.block);
  }
  Sums modules, operators, phases, scopes;
  std::vector<const TracedBlock*> held;
  for (const TracedBlock& block : walk.blocks()) {
    if (block.born > summary.peak_tick || block.freed <= summary.peak_tick) continue;
    if (residents.contains(block.id)) {
      summary.resident_bytes += block.bytes;
      ++summary.resident_blocks;
      continue;
    }
    modules.add(std::string(trace.name(block.origin.module)), block.bytes);
    operators.add(std::string(trace.name(block.origin.op)), block.bytes);
    phases.add(phase_name(trace, block.origin), block.bytes);
    scopes.add(std::string(trace.name(block.origin.scope)), block.bytes);
    held.push_back(&block);
  }
  summary.by_module = modules.take();
  summary.by_operator = operators.take();
  summary.by_phase = phases.take();
  summary.by_scope = scopes.take();
  std::stable_sort(held.begin(), held.end(),
                   [](const TracedBlock* a, const TracedBlock* b) { return a->bytes > b->bytes; });
  held.resize(std::min(held.size(), kLargest));
  for (const TracedBlock* block : held) {
    summary.largest.push_back(
        {.id = block->id,
         .requested = block->requested,
         .bytes = block->bytes,
         .born = block->born,
         .freed = block->freed == kNever ? std::nullopt : std::optional(block->freed),
         .module = std::string(trace.name(block->origin.module)),
         .op = std::string(trace.name(block->origin.op)),
         .phase = phase_name(trace, block->origin),
         .scope = std::string(trace.name(block->origin.scope))});
  }
  return summary;
}

Json TraceSummary::to_json() const {
  Json steps = {{"marked", marks}, {"found", step.has_value()}};
  if (step) {
    steps["requests"] = step->requests.size();
    steps["repeats"] = step->repeats;
    steps["lanes"] = step->lanes.size();
    steps["first_tick"] = step->first_tick;
    steps["last_tick"] = step->last_tick;
    steps["residents"] = step->residents.size();
    coverage->add_to(steps);
  } else {
    steps["reason"] = why_no_step;
  }
  Json blocks = Json::array();
  for (const PeakBlock& block : largest) {
    blocks.push_back({{"id", block.id},
                      {"bytes", block.bytes},
                      {"requested_bytes", block.requested},
                      {"tick", block.born},
                      {"freed_tick", block.freed ? Json(*block.freed) : Json(nullptr)},
                      {"module", block.module},
                      {"operator", block.op},
                      {"phase", block.phase},
                      {"scope", block.scope}});
  }
  return {{"kind", "trace"},
          {"entries", entries},
          {"requests", requests},
          {"frees", frees},
          {"lanes", lanes},
          {"threads", threads},
          {"alignment", alignment},
          {"cut_bytes", cut_bytes},
          {"torch_version", program.torch_version},
          {"device", program.device_name},
          {"tag", program.tag},
          {"peak_bytes", peak},
          {"peak_tick", peak_tick},
          {"resident_bytes", resident_bytes},
          {"resident_blocks", resident_blocks},
          {"holders", holders_to_json()},
          {"largest", blocks},
          {"steps", steps}};
}

Json TraceSummary::holders_to_json() const {
  return {{"module", cli::to_json(by_module)},
          {"operator", cli::to_json(by_operator)},
          {"phase", cli::to_json(by_phase)},
          {"scope", cli::to_json(by_scope)}};
}

std::string TraceSummary::to_text(const std::string& path) const {
  std::string text =
      fmt::format("{}: trace of {}, {} on {}\n", path,
                  entries == 1 ? "1 entry" : format_count(entries) + " entries",
                  format_number_of(requests, "request"), format_number_of(lanes, "lane"));
  if (!program.torch_version.empty() || !program.device_name.empty() || !program.tag.empty()) {
    text += fmt::format("  program    torch {}, device {}{}\n",
                        program.torch_version.empty() ? "unknown" : program.torch_version,
                        program.device_name.empty() ? "unknown" : program.device_name,
                        program.tag.empty() ? "" : ", tag " + program.tag);
  }
  if (cut_bytes > 0) text += fmt::format("  torn tail  {} left out\n", format_exactly(cut_bytes));
  text +=
      fmt::format("  peak       {} at tick {}{}\n", format_exactly(peak), format_count(peak_tick),
                  marks > 0 ? fmt::format(", in step {}", peak_step + 1) : "");
  if (step) {
    text += fmt::format("  residents  {} of it, in {}\n", format_exactly(resident_bytes),
                        format_number_of(resident_blocks, "block"));
    text +=
        fmt::format("  steps      {} marked; {} repeat {} times, ticks {} to {}\n",
                    format_count(marks), format_number_of(step->requests.size(), "request"),
                    step->repeats, format_count(step->first_tick), format_count(step->last_tick));
    text += fmt::format("  step of    {}\n", coverage->whose());
    text += fmt::format("  covers     {}\n", coverage->covers());
  } else {
    text += fmt::format("  steps      {} marked; none found that repeats: {}\n",
                        format_count(marks), why_no_step);
  }
  return text + holders_to_text() + largest_to_text();
}

std::string TraceSummary::holders_to_text() const {
  std::string text;
  const Bytes others = peak - resident_bytes;
  std::string unknown;
  const auto add = [&](const char* what, const std::vector<Holder>& holders, bool always) {
    if (!holders.empty()) {
      text += holders_text(what, holders, others);
    } else if (always && others > 0) {
      unknown += (unknown.empty() ? "" : ", ") + std::string(what);
    }
  };
  if (others > 0)
    text += fmt::format("\nWho holds the other {} at the peak\n", format_bytes(others));
  add("phase", by_phase, true);
  add("module", by_module, true);
  add("operator", by_operator, true);
  add("scope", by_scope, false);
  if (!unknown.empty())
    text += fmt::format("  not recorded: {} (see berth record --operators)\n", unknown);
  return text;
}

std::string TraceSummary::largest_to_text() const {
  std::string text;
  if (!largest.empty()) {
    text += "\nThe largest blocks at the peak\n";
    Table table({{"bytes"},
                 {"born"},
                 {"freed"},
                 {"phase", Table::Align::kLeft},
                 {"operator", Table::Align::kLeft},
                 {"module or scope", Table::Align::kLeft}});
    for (const PeakBlock& block : largest) {
      table.add({format_bytes(block.bytes), format_count(block.born),
                 block.freed ? format_count(*block.freed) : "never", block.phase, block.op,
                 block.module.empty() ? block.scope : block.module});
    }
    text += table.to_string();
  }
  return text;
}

}  // namespace berth::cli
