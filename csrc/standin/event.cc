// Events of Machine.

#include "csrc/standin/machine.h"

#include <algorithm>
#include <utility>

namespace berth::standin {

std::shared_ptr<Event> Machine::event_of(EventHandle handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->second;
}

EventHandle Machine::add_event(std::shared_ptr<Event> event) {
  const auto handle = reinterpret_cast<EventHandle>(event.get());
  events_.emplace(handle, std::move(event));
  return handle;
}

bool Machine::remove_event(EventHandle handle) { return events_.erase(handle) != 0; }

Status Machine::record_event(Lock& lock, Stream& stream, const std::shared_ptr<Event>& event,
                             unsigned flags) {
  if (event->device != stream.device) return kInvalidResourceHandle;
  if (stream.capture) {
    if (stream.capture->invalidated) return kStreamCaptureInvalidated;
    if ((flags & kExternal) != 0) {
      Operation operation{.kind = Operation::Kind::kRecord, .name = "cudaEventRecord"};
      operation.event = event;
      return capture_operation(stream, std::move(operation));
    }
    // Inside a capture an event stands for the nodes before it; it is no work.
    event->captured = true;
    event->capture = stream.capture;
    event->nodes = stream.capture_nodes;
    return kSuccess;
  }
  event->captured = false;
  event->capture.reset();
  event->record = std::make_shared<EventRecord>();
  Operation operation{.kind = Operation::Kind::kRecord, .name = "cudaEventRecord"};
  operation.record = event->record;
  return enqueue(lock, stream, std::move(operation));
}

Status Machine::wait_event(Lock& lock, Stream& stream, const std::shared_ptr<Event>& event,
                           unsigned flags) {
  if (event->captured) {
    const std::shared_ptr<Capture> capture = event->capture.lock();
    if (!capture || capture->over) return kCapturedEvent;
    if (capture->invalidated) return kStreamCaptureInvalidated;
    if (stream.capture && stream.capture != capture) {
      invalidate(*stream.capture);
      invalidate(*capture);
      return kStreamCaptureIsolation;
    }
    if (!stream.capture) {
      if (stream.legacy) return kStreamCaptureImplicit;
      // The stream joins the capture.
      stream.capture = capture;
      stream.capture_nodes.clear();
      for (const auto& other : streams_) {
        if (other.get() == &stream) capture->streams.push_back(other);
      }
    }
    for (const std::size_t node : event->nodes) {
      if (std::find(stream.capture_nodes.begin(), stream.capture_nodes.end(), node) ==
          stream.capture_nodes.end()) {
        stream.capture_nodes.push_back(node);
      }
    }
    return kSuccess;
  }
  if (stream.capture) {
    if (stream.capture->invalidated) return kStreamCaptureInvalidated;
    if ((flags & kExternal) != 0) {
      Operation operation{.kind = Operation::Kind::kWait, .name = "cudaStreamWaitEvent"};
      operation.event = event;
      return capture_operation(stream, std::move(operation));
    }
    invalidate(*stream.capture);
    return kStreamCaptureIsolation;
  }
  if (!event->record) return kSuccess;  // never recorded: nothing to wait for
  Operation operation{.kind = Operation::Kind::kWait, .name = "cudaStreamWaitEvent"};
  operation.record = event->record;
  return enqueue(lock, stream, std::move(operation));
}

}  // namespace berth::standin
