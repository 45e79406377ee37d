#include "csrc/standin/entry.h"

#include <cstring>
#include <utility>

namespace berth::standin {
namespace {

// A stream is asked for: the answer, and what the asker knows after it.
Status query(Entry& entry, const StreamPointer& stream) {
  Machine& machine = entry.machine;
  if (const Status status = machine.refuse_during_capture(*stream); status != kSuccess)
    return status;
  machine.advance(entry.lock, true);
  if (stream->completed < stream->enqueued) return kNotReady;
  machine.host_knows(stream->clock);
  return kSuccess;
}

int create_stream(StreamHandle* handle, unsigned flags, int priority) {
  Entry entry;
  if (handle == nullptr || (flags & ~kStreamNonBlocking) != 0) return remember(kInvalidValue);
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  const int device = Machine::current_device();
  entry.machine.use(device);
  *handle = Machine::handle_of(*entry.machine.make_stream(device, flags, priority));
  return kSuccess;
}

}  // namespace

extern "C" {

int cudaStreamCreate(StreamHandle* stream) {
  BERTH_STANDIN_ENTER();
  return create_stream(stream, 0, 0);
}

int cudaStreamCreateWithFlags(StreamHandle* stream, unsigned flags) {
  BERTH_STANDIN_ENTER();
  return create_stream(stream, flags, 0);
}

int cudaStreamCreateWithPriority(StreamHandle* stream, unsigned flags, int priority) {
  BERTH_STANDIN_ENTER();
  return create_stream(stream, flags, priority);
}

int cudaStreamDestroy(StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  return remember(entry.machine.destroy_stream(stream));
}

int cudaStreamQuery(StreamHandle stream) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(stream, query);
}

int cudaStreamSynchronize(StreamHandle handle) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    if (const Status status = entry.machine.refuse_during_capture(*stream); status != kSuccess)
      return status;
    const VectorClock clock = stream->clock;
    entry.machine.drain(entry.lock, *stream, stream->enqueued);
    entry.machine.host_knows(clock);
    return kSuccess;
  });
}

int cudaStreamWaitEvent(StreamHandle handle, EventHandle event_handle, unsigned flags) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    const std::shared_ptr<Event> event = entry.machine.event_of(event_handle);
    if (!event) return kInvalidResourceHandle;
    return entry.machine.wait_event(entry.lock, *stream, event, flags);
  });
}

int cudaStreamGetPriority(StreamHandle handle, int* priority) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry&, const StreamPointer& stream) {
    *priority = stream->priority;
    return kSuccess;
  });
}

int cudaStreamGetFlags(StreamHandle handle, unsigned* flags) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry&, const StreamPointer& stream) {
    *flags = stream->flags;
    return kSuccess;
  });
}

int cudaStreamGetId(StreamHandle handle, unsigned long long* id) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry&, const StreamPointer& stream) {
    *id = stream->id;
    return kSuccess;
  });
}

int cudaStreamGetDevice(StreamHandle handle, int* device) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry&, const StreamPointer& stream) {
    *device = stream->device;
    return kSuccess;
  });
}

int cudaStreamAddCallback(StreamHandle handle, void (*callback)(StreamHandle, int, void*),
                          void* data, unsigned /*flags*/) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    if (const Status status = entry.machine.refuse_during_capture(*stream); status != kSuccess)
      return status;
    Operation operation{.kind = Operation::Kind::kHost, .name = "cudaStreamAddCallback"};
    operation.work = [=] { callback(handle, kSuccess, data); };
    return entry.machine.enqueue(entry.lock, *stream, std::move(operation));
  });
}

int cudaLaunchHostFunc(StreamHandle handle, void (*function)(void*), void* data) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    Operation operation{.kind = Operation::Kind::kHost, .name = "cudaLaunchHostFunc"};
    operation.work = [=] { function(data); };
    return entry.machine.enqueue(entry.lock, *stream, std::move(operation));
  });
}

int cudaEventCreate(EventHandle* event) { return cudaEventCreateWithFlags(event, 0); }

int cudaEventCreateWithFlags(EventHandle* handle, unsigned flags) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  if (handle == nullptr ||
      ((flags & kEventInterprocess) != 0 && (flags & kEventDisableTiming) == 0)) {
    return remember(kInvalidValue);
  }
  if (entry.machine.devices.empty()) return remember(kInvalidDevice);
  auto event = std::make_shared<Event>();
  event->device = Machine::current_device();
  event->timing = (flags & kEventDisableTiming) == 0;
  entry.machine.use(event->device);
  *handle = entry.machine.add_event(std::move(event));
  return kSuccess;
}

int cudaEventDestroy(EventHandle event) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  return entry.machine.remove_event(event) ? kSuccess : remember(kInvalidResourceHandle);
}

int cudaEventRecord(EventHandle event, StreamHandle stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

int cudaEventRecordWithFlags(EventHandle event_handle, StreamHandle handle, unsigned flags) {
  BERTH_STANDIN_ENTER();
  return call_on_stream(handle, [&](Entry& entry, const StreamPointer& stream) {
    const std::shared_ptr<Event> event = entry.machine.event_of(event_handle);
    if (!event) return kInvalidResourceHandle;
    return entry.machine.record_event(entry.lock, *stream, event, flags);
  });
}

int cudaEventQuery(EventHandle handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Event> event = entry.machine.event_of(handle);
  if (!event) return remember(kInvalidResourceHandle);
  if (event->captured) return remember(kCapturedEvent);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  if (!event->record) return kSuccess;
  entry.machine.advance(entry.lock, true);
  if (!event->record->done) return remember(kNotReady);
  entry.machine.host_knows(event->record->clock);
  return kSuccess;
}

int cudaEventSynchronize(EventHandle handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Event> event = entry.machine.event_of(handle);
  if (!event) return remember(kInvalidResourceHandle);
  if (event->captured) return remember(kCapturedEvent);
  if (const Status status = entry.machine.refuse_during_capture(); status != kSuccess)
    return remember(status);
  if (!event->record) return kSuccess;
  const std::shared_ptr<EventRecord> record = event->record;
  entry.machine.drain(entry.lock, *record);
  entry.machine.host_knows(record->clock);
  return kSuccess;
}

// Counts a microsecond for each operation that ran in between, and what the kernels that pass time
// took.
int cudaEventElapsedTime(float* ms, EventHandle start_handle, EventHandle end_handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Event> start = entry.machine.event_of(start_handle);
  const std::shared_ptr<Event> end = entry.machine.event_of(end_handle);
  if (!start || !end || !start->record || !end->record || !start->timing || !end->timing ||
      start->device != end->device) {
    return remember(kInvalidResourceHandle);
  }
  if (!start->record->done || !end->record->done) return remember(kNotReady);
  *ms = 1e-3F *
        (static_cast<float>(end->record->time_us) - static_cast<float>(start->record->time_us));
  return kSuccess;
}

// The work before the event is done when its handle is made, so that the other process need not
// wait for ours.
int cudaIpcGetEventHandle(IpcHandle* handle, EventHandle event_handle) {
  BERTH_STANDIN_ENTER();
  Entry entry;
  const std::shared_ptr<Event> event = entry.machine.event_of(event_handle);
  if (!event) return remember(kInvalidResourceHandle);
  if (event->record) entry.machine.drain(entry.lock, *event->record);
  *handle = {};
  std::memcpy(handle->bytes, "berth event", 12);
  return kSuccess;
}

int cudaIpcOpenEventHandle(EventHandle* event, IpcHandle handle) {
  if (std::memcmp(handle.bytes, "berth event", 12) != 0) return remember(kInvalidValue);
  return cudaEventCreateWithFlags(event, kEventDisableTiming | kEventInterprocess);
}

}  // extern "C"
}  // namespace berth::standin
