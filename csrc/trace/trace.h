#pragma once

#include "csrc/core/bytes.h"

#include <berth/role.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

// What a run asked of its allocator, in order: the model of a trace in memory. `plans/trace.fbs` is
// the same on disk (format 1), `recorder.h` writes it while a program runs, `file.h` reads it.
namespace berth::trace {

using Tick = std::uint64_t;      // index of an entry in the order of the run
using BlockId = std::uint64_t;   // one request and all that happens to its block; 0 is no block
using LaneId = std::uint32_t;    // index into Trace::lanes
using ThreadId = std::uint32_t;  // small number of a thread, in order of first appearance
using Tag = std::uint32_t;       // the user's scope, 0 for none
using StringId = std::uint32_t;  // index into Trace::strings; 0 is the empty string

// --- Entries of every recording -----------------------------------------------------------------

// A block is handed out. `bytes` as asked, before rounding.
struct Request {
  BlockId id = 0;
  Bytes bytes = 0;
  LaneId lane = 0;
  Tag tag = 0;
};

// The block may be reused on its own lane. A block that was made before the recording has an id
// that no Request carries.
struct Free {
  BlockId id = 0;
};

// The block is used on another lane than its own.
struct Use {
  BlockId id = 0;
  LaneId lane = 0;
};

struct EventRecord {
  std::uint64_t event = 0;
  LaneId lane = 0;
};

// All later work of the lane happens after the event's last record.
struct EventWait {
  std::uint64_t event = 0;
  LaneId lane = 0;
};

// The host waited: for `event` where that is not 0, else for all work of `lane`, or of every lane
// where that is kAllLanes.
inline constexpr LaneId kAllLanes = 0xFFFFFFFF;
struct Synchronize {
  std::uint64_t event = 0;
  LaneId lane = kAllLanes;
};

// A step of `lane` ends here: the lane that the mark binds to a plan.
struct StepMark {
  LaneId lane = 0;
};

enum class RangeKind : std::uint8_t { kModule = 0, kPhase = 1, kUser = 2 };

struct RangeBegin {
  std::uint64_t range = 0;
  StringId name = 0;
  RangeKind kind = RangeKind::kUser;
};

struct RangeEnd {
  std::uint64_t range = 0;
};

// --- Optional entries (BERTH_RECORD=operators and later sources) ---------------------------------

// `sequence` links a forward operator to the backward ones that it caused (autograd's sequence
// number, -1: none); `forward_thread` is the thread of that forward operator where this one is a
// backward operator.
struct OperatorBegin {
  std::uint64_t op = 0;
  StringId name = 0;
  std::int64_t sequence = -1;
  ThreadId forward_thread = 0;
  bool backward = false;
  bool random = false;         // draws random numbers
  bool changes_state = false;  // writes one of its inputs
};

struct OperatorEnd {
  std::uint64_t op = 0;
};

enum class Access : std::uint8_t { kRead = 0, kWrite = 1, kReadWrite = 2 };

// A tensor that an operator takes or gives. `block` 0: not of ours (or empty). `element_type` names
// c10's ScalarType by number; `shape` indexes Trace::shapes. `output`: a result, else an argument.
struct Operand {
  std::uint64_t op = 0;
  BlockId block = 0;
  Bytes byte_offset = 0;
  Bytes bytes = 0;
  std::uint32_t shape = 0;
  std::int8_t element_type = -1;
  Access access = Access::kRead;
  bool output = false;
  std::uint16_t position = 0;
};

struct Role {
  BlockId id = 0;
  RoleKind role = RoleKind::kUnknown;
};

enum class CopyDirection : std::uint8_t {
  kHostToDevice = 0,
  kDeviceToHost = 1,
  kDeviceToDevice = 2,
  kHostToHost = 3
};

struct Copy {
  CopyDirection direction = CopyDirection::kHostToHost;
  Bytes bytes = 0;
  std::uint64_t duration_ns = 0;
  LaneId lane = 0;
};

// One of several ways to run `op`: a convolution algorithm, say.
struct Alternative {
  std::uint64_t op = 0;
  std::uint64_t key = 0;  // hash of the problem
  std::uint32_t algorithm = 0;
  Bytes workspace_bytes = 0;
  std::uint64_t duration_ns = 0;
  bool chosen = false;
};

// The allocator took memory from the device or gave it back.
struct Segment {
  std::uint64_t address = 0;
  Bytes bytes = 0;
  bool reserve = true;
};

// Device time of an operator, where known.
struct DeviceTime {
  std::uint64_t op = 0;
  LaneId lane = 0;
  std::uint64_t begin_ns = 0;
  std::uint64_t duration_ns = 0;
};

using Event = std::variant<Request, Free, Use, EventRecord, EventWait, Synchronize, StepMark,
                           RangeBegin, RangeEnd, OperatorBegin, OperatorEnd, Operand, Role, Copy,
                           Alternative, Segment, DeviceTime>;

// One entry a tick. `time_ns` counts from the start of the recording, 0 where not known.
struct Entry {
  Tick tick = 0;
  std::uint64_t time_ns = 0;
  ThreadId thread = 0;
  Event event;
};

// What identifies a lane in its run: the stream of a device, on the CPU the thread. Keys of equal
// programs are equal from run to run: 0 is the default stream, on the CPU the thread that installed
// berth; others count up in order of first use.
struct Lane {
  std::uint64_t key = 0;
};

// The program and machine that made a trace or a plan. Texts are empty, numbers 0 where not known.
struct Program {
  std::string torch_version;
  std::string device_name;  // "cpu", "NVIDIA H100 80GB HBM3"
  Bytes device_bytes = 0;
  std::uint32_t world_size = 1;
  std::uint32_t rank = 0;
  std::string tag;  // the user's

  friend bool operator==(const Program&, const Program&) = default;
};

// A recorded run. The readers check all of this: entries are sorted by tick and no two share one;
// every index (lane, string, shape) is in range; no size exceeds kMaxBytes; an id is requested at
// most once and not after its free. A free, use, range end or operator end may lack its beginning.
struct Trace {
  Program program;
  Bytes alignment = 64;  // of every block, and the unit that sizes are rounded up to, in the run
  std::vector<Lane> lanes;
  std::vector<std::string> strings = {""};
  std::vector<std::vector<std::int64_t>> shapes = {{}};
  std::vector<Entry> entries;
  Bytes cut_bytes = 0;  // torn off the end of the file by a crash
  bool closed = true;   // false: the recording did not end by itself; the last entries may be lost

  [[nodiscard]] std::string_view name(StringId id) const { return strings[id]; }
};

}  // namespace berth::trace

namespace berth {
using trace::Trace;
}
