#include "csrc/trace/run_log.h"

#include <algorithm>
#include <unordered_map>

namespace berth::trace {

std::uint32_t LaneLog::position_at(Tick tick) const noexcept {
  const auto it = std::lower_bound(requests.begin(), requests.end(), tick,
                                   [](const LaneRequest& r, Tick t) { return r.tick < t; });
  return static_cast<std::uint32_t>(it - requests.begin());
}

RunLog make_run_log(const Trace& trace) {
  struct Place {
    LaneId lane;
    std::uint32_t index;
  };
  RunLog log;
  log.lanes.resize(trace.lanes.size());
  log.end = trace.entries.empty() ? 0 : trace.entries.back().tick + 1;
  std::unordered_map<BlockId, Place> live;
  for (const Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<Request>(&entry.event)) {
      if (request->bytes == 0) continue;
      auto& requests = log.lanes[request->lane].requests;
      live[request->id] = {request->lane, static_cast<std::uint32_t>(requests.size())};
      requests.push_back(
          {.tick = entry.tick, .bytes = request->bytes, .block = request->id, .tag = request->tag});
    } else if (const auto* free = std::get_if<Free>(&entry.event)) {
      const auto it = live.find(free->id);
      if (it == live.end()) continue;
      auto& requests = log.lanes[it->second.lane].requests;
      requests[it->second.index].freed = entry.tick;
      requests[it->second.index].end = static_cast<std::uint32_t>(requests.size());
      live.erase(it);
    } else if (const auto* mark = std::get_if<StepMark>(&entry.event)) {
      LaneLog& lane = log.lanes[mark->lane];
      lane.marks.push_back({entry.tick, static_cast<std::uint32_t>(lane.requests.size())});
    }
  }
  return log;
}

}  // namespace berth::trace
