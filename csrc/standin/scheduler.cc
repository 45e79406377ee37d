// Streams and the scheduler of Machine.

#include "csrc/standin/machine.h"
#include "csrc/standin/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace berth::standin {
namespace {

// The launch queue of a real GPU is as deep: whoever queues more waits.
constexpr std::size_t kQueueDepth = 1024;
constexpr std::size_t kHistory = 16;
// How long a thread sleeps that other processes may fail to wake, with and without a collective in
// a queue.
constexpr int kNapMs = 20;
constexpr int kSleepMs = 1000;

}  // namespace

std::string Stream::label() const { return fmt::format("stream {} of device {}", id, device); }

const char* kind_name(Operation::Kind kind) {
  switch (kind) {
    case Operation::Kind::kKernel:
      return "kernel";
    case Operation::Kind::kCopy:
      return "copy";
    case Operation::Kind::kMemset:
      return "memset";
    case Operation::Kind::kRecord:
      return "event record";
    case Operation::Kind::kWait:
      return "wait for an event";
    case Operation::Kind::kHost:
      return "host function";
    case Operation::Kind::kFree:
      return "free";
  }
  return "operation";
}

std::shared_ptr<Stream> Machine::make_stream(int device, unsigned flags, int priority) {
  auto stream = std::make_shared<Stream>();
  stream->id = next_stream_++;
  stream->device = device;
  stream->flags = flags;
  stream->priority = priority;
  streams_.push_back(stream);
  stream_handles_.emplace(handle_of(*stream), stream);
  return stream;
}

std::shared_ptr<Stream> Machine::stream_of(StreamHandle handle) {
  const int device = current_device();
  if (!valid_device(device)) return nullptr;
  if (handle == kDefaultStream || handle == kLegacyStream)
    return devices[static_cast<std::size_t>(device)]->legacy;
  if (handle == kPerThreadStream) {
    auto& stream = thread_streams_[{std::this_thread::get_id(), device}];
    if (!stream) stream = make_stream(device, 0, 0);
    return stream;
  }
  const auto found = stream_handles_.find(handle);
  return found == stream_handles_.end() ? nullptr : found->second;
}

Status Machine::destroy_stream(StreamHandle handle) {
  if (handle == kDefaultStream || handle == kLegacyStream || handle == kPerThreadStream)
    return kInvalidResourceHandle;
  const std::shared_ptr<Stream> stream = stream_of(handle);
  if (!stream) return kInvalidResourceHandle;
  // Work that is left is still done.
  stream->destroyed = true;
  stream_handles_.erase(handle);
  if (stream->queue.empty() && !stream->running) drop(stream);
  return kSuccess;
}

void Machine::drop(const std::shared_ptr<Stream>& stream) {
  // Who synchronises the device later knows of its work, too.
  device(stream->device).gone.join(stream->clock);
  std::erase(streams_, stream);
}

// What a kernel writes that says what it touches, a collective of NCCL's, is known where all is
// that it reads.
void Machine::follow_values(const Operation& operation) {
  bool all = true;
  for (const MemoryAccess& access : operation.accesses)
    all &= access.kind != Accesses::Kind::kRead || known.holds(access.begin, access.size);
  for (const MemoryAccess& access : operation.accesses) {
    if (access.kind == Accesses::Kind::kRead) continue;
    if (all)
      known.add(access.begin, access.size);
    else
      known.remove(access.begin, access.size);
  }
}

Status Machine::enqueue(Lock& lock, Stream& stream, Operation operation) {
  if (stream.capture) return capture_operation(stream, std::move(operation));
  if (options.feeds_values && operation.kind == Operation::Kind::kKernel) follow_values(operation);
  if (stream.legacy) {
    for (const auto& capture : captures_) {
      const auto origin = capture->origin.lock();
      if (origin && origin->blocking() && origin->device == stream.device) {
        invalidate(*capture);
        return kStreamCaptureImplicit;
      }
    }
  }
  if (stream.queue.size() >= kQueueDepth) drain(lock, stream, stream.enqueued - kQueueDepth / 2);
  // The legacy default stream waits for all blocking streams of the device, and they for it.
  const auto comes_after = [&](const std::shared_ptr<Stream>& other) {
    stream.clock.join(other->clock);
    if (other->completed < other->enqueued) operation.after.emplace_back(other, other->enqueued);
  };
  if (stream.legacy) {
    for (const auto& other : streams_) {
      if (other->device == stream.device && other->blocking()) comes_after(other);
    }
  } else if (stream.blocking()) {
    comes_after(devices[static_cast<std::size_t>(stream.device)]->legacy);
  }
  stream.clock.join(host_clock_);
  if (stream.enqueued == 0) {
    stream.component = components_.size();
    const auto self =
        std::ranges::find_if(streams_, [&](const auto& other) { return other.get() == &stream; });
    components_.push_back(self == streams_.end() ? std::weak_ptr<Stream>() : *self);
    component_labels_.push_back(stream.label());
  }
  ++stream.enqueued;
  stream.clock.raise({stream.component, stream.enqueued});
  if (operation.kind == Operation::Kind::kWait && operation.record)
    stream.clock.join(operation.record->clock);
  if (operation.kind == Operation::Kind::kRecord) {
    operation.record->clock = stream.clock;
    operation.record->stream = stream.label();
  }
  HistoryEntry entry{operation.kind, operation.name, stream.enqueued, 0, 0};
  if (!operation.accesses.empty()) {
    entry.begin = operation.accesses.back().begin;
    entry.size = operation.accesses.back().size;
  }
  stream.history.push_back(entry);
  if (stream.history.size() > kHistory) stream.history.pop_front();
  note_accesses(stream, operation);
  if (operation.meet) {
    operation.meeting = operation.meet();
    ++meetings_;
  }
  stream.queue.push_back(std::move(operation));
  ready(stream);
  advance(lock, false);
  if (meetings_ != 0 && attended_) Bell::ring(Bell::own().name());
  return kSuccess;
}

bool Machine::ready(Stream& stream) {
  if (stream.queue.empty() || stream.running) return false;
  Operation& head = stream.queue.front();
  for (const auto& [weak, position] : head.after) {
    const auto other = weak.lock();
    if (other && other->completed < position) return false;
  }
  if (head.kind == Operation::Kind::kWait && head.record && !head.record->done) return false;
  if (head.meeting && !head.meeting->proceed()) return false;
  if (head.spin.count() == 0) return true;
  const auto now = std::chrono::steady_clock::now();
  if (head.over == std::chrono::steady_clock::time_point{}) head.over = now + head.spin;
  return head.over <= now;
}

// A stream whose next operation may run, any of them, by the seed.
std::shared_ptr<Stream> Machine::pick() {
  const std::size_t count = streams_.size();
  const std::size_t start = count == 0 ? 0 : random_() % count;
  for (std::size_t i = 0; i < count; ++i) {
    const auto& stream = streams_[(start + i) % count];
    if (ready(*stream)) return stream;
  }
  return nullptr;
}

void Machine::execute(Lock& lock, const std::shared_ptr<Stream>& stream) {
  Operation operation = std::move(stream->queue.front());
  stream->queue.pop_front();
  clock_us_ += operation.clock_us +
               static_cast<std::uint64_t>(
                   std::chrono::duration_cast<std::chrono::microseconds>(operation.spin).count());
  if (operation.work) {
    if (operation.kind == Operation::Kind::kHost) {
      // The program's function may take its own locks, so it never runs under ours.
      stream->running = true;
      lock.unlock();
      operation.work();
      lock.lock();
      stream->running = false;
      progress_.notify_all();
    } else {
      operation.work();
    }
  }
  if (operation.kind == Operation::Kind::kRecord) {
    operation.record->done = true;
    operation.record->time_us = clock_us_;
  }
  if (operation.meeting) --meetings_;
  ++stream->completed;
  if (stream->destroyed && stream->queue.empty()) drop(stream);
}

std::size_t Machine::run(Lock& lock, std::size_t count) {
  for (std::size_t done = 0; done < count; ++done) {
    const std::shared_ptr<Stream> stream = pick();
    if (!stream) return done;
    execute(lock, stream);
  }
  return count;
}

void Machine::advance(Lock& lock, bool queried) {
  switch (pace_) {
    case Pace::kLazy:
      return;
    case Pace::kEager:
      run(lock, SIZE_MAX);
      return;
    // On average somewhat more than is queued, so that queues stay short but are seldom empty.
    case Pace::kRandom:
      run(lock, random_() % (queried ? 3 : 4));
      return;
  }
}

void Machine::drain_until(Lock& lock, const std::function<bool()>& done) {
  while (!done()) {
    if (const std::shared_ptr<Stream> stream = pick()) {
      execute(lock, stream);
      continue;
    }
    auto next = std::chrono::steady_clock::time_point::max();  // end of a kernel that takes time
    for (const auto& stream : streams_) {
      if (!stream->queue.empty() && stream->queue.front().spin.count() != 0 &&
          stream->queue.front().over != std::chrono::steady_clock::time_point{})
        next = std::min(next, stream->queue.front().over);
    }
    if (next != std::chrono::steady_clock::time_point::max()) {
      progress_.wait_until(lock, next);
    } else if (std::ranges::any_of(streams_, [](const auto& other) { return other->running; })) {
      progress_.wait(lock);
    } else if (meetings_ != 0) {
      progress_.wait_for(lock, std::chrono::milliseconds(kNapMs));
    } else {
      return;  // waits only for what was queued earlier, so all of it has run
    }
  }
}

void Machine::attend(std::function<void()> tend) {
  if (std::exchange(attended_, true)) return;
  std::thread([this, tend = std::move(tend)] {
    bool busy = false;
    for (;;) {
      Bell::own().wait(busy ? kNapMs : kSleepMs);
      Lock lock(mutex);
      busy = meetings_ != 0;
      if (busy && run(lock, SIZE_MAX) != 0) progress_.notify_all();
      tend();
    }
  }).detach();
}

void Machine::drain(Lock& lock, Stream& stream, std::uint64_t position) {
  drain_until(lock, [&] { return stream.completed >= position; });
}

void Machine::drain(Lock& lock, EventRecord& record) {
  drain_until(lock, [&] { return record.done; });
}

void Machine::drain_device(Lock& lock, int device) {
  drain_until(lock, [&] {
    return std::ranges::none_of(streams_, [&](const auto& stream) {
      return stream->device == device && (!stream->queue.empty() || stream->running);
    });
  });
  for (const auto& stream : streams_) {
    if (stream->device == device) host_knows(stream->clock);
  }
  host_knows(this->device(device).gone);
}

}  // namespace berth::standin
