#pragma once

#include "csrc/trace/trace.h"

#include <string>
#include <utility>
#include <vector>

namespace berth::test {

// Writes a trace down as a program would make it: entries get ticks in order, lanes and texts their
// numbers on first use.
class TraceBuilder {
 public:
  TraceBuilder() { (void)lane(0); }

  trace::BlockId allocate(Bytes bytes, std::uint64_t lane_key = 0, trace::Tag tag = 0) {
    add(trace::Request{++last_block_, bytes, lane(lane_key), tag});
    return last_block_;
  }
  void free(trace::BlockId block) { add(trace::Free{block}); }
  void use(trace::BlockId block, std::uint64_t lane_key) { add(trace::Use{block, lane(lane_key)}); }
  void mark(std::uint64_t lane_key = 0) { add(trace::StepMark{lane(lane_key)}); }
  void record(std::uint64_t event, std::uint64_t lane_key) {
    add(trace::EventRecord{event, lane(lane_key)});
  }
  void wait(std::uint64_t event, std::uint64_t lane_key) {
    add(trace::EventWait{event, lane(lane_key)});
  }
  void synchronize(std::uint64_t event) { add(trace::Synchronize{event, 0}); }
  void synchronize_lane(std::uint64_t lane_key) { add(trace::Synchronize{0, lane(lane_key)}); }
  void synchronize_all() { add(trace::Synchronize{}); }

  void add(const trace::Event& event, trace::ThreadId thread = 0) {
    trace_.entries.push_back({next_tick_++, 0, thread, event});
  }
  trace::LaneId lane(std::uint64_t key) {
    for (trace::LaneId id = 0; id < trace_.lanes.size(); ++id) {
      if (trace_.lanes[id].key == key) return id;
    }
    trace_.lanes.push_back({key});
    return static_cast<trace::LaneId>(trace_.lanes.size() - 1);
  }
  trace::StringId name(const std::string& text) {
    for (trace::StringId id = 0; id < trace_.strings.size(); ++id) {
      if (trace_.strings[id] == text) return id;
    }
    trace_.strings.push_back(text);
    return static_cast<trace::StringId>(trace_.strings.size() - 1);
  }

  [[nodiscard]] const Trace& trace() const noexcept { return trace_; }
  [[nodiscard]] Trace& trace() noexcept { return trace_; }

 private:
  Trace trace_;
  trace::Tick next_tick_ = 0;
  trace::BlockId last_block_ = 0;
};

}  // namespace berth::test
