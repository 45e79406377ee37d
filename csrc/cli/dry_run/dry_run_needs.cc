#include "csrc/cli/dry_run/dry_run_needs.h"

#include "csrc/core/check.h"
#include "csrc/facts/operator_kinds.h"
#include "csrc/facts/rounding.h"
#include "csrc/place/plan_trace.h"
#include "csrc/replay/least_limit.h"
#include "csrc/replay/through_berth.h"
#include "csrc/replay/through_caching_model.h"
#include "csrc/replay/torch_settings.h"
#include "csrc/replay/workload.h"
#include "csrc/trace/file.h"
#include "csrc/trace/known_ranges.h"

#include <berth/error.h>
#include <berth/warnings.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

namespace berth::cli {
namespace {

// With that much no run finishes.
Bytes too_little(const replay::Workload& workload) {
  return std::max<Bytes>(workload.least_live_peak(facts::kCudaUnit), 1) - 1;
}

// PyTorch's own allocators, by the model of them on paper.
Needs::Reserved native(const std::string& name, const replay::Workload& workload, Bytes limit) {
  replay::CachingModel::Options options = replay::torch_settings_of_environment().model;
  options.expandable = name == "expandable";
  const replay::Result unlimited = replay::through_caching_model(workload, options);
  Needs::Reserved reserved{.name = name, .peak = unlimited.reserved_peak};
  const auto with = [&](Bytes bytes) {
    options.limit = options.device_bytes = bytes;
    return replay::through_caching_model(workload, options);
  };
  reserved.least =
      replay::least_limit(
          {.too_little = too_little(workload), .enough = *reserved.peak, .first = limit},
          [&](Bytes bytes) { return !with(bytes).out_of_memory; })
          .bytes;
  if (limit >= *reserved.peak)
    reserved.retries = 0;
  else if (limit >= *reserved.least)
    reserved.retries = with(limit).retries;
  return reserved;
}

// berth, on a device of `options.memory_limit` bytes or on one that is large enough.
replay::Result served_on_paper(const replay::Workload& workload,
                               const replay::BerthOptions& options) {
  try {
    return replay::through_berth(workload, options);
  } catch (const Error& error) {  // the plan's arena is larger than the device
    if (options.memory_limit == 0) throw;
    replay::Result result;
    result.out_of_memory = true;
    result.problem = error.what();
    return result;
  }
}

Needs::Reserved ours(const std::string& name, const replay::Workload& workload, Bytes limit,
                     replay::BerthOptions options) {
  constexpr double kPrecision = 0.005;  // a replay of berth takes longer than one of the model
  const replay::Result result = served_on_paper(workload, options);
  if (result.out_of_memory) return {.name = name, .problem = result.problem};
  Needs::Reserved reserved{.name = name, .peak = result.reserved_peak};
  if (!reserved.peak) return reserved;
  reserved.least = replay::least_limit({.too_little = too_little(workload),
                                        .enough = *reserved.peak,
                                        .first = limit,
                                        .precision = kPrecision},
                                       [&](Bytes bytes) {
                                         options.memory_limit = bytes;
                                         return !served_on_paper(workload, options).out_of_memory;
                                       })
                       .bytes;
  return reserved;
}

// Operators that ask the host what a kernel computed, or whose results are as large as values say,
// and turns to private pools.
void count_reads(const Trace& trace, Needs& needs) {
  std::vector<char> kinds(trace.strings.size(), 0);
  for (std::size_t i = 0; i < trace.strings.size(); ++i) {
    if (trace.strings[i] == "aten::_local_scalar_dense") kinds[i] = 1;
    if (facts::sizes_by_contents(trace.strings[i])) kinds[i] = 2;
  }
  // Operands are those on the device only: what has none reads the host's memory.
  std::unordered_map<std::uint64_t, char> open;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* const range = std::get_if<trace::RangeBegin>(&entry.event))
      needs.private_pools += trace.name(range->name) == trace::kPrivatePoolRange ? 1 : 0;
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

void add_plan(const Trace& trace, const replay::Workload& workload, const NeedsOptions& options,
              Needs& needs) {
  const Repeats repeats = find_repeats(trace);
  if (!repeats.any()) {
    needs.why_no_plan = repeats.why_not;
    return;
  }
  needs.plan = plan_repeats(repeats, trace, trace.alignment,
                            {.time_limit_seconds = options.plan_time_limit_seconds});
  replay::BerthOptions served_by;
  served_by.plan = needs.plan;
  needs.reserved.push_back(ours("planned", workload, options.limit, std::move(served_by)));
  const std::optional<Bytes> peak = needs.reserved.back().peak;
  Needs::Planned planned{.arena = needs.plan->arena_bytes,
                         .bound = needs.plan->lower_bound,
                         .slots = needs.plan->slot_count()};
  if (repeats.step)
    for (const Resident& resident : repeats.step->residents)
      planned.residents += align_up(resident.bytes, trace.alignment);
  if (peak) planned.outside = *peak - std::min(*peak, planned.arena);
  needs.planned = planned;
}

}  // namespace

const Needs::Reserved* Needs::find(std::string_view name) const {
  const auto found = std::ranges::find(reserved, name, &Reserved::name);
  return found == reserved.end() ? nullptr : &*found;
}

std::optional<Bytes> Needs::least(bool shared) const {
  std::optional<Bytes> least;
  for (const Reserved& one : reserved)
    if (const auto needed = one.needed(shared)) least = std::min(least.value_or(*needed), *needed);
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
              .live_peak = workload.live_peak(facts::kCudaUnit),
              .torn = trace.cut_bytes > 0};
  if (workload.requests == 0) return needs;
  count_reads(trace, needs);
  if (options.holders) needs.holders = find_peak_holders(trace);
  for (const char* const name : {"caching", "expandable"})
    needs.reserved.push_back(native(name, workload, options.limit));
  needs.reserved.push_back(ours("learning", workload, options.limit, {.background = true}));
  add_plan(trace, workload, options, needs);
  return needs;
}

}  // namespace berth::cli
