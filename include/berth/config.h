#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <string>

namespace berth {

enum class Mode {
  kLearn,   // serve from the pool, record in place, plan when the step repeats, switch; the default
  kRecord,  // serve from the pool and write a trace to `trace`
  kServe,   // serve the plan in `plan`
  kOff,     // do nothing: the allocator that was there stays
};

enum class RecordDetail {
  kRequests,   // requests, frees, marks
  kOperators,  // operators with their operands and times as well
};

enum class CheckLevel {
  // Each block that is handed out is checked against the blocks that are off schedule: live where
  // the plan does not expect them. That suffices for promise A of csrc/README.md.
  kNormal,
  kFull,  // each block that is handed out is checked against every live byte
};

// How a GPU's memory is had.
enum class MemoryKind {
  kAuto,     // virtual, or plain where a try of the driver's virtual memory fails
  kVirtual,  // ranges of addresses, into which pages are mapped; refused where that fails
  kPlain,    // cudaMalloc: an arena is one allocation, the pool grows by segments
};

// Settings of one allocator. Each has an environment variable of the same name in capitals after
// BERTH_ and, where a command takes it, an option: `berth help settings` lists them. File names may
// hold {rank}, {device} and {pid}.
struct Config {
  Mode mode = Mode::kLearn;           // BERTH_MODE
  std::string trace = "berth.trace";  // BERTH_TRACE: written in record
  // BERTH_PLAN: read in serve; kept up to date in learn, where set, unless another file is there.
  // A folder (one is there, or the name ends in '/') holds the plans of many programs.
  std::string plan;
  RecordDetail record = RecordDetail::kRequests;  // BERTH_RECORD
  CheckLevel check = CheckLevel::kNormal;         // BERTH_CHECK
  std::string stats;     // BERTH_STATS: statistics as JSON, written at exit, where set
  bool verbose = false;  // BERTH_VERBOSE: what became of the requests, in one line at exit
  std::string tag;       // BERTH_TAG: part of a plan's fingerprint
  double plan_time_limit_seconds = 2;     // BERTH_PLAN_TIME_LIMIT: for planning in the background
  Bytes memory_limit = 0;                 // BERTH_MEMORY_LIMIT: 0 is the device's own
  MemoryKind memory = MemoryKind::kAuto;  // BERTH_MEMORY: of a GPU; on the host it says nothing
  // BERTH_HANDLE: the most memory of a GPU that the driver is asked for at a time; 0: a page, or a
  // 4,096th of what is held. A larger one costs fewer calls, and more memory.
  Bytes handle = 0;
  std::string schedule;  // BERTH_SCHEDULE: what step programs begin with, where set
  // BERTH_ALGORITHMS: where step programs keep what they measured of algorithms, where set
  std::string algorithms;

  // Reads BERTH_ variables strictly: throws Error(kUsage) naming variable, value and the legal
  // ones. Ignores them all in a set-user-id process.
  [[nodiscard]] static Config from_environment();
};

}  // namespace berth
