#pragma once

#include "csrc/trace/trace.h"

#include <memory>
#include <string>
#include <string_view>

namespace berth {

// Writes what a running program asks for to a trace file.
//
// append() takes a tick from one atomic counter and stores the entry in a buffer of the calling
// thread: no lock, no system call, under 100 ns. A thread of the recorder writes full buffers, and
// all buffers every 25 ms, as chunks; so kill -9 loses at most 64 KiB or 100 ms a thread. Where
// writing fails (disk full) the recorder warns once ("trace-write"), drops what comes and the
// program goes on; the file ends at a whole chunk.
//
// The program never waits. Each live thread has 16 KiB for entries that are not written yet, of
// however many threads; what all need beyond that has a limit. An entry that finds no room is lost:
// counted, and warned of once ("trace-lost"), from the recorder's thread.
//
// Thread-safe. In a forked child append() does nothing. Never allocates through the allocator that
// it records, except by operator new.
class Recorder {
 public:
  // Of entries that wait to be written, of all threads together, beyond the 16 KiB of each.
  static constexpr Bytes kMaxWaiting = Bytes{64} << 20;

  // Creates the file (0600). Throws Error(kSystem) where it cannot.
  static std::unique_ptr<Recorder> open(const std::string& path, const trace::Program& program,
                                        Bytes alignment, Bytes max_waiting = kMaxWaiting);

  virtual ~Recorder() = default;

  // Records one entry, and returns its tick. noexcept: what finds no room is lost and counted.
  virtual trace::Tick append(const trace::Event& event) noexcept = 0;

  // Numbers for texts, shapes and lanes, the same for equal ones; each takes a lock, so callers
  // cache.
  virtual trace::StringId intern(std::string_view text) = 0;
  virtual std::uint32_t intern_shape(const std::int64_t* sizes, std::size_t count) = 0;
  virtual trace::LaneId lane(std::uint64_t key) = 0;

  // The number that the calling thread's entries carry.
  virtual trace::ThreadId thread() = 0;

  // Writes all that was recorded and closes the file. Later appends do nothing. Idempotent; never
  // throws.
  virtual void close() noexcept = 0;

  // Entries recorded and entries lost so far.
  struct Counts {
    std::uint64_t recorded = 0, lost = 0;
  };
  [[nodiscard]] virtual Counts counts() const noexcept = 0;
};

}  // namespace berth
