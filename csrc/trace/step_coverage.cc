#include "csrc/trace/step_coverage.h"

#include "csrc/trace/run_log.h"

#include <map>

namespace berth {
namespace {

using trace::LaneLog;
using trace::LaneRequest;

// One period of a lane: what it asks for, and what of that has a place.
struct Period {
  std::vector<Bytes> bytes;
  std::vector<bool> planned;
};

Period period_of(const Step& step, std::uint32_t lane) {
  const std::uint32_t length = step.lanes[lane].period / step.unrolled;
  Period period{std::vector<Bytes>(length), std::vector<bool>(length)};
  for (const StepRequest& request : step.requests) {
    if (request.lane != lane || request.birth >= length) continue;
    period.bytes[request.birth] = request.bytes;
    period.planned[request.birth] = request.planned;
  }
  return period;
}

// Of every prefix of a period, the length of its longest proper suffix that is a prefix too (Knuth,
// Morris & Pratt 1977).
std::vector<std::uint32_t> borders_of(const std::vector<Bytes>& period) {
  std::vector<std::uint32_t> borders(period.size(), 0);
  for (std::uint32_t i = 1, border = 0; i < period.size(); ++i) {
    while (border > 0 && period[i] != period[border]) border = borders[border - 1];
    if (period[i] == period[border]) ++border;
    borders[i] = border;
  }
  return borders;
}

void cover(const LaneLog& log, const Period& period, StepCoverage::Lane& lane) {
  const std::vector<std::uint32_t> borders = borders_of(period.bytes);
  std::uint32_t matched = 0;
  for (const LaneRequest& request : log.requests) {
    while (matched > 0 && request.bytes != period.bytes[matched]) matched = borders[matched - 1];
    if (request.bytes == period.bytes[matched]) ++matched;
    if (matched < period.bytes.size()) continue;
    matched = 0;
    for (std::size_t i = 0; i < period.bytes.size(); ++i) {
      if (!period.planned[i]) continue;
      ++lane.covered_requests;
      lane.covered_bytes += period.bytes[i];
    }
  }
}

// The thread that makes most requests of each lane, of equal ones the first.
std::vector<trace::ThreadId> threads_of(const Trace& trace) {
  std::vector<std::map<trace::ThreadId, std::uint64_t>> requests(trace.lanes.size());
  for (const trace::Entry& entry : trace.entries) {
    if (const auto* request = std::get_if<trace::Request>(&entry.event))
      ++requests[request->lane][entry.thread];
  }
  std::vector<trace::ThreadId> threads;
  for (const auto& lane : requests) {
    std::uint64_t most = 0;
    threads.push_back(0);
    for (const auto& [thread, count] : lane) {
      if (count <= most) continue;
      most = count;
      threads.back() = thread;
    }
  }
  return threads;
}

template <class Value>
double share(const std::vector<StepCoverage::Lane>& lanes, Value StepCoverage::Lane::*covered,
             Value StepCoverage::Lane::*all) {
  double part = 0, whole = 0;
  for (const StepCoverage::Lane& lane : lanes) {
    part += static_cast<double>(lane.*covered);
    whole += static_cast<double>(lane.*all);
  }
  return whole == 0 ? 1 : part / whole;
}

}  // namespace

double StepCoverage::share_of_requests() const {
  return share(lanes, &Lane::covered_requests, &Lane::requests);
}
double StepCoverage::share_of_bytes() const {
  return share(lanes, &Lane::covered_bytes, &Lane::bytes);
}

StepCoverage coverage_of(const Trace& trace, const Step& step) {
  const trace::RunLog log = trace::make_run_log(trace);
  const std::vector<trace::ThreadId> threads = threads_of(trace);
  StepCoverage coverage;
  for (trace::LaneId id = 0; id < trace.lanes.size(); ++id) {
    const LaneLog& lane_log = log.lanes[id];
    StepCoverage::Lane& lane = coverage.lanes.emplace_back();
    lane.key = trace.lanes[id].key;
    lane.thread = threads[id];
    lane.marks = lane_log.marks.size();
    lane.requests = lane_log.requests.size();
    for (const LaneRequest& request : lane_log.requests) lane.bytes += request.bytes;
    for (std::uint32_t index = 0; index < step.lanes.size(); ++index) {
      if (step.lanes[index].key != lane.key) continue;
      lane.in_step = true;
      if (index == step.primary) coverage.primary = id;
      cover(lane_log, period_of(step, index), lane);
    }
  }
  return coverage;
}

}  // namespace berth
