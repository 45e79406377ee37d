#pragma once

#include "csrc/standin/abi.h"
#include "csrc/standin/accesses.h"
#include "csrc/standin/meeting.h"
#include "csrc/standin/vector_clock.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace berth::standin {

struct Capture;
struct Stream;

// What one operation does to memory.
struct MemoryAccess {
  std::uintptr_t begin = 0;
  std::size_t size = 0;
  Accesses::Kind kind = Accesses::Kind::kRead;
};

// One recording of an event: over once the stream that recorded it gets there.
struct EventRecord {
  bool done = false;
  std::uint64_t time_us = 0;  // by the scheduler's clock
  VectorClock clock;          // what happens before it
  std::string stream;         // for messages
};

struct Event {
  int device = 0;
  bool timing = true;
  std::shared_ptr<EventRecord> record;  // the latest; null if never recorded
  std::weak_ptr<Capture> capture;       // that it was last recorded in
  std::vector<std::size_t> nodes;       // of that capture, which it stands for
  bool captured = false;
};

// One piece of work in a stream. The work itself must bear being run again: a graph launches it
// many times.
struct Operation {
  enum class Kind { kKernel, kCopy, kMemset, kRecord, kWait, kHost, kFree };

  Kind kind = Kind::kKernel;
  const char* name = "";
  std::function<void()> work = {};  // may be empty
  std::vector<MemoryAccess> accesses = {};
  std::shared_ptr<EventRecord> record = {};  // kRecord completes it, kWait waits for it
  std::shared_ptr<Event> event = {};         // of an external record or wait inside a graph
  std::vector<std::pair<std::weak_ptr<Stream>, std::uint64_t>> after =
      {};  // positions of other streams to wait for
  // A collective: what it waits for. `meet` makes that anew each time it is queued.
  std::function<std::shared_ptr<Meeting>()> meet = {};
  std::shared_ptr<Meeting> meeting = {};
  std::uint64_t clock_us = 1;  // what it counts for in the times of events
  // A kernel that waits: its stream stands still for this long after the operation's turn came.
  std::chrono::nanoseconds spin{0};
  std::chrono::steady_clock::time_point over = {};  // zero: its turn has not come
};

// One line of a stream's history, for messages.
struct HistoryEntry {
  Operation::Kind kind = Operation::Kind::kKernel;
  const char* name = "";
  std::uint64_t position = 0;
  std::uintptr_t begin = 0;
  std::size_t size = 0;
};

// A queue of operations that run in order. Positions count from 1.
struct Stream {
  std::uint64_t id = 0;  // never used twice
  int device = 0;
  unsigned flags = 0;
  int priority = 0;
  bool legacy = false;
  bool destroyed = false;
  bool running = false;  // a host function of it runs, outside the lock
  std::deque<Operation> queue;
  std::uint64_t enqueued = 0;  // position of the last operation
  std::uint64_t completed = 0;
  std::size_t component = 0;         // of vector clocks
  VectorClock clock;                 // what happens before its next operation
  std::deque<HistoryEntry> history;  // the last few
  std::shared_ptr<Capture> capture;
  std::vector<std::size_t> capture_nodes;  // what the next captured operation depends on

  [[nodiscard]] bool blocking() const { return !legacy && (flags & kStreamNonBlocking) == 0; }
  [[nodiscard]] std::string label() const;
};

const char* kind_name(Operation::Kind kind);

}  // namespace berth::standin
