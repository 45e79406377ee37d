#pragma once

#include "csrc/standin/api.h"
#include "csrc/standin/machine.h"

#include <memory>
#include <utility>

namespace berth::standin {

// The machine and its lock, for the length of one entry point.
struct Entry {
  Machine& machine = Machine::get();
  Machine::Lock lock{machine.mutex};
};

using StreamPointer = std::shared_ptr<Stream>;

// What most entry points begin with: calls `use(entry, stream)` with the stream that a handle
// stands for in the calling thread. Returns its answer, or kInvalidResourceHandle for a handle that
// is unknown or destroyed.
template <class Use>
Status on_stream(StreamHandle handle, Use use) {
  Entry entry;
  const StreamPointer stream = entry.machine.stream_of(handle);
  Machine::has_context() = Machine::has_context() || stream;
  return stream ? use(entry, stream) : kInvalidResourceHandle;
}

// The same of the runtime, where a failure is the thread's last error.
template <class Use>
int call_on_stream(StreamHandle handle, Use use) {
  return remember(on_stream(handle, std::move(use)));
}

}  // namespace berth::standin
