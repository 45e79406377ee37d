#include "csrc/replay/workload.h"

#include "csrc/core/check.h"
#include "csrc/trace/known_ranges.h"
#include "csrc/trace/traced_run.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>

namespace berth::replay {
using Kind = Operation::Kind;

void Workload::count_operations() {
  requests = frees = steps = 0;
  for (const Operation& operation : operations) {
    requests += operation.kind == Kind::kAllocate ? 1 : 0;
    frees += operation.kind == Kind::kFree ? 1 : 0;
    steps += operation.kind == Kind::kStep ? 1 : 0;
  }
}

Bytes Workload::live_peak(Bytes unit, bool with_optional) const {
  std::vector<Bytes> sizes(block_count, 0);
  Bytes live = 0, peak = 0;
  for (const Operation& operation : operations) {
    if (operation.kind == Kind::kAllocate) {
      if (operation.optional && !with_optional) continue;
      sizes[operation.block] = align_up(operation.size, unit);
      live += sizes[operation.block];
      peak = std::max(peak, live);
    } else if (operation.kind == Kind::kFree) {
      live -= sizes[operation.block];
    }
  }
  return peak;
}

namespace {

bool is_convolution(std::string_view name) {
  return name.starts_with("aten::cudnn_convolution") || name == "aten::convolution_backward";
}

// Blocks that a convolution asked for itself and that are nobody's operand: cuDNN's workspaces.
std::unordered_set<trace::BlockId> workspaces_of(const Trace& trace) {
  std::unordered_set<trace::BlockId> found;
  if (std::none_of(trace.strings.begin(), trace.strings.end(), is_convolution)) return found;
  const TracedRun run(trace);
  for (const TracedBlock& block : run.blocks())
    if (block.op != kNoOperator && is_convolution(trace.name(run.operators()[block.op].name)))
      found.insert(block.id);
  for (const trace::Entry& entry : trace.entries)
    if (const auto* const operand = std::get_if<trace::Operand>(&entry.event))
      found.erase(operand->block);
  return found;
}

}  // namespace

Workload make_workload(const Trace& trace) {
  Workload workload;
  workload.alignment = trace.alignment;
  for (const trace::Lane& lane : trace.lanes) workload.lane_keys.push_back(lane.key);
  if (workload.lane_keys.empty()) workload.lane_keys.push_back(0);
  const std::unordered_set<trace::BlockId> workspaces = workspaces_of(trace);
  std::unordered_map<trace::BlockId, std::uint64_t> live;
  Bytes total = 0;
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event)) {
      if (request->bytes == 0) continue;
      const auto sum = checked_add(total, request->bytes);
      BERTH_CHECK(sum.has_value(), kInput, "tick {}: the sum of requests exceeds {} bytes",
                  entry.tick, kMaxBytes);
      total = *sum;
      live[request->id] = workload.block_count;
      workload.operations.push_back({Kind::kAllocate, request->lane, workload.block_count++,
                                     request->bytes, workspaces.contains(request->id)});
    } else if (const auto* free = std::get_if<trace::Free>(&entry.event)) {
      const auto it = live.find(free->id);
      if (it == live.end()) continue;
      workload.operations.push_back({Kind::kFree, 0, it->second, 0});
      live.erase(it);
    } else if (const auto* use = std::get_if<trace::Use>(&entry.event)) {
      const auto it = live.find(use->id);
      if (it != live.end()) workload.operations.push_back({Kind::kUse, use->lane, it->second, 0});
    } else if (const auto* mark = std::get_if<trace::StepMark>(&entry.event)) {
      workload.operations.push_back({Kind::kStep, mark->lane, 0, 0});
    } else if (const auto* range = std::get_if<trace::RangeBegin>(&entry.event)) {
      if (trace.name(range->name) == trace::kEmptyCacheRange)
        workload.operations.push_back({Kind::kEmptyCache, 0, 0, 0});
    }
  }
  workload.count_operations();
  return workload;
}

}  // namespace berth::replay
