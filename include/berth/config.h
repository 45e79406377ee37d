#pragma once

#include <berth/bytes.h>

#include <cstdint>
#include <string>

namespace berth {

enum class Mode {
  kLearn,   // serve from the pool, record in place, plan when the step repeats, switch; the default
  kRecord,  // serve from the pool and write a trace to `trace`
  kServe,   // serve the plan in `plan`
  kOff,     // do nothing: libtorch's own allocator stays
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

// How berth allocates a GPU's memory.
enum class MemoryKind {
  kAuto,     // virtual, or plain where the driver's virtual memory fails when berth tries it
  kVirtual,  // pages are mapped into ranges of addresses; an error where that fails
  kPlain,    // cudaMalloc: an arena is one allocation, the pool grows by segments
};

// Settings of one allocator. Each has an environment variable of the same name in capitals after
// BERTH_ and, where a command takes it, an option: `berth help settings` lists them. File names may
// hold {rank}, {device} and {pid}.
struct Config {
  Mode mode = Mode::kLearn;           // BERTH_MODE
  std::string trace = "berth.trace";  // BERTH_TRACE: the trace that mode record writes
  // BERTH_PLAN: the plan that mode serve follows. Mode learn starts from it, where it exists, and
  // keeps it up to date. A folder (an existing one, or a name that ends in '/') holds the plans of
  // many programs. Mode learn overwrites no file that is not a plan.
  std::string plan;
  RecordDetail record = RecordDetail::kRequests;  // BERTH_RECORD
  CheckLevel check = CheckLevel::kNormal;         // BERTH_CHECK
  std::string stats;     // BERTH_STATS: the file that receives the counters at exit, as JSON
  bool verbose = false;  // BERTH_VERBOSE: print one line at exit: steps, hits, misses, memory
  std::string tag;       // BERTH_TAG: part of a plan's fingerprint
  // BERTH_PLAN_TIME_LIMIT: for planning in the background. Step programs take it from the variable.
  double plan_time_limit_seconds = 2;
  Bytes memory_limit = 0;                 // BERTH_MEMORY_LIMIT: 0 is the device's own
  MemoryKind memory = MemoryKind::kAuto;  // BERTH_MEMORY: without effect on the host
  // BERTH_HANDLE: the largest handle of a GPU's virtual memory. Larger handles need fewer driver
  // calls and hold more memory. 0: a page, or a 4,096th of the held memory.
  Bytes handle = 0;
  std::string schedule;  // BERTH_SCHEDULE: the schedule that step programs follow from the start
  // BERTH_ALGORITHMS: the file in which step programs keep measured algorithms
  std::string algorithms;

  // Reads BERTH_ variables strictly: throws Error(kUsage) naming variable, value and the legal
  // ones. Ignores them all in a set-user-id process.
  [[nodiscard]] static Config from_environment();
};

}  // namespace berth
