#include "csrc/cli/summaries/trace_summary.h"

#include "csrc/trace/traced_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace berth::cli {
namespace {

constexpr std::size_t kLargest = 10;

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
  const TracedRun traced(trace);
  summary.requests = traced.blocks().size();
  summary.frees = traced.frees();
  summary.marks = traced.marks();
  summary.threads = traced.threads();
  summary.peak = traced.peak();
  summary.peak_tick = traced.peak_tick();
  summary.peak_step = traced.peak_step();
  summary.step = extract_step(trace, {}, &summary.why_no_step);
  if (summary.step) summary.coverage.emplace(trace, *summary.step);

  std::unordered_set<trace::BlockId> residents;
  if (summary.step) {
    for (const Resident& resident : summary.step->residents) residents.insert(resident.block);
  }
  Sums modules, operators, phases, scopes;
  std::vector<const TracedBlock*> held;
  for (const TracedBlock& block : traced.blocks()) {
    if (!block.lives_at(summary.peak_tick)) continue;
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
         .birth = block->birth,
         .end = block->end == TracedBlock::kNever ? std::nullopt : std::optional(block->end),
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
                      {"birth_tick", block.birth},
                      {"end_tick", block.end ? Json(*block.end) : Json(nullptr)},
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
                 {"birth"},
                 {"end"},
                 {"phase", Table::Align::kLeft},
                 {"operator", Table::Align::kLeft},
                 {"module or scope", Table::Align::kLeft}});
    for (const PeakBlock& block : largest) {
      table.add({format_bytes(block.bytes), format_count(block.birth),
                 block.end ? format_count(*block.end) : "never", block.phase, block.op,
                 block.module.empty() ? block.scope : block.module});
    }
    text += table.to_string();
  }
  return text;
}

}  // namespace berth::cli
