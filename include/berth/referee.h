#pragma once

#include <berth/bytes.h>
#include <berth/graph.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Schedules of steps, and the referee, which replays one and reports its memory and its time.
namespace berth::graph {

using BufferId = std::uint32_t;

// When each operator of a step runs, by which alternative, and where its bytes are. Plain data: a
// planner makes a schedule, the referee replays it, and an executor follows it.
//
// A buffer holds one run's result for a storage. A recomputed operator writes into another
// buffer of the same storage, so two versions can be alive side by side. Each input and each
// resident has one buffer, which is there at the beginning. Any other buffer is born on the device
// at its first write or its copy in. Its drop or its copy out ends it there; after a copy out it
// may be copied in again. A buffer that is still there at the end counts as dropped after the last
// step. A resident may be copied out and in, too. It begins on the host where its first copy is one
// in. It ends where it begins, since the next step begins there.
struct Buffer {
  static constexpr Bytes kNoOffset = ~Bytes{0};
  StorageId storage = 0;
  // Its offset in the arena at each of its births on the device, in order; kNoOffset for a birth
  // outside the arena. Empty for a resident, and if nothing was placed. An input's first offset is
  // its place at the beginning.
  std::vector<Bytes> offsets;
  friend bool operator==(const Buffer&, const Buffer&) = default;
};

struct ScheduleStep {
  enum class Kind : std::uint8_t {
    kRun,      // an operator
    kDrop,     // of a buffer
    kOffload,  // of a buffer to the host: begins here; its bytes are free when the copy has ended
    kReload,   // of a buffer back from the host: has its bytes from here on
  };
  Kind kind = Kind::kRun;
  // Of kRun: the operator, its alternative, and one buffer for each of the alternative's reads and
  // writes, in their order. A write into the buffer of a read takes its bytes over. Where the
  // storage is the same, it is the next version; else the two are a pair in place of the
  // alternative.
  OperatorId op = 0;
  std::uint32_t alternative = 0;
  std::vector<BufferId> reads, writes;
  BufferId buffer = 0;                         // of the other kinds
  Bytes workspace_offset = Buffer::kNoOffset;  // of kRun: where in the arena its workspace is
  Bytes host_offset = Buffer::kNoOffset;       // of kOffload: its place in the host's arena
  friend bool operator==(const ScheduleStep&, const ScheduleStep&) = default;
};

// Identifies an operator of the step that a schedule is for: its name, and a hash of the storages
// that it reads and writes, with their sizes. Its times, phase and workspace do not matter.
struct OperatorIdentity {
  std::string name;
  std::uint64_t operands = 0;
  friend bool operator==(const OperatorIdentity&, const OperatorIdentity&) = default;
};

struct Schedule {
  // Caps, so that no file makes us allocate or search without end.
  static constexpr std::size_t kMaxSteps = std::size_t{1} << 22;
  static constexpr std::size_t kMaxBuffers = std::size_t{1} << 23;
  static constexpr std::size_t kMaxUses = std::size_t{1} << 25;  // reads, writes and offsets, each

  std::vector<Buffer> buffers;
  std::vector<ScheduleStep> steps;
  Bytes arena_bytes = 0;  // of the buffers that have offsets; 0: nothing was placed
  Bytes host_bytes = 0;   // of the host's arena; 0: nothing was placed there
  Bytes budget = 0;       // of everything, residents included; 0: none
  std::string engine;     // that found it
  std::uint64_t seed = 0;
  std::uint64_t graph_hash = 0;             // hash_of() its graph; 0: unknown
  std::vector<OperatorIdentity> operators;  // of that graph, by number; empty: unknown
  // The planner's figures. Reports of berth have the referee's.
  Bytes peak = 0, peak_bound = 0;
  std::uint64_t ns = 0, ns_bound = 0;
  friend bool operator==(const Schedule&, const Schedule&) = default;
};

// How fast a buffer gets to the host and back, bytes per second.
struct CopyRates {
  Bytes out = 12'000'000'000, in = 12'000'000'000;
};

// The referee's account of a schedule. All peaks and times that berth reports are these.
struct Verdict {
  // The first violation, in one line that names step, operator and value; empty for a legal
  // schedule. The other fields are valid for a legal schedule only.
  std::string violation;

  // Bytes of residents that are never copied. Part of every figure but those of the arena and the
  // host.
  Bytes resident = 0;
  // Largest value of `live` at a run or a copy in; `resident` if there is neither. An input that is
  // dropped before the first of them does not count.
  Bytes peak = 0;
  std::size_t peak_step = 0;
  // Bytes on the device by step: while an operator runs, its results and workspace included; after
  // any other step.
  std::vector<Bytes> live;
  Bytes arena = 0;  // high-water mark of the buffers with an offset
  // The most bytes on the host at one time. Residents that are copied count all the time.
  Bytes host_peak = 0;
  Bytes host_arena = 0;  // high-water mark of the buffers with a place on the host

  std::uint64_t compute_ns = 0;                     // of all runs
  std::uint64_t recomputed_ns = 0, recomputed = 0;  // of runs after an operator's first
  Bytes offloaded_bytes = 0, reloaded_bytes = 0;
  std::uint64_t ns = 0;  // from the first run to the end of the last run and copy
};

// Replays a schedule over symbolic contents: each buffer holds a version of a storage, and every
// operator must find what it reads. Trusts nothing of the schedule, and shares no code with the
// planners. Requires: violation(graph) is empty.
//
// What is demanded:
// - Each operator runs, and its reads are on the device, hold the version that it reads, and are
//   nowhere written over before. A write is a buffer's birth, or the next version of what it holds,
//   or in place of a read that the alternative allows. An operator that reads the version before
//   writes into the same buffer.
// - What is random, changes state, waits for the host or is a collective runs once. Random
//   operators keep their recorded order, and so do, among themselves, collectives and those that
//   wait for the host. Control edges hold between first runs.
// - Residents are never dropped. At the end they hold their last version, and are where they were
//   at the beginning, on the device or the host.
// - Buffers that are on the device at one time share no byte of the arena, and fit it; the same of
//   those that are on the host and its arena.
// - Residents, what lies outside the arena and the whole arena fit the budget.
//
// Time: operators run one after the other, beside one engine that copies out and one that copies
// in. A copy begins when the runs before it in the list and the engine's copies before it have
// ended. A copy in also waits for its copy out. A copy out also waits for the copies in from its
// bytes on the host. A copy out of a resident takes no time while the host has the same version,
// as it has of one that no operator writes. A run waits for the copies in of what it reads and
// writes. A birth waits for copies out where their bytes are in its place, or where both together
// exceed the budget.
//
// O((steps + reads + writes) log buffers). Throws Error(kUsage) for rates of 0.
[[nodiscard]] Verdict replay(const Graph& graph, const Schedule& schedule,
                             const CopyRates& rates = {});

// Reads a schedule. Trusts nothing: throws Error(kInput) that names the file and the reason, for
// damage, counts above the caps of Schedule, and a missing buffer. replay() checks with the graph
// whether the schedule is legal. O(size).
[[nodiscard]] Schedule read_schedule(const std::string& path);

// Writes a schedule, atomically: equal bytes for equal schedules. Fields that a step's kind does
// not use are not written. Throws Error(kUsage) above the caps and for a missing buffer,
// Error(kSystem) if the file cannot be written.
void write_schedule(const std::string& path, const Schedule& schedule);

}  // namespace berth::graph
