#pragma once

#include "csrc/core/bytes.h"
#include "csrc/graph/graph.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace berth::graph {

using BufferId = std::uint32_t;

// How a step is run: which operator when and in which way, and which bytes are where. Plain data;
// what a planner finds, the referee replays and an executor follows.
//
// A buffer is one making of a storage: an operator that is run again writes into another buffer of
// the same storage, so that two versions can be alive side by side. Each input and each resident
// has one buffer, which is there at the beginning; any other is born on the device at its first
// write or its copy in, and is gone from it after its drop or its copy out, from where it may be
// copied in again. What is still there at the end was dropped after the last step.
struct Buffer {
  static constexpr Bytes kNoOffset = ~Bytes{0};
  StorageId storage = 0;
  // Its place in the arena at each of its births on the device, in order: kNoOffset for one that is
  // elsewhere. None where it is resident or where nothing was placed. An input's first is where it
  // is at the beginning.
  std::vector<Bytes> offsets;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct ScheduleStep {
  enum class Kind : std::uint8_t {
    kRun,      // an operator
    kDrop,     // of a buffer
    kCopyOut,  // of a buffer to the host: begins here, its bytes are free when it has ended
    kCopyIn,   // of a buffer back from the host: has its bytes from here on
  };
  Kind kind = Kind::kRun;
  // Of kRun: in which way it is run, where it finds what it reads and puts what it makes: one
  // buffer for each of the alternative's reads and writes, in their order. A write into the buffer
  // of a read takes its bytes over: where the storage is the same, as the next version of it; where
  // it is another, as one of the alternative's pairs in place.
  OperatorId op = 0;
  std::uint32_t alternative = 0;
  std::vector<BufferId> reads, writes;
  BufferId buffer = 0;                         // of the other kinds
  Bytes workspace_offset = Buffer::kNoOffset;  // of kRun: where in the arena its workspace is
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

struct Schedule {
  // Caps, so that no file makes us allocate or search without end.
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 22;
  static constexpr std::size_t kMaxBuffers = std::size_t{1} << 23;
  static constexpr std::size_t kMaxUses = std::size_t{1} << 25;  // reads, writes and offsets, each

  std::vector<Buffer> buffers;
  std::vector<ScheduleStep> steps;
  Bytes arena_bytes = 0;  // of the buffers that have offsets; 0: nothing was placed
  Bytes budget = 0;       // of everything, residents included; 0: none
  std::string engine;     // that found it
  std::uint64_t seed = 0;
  std::uint64_t graph_hash = 0;  // of the graph that it is for: hash_of(); 0: not said
  // As the planner says; the referee's are what counts.
  Bytes peak = 0, peak_bound = 0;
  std::uint64_t ns = 0, ns_bound = 0;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// The schedule that runs each operator once, in this order and in the way that was recorded (its
// first alternative). Each storage has the buffer of its own number; it is dropped after the last
// operator that reads or writes it, an input that none does before all. Throws Error(kUsage) for an
// order that does not name each operator once; whether it is legal says the referee.
// O(reads + writes).
[[nodiscard]] Schedule schedule_of_order(const Graph& graph, std::span<const OperatorId> order);

}  // namespace berth::graph
