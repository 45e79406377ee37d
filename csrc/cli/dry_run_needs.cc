#include "csrc/cli/dry_run_needs.h"

#include "csrc/core/check.h"
#include "csrc/place/plan_trace.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "csrc/replay/workload.h"
#include "csrc/trace/file.h"

#include <berth/warnings.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

namespace berth::cli {
namespace {

constexpr Bytes kLiveUnit = 512;  // what live sizes are rounded to, whoever serves them

// PyTorch's own allocators, by the model of them on paper.
Needs::Reserved native(const std::string& name, const replay::Workload& workload) {
  const replay::Result result = replay::through_caching_model(workload, name == "expandable");
  return {name, result.out_of_memory ? std::nullopt : result.reserved_peak, result.problem};
}

Needs::Reserved ours(const std::string& name, const replay::Result& result) {
  return {name, result.out_of_memory ? std::nullopt : result.reserved_peak, result.problem};
}

// Operators that ask the host what a kernel computed, or whose results are as large as values say.
void count_reads(const Trace& trace, Needs& needs) {
  constexpr std::array<std::string_view, 7> kByValue = {
      "aten::nonzero",    "aten::masked_select",      "aten::_unique", "aten::_unique2",
      "aten::unique_dim", "aten::unique_consecutive", "aten::bincount"};
  std::vector<char> kinds(trace.strings.size(), 0);
  for (std::size_t i = 0; i < trace.strings.size(); ++i) {
    if (trace.strings[i] == "aten::_local_scalar_dense") kinds[i] = 1;
    if (std::ranges::find(kByValue, trace.strings[i]) != kByValue.end()) kinds[i] = 2;
  }
  // Operands are those on the device only: what has none reads the host's memory.
  std::unordered_map<std::uint64_t, char> open;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* const op = std::get_if<trace::OperatorBegin>(&entry.event)) {
      if (kinds[op->name] != 0) open[op->op] = kinds[op->name];
    } else if (const auto* const operand = std::get_if<trace::Operand>(&entry.event)) {
      const auto found = open.find(operand->op);
      if (found == open.end()) continue;
      needs.item_reads += found->second == 1 ? 1 : 0;
      needs.shapes_by_value += found->second == 2 ? 1 : 0;
      open.erase(found);
    }
  }
}

// What berth would warn of while it serves on paper is no news of the program.
class Silence {
 public:
  Silence() {
    set_warning_sink([](std::string_view, const std::string&) {});
  }
  ~Silence() { set_warning_sink({}); }
  Silence(const Silence&) = delete;
  Silence& operator=(const Silence&) = delete;
};

void add_plan(const Trace& trace, const replay::Workload& workload, double time_limit,
              Needs& needs) {
  const Repeats repeats = find_repeats(trace);
  if (!repeats.any()) {
    needs.why_no_plan = repeats.why_not;
    return;
  }
  needs.plan = plan_repeats(repeats, trace, trace.alignment, {.time_limit_seconds = time_limit});
  replay::BerthOptions options;
  options.plan = needs.plan;
  const replay::Result result = replay::through_berth(workload, options);
  needs.reserved.push_back(ours("planned", result));
  Needs::Planned planned{.arena = needs.plan->arena_bytes,
                         .bound = needs.plan->lower_bound,
                         .slots = needs.plan->slot_count()};
  if (repeats.step)
    for (const Resident& resident : repeats.step->residents)
      planned.residents += align_up(resident.bytes, trace.alignment);
  if (result.reserved_peak)
    planned.outside = *result.reserved_peak - std::min(*result.reserved_peak, planned.arena);
  needs.planned = planned;
}

}  // namespace

const Needs::Reserved* Needs::find(std::string_view name) const {
  const auto found = std::ranges::find(reserved, name, &Reserved::name);
  return found == reserved.end() ? nullptr : &*found;
}

std::optional<Bytes> Needs::least() const {
  std::optional<Bytes> least;
  for (const Reserved& one : reserved)
    if (one.peak) least = std::min(least.value_or(*one.peak), *one.peak);
  return least;
}

Needs find_needs(const RankTraces::File& file, const NeedsOptions& options) {
  const Silence silence;
  const Trace trace = read_trace(file.path);
  const replay::Workload workload = replay::make_workload(trace);
  Needs needs{.file = file,
              .program = trace.program,
              .requests = workload.requests,
              .steps = workload.steps,
              .live_peak = workload.live_peak(kLiveUnit),
              .torn = trace.cut_bytes > 0};
  if (workload.requests == 0) return needs;
  count_reads(trace, needs);
  if (options.holders) needs.holders = find_peak_holders(trace);
  needs.reserved.push_back(native("caching", workload));
  needs.reserved.push_back(native("expandable", workload));
  needs.reserved.push_back(ours("learning", replay::through_berth(workload, {})));
  add_plan(trace, workload, options.plan_time_limit_seconds, needs);
  return needs;
}

}  // namespace berth::cli
